//! In-memory tables: no I/O, no clock.

pub(crate) mod family_locks;
pub(crate) mod lease_watch;
pub(crate) mod leases;
pub(crate) mod settle_waiters;
pub(crate) mod timers;
pub(crate) mod waiting;
