//! What every job server can do, in four verbs, so that one workload runs unchanged against all of them.

use std::io;
use std::sync::OnceLock;
use std::time::Instant;

/// Payloads begin with the moment of the push, in this many digits.
pub const STAMP_DIGITS: usize = 20;

/// A job in the hands of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub id: u64,
    /// Zero where the protocol knows no tokens.
    pub token: u64,
    /// When its push began, by [`now_ns`].
    pub pushed_ns: u64,
}

/// One connection.
pub trait Client {
    /// Pushes this many jobs in the server's best way: one call, or one pipelined write. The first carries the stamp.
    async fn push(&mut self, jobs: usize, stamp_ns: u64) -> io::Result<()>;

    /// Adds up to `limit` jobs to `held`, waiting up to `wait_ms` for the first.
    async fn claim(&mut self, limit: usize, wait_ms: u64, held: &mut Vec<Held>) -> io::Result<()>;

    async fn finish(&mut self, held: &[Held]) -> io::Result<()>;

    /// Finishes what is held and claims anew. Pipelined protocols do both in one exchange.
    async fn turn(&mut self, held: &mut Vec<Held>, limit: usize) -> io::Result<()> {
        if !held.is_empty() {
            self.finish(held).await?;
            held.clear();
        }
        self.claim(limit, 0, held).await
    }
}

/// A server that is up.
pub trait Target {
    type Client: Client + 'static;

    async fn connect(&self, shape: &Shape) -> io::Result<Self::Client>;
    /// For CPU time and memory; `None` when the server runs elsewhere.
    fn pid(&self) -> Option<u32>;
}

/// What the jobs of one connection look like, and which it asks for.
#[derive(Clone, Debug)]
pub struct Shape {
    pub queue: String,
    /// The name of pushed jobs.
    pub name: String,
    /// What claims ask for: a name or a GLOB.
    pub pattern: String,
    pub payload_bytes: usize,
}

impl Shape {
    pub fn new(queue: &str, payload_bytes: usize) -> Shape {
        let name = "bench.job".to_owned();
        Shape {
            queue: queue.to_owned(),
            pattern: name.clone(),
            name,
            payload_bytes: payload_bytes.max(STAMP_DIGITS),
        }
    }
}

/// Nanoseconds since the first call in this process.
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Writes the stamp over the first digits of a payload.
pub fn stamp(payload: &mut [u8], mut ns: u64) {
    for digit in payload[..STAMP_DIGITS].iter_mut().rev() {
        *digit = b'0' + (ns % 10) as u8;
        ns /= 10;
    }
}

/// Zero when there is no stamp.
pub fn read_stamp(payload: &[u8]) -> u64 {
    payload.get(..STAMP_DIGITS).and_then(parse_digits).unwrap_or(0)
}

/// A payload without a stamp, of exactly this length.
pub fn blank_payload(bytes: usize) -> Vec<u8> {
    let mut payload = vec![b'x'; bytes.max(STAMP_DIGITS)];
    stamp(&mut payload, 0);
    payload
}

/// A decimal number that fills the whole slice.
pub fn parse_digits(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_reads_back_as_written() {
        let mut payload = blank_payload(64);
        assert_eq!((payload.len(), read_stamp(&payload)), (64, 0));
        stamp(&mut payload, 1_234_567_890_123);
        assert_eq!(read_stamp(&payload), 1_234_567_890_123);
        assert_eq!(read_stamp(b"short"), 0);
    }

    #[test]
    fn only_whole_numbers_are_read() {
        assert_eq!(parse_digits(b"65537"), Some(65_537));
        assert_eq!(parse_digits(b""), None);
        assert_eq!(parse_digits(b"12a"), None);
        assert_eq!(parse_digits(b"99999999999999999999999"), None);
    }
}
