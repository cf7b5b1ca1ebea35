//! JQ as its clients meet it: pushers, fake workers that record what they are sent, and a clock that only we move.
//!
//! The numbers in the comments are those of the scenarios that the dialect was built after.
//!
//! They run on the memory store, and again on the embedded store and on PostgreSQL. Two servers on one store are in `several`,
//! which is always on PostgreSQL.

mod constraints;
mod description;
mod dispatch;
mod enqueue;
mod results;
mod retries;
mod selection;
mod several;
mod status;
mod storage;
mod world;

use crate::stores::{Kind, repeat_on};

#[test]
fn all_of_this_holds_on_the_embedded_store() {
    repeat_on(Kind::Sqlite, "jq::", "jq::all_of_this_holds_on");
}

#[test]
fn all_of_this_holds_on_postgresql() {
    repeat_on(Kind::Postgres, "jq::", "jq::all_of_this_holds_on");
}
