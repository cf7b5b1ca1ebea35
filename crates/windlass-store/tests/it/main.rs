//! Conformance suite for every store.

#![allow(unreachable_pub)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

mod blobs;
mod faulty;
mod memory;
mod postgres;
mod postgres_examples;
mod postgres_faults;
mod postgres_hosts;
mod postgres_lanes;
mod postgres_notifications;
mod postgres_retried;
mod postgres_safety;
mod postgres_server;
mod postgres_several;
mod postgres_tls;
mod sqlite;

use windlass_store::postgres::PostgresOptions;

/// Options for servers with [`postgres_server::Disk::Fast`].
fn not_safe() -> PostgresOptions {
    PostgresOptions { accept_unsafe: true, ..PostgresOptions::default() }
}

/// Seed of this run; `WINDLASS_SEED=123 cargo test` repeats a run.
fn seed() -> u64 {
    match std::env::var("WINDLASS_SEED") {
        Ok(text) => text.parse().expect("WINDLASS_SEED is a number"),
        Err(_) => {
            std::time::SystemTime::UNIX_EPOCH.elapsed().expect("the clock is past 1970").as_millis() as u64
        }
    }
}
