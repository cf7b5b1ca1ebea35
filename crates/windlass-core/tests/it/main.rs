//! All integration tests in one binary, because linking dominates their cost.

#![allow(unreachable_pub)]
#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests may")]

mod glob_vs_sqlite;
mod repeat_vs_sqlite;
