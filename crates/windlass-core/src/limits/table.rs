//! All limits of one tenant, and the gauges of the keys that are in use.

use super::{BadLimit, Gauge, Limit, Subject, Tokens, Verdict, limit_id_of};
use crate::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Limits per tenant: every push is held against each of them.
pub const LIMITS_MAX: usize = 256;

/// Gauges of one limit below which looking for idle ones is not worth the while.
const SWEEP_GAUGES_MIN: usize = 64;

/// Keys are those of [`Limits::keys_for`], kept with the job. A key whose limit is gone holds nothing.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    entries: BTreeMap<Box<str>, Entry>,
    /// When a key that held a job may open, so far as only time is missing.
    openings: BTreeSet<Timestamp>,
}

/// A job may not start now. Ask again at `until`, or (`None`) when a job with this key ends; in both
/// cases also when one with this key is given back or the limits change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub key: Arc<str>,
    pub until: Option<Timestamp>,
}

impl Limits {
    /// Adds a limit with full buckets, or changes one: its buckets keep what they have, its counts stay.
    ///
    /// The caller then works out the keys of all jobs anew: a running job that gained a key is charged
    /// with [`Limits::charge_running`], one that lost a key is ended under it with [`Limits::end`].
    pub fn set(&mut self, limit: Limit, now: Timestamp) -> Result<(), BadLimit> {
        self.put(limit, now, Birth::Full)
    }

    /// Adds a limit known from before a restart: its buckets start empty, see [`Gauge::empty`].
    pub fn load(&mut self, limit: Limit, now: Timestamp) -> Result<(), BadLimit> {
        self.put(limit, now, Birth::Empty)
    }

    /// Forgets the limit and its gauges; what it held may start at once.
    pub fn remove(&mut self, id: &str) -> Option<Limit> {
        self.entries.remove(id).map(|entry| entry.limit)
    }

    pub fn get(&self, id: &str) -> Option<&Limit> {
        self.entries.get(id).map(|entry| &entry.limit)
    }

