//! Client of the Bedrock dialect: one connection, one request at a time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

pub(crate) struct BedrockClient(BufReader<TcpStream>);

impl BedrockClient {
    pub(crate) fn open(address: SocketAddr) -> io::Result<BedrockClient> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(BedrockClient(BufReader::new(stream)))
    }

    /// Sends a request, a line per header, and returns the status line and the body of the response.
    pub(crate) fn ask(&mut self, request: &str) -> io::Result<(String, String)> {
        self.0.get_mut().write_all(format!("{request}\n").as_bytes())?;
        let (mut status, mut length) = (String::new(), 0);
        self.0.read_line(&mut status)?;
        loop {
            let mut header = String::new();
            self.0.read_line(&mut header)?;
            match header.trim_end().split_once(": ") {
                Some(("Content-Length", bytes)) => length = bytes.parse().unwrap_or(0),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok((status.trim_end().to_owned(), String::from_utf8_lossy(&body).into_owned()))
    }
}
