//! Framing: bytes to requests, replies to bytes. No access to sockets or the engine.
//!
//! ```text
//! CreateJob                          method line: a verb; text after it, as HTTP clients send, is ignored
//! name: mail                         headers; backslashes in a value are escapes: \n \t \\ \" \u00e9
//! data: {"to":
//!   "ada"}                           a line that begins with a space continues the value above
//!                                    an empty line ends the head
//! ```
//!
//! [`Parser`] takes bytes in pieces of any size and returns whole requests, in time linear in the bytes. A
//! body is counted and discarded: no command reads it.

use escapes::{escape, unescaped};
use std::borrow::Cow;

// With an explicit path, because the fuzz target includes this file from another folder.
#[path = "wire/escapes.rs"]
mod escapes;
#[cfg(test)]
mod tests;

/// Shorter input is not scanned: no request is that short.
const REQUEST_BYTES_MIN: usize = 4;
/// Longest chunk header or trailer line.
const CHUNK_LINE_BYTES_MAX: usize = 8 * 1024;
/// Consumed bytes are removed from the buffer beyond this number, so that each byte is moved only a few
/// times.
const COMPACT_BYTES: usize = 64 * 1024;
/// Buffer capacity that a connection keeps after a large request.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Limits of one request.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Method line and headers. Data travels in a header, so the limit is large.
    pub head_bytes_max: usize,
    /// A header costs far more memory than its bytes.
    pub headers_max: usize,
}

impl Default for RequestLimits {
    /// Fits the largest payload with every character escaped, and more headers than any client sends.
    fn default() -> Self {
        RequestLimits { head_bytes_max: 64 << 20, headers_max: 1_000 }
    }
}

/// Error after which the start of the next request is unknown, so that the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Length that is not a number. The protocol closes the connection without a reply.
    BadLength,
    HeadTooLarge,
    TooManyHeaders,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Header {
    /// Lower case.
    name: String,
    value: String,
    /// The value was valid UTF-8.
    is_text: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Request {
    /// Method line, trimmed.
    pub line: String,
    headers: Vec<Header>,
}

impl Request {
    /// Builds a request without parsing, for internal commands and tests.
    pub fn new(line: &str, headers: &[(&str, &str)]) -> Request {
        let header = |(name, value): &(&str, &str)| Header {
            name: name.to_ascii_lowercase(),
            value: (*value).to_owned(),
            is_text: true,
        };
        Request { line: line.to_owned(), headers: headers.iter().map(header).collect() }
    }

    /// First word of the method line.
    pub fn verb(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }

    /// Rest of the method line.
    pub fn tail(&self) -> &str {
        self.line.split_once(' ').map_or("", |(_, tail)| tail.trim_matches(' '))
    }

    /// Returns the last header of this name. `name` must be in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        debug_assert!(
            !name.bytes().any(|byte| byte.is_ascii_uppercase()),
            "{name} is compared with small letters"
        );
        self.headers.iter().rev().find(|header| header.name == name).map(|header| header.value.as_str())
    }

    /// Returns the header if it is present and not empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Approximate memory of the request.
    pub fn bytes(&self) -> usize {
        let header = |header: &Header| header.name.len() + header.value.len() + size_of::<Header>();
        self.line.len() + self.headers.iter().map(header).sum::<usize>()
    }

    /// Removes a header. `name` must be in lower case.
    pub fn without(mut self, name: &str) -> Request {
        self.headers.retain(|header| header.name != name);
        self
    }

    /// Names of headers whose value was not UTF-8.
    pub fn garbled(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().filter(|header| !header.is_text).map(|header| header.name.as_str())
    }
}

/// Reply. The protocol fixes the order of headers: by name, `Content-Length` last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: Cow<'static, str>,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn new(status: impl Into<Cow<'static, str>>) -> Reply {
        Reply { status: status.into(), headers: Vec::new(), body: Vec::new() }
    }

    pub fn ok() -> Reply {
        Reply::new("200 OK")
    }

    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Reply {
        self.body = body.into();
        self
    }

    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name, value.into()));
        self
    }

    pub fn is_ok(&self) -> bool {
        self.status.starts_with("200")
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        let mut headers: Vec<&(&str, String)> = self.headers.iter().collect();
        headers.sort_by_key(|(name, _)| name.to_ascii_lowercase());
        out.extend_from_slice(self.status.as_bytes());
        out.extend_from_slice(b"\r\n");
        for (name, value) in headers {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            escape(value, out);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", self.body.len()).as_bytes());
        out.extend_from_slice(&self.body);
    }
}

