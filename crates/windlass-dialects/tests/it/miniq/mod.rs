//! The miniq dialect. The numbers in the comments are those of the scenarios that the dialect was built after; README.md says
//! which test shows which.

mod adding;
mod daemons;
mod handlers;
mod operations;
mod running;
mod scheduling;
mod store_rules;
pub mod world;

use crate::stores::{Kind, repeat_on};

/// The clock is the engine's, which tells every store the time. Tests that choose a store of their own, to make it fail or to share
/// it, stay on that.
#[test]
fn all_of_this_holds_on_the_embedded_store() {
    repeat_on(Kind::Sqlite, "miniq::", "miniq::all_of_this_holds_on");
}

#[test]
fn all_of_this_holds_on_postgresql() {
    repeat_on(Kind::Postgres, "miniq::", "miniq::all_of_this_holds_on");
}
