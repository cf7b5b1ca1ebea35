//! JQ from the side of its clients: pushers, fake workers that record their requests, and a manual clock.
//!
//! The tests run on the memory store, and again on the embedded store and on PostgreSQL. Two servers on one
//! store are in `several`, which always uses PostgreSQL.

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
