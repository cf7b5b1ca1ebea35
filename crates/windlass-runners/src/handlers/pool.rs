//! Pool of contexts: idle ones by key, and slots for running ones.

use super::Inner;
use super::booking::{CONTEXTS, Hold};
use super::context::Context;
use super::handler::{Handler, Lang};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Instant;
use windlass_core::handler::{Batch, NoRoom};

/// Owner and kind of a context. Every key names a client, so clients never share a context.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub client: String,
    pub name: Name,
    pub lang: Lang,
    pub network: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    Eid(String),
    Jobtype(String),
}

impl Key {
    pub(super) fn name_of(eid: Option<&str>, jobtype: &str) -> Name {
        match eid {
            Some(eid) => Name::Eid(eid.to_owned()),
            None => Name::Jobtype(jobtype.to_owned()),
        }
    }
}

/// True if handlers with these `before` hooks can share a context: a context runs `before` once, so the hooks
/// must be equal or one must be absent.
fn can_share(before: Option<&str>, another: Option<&str>) -> bool {
    before.zip(another).is_none_or(|(before, another)| before == another)
}

struct Idle {
    key: Key,
    context: Context,
    slot: usize,
    since: Instant,
}

pub(super) struct Pool {
    state: Mutex<State>,
    per_key: usize,
    per_client: usize,
}

struct State {
    /// Longest idle first.
    idle: Vec<Idle>,
    busy: HashMap<Key, usize>,
    /// Reserved contexts per key.
    promised: HashMap<Key, usize>,
    free: BTreeSet<usize>,
    janitor: bool,
}

/// Reservation of a new or idle context with this key. Reservations limit only other reservations: a batch
/// that needs a replacement context takes any free slot.
pub(super) struct Promise {
    inner: Arc<Inner>,
    key: Key,
    is_kept: bool,
}

/// Slot of a running context; freed on drop.
pub(super) struct Seat {
    inner: Arc<Inner>,
    key: Key,
    slot: usize,
    /// The slot passes on to an idle context.
    kept: bool,
}

/// Result of the search for a context.
pub(super) enum Found {
    Warm(Context, Seat),
    /// Slot for a new context, and an idle context that must be killed first.
    Cold(Seat, Option<Context>),
    /// All slots are in use.
    Full,
}

