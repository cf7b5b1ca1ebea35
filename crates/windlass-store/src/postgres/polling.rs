//! Polling for changes made by other servers on the same database.

use super::clock;
use super::shared::Shared;
use super::statements as sql;
use crate::Result;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tracing::{debug, warn};
use windlass_core::Timestamp;

/// Rows in the tallies below which summing up is not worthwhile, and the growth since the last time that
/// triggers it: every lane with jobs needs some rows.
const TALLIES_FEW: i64 = 500;
const TALLIES_SHARE: i64 = 3;
/// Share of time (1/10) spent on polling, so that an overloaded database gets no more load; `PAUSE_MAX`
/// bounds the pause, unless a longer poll interval is configured.
const SHARE: u32 = 10;
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Polls until the store is closed.
pub(super) async fn poll(shared: Weak<Shared>, poll_ms: u64) {
    let mut pause = Duration::from_millis(poll_ms.max(10));
    let mut was_well = true;
    loop {
        tokio::time::sleep(pause).await;
        let Some(shared) = shared.upgrade().filter(|shared| !shared.connector.is_closed()) else { return };
        let began = Instant::now();
        match poll_once(&shared).await {
            Ok(()) => was_well = true,
            Err(error) if was_well => {
                warn!(%error, "PostgreSQL is unreachable; nothing is acknowledged until it is reachable");
                was_well = false;
            }
            Err(error) => debug!(%error, "PostgreSQL is still unreachable"),
        }
        let share = (began.elapsed() * (SHARE - 1)).min(PAUSE_MAX);
        pause = Duration::from_millis(poll_ms.max(10)).max(share);
    }
}

/// Polls once: the clock, lanes and pauses of other servers, and jobs without a notification.
pub(super) async fn poll_once(shared: &Arc<Shared>) -> Result<()> {
    shared.open()?;
    let asked = clock::ours(shared);
    let hello = shared.pool.read(sql::HELLO, &[&shared.server]).await?;
    let answered = clock::ours(shared);
    if let Some(row) = hello.first() {
        let (there_us, has_company): (i64, bool) = (row.get(0), row.get(1));
        shared.outbox.set_company(has_company);
        if shared.follows_clock {
            let reading = clock::Reading { there_ms: there_us.div_euclid(1_000), asked, answered };
            clock::follow(shared, reading, row.get(2), row.get(3)).await?;
        }
        let (seen_before, ahead_ms): (Option<i64>, i64) = (row.get(3), shared.calendar().ahead_ms);
        shared.seen_before.get_or_init(|| seen_before.map(|ms| Timestamp::from_millis(ms - ahead_ms)));
    }
    shared.learn_lanes().await?;
    let paused = super::claims::paused(&shared.pool.read(sql::PAUSED, &[]).await?)?;
    shared.lanes().all_paused(paused);
    shared.refresh_all_heads(now(shared)).await?;
    // A limit may have been freed without a notification.
    shared.lanes().unpark(|held| held.until.is_none());
    shared.tell_news();
    shared.pool.write(sql::DROP_FULL_BUCKETS, &[]).await?;
    let most = shared.tallies_left.load(Ordering::Relaxed).saturating_mul(TALLIES_SHARE).max(TALLIES_FEW);
    let summed = shared.pool.write(sql::SUM_TALLIES, &[&most]).await?;
    let left: i64 = summed.first().map_or(0, |row| row.get(0));
    if left > 0 {
        shared.tallies_left.store(left, Ordering::Relaxed);
    }
    Ok(())
}

/// Current time on the timeline of the jobs.
pub(super) fn now(shared: &Shared) -> Timestamp {
    clock::ours(shared).plus_ms(shared.clock_ahead_ms.load(Ordering::Relaxed))
}

/// Signs off, so that other servers need not wait for our heartbeat to time out.
pub(super) async fn leave(shared: &Shared) {
    if let Err(error) = shared.pool.write(sql::GOODBYE, &[&shared.server]).await {
        debug!(%error, "cannot sign off from PostgreSQL");
    }
}
