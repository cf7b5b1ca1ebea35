//! Protocol between the server and a context, on one Unix socket.
//!
//! A frame is a line of words, the last of which is the length of the body in bytes, followed by the body.
//! The text header is easy to parse in every language that has a shim.
//!
//! | to the shim | |
//! |---|---|
//! | `H k LEN` JSON | parts of handler number k. The reply is `= b` |
//! | `B k JOBS MODE 0` | batch for handler k with JOBS `J` frames; MODE: `each`, or `all` for one run |
//! | `J ID ATTEMPT LEN` payload | one job |
//! | `M JOBS 0` | JOBS further jobs of the batch follow |
//! | `E 0` | end of the batch: run afterEach |
//!
//! | from the shim | |
//! |---|---|
//! | `# ready 0` | the shim is ready |
//! | `= WHAT STATUS LEN` result | end of a part, see below |
//! | `+ 1 LEN` or `+ 2 LEN` output | standard output or error of the running part |
//! | `= c 200 0` | remaining jobs of this `B` or `M` not started (out of time); sent again or released |
//! | `+ 3 LEN` result | result, from the shell shim, which sends results and ends separately |
//!
//! WHAT is `b` (before), `e` (beforeEach), the number of a job in the batch, `B` (body of a whole batch) or
//! `a` (afterEach).
//!
//! STATUS is a three-digit number; `x` and an exit code; `!` for an exception; `?` for a return value that is
//! not a status; `>` for a result that is too large. The guard process sends messages of its own before and
//! after: `# holds`, `# pid`, `# fault`, `# ended`.

use bytes::{Buf, Bytes, BytesMut};
use std::io;
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;

/// Longest header line.
const HEADER_BYTES_MAX: usize = 100;
/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Reply {
        what: What,
        status: ReplyStatus,
        data: Bytes,
    },
    Output {
        stream: u8,
        bytes: Bytes,
    },
    /// Message `# word` with its text.
    Word {
        word: String,
        text: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Before,
    BeforeEach,
    /// Index of the job in the batch.
    Job(usize),
    WholeBatch,
    AfterEach,
    /// The remaining jobs that were sent were not started.
    Rest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyStatus {
    Status(u16),
    Exit(i32),
    Exception,
    NoStatus,
    TooMuch,
}

pub(super) fn guard_frame(word: &str, text: &str) -> Vec<u8> {
    format!("# {word} {}\n{text}", text.len()).into_bytes()
}

/// Parses all messages of a guard process.
pub(super) fn words(mut said: &[u8]) -> Vec<(String, String)> {
    let mut words = Vec::new();
    while let Some(end) = said.iter().position(|byte| *byte == b'\n') {
        let header = String::from_utf8_lossy(&said[..end]).into_owned();
        let mut parts = header.split(' ').skip(1);
        let (Some(word), Some(Ok(length))) = (parts.next(), parts.next().map(str::parse::<usize>)) else {
            break;
        };
        let Some(text) = said.get(end + 1..).and_then(|rest| rest.get(..length)) else { break };
        words.push((word.to_owned(), String::from_utf8_lossy(text).into_owned()));
        said = &said[end + 1 + length..];
    }
    words
}

fn nonsense(header: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("invalid message from the handler process: {header:?}"),
    )
}

fn kind(header: &str, body: &Bytes) -> Option<Frame> {
    let mut words = header.split(' ');
    let frame = match words.next()? {
        "=" => {
            let what = match words.next()? {
                "b" => What::Before,
                "e" => What::BeforeEach,
                "B" => What::WholeBatch,
                "a" => What::AfterEach,
                "c" => What::Rest,
                number => What::Job(number.parse().ok()?),
            };
            Frame::Reply { what, status: status(words.next()?)?, data: body.clone() }
        }
        "+" => Frame::Output { stream: words.next()?.parse().ok()?, bytes: body.clone() },
        "#" => {
            let text = String::from_utf8_lossy(body).into_owned();
            Frame::Word { word: words.next()?.to_owned(), text }
        }
        _ => return None,
    };
    // The length must be the last word.
    words.next()?;
    words.next().is_none().then_some(frame)
}