impl Pool {
    pub(super) fn new(contexts_max: usize, per_key: usize, per_client: usize) -> Pool {
        let state = State {
            idle: Vec::new(),
            busy: HashMap::new(),
            promised: HashMap::new(),
            free: (0..contexts_max).collect(),
            janitor: false,
        };
        Pool { state: Mutex::new(state), per_key, per_client }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn promise(&self, inner: &Arc<Inner>, key: Key) -> Result<Promise, NoRoom> {
        let mut state = self.state();
        if state.used(|used| *used == key) >= self.per_key
            || state.used(|used| used.client == key.client) >= self.per_client
        {
            return Err(NoRoom::OwnShare);
        }
        // An idle context can be replaced, so it counts as free.
        if state.free.len() + state.idle.len() <= state.promised.values().sum() {
            return Err(NoRoom::Full(CONTEXTS));
        }
        *state.promised.entry(key.clone()).or_default() += 1;
        Ok(Promise { inner: Arc::clone(inner), key, is_kept: false })
    }

    /// Takes an idle context that has neither an older version of this handler nor another `before`, or a
    /// slot for a new one. On success the reservation in `promised` is consumed.
    pub(super) fn take(
        &self,
        inner: &Arc<Inner>,
        key: &Key,
        batch: &Batch<Handler>,
        promised: &mut Option<Hold>,
    ) -> Found {
        let mut state = self.state();
        let found = self.find(&mut state, inner, key, batch);
        // Under the same lock, so that the reservation and the slot are never counted twice.
        if !matches!(found, Found::Full)
            && let Some(Hold::Context(promise)) = promised.take()
        {
            promise.keep(&mut state);
        }
        found
    }

    fn find(&self, state: &mut State, inner: &Arc<Inner>, key: &Key, batch: &Batch<Handler>) -> Found {
        let is_old = |idle: &Idle| {
            let known = idle.context.handlers.get(&batch.jobtype);
            idle.key == *key && known.is_some_and(|(known, _)| *known != batch.version)
        };
        let fits = |idle: &Idle| {
            idle.key == *key
                && !is_old(idle)
                && can_share(idle.context.before.as_deref(), batch.handler.before.as_deref())
        };
        // Prefers the most recently used context: its memory is in caches, and the others can expire.
        if let Some(at) = state.idle.iter().rposition(fits) {
            let idle = state.idle.remove(at);
            idle.context.thaw();
            let seat = state.seat(inner, key, idle.slot);
            return Found::Warm(idle.context, seat);
        }
        let is_at_limit = state.count(key) >= self.per_key;
        let own = state.idle.iter().position(|idle| is_old(idle) || (is_at_limit && idle.key == *key));
        if own.is_none() && is_at_limit {
            return Found::Full;
        }
        // Replaces an outdated context of the same key, else uses a free slot, else replaces the longest idle
        // one.
        let replaced = match (own, state.free.pop_first()) {
            (Some(at), free) => {
                state.free.extend(free);
                Some(state.idle.remove(at))
            }
            (None, Some(slot)) => {
                let seat = state.seat(inner, key, slot);
                return Found::Cold(seat, None);
            }
            (None, None) if state.idle.is_empty() => None,
            (None, None) => Some(state.idle.remove(0)),
        };
        let Some(replaced) = replaced else { return Found::Full };
        let seat = state.seat(inner, key, replaced.slot);
        Found::Cold(seat, Some(replaced.context))
    }

    /// Clients and job types of idle contexts.
    pub(super) fn warm(&self) -> Vec<(String, String)> {
        let state = self.state();
        let known = state.idle.iter().flat_map(|idle| {
            idle.context.handlers.keys().map(|jobtype| (idle.key.client.clone(), jobtype.clone()))
        });
        known.collect()
    }

    pub(super) fn take_idle(&self) -> Vec<Context> {
        let mut state = self.state();
        let all = std::mem::take(&mut state.idle);
        state.free.extend(all.iter().map(|idle| idle.slot));
        all.into_iter().map(|idle| idle.context).collect()
    }

    /// Removes expired idle contexts, and returns the time of the next expiry.
    fn expired(&self, idle_max: std::time::Duration) -> (Vec<Context>, Option<Instant>) {
        let mut state = self.state();
        let now = Instant::now();
        let count = state.idle.iter().take_while(|idle| now >= idle.since + idle_max).count();
        let gone: Vec<Idle> = state.idle.drain(..count).collect();
        state.free.extend(gone.iter().map(|idle| idle.slot));
        let next = state.idle.first().map(|idle| idle.since + idle_max);
        state.janitor = next.is_some();
        (gone.into_iter().map(|idle| idle.context).collect(), next)
    }
}

impl Promise {
    fn keep(mut self, state: &mut State) {
        self.is_kept = true;
        state.forget_promise(&self.key);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if !self.is_kept {
            self.inner.pool.state().forget_promise(&self.key);
        }
    }
}

impl State {
    fn forget_promise(&mut self, key: &Key) {
        if let Some(count) = self.promised.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.promised.remove(key);
            }
        }
    }

    /// Number of running and reserved contexts.
    fn used(&self, is_counted: impl Fn(&Key) -> bool) -> usize {
        let both = self.busy.iter().chain(&self.promised);
        both.filter(|(key, _)| is_counted(key)).map(|(_, count)| count).sum()
    }

    fn count(&self, key: &Key) -> usize {
        let idle = self.idle.iter().filter(|idle| idle.key == *key).count();
        idle + self.busy.get(key).copied().unwrap_or(0)
    }

    fn seat(&mut self, inner: &Arc<Inner>, key: &Key, slot: usize) -> Seat {
        *self.busy.entry(key.clone()).or_default() += 1;
        Seat { inner: Arc::clone(inner), key: key.clone(), slot, kept: false }
    }
}

impl Seat {
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Freezes the context and keeps it for the next batch.
    pub(super) fn keep(mut self, context: Context) {
        context.freeze();
        let start_janitor = {
            let mut state = self.inner.pool.state();
            let idle = Idle { key: self.key.clone(), context, slot: self.slot, since: Instant::now() };
            state.idle.push(idle);
            !std::mem::replace(&mut state.janitor, true)
        };
        self.kept = true;
        if start_janitor {
            tokio::spawn(tidy_up(Arc::downgrade(&self.inner)));
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        {
            let mut state = self.inner.pool.state();
            if let Some(count) = state.busy.get_mut(&self.key) {
                *count -= 1;
                if *count == 0 {
                    state.busy.remove(&self.key);
                }
            }
            if !self.kept {
                state.free.insert(self.slot);
            }
        }
        self.inner.room.notify_waiters();
    }
}

/// Task that kills expired idle contexts; ends when none is idle.
async fn tidy_up(inner: Weak<Inner>) {
    loop {
        let Some(strong) = inner.upgrade() else { return };
        let (gone, next) = strong.pool.expired(strong.settings.idle);
        for mut context in gone {
            context.kill().await;
        }
        strong.room.notify_waiters();
        drop(strong);
        let Some(next) = next else { return };
        tokio::time::sleep_until(next.into()).await;
    }
}
