//! Reservations of execution slots for batches, so that a scheduler can plan several batches at once.

use super::http::Reserved;
use super::pool::Promise;
use super::run::{Batch, Run};
use super::seats::TakenSeat;
use super::{Handler, Handlers, Lang};

/// Reserved slot for one batch. Dropping it unused frees the slot without a wake-up.
pub struct Booking {
    handlers: Handlers,
    hold: Hold,
    resource: Resource,
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

/// Resource for which batches compete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Contexts,
    Http,
    Wasi,
}

/// Reason why a batch cannot start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The client, the job type or the URL has reached its own limit.
    OwnShare,
    /// Other clients use all of the resource.
    Full(Resource),
}

impl Resource {
    pub fn of(lang: Lang) -> Resource {
        match lang {
            Lang::Http => Resource::Http,
            Lang::Wasi => Resource::Wasi,
            Lang::Node | Lang::Python | Lang::Php | Lang::Sh => Resource::Contexts,
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
        Ok(Booking { handlers: self.clone(), hold, resource: Resource::of(handler.lang), jobs_max })
    }
}

impl Booking {
    /// Most jobs that can start in the slot. Lock no more: jobs that cannot be sent to the URL yet must stay
    /// available.
    pub fn jobs_max(&self) -> usize {
        self.jobs_max
    }

    pub fn resource(&self) -> Resource {
        self.resource
    }

    /// Starts a batch of the client, job type and handler for which the slot was reserved.
    pub fn start(self, batch: Batch) -> Run {
        self.handlers.start_with(batch, Some(self.hold))
    }
}
