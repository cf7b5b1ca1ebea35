//! Places that are kept for batches until they begin, so that whoever plans several at once knows how many there are.

use super::pool::Promise;
use super::run::{Batch, Run};
use super::{Handler, Handlers, Lang};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A place for one batch. Dropped before it is used, it is free again; nobody is told of that.
pub struct Booking {
    handlers: Handlers,
    hold: Hold,
}

pub enum Hold {
    /// A context that is idle, or room for one more.
    Context(Promise),
    /// One of the calls or guests there may be.
    Seat { _permit: OwnedSemaphorePermit },
}

impl Hold {
    pub fn seat(permit: OwnedSemaphorePermit) -> Hold {
        Hold::Seat { _permit: permit }
    }
}

impl Handlers {
    /// A place where a batch would be run at once; `None`: there is no room. Ask before locking jobs for it.
    pub fn book(&self, client: &str, jobtype: &str, handler: &Handler) -> Option<Booking> {
        let inner = &self.inner;
        let seat = |limit: &Arc<Semaphore>| limit.clone().try_acquire_owned().ok().map(Hold::seat);
        let hold = match handler.lang {
            Lang::Http => seat(&inner.http_batches),
            Lang::Wasi => seat(&inner.wasi_batches),
            _ => inner.pool.promise(inner, inner.key(client, jobtype, handler)).map(Hold::Context),
        };
        Some(Booking { handlers: self.clone(), hold: hold? })
    }
}

impl Booking {
    /// The batch is of the client and type, and has the handler, that the place was booked for.
    pub fn start(self, batch: Batch) -> Run {
        self.handlers.start_with(batch, Some(self.hold))
    }
}
