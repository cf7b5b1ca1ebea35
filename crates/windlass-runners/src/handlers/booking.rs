//! Reservations of execution slots for batches, so that a scheduler can plan several batches at once.

use super::http::Reserved;
use super::pool::Promise;
use super::run::Run;
use super::seats::TakenSeat;
use super::{Handler, Handlers, Lang};
use windlass_core::handler::{Batch, NoRoom, Resource};

/// Reserved slot for one batch. Dropping it unused frees the slot without a wake-up.
pub struct Booking {
    handlers: Handlers,
    hold: Hold,
    jobs_max: usize,
}

pub(super) enum Hold {
    /// Idle context, or room to start another.
    Context(Promise),
    /// Slot for a concurrent HTTP call or WASI guest.
    Seat { _seat: TakenSeat },
    /// Slot for an HTTP call, with connections to the URL.
    Connections { _seat: TakenSeat, reserved: Reserved },
}

/// Resources for which batches compete.
pub const CONTEXTS: Resource = "contexts";
pub const HTTP: Resource = "http";
pub const WASI: Resource = "wasi";

impl Lang {
    pub fn resource(self) -> Resource {
        match self {
            Lang::Http => HTTP,
            Lang::Wasi => WASI,
            Lang::Node | Lang::Python | Lang::Php | Lang::Sh => CONTEXTS,
        }
    }
}

impl Handlers {
    /// Reserves a slot in which a batch can start at once. Call it before locking jobs for the batch.
    pub fn book(&self, client: &str, jobtype: &str, handler: &Handler) -> Result<Booking, NoRoom> {
        let inner = &self.inner;
        let mut jobs_max = self.batch_size(handler);
        let hold = match handler.lang {
            Lang::Http => {
                let _seat = inner.http_seats.try_take(client)?;
                match inner.http_pools.reserve(&inner.world, client, handler, jobs_max)? {
                    None => Hold::Seat { _seat },
                    Some(reserved) => {
                        jobs_max = reserved.jobs_max(handler).min(jobs_max);
                        Hold::Connections { _seat, reserved }
                    }
                }
            }
            Lang::Wasi => Hold::Seat { _seat: inner.wasi_seats.try_take(client)? },
            _ => Hold::Context(inner.pool.promise(inner, inner.key(client, jobtype, handler))?),
        };
        Ok(Booking { handlers: self.clone(), hold, jobs_max })
    }
}

impl Booking {
    /// Most jobs that can start in the slot. Lock no more: jobs that cannot be sent to the URL yet must stay
    /// available.
    pub fn jobs_max(&self) -> usize {
        self.jobs_max
    }

    /// Starts a batch of the client, job type and handler for which the slot was reserved.
    pub fn start(self, batch: Batch<Handler>) -> Run {
        self.handlers.start_with(batch, Some(self.hold))
    }
}
