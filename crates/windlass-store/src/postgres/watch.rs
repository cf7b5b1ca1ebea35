//! What others do on the same database, and what time it is there.

use super::shared::Shared;
use super::statements as sql;
use crate::Result;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tracing::{debug, warn};
use windlass_core::Timestamp;

/// Entries in the tallies that are summed up; fewer cost a reader nothing worth mentioning. But there is no use in that before
/// there are so many times more than were left by the last time: every lane with jobs needs some.
const TALLIES_FEW: i64 = 500;
const TALLIES_SHARE: i64 = 3;
/// The looks of a poll take at most this part of the time, so that a database in trouble gets no more of it; but what others
/// do there is never left unseen for longer than this, or than was asked for.
const SHARE: u32 = 10;
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Looks again and again, until the store is gone.
pub async fn poll(shared: Weak<Shared>, poll_ms: u64) {
    let mut pause = Duration::from_millis(poll_ms.max(10));
    let mut was_well = true;
    loop {
        tokio::time::sleep(pause).await;
        let Some(shared) = shared.upgrade().filter(|shared| !shared.door.is_closed()) else { return };
        let began = Instant::now();
        match look_around(&shared).await {
            Ok(()) => was_well = true,
            Err(error) if was_well => {
                warn!(%error, "PostgreSQL cannot be reached; nothing is acknowledged until it can");
                was_well = false;
            }
            Err(error) => debug!(%error, "PostgreSQL still cannot be reached"),
        }
        let share = (began.elapsed() * (SHARE - 1)).min(PAUSE_MAX);
        pause = Duration::from_millis(poll_ms.max(10)).max(share);
    }
}

/// One look: the clock, lanes and pauses that others have made, jobs we have not heard of.
pub async fn look_around(shared: &Arc<Shared>) -> Result<()> {
    shared.open()?;
    let asked = ours(shared);
    let hello = shared.pool.read(sql::HELLO, &[&shared.server]).await?;
    let answered = ours(shared);
    if let Some(row) = hello.first() {
        let (there_us, has_company): (i64, bool) = (row.get(0), row.get(1));
        shared.outbox.set_company(has_company);
        let known = shared.clock_ahead_ms.load(Ordering::Relaxed);
        let ahead = ahead_ms(known, there_us.div_euclid(1_000), asked, answered);
        shared.clock_ahead_ms.store(ahead, Ordering::Relaxed);
    }
    shared.learn_lanes().await?;
    let paused = super::claims::paused(&shared.pool.read(sql::PAUSED, &[]).await?)?;
    shared.lanes().all_paused(paused);
    shared.refresh_all_heads(now(shared)).await?;
    // What holds jobs back may have been freed without our hearing of it.
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

/// How far the other clock is ahead. It was read at some moment between question and answer: what we thought stays as long as
/// that can be true, so that a slow answer moves nothing.
fn ahead_ms(known: i64, there_ms: i64, asked: Timestamp, answered: Timestamp) -> i64 {
    // Milliseconds are cut off on both sides.
    let least = there_ms.saturating_sub(answered.as_millis()).saturating_sub(1);
    let most = there_ms.saturating_sub(asked.as_millis()).saturating_add(1);
    known.clamp(least, most.max(least))
}

/// As this machine has it, whoever sets its clock.
fn ours(shared: &Shared) -> Timestamp {
    crate::steady::now().plus_ms(shared.clock_error_ms)
}

/// As the database's clock has it.
pub fn now(shared: &Shared) -> Timestamp {
    ours(shared).plus_ms(shared.clock_ahead_ms.load(Ordering::Relaxed))
}

/// The others need not wait for our signs of life to stop.
pub async fn leave(shared: &Shared) {
    if let Err(error) = shared.pool.write(sql::GOODBYE, &[&shared.server]).await {
        debug!(%error, "leaving PostgreSQL");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_believed_until_an_answer_says_otherwise() {
        let at = Timestamp::from_millis;
        for (known, there, asked, answered, expected) in [
            (0, 1_003, 1_000, 1_010, 0), // the same clock, and a slow answer
            (0, 1_000, 1_000, 1_000, 0),
            (0, 4_600_000, 1_000_000, 1_000_004, 3_599_995), // an hour ahead, at the least
            (3_599_995, 4_600_500, 1_000_500, 1_000_501, 3_599_998), // a quicker answer tells it better
            (3_599_998, 4_700_000, 1_100_000, 1_100_900, 3_599_998), // a slow one tells nothing
            (0, 1_000, 4_000, 4_002, -2_999),                // behind
        ] {
            assert_eq!(ahead_ms(known, there, at(asked), at(answered)), expected, "{known} {there}");
        }
    }
}
