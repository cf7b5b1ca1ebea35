//! Minimal HTTP/1.1 client for load generation: keep-alive, bodies with Content-Length. It shares the machine
//! with the server under test, so a request is one write, one or two reads, and no allocation.

use super::client::parse_digits;
use super::wire::Wire;
use std::io;

/// Longest response head; a longer one is not HTTP.
const HEAD_BYTES_MAX: usize = 16 * 1024;

pub(super) struct Http {
    wire: Wire,
    /// Bytes of the last response, still in the buffer.
    handed_out: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Length of the head including the blank line.
    bytes: usize,
    content_length: usize,
}

impl Http {
    pub(super) async fn connect(address: &str) -> io::Result<Http> {
        Ok(Http { wire: Wire::connect(address).await?, handed_out: 0 })
    }

    /// Sends a complete request and returns the body of a 2xx response.
    pub(super) async fn exchange(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        self.wire.consume(self.handed_out);
        self.handed_out = 0;
        self.wire.send(request).await?;
        let head = loop {
            match parse_head(self.wire.unread())? {
                Some(head) => break head,
                None => self.wire.fill().await?,
            }
        };
        let bytes = head.bytes + head.content_length;
        self.wire.fill_to(bytes).await?;
        self.handed_out = bytes;
        let body = &self.wire.unread()[head.bytes..bytes];
        match head.status {
            200..=299 => Ok(body),
            status => Err(io::Error::other(format!("status {status}: {}", String::from_utf8_lossy(body)))),
        }
    }
}

/// Constant part of a request.
pub(super) struct RequestHead(Vec<u8>);

impl RequestHead {
    pub(super) fn post(path: &str, host: &str, content_type: &str, token: Option<&str>) -> RequestHead {
        let mut head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: {content_type}\r\n");
        if let Some(token) = token {
            head.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        head.push_str("content-length: ");
        RequestHead(head.into_bytes())
    }

    /// Replaces the content of `out` with a request that has this body.
    pub(super) fn write(&self, body: &[u8], out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.0);
        push_number(body.len(), out);
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(body);
    }
}

fn push_number(number: usize, out: &mut Vec<u8>) {
    if number >= 10 {
        push_number(number / 10, out);
    }
    out.push(b'0' + (number % 10) as u8);
}

/// Parses the response head; `None` if it is incomplete.
fn parse_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() > HEAD_BYTES_MAX { Err(not_http(bytes)) } else { Ok(None) };
    };
    let mut lines = bytes[..end].split(|byte| *byte == b'\n');
    let status = lines.next().and_then(parse_status).ok_or_else(|| not_http(bytes))?;
    let content_length = lines.find_map(content_length).ok_or_else(|| not_http(bytes))?;
    Ok(Some(Head { status, bytes: end + 4, content_length }))
}

fn parse_status(line: &[u8]) -> Option<u16> {
    let status = line.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    parse_digits(status).map(|status| status as u16)
}

fn content_length(line: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let name = line.get(..NAME.len())?;
    if !name.eq_ignore_ascii_case(NAME) {
        return None;
    }
    parse_digits(line[NAME.len()..].trim_ascii()).map(|length| length as usize)
}

fn not_http(bytes: &[u8]) -> io::Error {
    let beginning = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
    io::Error::other(format!("not an HTTP/1.1 response with a Content-Length: {beginning:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: &str, expected: Option<(u16, usize, usize)>) {
        let head = parse_head(answer.as_bytes()).unwrap();
        assert_eq!(head.map(|head| (head.status, head.bytes, head.content_length)), expected);
    }

    #[test]
    fn a_head_gives_status_and_length() {
        check("HTTP/1.1 201 Created\r\nContent-Length: 12\r\n\r\n{\"ids\":[1]}\n", Some((201, 44, 12)));
        check("HTTP/1.1 200 OK\r\nx: y\r\ncontent-length:0\r\n\r\n", Some((200, 43, 0)));
    }

    #[test]
    fn a_head_may_arrive_in_pieces() {
        check("", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", None);
    }

    #[test]
    fn what_is_not_http_is_an_error() {
        for answer in ["SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"] {
            assert!(parse_head(answer.as_bytes()).is_err(), "{answer}");
        }
        assert!(parse_head(&[b'x'; HEAD_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn a_request_names_the_length_of_its_body() {
        let head = RequestHead::post("/p", "h:1", "application/json", Some("t"));
        let mut out = b"old".to_vec();
        head.write(b"0123456789", &mut out);
        let expected = "POST /p HTTP/1.1\r\nhost: h:1\r\ncontent-type: application/json\r\n\
                        authorization: Bearer t\r\ncontent-length: 10\r\n\r\n0123456789";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
