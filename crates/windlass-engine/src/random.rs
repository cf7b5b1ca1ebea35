//! The only source of random numbers.

use crate::engine::Engine;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

pub trait Random: Send + Sync {
    fn next_u64(&self) -> u64;

    /// Number in `0.0..1.0`.
    fn next_fraction(&self) -> f64 {
        // An f64 represents the upper 53 bits exactly.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Engine {
    /// Random number in `0.0..1.0`.
    pub fn random_fraction(&self) -> f64 {
        self.inner.random.next_fraction()
    }

    /// Random number for names that must be unique and hard to guess.
    pub fn random_u64(&self) -> u64 {
        self.inner.random.next_u64()
    }
}

/// Unpredictable numbers: a keyed hash of a counter, with keys from the operating system.
#[derive(Debug, Default)]
pub struct SystemRandom {
    keys: RandomState,
    rolled: AtomicU64,
}

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        self.keys.hash_one(self.rolled.fetch_add(1, Ordering::Relaxed))
    }
}

/// Reproducible numbers for tests and simulation.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom(AtomicU64::new(seed))
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        // SplitMix64.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut x = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}
