//! Scenarios on the memory store with a manual clock. Nothing here sleeps for real.

mod basics;
mod endings;
mod families;
mod faults;
mod histories;
mod limits;
mod time;
mod unique;
mod waiting;
mod world;