/// Position in the stream.
#[derive(Debug, Default)]
enum Place {
    #[default]
    Head,
    /// `left` bytes of the request's body are missing.
    Body {
        request: Request,
        left: u64,
    },
    /// Before the line with the length of the next chunk.
    ChunkLength {
        request: Request,
    },
    Chunk {
        request: Request,
        left: u64,
    },
    /// Before the line end that follows the bytes of a chunk.
    ChunkEnd {
        request: Request,
    },
    /// In the lines after the last chunk, up to an empty line.
    Trailer {
        request: Request,
    },
}

#[derive(Debug, Default)]
pub struct Parser {
    limits: RequestLimits,
    buffer: Vec<u8>,
    /// Bytes before this index are consumed.
    start: usize,
    /// Bytes from `start` that contain no end of a head.
    scanned: usize,
    place: Place,
}

/// Result of one parser step.
enum Step {
    Request(Request),
    Go,
    NeedMore,
}

impl Parser {
    pub fn new(limits: RequestLimits) -> Parser {
        Parser { limits, ..Parser::default() }
    }

    /// Changes the limit after the client has authenticated.
    pub fn set_head_bytes_max(&mut self, bytes: usize) {
        self.limits.head_bytes_max = bytes;
    }

    /// Parses the complete lines of an unfinished head as a request.
    pub fn begun(&self) -> Option<Request> {
        let whole = self.rest().iter().rposition(|byte| *byte == b'\n')?;
        matches!(self.place, Place::Head)
            .then(|| read_head(&self.rest()[..whole], self.limits.headers_max).ok())?
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the buffer with room for at least `bytes` more; appending to it is the same as
    /// [`Parser::feed`].
    pub fn room(&mut self, bytes: usize) -> &mut Vec<u8> {
        self.buffer.reserve(bytes);
        &mut self.buffer
    }

    /// Bytes in the buffer that belong to no returned request.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// True between two requests, when no byte of the next one has arrived.
    pub fn is_idle(&self) -> bool {
        matches!(self.place, Place::Head) && self.rest().iter().all(|byte| matches!(byte, b'\r' | b'\n'))
    }

    /// Returns the next whole request; `None`: more bytes are needed. No request follows an error.
    pub fn take(&mut self) -> Result<Option<Request>, Broken> {
        loop {
            match self.step()? {
                Step::Request(request) => return Ok(Some(request)),
                Step::Go => {}
                Step::NeedMore => return Ok(None),
            }
        }
    }

    fn step(&mut self) -> Result<Step, Broken> {
        match std::mem::take(&mut self.place) {
            Place::Head => self.head(),
            Place::Body { request, left } => {
                let left = self.skip(left);
                if left == 0 {
                    return Ok(Step::Request(request));
                }
                self.place = Place::Body { request, left };
                Ok(Step::NeedMore)
            }
            Place::ChunkLength { request } => self.chunk_length(request),
            Place::Chunk { request, left } => {
                let left = self.skip(left);
                let is_over = left == 0;
                self.place =
                    if is_over { Place::ChunkEnd { request } } else { Place::Chunk { request, left } };
                Ok(if is_over { Step::Go } else { Step::NeedMore })
            }
            Place::ChunkEnd { request } => match self.line()? {
                Some(line) if line.is_empty() => {
                    self.place = Place::ChunkLength { request };
                    Ok(Step::Go)
                }
                Some(_) => Err(Broken::BadLength),
                None => {
                    self.place = Place::ChunkEnd { request };
                    Ok(Step::NeedMore)
                }
            },
            Place::Trailer { request } => match self.line()? {
                Some(line) if line.is_empty() => Ok(Step::Request(request)),
                line => {
                    self.place = Place::Trailer { request };
                    Ok(if line.is_some() { Step::Go } else { Step::NeedMore })
                }
            },
        }
    }

    fn head(&mut self) -> Result<Step, Broken> {
        if self.scanned == 0 {
            let blank = self.rest().iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            self.consume(blank);
        }
        if self.pending() < REQUEST_BYTES_MIN {
            return Ok(Step::NeedMore);
        }
        let end = match end_of_head(self.rest(), self.scanned) {
            Ok(end) => end,
            Err(scanned) => {
                self.scanned = scanned;
                let is_too_large = self.pending() > self.limits.head_bytes_max;
                return if is_too_large { Err(Broken::HeadTooLarge) } else { Ok(Step::NeedMore) };
            }
        };
        if end > self.limits.head_bytes_max {
            return Err(Broken::HeadTooLarge);
        }
        let request = read_head(&self.rest()[..end], self.limits.headers_max)?;
        self.consume(end);
        let is_chunked =
            request.get("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
        self.place = if is_chunked {
            Place::ChunkLength { request }
        } else {
            Place::Body { left: content_length(&request)?, request }
        };
        Ok(Step::Go)
    }

    fn chunk_length(&mut self, request: Request) -> Result<Step, Broken> {
        let Some(line) = self.line()? else {
            self.place = Place::ChunkLength { request };
            return Ok(Step::NeedMore);
        };
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let digits = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'));
        let left = digits.and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or(Broken::BadLength)?;
        self.place = match left {
            0 => Place::Trailer { request },
            left => Place::Chunk { request, left },
        };
        Ok(Step::Go)
    }

    /// Returns the next line without its line end; `None`: it is incomplete.
    fn line(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let rest = self.rest();
        match rest.iter().take(CHUNK_LINE_BYTES_MAX).position(|byte| *byte == b'\n') {
            Some(end) => {
                let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]).to_vec();
                self.consume(end + 1);
                Ok(Some(line))
            }
            None if rest.len() >= CHUNK_LINE_BYTES_MAX => Err(Broken::BadLength),
            None => Ok(None),
        }
    }

