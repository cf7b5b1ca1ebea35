//! Server's end of a context's stdout and stderr.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use tokio::net::unix::pipe;

/// Bytes per read.
const PIPE_BYTES: usize = 64 * 1024;

/// Reading end of a pipe.
pub(super) struct Pipe {
    from: Option<pipe::Receiver>,
    buffer: Vec<u8>,
}

impl Pipe {
    pub(super) fn new() -> io::Result<(Pipe, Stdio)> {
        let (ours, theirs) = io::pipe()?;
        let from = pipe::Receiver::from_owned_fd(OwnedFd::from(ours))?;
        Ok((Pipe { from: Some(from), buffer: vec![0; PIPE_BYTES] }, Stdio::from(theirs)))
    }

    /// Completes when bytes can be read; never after end of file.
    pub(super) async fn readable(&self) {
        match &self.from {
            Some(from) if from.readable().await.is_ok() => {}
            _ => std::future::pending().await,
        }
    }

    /// Reads the available bytes without waiting.
    pub(super) fn read_into(&mut self, mut take: impl FnMut(&[u8])) {
        let Some(from) = &self.from else { return };
        match from.try_read(&mut self.buffer) {
            Ok(0) => self.from = None,
            Ok(count) => take(&self.buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.from = None,
        }
    }
}
