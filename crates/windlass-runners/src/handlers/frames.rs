//! What the server and a context say to each other, on one socket.
//!
//! A frame is a line of words whose last one is a number of bytes, and so many bytes. Words are easy to read in every
//! language a shim is written in.
//!
//! | to the shim | |
//! |---|---|
//! | `H k LEN` JSON | handler number k: its parts. Answered with `= b` |
//! | `B k JOBS MODE 0` | a batch for handler k begins, so many `J` follow; MODE is `each`, or `all` to run them as a whole |
//! | `J ID ATTEMPT LEN` payload | one job |
//! | `M JOBS 0` | so many further jobs of the batch follow |
//! | `E 0` | no further jobs: afterEach is run |
//!
//! | from the shim | |
//! |---|---|
//! | `# ready 0` | it listens |
//! | `= WHAT STATUS LEN` result | the end of `b`efore, before`e`ach, a job (its number in the batch), the `B`ody of a whole batch, `a`fterEach |
//! | `+ 1 LEN` or `+ 2 LEN` output | standard output or error of what runs now |
//! | `= c 200 0` | the other jobs of this `B` or `M` were not begun: their time was over. They are sent again, or given back |
//! | `+ 3 LEN` result | from the shell, which tells results and ends apart |
//!
//! STATUS is a number of three digits; `x` and an exit code; `!` when it ended with an exception, `?` when what it gave back is
//! no status, `>` when its result is too large. The guard has its own words before and after: `# holds`, `# pid`, `# fault`, `# ended`.

use bytes::{Buf, Bytes, BytesMut};
use std::io;
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;

/// The words of a frame.
const HEADER_BYTES_MAX: usize = 100;
/// What is read at once.
const READ_BYTES: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Reply {
        what: What,
        status: ReplyStatus,
        data: Bytes,
    },
    Output {
        stream: u8,
        bytes: Bytes,
    },
    /// `# word`, and what goes with it.
    Word {
        word: String,
        text: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Before,
    BeforeEach,
    /// Its place in the batch.
    Job(usize),
    WholeBatch,
    AfterEach,
    /// The rest of the jobs that were sent were not begun.
    Rest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStatus {
    Status(u16),
    Exit(i32),
    Exception,
    NoStatus,
    TooMuch,
}

pub fn guard_frame(word: &str, text: &str) -> Vec<u8> {
    format!("# {word} {}\n{text}", text.len()).into_bytes()
}

/// What a guard has said, from its first word to its last.
pub fn words(mut said: &[u8]) -> Vec<(String, String)> {
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
    io::Error::new(io::ErrorKind::InvalidData, format!("nonsense from the context: {header:?}"))
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
    // The length, and then nothing.
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

/// Frames as they arrive.
pub struct Frames<R = OwnedReadHalf> {
    from: R,
    buffer: BytesMut,
    body_bytes_max: usize,
}

impl<R: AsyncReadExt + Unpin> Frames<R> {
    pub fn new(from: R, body_bytes_max: usize) -> Frames<R> {
        Frames { from, buffer: BytesMut::new(), body_bytes_max }
    }

    /// The next one, if it is here as a whole. One that is too large is an error of its own kind, `FileTooLarge`.
    pub fn take(&mut self) -> io::Result<Option<Frame>> {
        let looked_at = &self.buffer[..self.buffer.len().min(HEADER_BYTES_MAX)];
        let Some(end) = looked_at.iter().position(|byte| *byte == b'\n') else {
            return match looked_at.len() {
                HEADER_BYTES_MAX => Err(nonsense(&String::from_utf8_lossy(looked_at))),
                _ => Ok(None),
            };
        };
        let header = std::str::from_utf8(&looked_at[..end]).map_err(|_| nonsense("not text"))?;
        let length: usize = header
            .rsplit_once(' ')
            .and_then(|(_, length)| length.parse().ok())
            .ok_or_else(|| nonsense(header))?;
        if length > self.body_bytes_max {
            kind(header, &Bytes::new()).ok_or_else(|| nonsense(header))?;
            let message = format!("a frame of {length} bytes, over {}", self.body_bytes_max);
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

    /// Reads on; can be dropped at any time. `false` at the end.
    pub async fn fill(&mut self) -> io::Result<bool> {
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
            assert!(read(bad).await.unwrap_err().contains("nonsense"), "{bad:?}");
        }
        assert!(read(&"x".repeat(200)).await.is_err());
        assert!(read("= 1 200 21\n").await.unwrap_err().contains("21 bytes, over 20"));
    }
}
