//! Limits for clients.

use std::time::Duration;
use windlass_dialects::settings::Values;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub payload_bytes: usize,
    pub body_bytes: usize,
    pub batch: usize,
    pub waiters: usize,
    pub connections: usize,
    pub connections_per_address: usize,
    /// 0: derived from the available memory.
    pub memory_bytes: u64,
    pub idle: Duration,
}

impl Limits {
    pub(super) fn from_values(values: &Values) -> Limits {
        Limits {
            payload_bytes: values.count("limits.payload_bytes"),
            body_bytes: values.count("limits.body_bytes"),
            batch: values.count("limits.batch"),
            waiters: values.count("limits.waiters"),
            connections: values.count("limits.connections"),
            connections_per_address: values.count("limits.connections_per_address"),
            memory_bytes: values.whole("limits.memory_bytes").unsigned_abs(),
            idle: values.seconds("limits.idle_s"),
        }
    }
}
