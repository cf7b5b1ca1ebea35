//! What a runner and its guest process say to each other: frames of a length (four bytes, little end first) and a
//! MessagePack body. Both sides are the same program of the same version, so there is no version to agree on.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes of a frame beside the blobs in it: names, numbers and messages.
pub const FRAME_EXTRA_BYTES: usize = 64 * 1024;

/// What one guest may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// From the start of the guest's code to its end.
    pub time_limit_ms: u64,
    /// All linear memories of one guest together.
    pub memory_bytes_max: u64,
    /// Of standard output, and again of standard error.
    pub output_bytes_max: u64,
    /// Compiled modules kept by one guest process.
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

/// To the guest process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// The first word, once.
    Begin(Limits),
    Run {
        /// Under which address the compiled module is kept.
        module: String,
        #[serde(with = "serde_bytes")]
        input: Vec<u8>,
    },
    /// The answer to [`Reply::NeedModule`].
    Module {
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// The other answer to it: there is no module.
    GiveUp,
}

/// From the guest process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It can run guests; what holds them beside the WebAssembly sandbox itself.
    Ready {
        confined: Vec<String>,
    },
    /// The module of this run is not in the cache.
    NeedModule,
    /// Compiling is over, the guest's own time begins. Not said when the module was in the cache: then it begins at once.
    Started,
    Ended(Ended),
}

/// How a run ended, with all that the guest wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub how: How,
    #[serde(with = "serde_bytes")]
    pub stdout: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub stderr: Vec<u8>,
    /// When the guest's code began, on the monotonic clock that all processes of a machine share.
    pub began_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// Returned (0) or called `proc_exit`.
    Exit(i32),
    /// Could not be started, or was stopped; in words for whoever made the module.
    Failed(String),
    /// Was stopped because it wrote more than it may.
    TooMuchOutput(String),
}

impl Ended {
    /// A run that never came to the guest's own code.
    pub fn not_started(why: impl Into<String>) -> Ended {
        Ended { how: How::Failed(why.into()), stdout: Vec::new(), stderr: Vec::new(), began_ns: 0 }
    }
}

fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    // Room for the length first, so that a frame is one write.
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

/// In the guest process, which has no runtime and needs none.
pub fn write_blocking(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&encode(message)?)?;
    to.flush()
}

/// `None` at the end. The runner is trusted, so its frames may be as long as a length can say.
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

/// Memory is taken as bytes arrive: a guest process that broke out of its sandbox cannot have it for a number.
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
        let ended = Reply::Ended(Ended { stdout: vec![9; 1000], ..Ended::not_started("why") });
        let mut frame = Vec::new();
        write_blocking(&mut frame, &ended).unwrap();
        assert_eq!(read::<Reply>(&mut frame.as_slice(), 2000).await.unwrap(), ended);
        let kind = async |mut bytes: &[u8], max| read::<Reply>(&mut bytes, max).await.unwrap_err().kind();
        assert_eq!(kind(&frame, 500).await, io::ErrorKind::InvalidData);
        assert_eq!(kind(&frame[..frame.len() - 1], 2000).await, io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(&[3, 0, 0, 0, 0xc1, 0, 0], 2000).await, io::ErrorKind::InvalidData);
    }
}
