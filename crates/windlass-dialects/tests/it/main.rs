//! The real router on a loopback port.

mod jobs;
mod support;
