//! Minimal HTTP/1.1 client for the command line: one keep-alive connection, requests with Content-Length,
//! responses with Content-Length or chunked. Written by hand because a blocking client that can be
//! interrupted from another thread is enough, and libraries bring a runtime or another TLS stack.

use super::tls;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a connect; far shorter than the time limit of a call, so that a missing server is reported
/// early.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Longest response head. Windlass sends a few hundred bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Largest response body: a page of jobs with maximal payloads is smaller. Bounds memory against a hostile
/// server.
const BODY_BYTES_MAX: u64 = 1 << 30;

/// Parsed URL `http[s]://HOST[:PORT][/PREFIX]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub is_https: bool,
    host: String,
    port: u16,
    prefix: String,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Address, String> {
        let (is_https, rest) = match url.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some((scheme, _)) => {
                return Err(format!(
                    "{url}: unsupported scheme {scheme}://; use http://HOST:PORT or https://HOST:PORT"
                ));
            }
            None => (false, url),
        };
        let (authority, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let bad = || format!("{url:?} is not a server URL; use the form http://127.0.0.1:7373");
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| bad())?),
            _ => (authority, if is_https { 443 } else { 80 }),
        };
        if host.is_empty()
            || host.contains(['@', ' ', '\r', '\n', '?', '#'])
            || prefix.contains(['\r', '\n', ' '])
        {
            return Err(bad());
        }
        Ok(Address {
            is_https,
            host: host.to_string(),
            port,
            prefix: prefix.trim_end_matches('/').to_string(),
        })
    }

    /// Host without the brackets of an IPv6 address.
    pub(super) fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// True if the host is this machine by its loopback address or as localhost.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.bare_host();
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let host = self.bare_host();
        let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
        for address in (host, self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}{}", self.host, self.port, self.prefix)
    }
}

pub(super) struct Request<'a> {
    pub method: &'a str,
    /// Path and query, already escaped.
    pub path: &'a str,
    pub token: Option<&'a str>,
    pub body: Option<&'a [u8]>,
    /// Time limit of the response.
    pub patience: Duration,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    /// Header `Date`, as sent.
    pub date: Option<String>,
}

pub(super) struct Connection {
    stream: BufReader<Wire>,
    keep: bool,
}

/// Plain or TLS stream.
enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    fn socket(&self) -> &TcpStream {
        match self {
            Wire::Plain(socket) => socket,
            Wire::Tls(stream) => stream.get_ref(),
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(socket) => socket.read(buf),
            Wire::Tls(stream) => stream.read(buf),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(socket) => socket.write(buf),
            Wire::Tls(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Plain(socket) => socket.flush(),
            Wire::Tls(stream) => stream.flush(),
        }
    }
}

impl Connection {
    pub(super) fn open(address: &Address, tls: Option<&Arc<ClientConfig>>) -> io::Result<Connection> {
        let socket = address.connect()?;
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(Duration::from_secs(60)))?;
        let wire = match tls {
            None => Wire::Plain(socket),
            Some(config) => Wire::Tls(Box::new(tls::wrap(config, address.bare_host(), socket)?)),
        };
        Ok(Connection { stream: BufReader::new(wire), keep: true })
    }

    /// Second handle of the socket, to shut it down from another thread.
    pub(super) fn handle(&self) -> io::Result<TcpStream> {
        self.stream.get_ref().socket().try_clone()
    }

    /// Checks before a request that the connection is still open, because a request must not be sent twice:
    /// the first may have been executed.
    pub(super) fn is_usable(&self) -> bool {
        let socket = self.stream.get_ref().socket();
        if !self.keep || !self.stream.buffer().is_empty() || socket.set_nonblocking(true).is_err() {
            return false;
        }
        let quiet = matches!(socket.peek(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        quiet && socket.set_nonblocking(false).is_ok()
    }

    pub(super) fn exchange(&mut self, address: &Address, request: &Request<'_>) -> io::Result<Answer> {
        self.stream.get_ref().socket().set_read_timeout(Some(request.patience))?;
        let head = head_of(address, request);
        let mut message = head.into_bytes();
        message.extend_from_slice(request.body.unwrap_or_default());
        let wire = self.stream.get_mut();
        let sent = wire.write_all(&message).and_then(|()| wire.flush());
        // A server that refuses a large body responds and closes before reading all of it, so the response
        // takes precedence over a write error.
        match (self.read_answer(request.method), sent) {
            (Ok(answer), _) => Ok(answer),
            (Err(_), Err(error)) | (Err(error), Ok(())) => Err(error),
        }
    }

    fn read_answer(&mut self, method: &str) -> io::Result<Answer> {
        let status_line = self.read_line()?;
        let status: u16 = match status_line.split(' ').nth(1).and_then(|code| code.parse().ok()) {
            Some(status) if status_line.starts_with("HTTP/1.") => status,
            _ => return Err(unexpected("this is not an HTTP server")),
        };
        let mut length = None;
        let mut chunked = false;
        let mut date = None;
        self.keep = status_line.starts_with("HTTP/1.1");
        loop {
            let line = self.read_line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    length = Some(value.parse().map_err(|_| unexpected("invalid content-length"))?)
                }
                "date" => date = Some(value.to_owned()),
                "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
                "connection" if value.eq_ignore_ascii_case("close") => self.keep = false,
                _ => {}
            }
        }
        let body = match (chunked, length) {
            _ if method == "HEAD" || status == 204 || status == 304 => Vec::new(),
            (true, _) => self.read_chunks()?,
            (false, Some(length)) => self.read_exactly(length)?,
            (false, None) => self.read_to_end()?,
        };
        Ok(Answer { status, body, date })
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.stream).take(HEAD_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        match line.pop() {
            Some(b'\n') => {}
            _ => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map_err(|_| unexpected("the headers are not UTF-8"))
    }

    fn read_exactly(&mut self, length: u64) -> io::Result<Vec<u8>> {
        if length > BODY_BYTES_MAX {
            return Err(unexpected("the response is too large"));
        }
        let mut body = Vec::new();
        let got = (&mut self.stream).take(length).read_to_end(&mut body)?;
        match got as u64 == length {
            true => Ok(body),
            false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the response is incomplete")),
        }
    }

    fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        self.keep = false;
        let mut body = Vec::new();
        (&mut self.stream).take(BODY_BYTES_MAX).read_to_end(&mut body)?;
        Ok(body)
    }

    fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.read_line()?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(size, 16).map_err(|_| unexpected("invalid chunk"))?;
            if size == 0 {
                while !self.read_line()?.is_empty() {}
                return Ok(body);
            }
            if body.len() as u64 + size > BODY_BYTES_MAX {
                return Err(unexpected("the response is too large"));
            }
            body.extend(self.read_exactly(size)?);
            self.read_line()?;
        }
    }
}