fn status(word: &str) -> Option<ReplyStatus> {
    match word {
        "!" => Some(ReplyStatus::Exception),
        "?" => Some(ReplyStatus::NoStatus),
        ">" => Some(ReplyStatus::TooMuch),
        _ => match word.strip_prefix('x') {
            Some(code) => code.parse().ok().map(ReplyStatus::Exit),
            None => word.parse().ok().filter(|code| (100..=599).contains(code)).map(ReplyStatus::Status),
        },
    }
}

/// Reader of frames.
pub(super) struct Frames<R = OwnedReadHalf> {
    from: R,
    buffer: BytesMut,
    body_bytes_max: usize,
}

impl<R: AsyncReadExt + Unpin> Frames<R> {
    pub(super) fn new(from: R, body_bytes_max: usize) -> Frames<R> {
        Frames { from, buffer: BytesMut::new(), body_bytes_max }
    }

    /// Returns the next frame if it is complete. A frame that is too large is a `FileTooLarge` error.
    pub(super) fn take(&mut self) -> io::Result<Option<Frame>> {
        let looked_at = &self.buffer[..self.buffer.len().min(HEADER_BYTES_MAX)];
        let Some(end) = looked_at.iter().position(|byte| *byte == b'\n') else {
            return match looked_at.len() {
                HEADER_BYTES_MAX => Err(nonsense(&String::from_utf8_lossy(looked_at))),
                _ => Ok(None),
            };
        };
        let header = std::str::from_utf8(&looked_at[..end]).map_err(|_| nonsense("not UTF-8"))?;
        let length: usize = header
            .rsplit_once(' ')
            .and_then(|(_, length)| length.parse().ok())
            .ok_or_else(|| nonsense(header))?;
        if length > self.body_bytes_max {
            kind(header, &Bytes::new()).ok_or_else(|| nonsense(header))?;
            let message = format!("a frame of {length} bytes; the maximum is {}", self.body_bytes_max);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        if self.buffer.len() < end + 1 + length {
            return Ok(None);
        }
        let header = header.to_owned();
        self.buffer.advance(end + 1);
        let body = self.buffer.split_to(length).freeze();
        kind(&header, &body).map(Some).ok_or_else(|| nonsense(&header))
    }

    /// Reads more bytes; cancel-safe. `false` at end of file.
    pub(super) async fn fill(&mut self) -> io::Result<bool> {
        self.buffer.reserve(READ_BYTES);
        Ok(self.from.read_buf(&mut self.buffer).await? > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &str) -> Result<Vec<Frame>, String> {
        let mut frames = Frames::new(text.as_bytes(), 20);
        let mut all = Vec::new();
        loop {
            match frames.take() {
                Ok(Some(frame)) => all.push(frame),
                Ok(None) if frames.fill().await.unwrap() => {}
                Ok(None) => return Ok(all),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    #[tokio::test]
    async fn frames_follow_one_another() {
        let told = read("# ready 0\n= b x0 0\n+ 1 3\nab\n= 7 204 4\ndata= B ! 0\n+ 1 9\ncut").await.unwrap();
        let reply = |what, status, data: &'static str| Frame::Reply { what, status, data: data.into() };
        let expected = [
            Frame::Word { word: "ready".into(), text: String::new() },
            reply(What::Before, ReplyStatus::Exit(0), ""),
            Frame::Output { stream: 1, bytes: "ab\n".into() },
            reply(What::Job(7), ReplyStatus::Status(204), "data"),
            reply(What::WholeBatch, ReplyStatus::Exception, ""),
        ];
        assert_eq!(told, expected);
    }

    #[tokio::test]
    async fn nonsense_is_an_error_and_takes_no_memory() {
        for bad in [
            "what?\n",
            "= 1 200\n",
            "= 1 99 0\n",
            "= 1 200 99999999999999999999\n",
            "= 1 200 0 0\n",
            "= -1 200 0\n",
            "+ x 0\n",
            "\n",
            "\u{00e9} 0\n",
        ] {
            assert!(read(bad).await.unwrap_err().contains("invalid message"), "{bad:?}");
        }
        assert!(read(&"x".repeat(200)).await.is_err());
        assert!(read("= 1 200 21\n").await.unwrap_err().contains("21 bytes; the maximum is 20"));
    }
}
