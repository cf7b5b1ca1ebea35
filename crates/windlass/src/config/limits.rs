//! What clients may take.

use super::Found;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub payload_bytes: usize,
    pub body_bytes: usize,
    pub batch: usize,
    pub waiters: usize,
    pub connections: usize,
    pub connections_per_address: usize,
    /// 0: as much as there is room for.
    pub memory_bytes: u64,
    pub idle: Duration,
}

impl Found<'_> {
    pub(super) fn limits(&self) -> Limits {
        Limits {
            payload_bytes: self.count("limits.payload_bytes"),
            body_bytes: self.count("limits.body_bytes"),
            batch: self.count("limits.batch"),
            waiters: self.count("limits.waiters"),
            connections: self.count("limits.connections"),
            connections_per_address: self.count("limits.connections_per_address"),
            memory_bytes: self.whole("limits.memory_bytes").unsigned_abs(),
            idle: self.seconds("limits.idle_s"),
        }
    }
}
