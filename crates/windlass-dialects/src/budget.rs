//! Memory budget for incoming requests, shared by all ports. A request without memory waits for a while and
//! is then refused (backpressure); the alternative is a server killed by the system.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

#[cfg(test)]
mod tests;

/// Memory per byte of a request: as received, decoded, and as passed to the store. In measurements eight
/// concurrent batches of 54 MB took twice their bytes, a single one three times at its peak.
const COST: usize = 3;
/// Unit of accounting.
const UNIT: usize = 16 << 10;
/// Requests of up to this size do not wait, as long as all of them together take less than a quarter of the
/// memory.
const SMALL_BYTES: usize = 64 << 10;
/// Time a request waits for memory.
const WAIT: Duration = Duration::from_secs(15);

/// Clones share the budget.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    units: u32,
    free: Arc<Semaphore>,
    wait: Duration,
    waiting: AtomicUsize,
    /// Bytes of small requests.
    small: AtomicUsize,
}

/// Memory held by one request; freed on drop.
#[derive(Debug, Default)]
pub struct Share {
    of: Option<Budget>,
    units: u32,
    permit: Option<OwnedSemaphorePermit>,
    small: usize,
}

/// No memory for a request of this size now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is busy with other large requests; retry later")]
pub struct Busy;

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(u64::MAX)
    }
}

impl Budget {
    pub fn new(bytes: u64) -> Budget {
        Budget::with_wait(bytes, WAIT)
    }

    /// Budget whose requests wait for `wait`.
    pub fn with_wait(bytes: u64, wait: Duration) -> Budget {
        let units = u32::try_from(bytes / UNIT as u64).unwrap_or(u32::MAX);
        let units = units.clamp(1, u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        let free = Arc::new(Semaphore::new(units as usize));
        let (waiting, small) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Budget(Arc::new(Inner { units, free, wait, waiting, small }))
    }

    /// Total size, in use or not.
    pub fn bytes(&self) -> u64 {
        u64::from(self.0.units) * UNIT as u64
    }

    /// Enlarges `share` for a request of `bytes`; waits while other requests hold the memory. A request that
    /// needs more than the total gets the total.
    pub async fn cover(&self, share: &mut Share, bytes: usize) -> Result<(), Busy> {
        if bytes <= SMALL_BYTES && share.units == 0 && self.cover_small(share, bytes) {
            return Ok(());
        }
        let wanted = bytes.saturating_mul(COST).div_ceil(UNIT);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).min(self.0.units);
        let Some(more) = wanted.checked_sub(share.units).filter(|more| *more > 0) else { return Ok(()) };
        let permit = match Arc::clone(&self.0.free).try_acquire_many_owned(more) {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = Waiting::new(&self.0.waiting);
                let acquired = timeout(self.0.wait, Arc::clone(&self.0.free).acquire_many_owned(more)).await;
                acquired.map_err(|_| Busy)?.map_err(|_| Busy)?
            }
        };
        match &mut share.permit {
            Some(own) => own.merge(permit),
            none => *none = Some(permit),
        }
        share.units = wanted;
        share.of.get_or_insert_with(|| self.clone());
        Ok(())
    }

    fn cover_small(&self, share: &mut Share, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(share.small).filter(|more| *more > 0) else { return true };
        let others = self.0.small.fetch_add(more, Ordering::Relaxed);
        share.small += more;
        share.of.get_or_insert_with(|| self.clone());
        others < self.0.units as usize / 4 * UNIT
    }

    /// True if a request waits for memory: holders should be quick.
    pub fn is_wanted(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }

    /// True if nearly all of it is in use.
    pub fn is_short(&self) -> bool {
        self.0.free.available_permits() < self.0.units as usize / 20
    }
}

impl Share {
    /// True if the share holds memory that others may wait for.
    pub fn is_large(&self) -> bool {
        self.units > 0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(budget) = &self.of {
            budget.0.small.fetch_sub(self.small, Ordering::Relaxed);
        }
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
