//! Traits of the runners of handlers. The binary provides the implementation.

pub use windlass_core::handler::{Batch, BatchJob, Ended, NoRoom, PrintedJob, Report, Resource, Run, Status};

use crate::dialect::Soon;
use std::time::Duration;
use windlass_core::handler::HandlerText;

/// Runs handlers in warm contexts.
pub trait Runners: Send + Sync {
    /// `Err`: reason why the handler cannot run here at present, for its author.
    fn check(&self, handler: &HandlerText) -> Result<(), String>;
    /// Resource whose slots a batch of this handler needs.
    fn resource(&self, handler: &HandlerText) -> Resource;
    /// Books a slot in which a batch can start at once.
    fn book(&self, client: &str, jobtype: &str, handler: &HandlerText) -> Result<Box<dyn Booking>, NoRoom>;
    /// Resolves when a slot may have become free since the future was created. Dropped bookings need not
    /// count.
    fn room(&self) -> Soon<'static, ()>;
    /// Client and type of every idle warm context.
    fn warm(&self) -> Vec<(String, String)>;
    /// Isolation of handlers on this machine, in one line for operators.
    fn isolation(&self) -> String {
        String::new()
    }
    /// Runs may end within `grace`; then they end unrun.
    fn stop(&self, grace: Duration) -> Soon<'_, ()>;
}

/// Slot for one batch. Free again when dropped.
pub trait Booking: Send {
    /// Batch size: jobs that can start without waiting for each other's connections.
    fn jobs_max(&self) -> usize;
    /// Starts a batch of the client, type and handler that the slot was booked for.
    fn start(self: Box<Self>, batch: Batch) -> Box<dyn Run>;
}