    /// By id.
    pub fn iter(&self) -> impl Iterator<Item = &Limit> {
        self.entries.values().map(|entry| &entry.limit)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether [`Limits::keys_for`] would look at the payload of this job; `subject.args` may be null.
    pub fn needs_args(&self, subject: &Subject<'_>) -> bool {
        self.iter().any(|limit| match limit.matcher.matches_unseen(subject) {
            Some(matches) => matches && !limit.group_by.is_empty(),
            None => true,
        })
    }

    /// The keys of all limits that are about this job.
    pub fn keys_for(&self, subject: &Subject<'_>) -> Vec<Arc<str>> {
        self.entries.values().filter_map(|entry| entry.key_for(subject)).collect()
    }

    /// The first of the keys that lets nothing start now.
    pub fn held(&mut self, keys: &[Arc<str>], now: Timestamp) -> Option<Held> {
        keys.iter().find_map(|key| {
            let until = match self.may_start(key, now) {
                Verdict::Yes => return None,
                Verdict::NotBefore(at) => Some(at),
                Verdict::WhenOneEnds => None,
            };
            Some(Held { key: key.clone(), until })
        })
    }

    /// Takes a token and a place under every key, or nothing at all.
    pub fn admit(&mut self, keys: &[Arc<str>], now: Timestamp) -> Result<(), Held> {
        if let Some(held) = self.held(keys, now) {
            self.remember_opening(held.until, now);
            return Err(held);
        }
        for key in keys {
            if let Some(entry) = self.entries.get_mut(limit_id_of(key)) {
                entry.gauge_of(key, now).start(now);
            }
        }
        Ok(())
    }

    /// What was admitted could not be handed out after all.
    pub fn give_back(&mut self, keys: &[Arc<str>], now: Timestamp) {
        self.update(keys, |gauge| {
            gauge.give_back(now);
            gauge.is_idle(now)
        });
    }

    /// What was admitted and has ended since counts as never started: its tokens return.
    pub fn refund(&mut self, keys: &[Arc<str>], now: Timestamp) {
        self.update(keys, |gauge| {
            gauge.refund(now);
            gauge.is_idle(now)
        });
    }

    /// What was admitted or charged does not run any more.
    pub fn end(&mut self, keys: &[Arc<str>]) {
        self.update(keys, |gauge| {
            gauge.end();
            // Without a clock: what time has earned since it was last seen is left for the next sweep.
            gauge.is_idle(Timestamp::EPOCH)
        });
    }

    /// Counts a job that runs already, also beyond `max_running`: it cannot be undone, only waited for.
    pub fn charge_running(&mut self, keys: &[Arc<str>]) {
        for key in keys {
            if let Some(entry) = self.entries.get_mut(limit_id_of(key)) {
                let born_at = entry.born_at;
                entry.gauge_of(key, born_at).charge_running();
            }
        }
    }

    /// Takes over what all who share this limit have come to under one key, whatever was thought of it here.
    pub fn adopt(&mut self, key: &Arc<str>, running: u32, tokens: Option<Tokens>, now: Timestamp) {
        if let Some(entry) = self.entries.get_mut(limit_id_of(key)) {
            entry.gauge_of(key, now).adopt(running, tokens, now);
        }
    }

    /// What is in the bucket of a key, for others to adopt, and when it will be full by itself. `None`: there is no
    /// bucket, or it is full.
    pub fn tokens(&self, key: &str, now: Timestamp) -> Option<(Tokens, Timestamp)> {
        let gauge = self.entries.get(limit_id_of(key))?.gauges.get(key)?;
        let full_at = gauge.full_at().filter(|full_at| *full_at > now)?;
        Some((gauge.tokens()?, full_at))
    }

    /// Whatever is thought of a key here: it is known elsewhere, and adopted before it is asked about again.
    pub fn forget(&mut self, key: &str) {
        if let Some(entry) = self.entries.get_mut(limit_id_of(key)) {
            entry.gauges.remove(key);
        }
    }

    /// The next moment after `now` at which a key that held a job may open by itself.
    pub fn next_change(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.forget_openings_until(now);
        self.openings.first().copied()
    }

    /// Gauges kept: those of keys that run or have not yet earned back what they spent.
    pub fn gauges(&self) -> usize {
        self.entries.values().map(|entry| entry.gauges.len()).sum()
    }

    fn put(&mut self, limit: Limit, now: Timestamp, birth: Birth) -> Result<(), BadLimit> {
        if let Some(entry) = self.entries.get_mut(&limit.id) {
            entry.change(limit, now);
            return Ok(());
        }
        if self.entries.len() == LIMITS_MAX {
            return Err(BadLimit::TooMany { max: LIMITS_MAX });
        }
        self.entries.insert(limit.id.clone(), Entry::new(limit, now, birth));
        Ok(())
    }

    fn may_start(&mut self, key: &str, now: Timestamp) -> Verdict {
        let Some(entry) = self.entries.get_mut(limit_id_of(key)) else { return Verdict::Yes };
        match entry.gauges.get_mut(key) {
            Some(gauge) => gauge.may_start(now),
            None => entry.new_gauge(now).may_start(now),
        }
    }

    /// Changes the gauges that there are; one that comes out idle is dropped.
    fn update(&mut self, keys: &[Arc<str>], mut change: impl FnMut(&mut Gauge) -> bool) {
        for key in keys {
            let Some(entry) = self.entries.get_mut(limit_id_of(key)) else { continue };
            let Some(gauge) = entry.gauges.get_mut(key) else { continue };
            if change(gauge) {
                entry.gauges.remove(key);
            }
        }
    }

    fn remember_opening(&mut self, until: Option<Timestamp>, now: Timestamp) {
        self.forget_openings_until(now);
        self.openings.extend(until);
    }

    fn forget_openings_until(&mut self, now: Timestamp) {
        while self.openings.first().is_some_and(|at| *at <= now) {
            self.openings.pop_first();
        }
    }
}

/// What the gauge of a key that was not seen before starts with, at the limit's `born_at`.
#[derive(Clone, Copy, Debug)]
enum Birth {
    Full,
    Empty,
}

#[derive(Clone, Debug)]
struct Entry {
    limit: Limit,
    birth: Birth,
    born_at: Timestamp,
    /// The key without groups, shared by all jobs that have it.
    key: Arc<str>,
    gauges: HashMap<Arc<str>, Gauge>,
    /// How many gauges there may be before the idle ones are looked for.
    sweep_at: usize,
}

impl Entry {
    fn new(limit: Limit, now: Timestamp, birth: Birth) -> Entry {
        let key = Arc::from(&*limit.id);
        Entry { limit, birth, born_at: now, key, gauges: HashMap::new(), sweep_at: SWEEP_GAUGES_MIN }
    }

    fn change(&mut self, limit: Limit, now: Timestamp) {
        for gauge in self.gauges.values_mut() {
            gauge.adapt(&limit, now);
        }
        self.limit = limit;
        self.drop_idle(now);
    }

    fn key_for(&self, subject: &Subject<'_>) -> Option<Arc<str>> {
        let key = self.limit.key_for(subject)?;
        if self.limit.group_by.is_empty() {
            return Some(self.key.clone());
        }
        match self.gauges.get_key_value(key.as_str()) {
            Some((key, _)) => Some(key.clone()),
            None => Some(key.into()),
        }
    }

    /// The same as the gauge that was dropped as idle: one born empty has long been full by then, or it
    /// would not have become idle.
    fn new_gauge(&mut self, now: Timestamp) -> Gauge {
        // The clock was set back; waiting for the old time to come round again would stop work.
        self.born_at = self.born_at.min(now);
        match self.birth {
            Birth::Full => Gauge::full(&self.limit, self.born_at),
            Birth::Empty => Gauge::empty(&self.limit, self.born_at),
        }
    }

    fn gauge_of(&mut self, key: &Arc<str>, now: Timestamp) -> &mut Gauge {
        if self.gauges.len() >= self.sweep_at && !self.gauges.contains_key(key) {
            self.drop_idle(now);
        }
        let fresh = self.new_gauge(now);
        self.gauges.entry(key.clone()).or_insert(fresh)
    }

    /// Each look at all gauges is paid for by as many new ones.
    fn drop_idle(&mut self, now: Timestamp) {
        self.gauges.retain(|_, gauge| !gauge.is_idle(now));
        self.sweep_at = (self.gauges.len() * 2).max(SWEEP_GAUGES_MIN);
    }
}
