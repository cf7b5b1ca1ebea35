//! Limits of one tenant, and the gauges of the keys in use.

use super::{BadLimit, Gauge, Limit, Subject, Tokens, Verdict, limit_id_of};
use crate::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Limits per tenant: every push is checked against each of them.
pub const LIMITS_MAX: usize = 256;

/// Number of gauges of one limit below which no sweep for idle gauges is made.
const SWEEP_GAUGES_MIN: usize = 64;

/// Limits by id. Keys come from [`Limits::keys_for`] and are stored with the job. A key of a deleted limit
/// blocks nothing.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    entries: BTreeMap<Box<str>, Entry>,
    /// Times at which a key that blocked a job by its rate may allow a start.
    openings: BTreeSet<Timestamp>,
}

/// A job may not start now. Ask again at `until`, or (`None`) when a job with this key ends; in both cases
/// also when a job with this key is given back or the limits change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub key: Arc<str>,
    pub until: Option<Timestamp>,
}

impl Limits {
    /// Adds a limit with full buckets, or changes a limit, whose buckets and running counts stay.
    ///
    /// The caller then recomputes the keys of all jobs: a running job that gained a key is charged with
    /// [`Limits::charge_running`], a running job that lost a key is ended under it with [`Limits::end`].
    pub fn set(&mut self, limit: Limit, now: Timestamp) -> Result<(), BadLimit> {
        self.put(limit, now, Birth::Full)
    }

    /// Adds a limit loaded after a restart: its buckets start empty, see [`Gauge::empty`].
    pub fn load(&mut self, limit: Limit, now: Timestamp) -> Result<(), BadLimit> {
        self.put(limit, now, Birth::Empty)
    }

    /// Deletes the limit and its gauges; the jobs it blocked may start at once.
    pub fn remove(&mut self, id: &str) -> Option<Limit> {
        self.entries.remove(id).map(|entry| entry.limit)
    }

    pub fn get(&self, id: &str) -> Option<&Limit> {
        self.entries.get(id).map(|entry| &entry.limit)
    }

    /// Limits ordered by id.
    pub fn iter(&self) -> impl Iterator<Item = &Limit> {
        self.entries.values().map(|entry| &entry.limit)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True if [`Limits::keys_for`] needs the payload of this job; `subject.args` may be null.
    pub fn needs_args(&self, subject: &Subject<'_>) -> bool {
        self.iter().any(|limit| match limit.matcher.matches_unseen(subject) {
            Some(matches) => matches && !limit.group_by.is_empty(),
            None => true,
        })
    }

    /// Keys of all limits that apply to this job.
    pub fn keys_for(&self, subject: &Subject<'_>) -> Vec<Arc<str>> {
        self.entries.values().filter_map(|entry| entry.key_for(subject)).collect()
    }

    /// First key that allows no start now.
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

    /// Takes a token and a slot under every key, or none at all.
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

    /// Returns tokens and slots of an admitted job that was not handed out after all.
    pub fn give_back(&mut self, keys: &[Arc<str>], now: Timestamp) {
        self.update(keys, |gauge| {
            gauge.give_back(now);
            gauge.is_idle(now)
        });
    }

    /// Returns the tokens of an admitted job that has ended and counts as never started.
    pub fn refund(&mut self, keys: &[Arc<str>], now: Timestamp) {
        self.update(keys, |gauge| {
            gauge.refund(now);
            gauge.is_idle(now)
        });
    }

    /// Frees the slots of an admitted or charged job that no longer runs.
    pub fn end(&mut self, keys: &[Arc<str>]) {
        self.update(keys, |gauge| {
            gauge.end();
            // No clock here: tokens earned since the last refill are left for the next sweep.
            gauge.is_idle(Timestamp::EPOCH)
        });
    }

    /// Counts a job that already runs, even beyond `max_running`: a running job cannot be stopped here.
    pub fn charge_running(&mut self, keys: &[Arc<str>]) {
        for key in keys {
            if let Some(entry) = self.entries.get_mut(limit_id_of(key)) {
                let born_at = entry.born_at;
                entry.gauge_of(key, born_at).charge_running();
            }
        }
    }

    /// Replaces the local state of a key by the state shared by all servers.
    pub fn adopt(&mut self, key: &Arc<str>, running: u32, tokens: Option<Tokens>, now: Timestamp) {
        if let Some(entry) = self.entries.get_mut(limit_id_of(key)) {
            entry.gauge_of(key, now).adopt(running, tokens, now);
        }
    }

    /// Bucket contents of a key, to be adopted by other servers, and the time at which the bucket is full.
    /// `None`: there is no bucket, or it is full.
    pub fn tokens(&self, key: &str, now: Timestamp) -> Option<(Tokens, Timestamp)> {
        let gauge = self.entries.get(limit_id_of(key))?.gauges.get(key)?;
        let full_at = gauge.full_at().filter(|full_at| *full_at > now)?;
        Some((gauge.tokens()?, full_at))
    }

    /// Drops the local gauge of a key. The shared store holds its state, and the caller adopts that before
    /// the next check.
    pub fn forget(&mut self, key: &str) {
        if let Some(entry) = self.entries.get_mut(limit_id_of(key)) {
            entry.gauges.remove(key);
        }
    }

    /// Next time after `now` at which a blocked key may allow a start without another event.
    pub fn next_change(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.forget_openings_until(now);
        self.openings.first().copied()
    }

    /// Number of gauges kept: keys with running jobs or with a bucket that is not full.
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

    /// Changes existing gauges; a gauge that becomes idle is dropped.
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

/// Initial bucket of a key that was not seen before, at the limit's `born_at`.
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
    /// Key without groups, shared by all jobs that have it.
    key: Arc<str>,
    gauges: HashMap<Arc<str>, Gauge>,
    /// Number of gauges at which the next sweep for idle gauges starts.
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

    /// Equals the gauge that was dropped as idle: a gauge that was created empty has become full before it
    /// was dropped.
    fn new_gauge(&mut self, now: Timestamp) -> Gauge {
        // The clock was set back; waiting for the old time to return would block all jobs.
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

    /// The threshold doubles with the number of gauges, so the cost of a sweep is amortised over as many
    /// inserts.
    fn drop_idle(&mut self, now: Timestamp) {
        self.gauges.retain(|_, gauge| !gauge.is_idle(now));
        self.sweep_at = (self.gauges.len() * 2).max(SWEEP_GAUGES_MIN);
    }
}
