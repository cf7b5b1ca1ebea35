//! JQ as its clients meet it: pushers, fake workers that record what they are sent, and a clock that only we move.
//!
//! The numbers in the comments are those of the scenarios that the dialect was built after.

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
