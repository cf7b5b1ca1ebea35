//! Arriving request body: its minimum rate, and its memory.

use super::BadBody;
use crate::budget::{Budget, Share};
use crate::pace::{STALL, time_for};
use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Interval of the checks whether other requests wait for the memory of a large body.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Arriving {
    budget: Budget,
    /// Freed with the call.
    share: Share,
    began: Option<Instant>,
    bytes: usize,
}

impl Arriving {
    pub(super) fn new(budget: Budget) -> Arriving {
        Arriving { budget, share: Share::default(), began: None, bytes: 0 }
    }

    /// Waits for memory for this many bytes.
    pub(super) async fn cover(&mut self, bytes: usize) -> Result<(), BadBody> {
        let since = Instant::now();
        let covered = self.budget.cover(&mut self.share, bytes).await;
        if let Some(began) = &mut self.began {
            // Waiting for memory does not count as the client's slowness.
            *began += since.elapsed();
        }
        Ok(covered?)
    }

    /// Next chunk; `None` after the last.
    pub(super) async fn piece(&mut self, body: &mut Body) -> Result<Option<Bytes>, BadBody> {
        let since = Instant::now();
        let began = *self.began.get_or_insert(since);
        loop {
            let is_hurried = self.share.is_large() && self.budget.is_wanted();
            let left = time_for(self.bytes, is_hurried).saturating_sub(began.elapsed());
            let left = left.min(STALL.saturating_sub(since.elapsed()));
            if left.is_zero() {
                return Err(BadBody::Slow);
            }
            let look = if self.share.is_large() { left.min(LOOK) } else { left };
            let Ok(frame) = timeout(look, body.frame()).await else { continue };
            let Some(frame) = frame else { return Ok(None) };
            if let Ok(data) = frame.map_err(|_| BadBody::CutOff)?.into_data() {
                self.bytes += data.len();
                return Ok(Some(data));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads from a silent body of which `bytes` have arrived since `seconds_ago`.
    async fn piece(arriving: &mut Arriving, seconds_ago: u64, bytes: usize) -> Option<BadBody> {
        arriving.began = Instant::now().checked_sub(Duration::from_secs(seconds_ago));
        arriving.bytes = bytes;
        let mut silent = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let waited = timeout(Duration::from_millis(20), arriving.piece(&mut silent)).await;
        waited.ok().and_then(Result::err)
    }

    #[tokio::test]
    async fn a_body_that_trickles_is_given_up() {
        let mut arriving = Arriving::new(Budget::default());
        assert_eq!(piece(&mut arriving, 29, 1).await, None);
        assert_eq!(piece(&mut arriving, 31, 30).await, Some(BadBody::Slow));
        assert_eq!(piece(&mut arriving, 60, 1 << 20).await, None);
        assert_eq!(piece(&mut arriving, 100, 1 << 20).await, Some(BadBody::Slow));
    }

    #[tokio::test]
    async fn a_large_body_has_to_make_haste_when_others_wait_for_its_memory() {
        let budget = Budget::new(1 << 20);
        let mut arriving = Arriving::new(budget.clone());
        arriving.cover(1 << 20).await.unwrap();
        assert_eq!(piece(&mut arriving, 10, 1 << 20).await, None);
        let others = budget.clone();
        let other = tokio::spawn(async move {
            let mut share = Share::default();
            others.cover(&mut share, 1 << 20).await.is_ok()
        });
        while !budget.is_wanted() {
            tokio::task::yield_now().await;
        }
        assert_eq!(piece(&mut arriving, 8, 1 << 20).await, None);
        assert_eq!(piece(&mut arriving, 10, 1 << 20).await, Some(BadBody::Slow));
        drop(arriving);
        assert!(other.await.unwrap());
    }
}
