//! Time: the clocks, and the scheduler that acts when a deadline passes.

pub mod clock;
pub(crate) mod scheduler;
pub(crate) mod wall_clock;
