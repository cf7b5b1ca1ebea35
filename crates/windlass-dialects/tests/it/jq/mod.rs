//! JQ as its clients meet it: pushers, fake workers that record what they are sent, and a clock that only we move.
//!
//! The numbers in the comments are those of the scenarios that the dialect was built after.
//!
//! They run on the memory store; by hand also on another one (`WINDLASS_TEST_STORE`), but for two kinds. After a `crash` a second
//! engine stands on the same store, and only the memory store lets a second one listen. And on PostgreSQL two tests of rates
//! in `constraints` do not hold: rates go by the database's clock there, which is not ours to move, and a token is not
//! returned when a run is given back.

mod constraints;
mod description;
mod dispatch;
mod enqueue;
mod results;
mod retries;
mod selection;
mod status;
mod storage;
mod world;