fn head_of(address: &Address, request: &Request<'_>) -> String {
    let Address { host, port, prefix, .. } = address;
    let mut head = format!("{} {prefix}{} HTTP/1.1\r\nHost: {host}:{port}\r\n", request.method, request.path);
    head.push_str("Accept: application/json\r\nUser-Agent: windlass-cli\r\n");
    if let Some(token) = request.token {
        head.push_str(&format!("Authorization: Bearer {token}\r\n"));
    }
    if let Some(body) = request.body {
        head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
    } else if request.method != "GET" {
        head.push_str("Content-Length: 0\r\n");
    }
    head.push_str("\r\n");
    head
}

fn unexpected(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Percent-encodes one part of a path or query.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn addresses_are_taken_apart() {
        let check = |url: &str, shown: &str| assert_eq!(Address::parse(url).unwrap().to_string(), shown);
        check("http://127.0.0.1:7373", "http://127.0.0.1:7373");
        check("http://localhost/", "http://localhost:80");
        check("box:9000/jobs/", "http://box:9000/jobs");
        check("http://[::1]:7373", "http://[::1]:7373");
        check("http://[::1]", "http://[::1]:80");
        check("https://box", "https://box:443");
        for bad in ["ftp://x", "http://", "http://a:b", "http://u@h:1", "http://h:1\r\nX: y"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }

    /// Server that answers the requests of one connection with `answers` in order, then closes.
    fn canned(answers: &'static [&'static str]) -> Address {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let _ = stream.read(&mut [0; 4096]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    fn get(connection: &mut Connection, address: &Address) -> io::Result<Answer> {
        let patience = Duration::from_secs(5);
        let request = Request { method: "GET", path: "/x", token: None, body: None, patience };
        connection.exchange(address, &request)
    }

    #[test]
    fn one_connection_serves_answers_with_a_length_and_in_chunks() {
        let address = canned(&[
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
            "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
        ]);
        let mut connection = Connection::open(&address, None).unwrap();
        assert_eq!(get(&mut connection, &address).unwrap().body, b"hi");
        assert!(connection.is_usable());
        let second = get(&mut connection, &address).unwrap();
        assert_eq!((second.status, second.body.as_slice()), (201, b"abcde".as_slice()));
    }

    #[test]
    fn a_cut_answer_is_an_error_and_a_closed_connection_is_noticed() {
        let address = canned(&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"]);
        let mut connection = Connection::open(&address, None).unwrap();
        assert!(get(&mut connection, &address).is_err());
        let address = canned(&["HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"]);
        let mut connection = Connection::open(&address, None).unwrap();
        get(&mut connection, &address).unwrap();
        assert!(!connection.is_usable());
    }

    #[test]
    fn something_that_is_not_http_is_named_as_such() {
        let address = canned(&["SSH-2.0-OpenSSH_9\r\n"]);
        let mut connection = Connection::open(&address, None).unwrap();
        let error = get(&mut connection, &address).unwrap_err();
        assert!(error.to_string().contains("not an HTTP server"), "{error}");
    }

    #[test]
    fn query_parts_are_escaped() {
        assert_eq!(escaped("a b&c=ü*"), "a%20b%26c%3D%C3%BC%2A");
    }
}