    /// Discards up to `left` bytes and returns the number of bytes still missing.
    fn skip(&mut self, left: u64) -> u64 {
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(self.pending());
        self.consume(here);
        left - here as u64
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.scanned = 0;
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
            self.buffer.shrink_to(KEPT_BYTES_MAX);
        } else if self.start > COMPACT_BYTES && self.start > self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
    }
}

/// Finds the end of a head: `\n\n` or `\r\n\r\n`; `\n\r\n` is not an end. `Err` holds the index to resume the
/// search from.
fn end_of_head(bytes: &[u8], from: usize) -> Result<usize, usize> {
    let mut at = from;
    while let Some(newline) = bytes[at..].iter().position(|byte| *byte == b'\n').map(|offset| at + offset) {
        match &bytes[newline + 1..] {
            [b'\n', ..] => return Ok(newline + 2),
            [b'\r', b'\n', ..] if newline > 0 && bytes[newline - 1] == b'\r' => return Ok(newline + 3),
            [] | [b'\r'] => return Err(newline),
            _ => at = newline + 1,
        }
    }
    Err(bytes.len())
}

fn read_head(head: &[u8], headers_max: usize) -> Result<Request, Broken> {
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut line = lines.next().unwrap_or_default().to_vec();
    // Raw names and values; folded lines are joined before anything is trimmed or unescaped.
    let mut raw: Vec<(&[u8], Vec<u8>)> = Vec::new();
    for next in lines.filter(|line| !line.is_empty()) {
        if matches!(next[0], b' ' | b'\t') {
            raw.last_mut().map_or(&mut line, |(_, value)| value).extend_from_slice(next);
            continue;
        }
        if raw.len() == headers_max {
            return Err(Broken::TooManyHeaders);
        }
        let colon = next.iter().position(|byte| *byte == b':').unwrap_or(next.len());
        raw.push((&next[..colon], next.get(colon + 1..).unwrap_or_default().to_vec()));
    }
    let headers = raw.into_iter().map(|(name, value)| header(name, &value)).collect();
    Ok(Request { line: String::from_utf8_lossy(trim_spaces(&line)).into_owned(), headers })
}

fn header(name: &[u8], value: &[u8]) -> Header {
    let value = unescaped(trim_spaces(value));
    let (value, is_text) = match String::from_utf8(value) {
        Ok(text) => (text, true),
        Err(garbled) => (String::from_utf8_lossy(garbled.as_bytes()).into_owned(), false),
    };
    Header { name: String::from_utf8_lossy(trim_spaces(name)).to_ascii_lowercase(), value, is_text }
}

/// Trims spaces, but not tabs.
fn trim_spaces(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|byte| *byte != b' ').unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| *byte != b' ').map_or(start, |last| last + 1);
    &bytes[start..end]
}

fn content_length(request: &Request) -> Result<u64, Broken> {
    match request.get("content-length") {
        None => Ok(0),
        Some(text) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse().map_err(|_| Broken::BadLength)
        }
        Some(_) => Err(Broken::BadLength),
    }
}
