//! Places that are kept for batches until they begin, so that whoever plans several at once knows how many there are.

use super::http::Reserved;
use super::pool::Promise;
use super::run::{Batch, Run};
use super::seats::TakenSeat;
use super::{Handler, Handlers, Lang};

/// A place for one batch. Dropped before it is used, it is free again; nobody is told of that.
pub struct Booking {
    handlers: Handlers,
    hold: Hold,
    resource: Resource,
    jobs_max: usize,
}

pub enum Hold {
    /// A context that is idle, or room for one more.
    Context(Promise),
    /// One of the calls or guests there may be.
    Seat { _seat: TakenSeat },
    /// The same, with connections to the URL.
    Line { _seat: TakenSeat, reserved: Reserved },
}

/// What batches compete for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Contexts,
    Http,
    Wasi,
}

/// Why a batch cannot begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The client, the type or the URL has all it may have at once.
    OwnShare,
    /// Others have it all.
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
    /// A place where a batch would be run at once. Ask before locking jobs for it.
    pub fn book(&self, client: &str, jobtype: &str, handler: &Handler) -> Result<Booking, NoRoom> {
        let inner = &self.inner;
        let mut jobs_max = self.batch_size(handler);
        let hold = match handler.lang {
            Lang::Http => {
                let _seat = inner.http_seats.try_take(client)?;
                match inner.lines.reserve(client, handler, jobs_max)? {
                    None => Hold::Seat { _seat },
                    Some(reserved) => {
                        jobs_max = reserved.jobs_max(handler).min(jobs_max);
                        Hold::Line { _seat, reserved }
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
    /// How many jobs can be begun in it: what cannot be sent to a URL yet should not be locked either.
    pub fn jobs_max(&self) -> usize {
        self.jobs_max
    }

    pub fn resource(&self) -> Resource {
        self.resource
    }

    /// The batch is of the client and type, and has the handler, that the place was booked for.
    pub fn start(self, batch: Batch) -> Run {
        self.handlers.start_with(batch, Some(self.hold))
    }
}
