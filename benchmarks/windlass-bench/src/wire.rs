//! TCP stream with a reusable read buffer.

use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Initial buffer size: a few hundred claimed jobs. Grows if a response is larger.
const BUFFER_BYTES: usize = 64 * 1024;

pub(super) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Wire {
    pub(super) async fn connect(address: &str) -> io::Result<Wire> {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("cannot connect to {address}: {error}")))?;
        stream.set_nodelay(true)?;
        Ok(Wire { stream, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0 })
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Bytes received but not consumed.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start, "consumed more than was read");
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Waits for more bytes.
    pub(super) async fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 && self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        match self.stream.read(&mut self.buffer[self.end..]).await? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            bytes => {
                self.end += bytes;
                Ok(())
            }
        }
    }

    /// Waits until at least this many bytes are unread.
    pub(super) async fn fill_to(&mut self, bytes: usize) -> io::Result<()> {
        while self.end - self.start < bytes {
            self.fill().await?;
        }
        Ok(())
    }

    /// Waits for a complete line and returns its length including `\r\n`.
    pub(super) async fn line(&mut self) -> io::Result<usize> {
        let mut searched = 0;
        loop {
            match self.unread()[searched..].iter().position(|byte| *byte == b'\n') {
                Some(at) => return Ok(searched + at + 1),
                None => searched = self.unread().len(),
            }
            self.fill().await?;
        }
    }
}
