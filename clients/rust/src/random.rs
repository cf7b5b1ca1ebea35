//! Random numbers for idempotency keys and jitter, from the seeds that the standard library takes from the
//! operating system. Not for secrets.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);

fn number() -> u64 {
    static SEED: OnceLock<RandomState> = OnceLock::new();
    SEED.get_or_init(RandomState::new).hash_one(COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Number from 0 up to, but not including, 1.
pub(crate) fn fraction() -> f64 {
    (number() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Text that no other process and no other call gets.
pub(crate) fn key() -> String {
    static PROCESS: OnceLock<String> = OnceLock::new();
    let process = PROCESS.get_or_init(|| {
        let now = std::time::SystemTime::now();
        let half = |salt: u8| RandomState::new().hash_one((salt, now, std::process::id()));
        format!("{:016x}{:016x}", half(1), half(2))
    });
    format!("{process}-{:x}", COUNT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_fractions_spread() {
        let keys: std::collections::HashSet<String> = (0..1_000).map(|_| key()).collect();
        assert_eq!(keys.len(), 1_000);
        let below_half = (0..1_000).filter(|_| fraction() < 0.5).count();
        assert!((300..700).contains(&below_half), "{below_half}");
    }
}
