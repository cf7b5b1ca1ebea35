//! Common interface of all job servers, in four verbs, so that a workload runs unchanged against each of
//! them.

use std::io;
use std::sync::OnceLock;
use std::time::Instant;

/// Digits of the push time at the beginning of a payload.
pub(super) const STAMP_DIGITS: usize = 20;

/// Job claimed by this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub id: u64,
    /// Lease token; 0 if the protocol has none.
    pub token: u64,
    /// Start of the push, by [`now_ns`].
    pub pushed_ns: u64,
}

/// Connection to a server.
pub(super) trait Client {
    /// Pushes jobs in the server's fastest way: one call, or one pipelined write. The first carries the
    /// timestamp.
    async fn push(&mut self, jobs: usize, stamp_ns: u64) -> io::Result<()>;

    /// Adds up to `limit` jobs to `held`, waiting up to `wait_ms` for the first.
    async fn claim(&mut self, limit: usize, wait_ms: u64, held: &mut Vec<Held>) -> io::Result<()>;

    async fn finish(&mut self, held: &[Held]) -> io::Result<()>;

    /// Finishes the held jobs and claims new ones. Pipelined protocols do both in one round trip.
    async fn turn(&mut self, held: &mut Vec<Held>, limit: usize) -> io::Result<()> {
        if !held.is_empty() {
            self.finish(held).await?;
            held.clear();
        }
        self.claim(limit, 0, held).await
    }
}

/// Running server.
pub(super) trait Target {
    type Client: Client + 'static;

    async fn connect(&self, shape: &Shape) -> io::Result<Self::Client>;
    /// Process id for CPU time and memory; `None` for a remote server.
    fn pid(&self) -> Option<u32>;
}

/// Queue, name and size of the jobs of a connection.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub queue: String,
    /// Name of pushed jobs.
    pub name: String,
    /// Name or GLOB of claims.
    pub pattern: String,
    pub payload_bytes: usize,
}

impl Shape {
    pub(super) fn new(queue: &str, payload_bytes: usize) -> Shape {
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
pub(super) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Writes the timestamp over the first digits of a payload.
pub(super) fn stamp(payload: &mut [u8], mut ns: u64) {
    for digit in payload[..STAMP_DIGITS].iter_mut().rev() {
        *digit = b'0' + (ns % 10) as u8;
        ns /= 10;
    }
}

/// Reads the timestamp; 0 if there is none.
pub(super) fn read_stamp(payload: &[u8]) -> u64 {
    payload.get(..STAMP_DIGITS).and_then(parse_digits).unwrap_or(0)
}

/// Payload of exactly this length, with a zero timestamp.
pub(super) fn blank_payload(bytes: usize) -> Vec<u8> {
    let mut payload = vec![b'x'; bytes.max(STAMP_DIGITS)];
    stamp(&mut payload, 0);
    payload
}

/// Parses a decimal number that fills the whole slice.
pub(super) fn parse_digits(digits: &[u8]) -> Option<u64> {
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
