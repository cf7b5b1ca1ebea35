//! Protocol between a runner and its guest process: frames of a length (four bytes, little-endian) and a
//! MessagePack body. Both sides are the same program, so there is no version negotiation.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes of a frame besides the blobs in it: names, numbers and messages.
pub const FRAME_EXTRA_BYTES: usize = 64 * 1024;

/// Resource limits of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Run time of the guest's code, without compilation.
    pub time_limit_ms: u64,
    /// Total size of all linear memories of a guest.
    pub memory_bytes_max: u64,
    /// Limit on stdout, and separately on stderr.
    pub output_bytes_max: u64,
    /// Compiled modules cached by a guest process.
    pub cache_modules: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            time_limit_ms: 300_000,
            memory_bytes_max: 256 << 20,
            output_bytes_max: 16 << 20,
            cache_modules: 64,
        }
    }
}

/// Message to the guest process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// First message, sent once.
    Begin(Limits),
    Run {
        /// Address of the module, the key of the cache.
        module: String,
        #[serde(with = "serde_bytes")]
        input: Vec<u8>,
    },
    /// Reply to [`Reply::NeedModule`].
    Module {
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Reply to [`Reply::NeedModule`]: the module could not be loaded.
    GiveUp,
}

/// Message from the guest process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Ready to run guests; lists the confinement mechanisms besides the WebAssembly sandbox.
    Ready {
        confined: Vec<String>,
    },
    /// The module of this run is not cached.
    NeedModule,
    /// Compilation is complete and the time limit starts. Not sent for a cached module, which starts at once.
    Started,
    Ended(GuestEnd),
}

/// End of a run, with the guest's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestEnd {
    pub how: How,
    #[serde(with = "serde_bytes")]
    pub stdout: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub stderr: Vec<u8>,
    /// Start of the guest's code, on the monotonic clock that all processes of a machine share.
    pub began_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// The guest returned (0) or called `proc_exit`.
    Exit(i32),
    /// The guest could not start, or was stopped; the message is for the author of the module.
    Failed(String),
    /// The guest was stopped because of too much output.
    TooMuchOutput(String),
}

impl GuestEnd {
    /// End of a run that did not reach the guest's code.
    pub fn not_started(why: impl Into<String>) -> GuestEnd {
        GuestEnd { how: How::Failed(why.into()), stdout: Vec::new(), stderr: Vec::new(), began_ns: 0 }
    }
}

fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    // Reserves space for the length, so that a frame is one write.
    let mut frame = vec![0; 4];
    rmp_serde::encode::write(&mut frame, message).map_err(io::Error::other)?;
    let length = u32::try_from(frame.len() - 4).map_err(io::Error::other)?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    rmp_serde::from_slice(body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn length_of(prefix: [u8; 4], bytes_max: usize) -> io::Result<usize> {
    let length = usize::try_from(u32::from_le_bytes(prefix)).unwrap_or(usize::MAX);
    if length > bytes_max {
        let why = format!("a frame of {length} bytes where {bytes_max} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(length)
}

/// Writes a message in the guest process, which has no async runtime.
pub fn write_blocking(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&encode(message)?)?;
    to.flush()
}

/// Reads a message; `None` at end of file. The runner is trusted, so the frame length is not limited.
pub fn read_blocking<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut prefix = [0; 4];
    match from.read_exact(&mut prefix) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut body = vec![0; length_of(prefix, usize::MAX)?];
    from.read_exact(&mut body)?;
    decode(&body).map(Some)
}

pub async fn write(to: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    to.write_all(&encode(message)?).await?;
    to.flush().await
}

/// Reads a message. Allocates as bytes arrive: a compromised guest process cannot exhaust memory with a large
/// length.
pub async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> io::Result<T> {
    let mut prefix = [0; 4];
    from.read_exact(&mut prefix).await?;
    let length = length_of(prefix, bytes_max)?;
    let mut body = Vec::with_capacity(length.min(FRAME_EXTRA_BYTES));
    from.take(length as u64).read_to_end(&mut body).await?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    decode(&body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_one_side_writes_the_other_reads() {
        let orders = [
            Order::Begin(Limits::default()),
            Order::Run { module: "a1".to_owned(), input: vec![0, 255, 7] },
            Order::Module { bytes: vec![1; 100_000] },
        ];
        let mut pipe = Vec::new();
        for order in &orders {
            write(&mut pipe, order).await.unwrap();
        }
        let mut from = pipe.as_slice();
        for order in orders {
            assert_eq!(read_blocking(&mut from).unwrap(), Some(order));
        }
        assert_eq!(read_blocking::<Order>(&mut from).unwrap(), None);
    }

    #[tokio::test]
    async fn replies_that_are_too_long_cut_short_or_nonsense_are_errors() {
        let ended = Reply::Ended(GuestEnd { stdout: vec![9; 1000], ..GuestEnd::not_started("why") });
        let mut frame = Vec::new();
        write_blocking(&mut frame, &ended).unwrap();
        assert_eq!(read::<Reply>(&mut frame.as_slice(), 2000).await.unwrap(), ended);
        let kind = async |mut bytes: &[u8], max| read::<Reply>(&mut bytes, max).await.unwrap_err().kind();
        assert_eq!(kind(&frame, 500).await, io::ErrorKind::InvalidData);
        assert_eq!(kind(&frame[..frame.len() - 1], 2000).await, io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(&[3, 0, 0, 0, 0xc1, 0, 0], 2000).await, io::ErrorKind::InvalidData);
    }
}
