//! State of one limit key: a token bucket and a count of running jobs.

use super::{Limit, Rate};
use crate::Timestamp;

/// Units per token. Counting in units of 10⁻¹⁸ tokens makes taking and returning exact, and accumulates the
/// fractions of a slow rate without loss.
const TOKEN: u128 = 1_000_000_000_000_000_000;

/// Largest backward step of `now` that is taken for two callers reading the clock out of order. A longer step
/// means that the clock was set; waiting for the old time to return would block all jobs.
const OUT_OF_TURN_MS: i64 = 1_000;

/// Answer to: may the next job start?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Yes,
    /// The rate allows no start before this time.
    NotBefore(Timestamp),
    /// The concurrency limit is reached; after a job ends, the rate limit still applies.
    WhenOneEnds,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gauge {
    bucket: Option<Bucket>,
    max_running: Option<u32>,
    running: u32,
}

impl Gauge {
    /// Gauge of a new limit: the whole burst may start now.
    pub fn full(limit: &Limit, now: Timestamp) -> Gauge {
        let bucket = limit.rate.map(|rate| Bucket::new(rate, now).filled());
        Gauge { bucket, max_running: limit.max_running, running: 0 }
    }

    /// Gauge of a limit loaded after a restart: the starts just before the restart are unknown, so the bucket
    /// begins empty. The caller charges the running jobs.
    pub fn empty(limit: &Limit, now: Timestamp) -> Gauge {
        let bucket = limit.rate.map(|rate| Bucket::new(rate, now));
        Gauge { bucket, max_running: limit.max_running, running: 0 }
    }

    pub fn may_start(&mut self, now: Timestamp) -> Verdict {
        if self.max_running.is_some_and(|max| self.running >= max) {
            return Verdict::WhenOneEnds;
        }
        match self.bucket.as_mut().and_then(|bucket| bucket.refill(now).next_token_at()) {
            Some(at) => Verdict::NotBefore(at),
            None => Verdict::Yes,
        }
    }

    /// Takes a token and a concurrency slot. The caller has asked [`Gauge::may_start`] with the same `now`.
    pub fn start(&mut self, now: Timestamp) {
        debug_assert_eq!(self.may_start(now), Verdict::Yes);
        if let Some(bucket) = &mut self.bucket {
            bucket.refill(now);
            bucket.tokens = bucket.tokens.saturating_sub(TOKEN);
        }
        self.charge_running();
    }

    /// Returns token and slot of a job that was not handed out after all.
    pub fn give_back(&mut self, now: Timestamp) {
        self.refund(now);
        self.end();
    }

    /// Returns the token alone, of a job that has already left its slot.
    pub fn refund(&mut self, now: Timestamp) {
        if let Some(bucket) = &mut self.bucket {
            bucket.refill(now);
            bucket.tokens = bucket.tokens.saturating_add(TOKEN).min(bucket.full);
        }
    }

    pub fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// Counts a job that already runs: after a restart, or when a limit starts to apply to a running job.
    pub fn charge_running(&mut self) {
        self.running = self.running.saturating_add(1);
    }

    pub fn running(&self) -> u32 {
        self.running
    }

    /// Takes over the state shared by all servers: the running count and the bucket (`None`: no server has
    /// taken from the bucket, so it is full). A bucket time in the future was written before the clock was
    /// set back: the real age is unknown, and waiting for that time would earn nothing. In that case one job
    /// may start, which writes the bucket with the current time.
    pub(super) fn adopt(&mut self, running: u32, tokens: Option<Tokens>, now: Timestamp) {
        self.running = running;
        if let Some(bucket) = &mut self.bucket {
            let Tokens { mut tokens, mut at } = tokens.unwrap_or(Tokens { tokens: bucket.full, at: now });
            if at.since_ms(now) > OUT_OF_TURN_MS {
                (tokens, at) = (tokens.max(TOKEN), now);
            }
            (bucket.tokens, bucket.at) = (tokens.min(bucket.full), at);
        }
    }

