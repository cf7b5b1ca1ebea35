//! Clocks, and the scheduler, which acts when a deadline passes.

pub mod clock;
pub(crate) mod outage;
pub(crate) mod scheduler;
pub(crate) mod wall_clock;
