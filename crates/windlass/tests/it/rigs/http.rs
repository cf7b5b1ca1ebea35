//! HTTP client that distinguishes "not done" from "not known".

use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Timeout of a response.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub enum Reply {
    Answer(u16, Value),
    /// Not sent: certainly not done.
    NotSent,
    /// Sent without a response: done or not.
    Lost,
}

/// Keep-alive connections, one per server.
#[derive(Default)]
pub struct Client {
    streams: HashMap<SocketAddr, BufReader<TcpStream>>,
}

impl Client {
    pub fn call(&mut self, to: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let stream = self.streams.remove(&to).or_else(|| connect(to));
        let Some(mut stream) = stream else { return Reply::NotSent };
        match exchange(&mut stream, to, method, path, body) {
            Ok((status, answer)) => {
                self.streams.insert(to, stream);
                Reply::Answer(status, answer)
            }
            Err(_) => Reply::Lost,
        }
    }

    /// Reads a document; must succeed.
    #[track_caller]
    pub fn get(&mut self, to: SocketAddr, path: &str) -> Value {
        match self.call(to, "GET", path, None) {
            Reply::Answer(200, answer) => answer,
            other => panic!("GET {path}: {other:?}"),
        }
    }
}

fn connect(to: SocketAddr) -> Option<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_nodelay(true).ok()?;
    Some(BufReader::new(stream))
}

fn exchange(
    stream: &mut BufReader<TcpStream>,
    to: SocketAddr,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> std::io::Result<(u16, Value)> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.get_mut().write_all(request.as_bytes())?;
    let status = line(stream)?;
    let mut length = 0;
    loop {
        let header = line(stream)?;
        if header.is_empty() {
            break;
        }
        if let Some(text) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().map_err(std::io::Error::other)?;
        }
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other("no status"))?;
    Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
}

fn line(stream: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}