    /// Bucket contents, to be adopted by other servers.
    pub(super) fn tokens(&self) -> Option<Tokens> {
        self.bucket.as_ref().map(|bucket| Tokens { tokens: bucket.tokens, at: bucket.at })
    }

    /// Time at which the bucket is full if nothing is taken; from then on it need not be stored.
    pub(super) fn full_at(&self) -> Option<Timestamp> {
        let bucket = self.bucket.as_ref()?;
        let missing = bucket.full.saturating_sub(bucket.tokens);
        let wait_ms = i64::try_from(missing.div_ceil(bucket.per_ms)).unwrap_or(i64::MAX);
        Some(bucket.at.plus_ms(wait_ms))
    }

    /// True if nothing runs and the bucket is full: a new gauge would be equal, so this one may be dropped.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.running == 0 && self.bucket.as_ref().is_none_or(|bucket| bucket.tokens_at(now) == bucket.full)
    }

    /// Continues under a changed limit: the running count stays, and so do the earned tokens, up to the new
    /// burst.
    pub(super) fn adapt(&mut self, limit: &Limit, now: Timestamp) {
        let earned = self.bucket.as_mut().map(|bucket| bucket.refill(now).tokens);
        self.max_running = limit.max_running;
        self.bucket = limit.rate.map(|rate| {
            let bucket = Bucket::new(rate, now);
            let tokens = earned.unwrap_or(bucket.full).min(bucket.full);
            Bucket { tokens, ..bucket }
        });
    }
}

/// Bucket contents at a point in time, without the bucket's size: the form in which servers share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    tokens: u128,
    at: Timestamp,
}

/// Token units and timestamp, both little-endian. A new format must have a different length.
const TOKENS_BYTES: usize = 24;

impl Tokens {
    pub fn to_bytes(self) -> [u8; TOKENS_BYTES] {
        let mut bytes = [0; TOKENS_BYTES];
        bytes[..16].copy_from_slice(&self.tokens.to_le_bytes());
        bytes[16..].copy_from_slice(&self.at.as_millis().to_le_bytes());
        bytes
    }

    /// `None` if the bytes are not in this format.
    pub fn from_bytes(bytes: &[u8]) -> Option<Tokens> {
        let (tokens, rest) = bytes.split_first_chunk::<16>()?;
        let at = i64::from_le_bytes(rest.try_into().ok()?);
        Some(Tokens { tokens: u128::from_le_bytes(*tokens), at: Timestamp::from_millis(at) })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bucket {
    per_ms: u128,
    full: u128,
    /// Units at time `at`; never more than `full`.
    tokens: u128,
    at: Timestamp,
}

impl Bucket {
    fn new(rate: Rate, now: Timestamp) -> Bucket {
        // The cast saturates, and the bounds of a validated rate keep the value far from both ends.
        let per_ms = (rate.per_second / 1_000.0 * TOKEN as f64).round() as u128;
        Bucket { per_ms: per_ms.max(1), full: u128::from(rate.burst) * TOKEN, tokens: 0, at: now }
    }

    fn filled(self) -> Bucket {
        Bucket { tokens: self.full, ..self }
    }

    fn tokens_at(&self, now: Timestamp) -> u128 {
        let elapsed_ms = u128::from(now.since_ms(self.at).unsigned_abs());
        self.tokens.saturating_add(self.per_ms.saturating_mul(elapsed_ms)).min(self.full)
    }

    /// Adds the tokens earned up to `now`. A `now` slightly before `at` earns nothing and does not move `at`:
    /// otherwise the same time span would earn tokens twice.
    fn refill(&mut self, now: Timestamp) -> &mut Bucket {
        self.tokens = self.tokens_at(now);
        if now > self.at || self.at.since_ms(now) > OUT_OF_TURN_MS {
            self.at = now;
        }
        self
    }

    /// First millisecond with a whole token; `None` if there is one now.
    fn next_token_at(&self) -> Option<Timestamp> {
        let missing = TOKEN.checked_sub(self.tokens).filter(|missing| *missing > 0)?;
        let wait_ms = i64::try_from(missing.div_ceil(self.per_ms)).unwrap_or(i64::MAX);
        Some(self.at.plus_ms(wait_ms))
    }
}
