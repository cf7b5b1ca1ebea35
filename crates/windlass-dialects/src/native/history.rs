//! Counters for each hour of the last thirty days. Stored as one small note per day, so that they survive a
//! restart. Increments are added to the stored values, so that several servers on one store can share them.

#[cfg(test)]
mod tests;

use super::State;
use super::rates::{Counts, EVERY, counts, difference};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::Timestamp;
use windlass_engine::{Engine, EngineError};

const PREFIX: &str = "history/";
pub const HOUR_MS: i64 = 3_600_000;
/// A month, the usual span for comparisons.
pub const HOURS_MAX: i64 = 30 * 24;
/// Samples between two writes; a crash loses at most these.
const WRITE_EVERY_SAMPLES: u32 = 12;

/// Increments that are not stored yet, by hour since 1970.
#[derive(Default)]
pub struct History {
    unwritten: Mutex<BTreeMap<i64, Counts>>,
    /// Counters at the last sample; they start at zero, as those of the server do.
    seen: Mutex<Counts>,
}

impl History {
    /// Records the growth of the counters since the last call.
    pub fn read(&self, engine: &Engine) {
        let now = counts(engine.meters());
        let before = std::mem::replace(&mut *self.seen.lock(), now);
        self.add(engine.now().calendar_ms().div_euclid(HOUR_MS), difference(now, before));
    }

    fn add(&self, hour: i64, grown: Counts) {
        if grown != Counts::default() {
            let mut unwritten = self.unwritten.lock();
            let hour = unwritten.entry(hour).or_default();
            *hour = sum(*hour, grown);
        }
    }

    /// Adds the increments to the stored notes. Increments that could not be written are kept for the next
    /// call.
    pub async fn write(&self, engine: &Engine) -> Result<(), EngineError> {
        let unwritten = std::mem::take(&mut *self.unwritten.lock());
        let mut days: BTreeMap<i64, BTreeMap<i64, Counts>> = BTreeMap::new();
        for (hour, grown) in unwritten {
            days.entry(hour.div_euclid(24)).or_default().insert(hour, grown);
        }
        while let Some((day, hours)) = days.pop_first() {
            if let Err(error) = add_to_day(engine, day, &hours).await {
                let left = days.into_values().flatten().chain(hours);
                left.for_each(|(hour, grown)| self.add(hour, grown));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Counters by hour since 1970, stored or not.
    pub async fn hours(&self, engine: &Engine) -> Result<BTreeMap<i64, Counts>, EngineError> {
        let unwritten = self.unwritten.lock().clone();
        let mut hours = unwritten;
        for (key, value) in engine.notes(PREFIX).await? {
            let Some(day) = day_of(&key) else { continue };
            for (hour, grown) in (day * 24..).zip(read_day(&value)) {
                let known = hours.entry(hour).or_default();
                *known = sum(*known, grown);
            }
        }
        Ok(hours)
    }
}

async fn add_to_day(engine: &Engine, day: i64, new: &BTreeMap<i64, Counts>) -> Result<(), EngineError> {
    let key = format!("{PREFIX}{day:06}");
    let notes = engine.notes(PREFIX).await?;
    let mut hours = notes
        .iter()
        .find(|(known, _)| *known == key)
        .map_or([Counts::default(); 24], |(_, value)| read_day(value));
    for (hour, grown) in new {
        let slot = &mut hours[hour.rem_euclid(24) as usize];
        *slot = sum(*slot, *grown);
    }
    let value = serde_json::to_vec(&hours).unwrap_or_default();
    engine.put_note(&key, Some(value)).await?;
    for (old, _) in notes {
        if day_of(&old).is_some_and(|old| old < day - HOURS_MAX / 24) {
            engine.put_note(&old, None).await?;
        }
    }
    Ok(())
}

fn day_of(key: &str) -> Option<i64> {
    key.strip_prefix(PREFIX)?.parse().ok()
}

/// An unreadable note counts as a day without data: the figures are informational only.
fn read_day(value: &[u8]) -> [Counts; 24] {
    serde_json::from_slice(value).unwrap_or_default()
}

fn sum(a: Counts, b: Counts) -> Counts {
    std::array::from_fn(|index| a[index].saturating_add(b[index]))
}

/// Samples the counters periodically. Never returns.
pub(super) async fn keep_sampling(state: Arc<State>) {
    let engine = &state.engine;
    let mut samples = 0_u32;
    loop {
        state.rates.sample(engine.now(), engine.meters());
        state.deleted.sweep(engine.now());
        tokio::time::sleep(EVERY).await;
        state.history.read(engine);
        samples += 1;
        if samples.is_multiple_of(WRITE_EVERY_SAMPLES)
            && let Err(error) = state.history.write(engine).await
        {
            tracing::debug!(%error, "cannot store the history; retrying");
        }
    }
}

/// Counters from the first hour with data, at most [`HOURS_MAX`] hours back.
pub fn last_hours(hours: &BTreeMap<i64, Counts>, now: Timestamp) -> (Timestamp, i64, Vec<Counts>) {
    let last = now.calendar_ms().div_euclid(HOUR_MS);
    let oldest = last - HOURS_MAX + 1;
    let first = hours.range(oldest..=last).next().map_or(last, |(hour, _)| *hour);
    let steps = (first..=last).map(|hour| hours.get(&hour).copied().unwrap_or_default()).collect();
    (Timestamp::from_calendar_ms(first * HOUR_MS), HOUR_MS, steps)
}
