//! Tests of the miniq dialect; README.md lists them by rule.

mod adding;
mod daemons;
mod handlers;
mod operations;
mod running;
mod scheduling;
mod store_rules;
pub mod world;

use crate::stores::{Kind, repeat_on};

/// Repeats the tests on the embedded store: the engine's clock determines the time of every store. Tests with
/// a store of their own, to make it fail or to share it, keep that store.
#[test]
fn all_of_this_holds_on_the_embedded_store() {
    repeat_on(Kind::Sqlite, "miniq::", "miniq::all_of_this_holds_on");
}

#[test]
fn all_of_this_holds_on_postgresql() {
    repeat_on(Kind::Postgres, "miniq::", "miniq::all_of_this_holds_on");
}
