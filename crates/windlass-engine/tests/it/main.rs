//! Scenarios on the memory store with a manual clock. Only `postgres` uses real time.

#![allow(unreachable_pub)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod basics;
mod endings;
mod families;
mod faults;
mod handing;
mod histories;
mod import;
mod limits;
mod postgres;
#[path = "../../../windlass-store/tests/it/postgres_server.rs"]
mod postgres_server;
mod races;
mod several;
mod spans;
mod steps;
mod time;
mod trail;
mod transact;
mod turns;
mod unique;
mod waiting;
mod world;
