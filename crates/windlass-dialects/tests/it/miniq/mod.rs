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
