//! Which contexts there are: idle ones by what they are for, and seats for those that run.

use super::Inner;
use super::booking::Hold;
use super::context::Context;
use super::handler::Lang;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// Whose a context is. There is none without a client in its key, so no context is ever shared between two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub client: String,
    pub name: Name,
    pub lang: Lang,
    pub network: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    Eid(String),
    Jobtype(String),
}

impl Key {
    pub fn name_of(eid: Option<&str>, jobtype: &str) -> Name {
        match eid {
            Some(eid) => Name::Eid(eid.to_owned()),
            None => Name::Jobtype(jobtype.to_owned()),
        }
    }
}

struct Idle {
    key: Key,
    context: Context,
    slot: usize,
    since: Instant,
}

pub struct Pool {
    state: Mutex<State>,
    per_key: usize,
}

struct State {
    /// The longest idle first.
    idle: Vec<Idle>,
    busy: HashMap<Key, usize>,
    /// Contexts that batches are about to take.
    promised: HashMap<Key, usize>,
    free: BTreeSet<usize>,
    janitor: bool,
}

/// Room for one context of this kind, or an idle one. It binds those who ask for promises; a batch that has lost its
/// context and needs another takes what there is.
pub struct Promise {
    inner: Arc<Inner>,
    key: Key,
    is_kept: bool,
}

/// A place for one context that runs; given back when it is dropped.
pub struct Seat {
    inner: Arc<Inner>,
    key: Key,
    slot: usize,
    /// The place goes on with an idle context in it.
    kept: bool,
}

/// What is found for a batch.
pub enum Found {
    Warm(Context, Seat),
    /// A context is to be started; the one that had its place before is to be ended first.
    Cold(Seat, Option<Context>),
    /// Everything is in use.
    Full,
}

impl Pool {
    pub fn new(contexts_max: usize, per_key: usize) -> Pool {
        let state = State {
            idle: Vec::new(),
            busy: HashMap::new(),
            promised: HashMap::new(),
            free: (0..contexts_max).collect(),
            janitor: false,
        };
        Pool { state: Mutex::new(state), per_key }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: everything is in use or promised.
    pub fn promise(&self, inner: &Arc<Inner>, key: Key) -> Option<Promise> {
        let mut state = self.state();
        let of = |counts: &HashMap<Key, usize>| counts.get(&key).copied().unwrap_or(0);
        // An idle context makes way for another if it has to.
        let is_place_left = state.free.len() + state.idle.len() > state.promised.values().sum();
        if !is_place_left || of(&state.busy) + of(&state.promised) >= self.per_key {
            return None;
        }
        *state.promised.entry(key.clone()).or_default() += 1;
        Some(Promise { inner: Arc::clone(inner), key, is_kept: false })
    }

    /// Of the idle contexts only one that knows no older version of this handler. If something is found, `promised` is kept
    /// by it.
    pub fn take(
        &self,
        inner: &Arc<Inner>,
        key: &Key,
        jobtype: &str,
        version: &str,
        promised: &mut Option<Hold>,
    ) -> Found {
        let mut state = self.state();
        let found = self.find(&mut state, inner, key, jobtype, version);
        // Within the same lock: nobody sees both the promise and what it has become.
        if !matches!(found, Found::Full)
            && let Some(Hold::Context(promise)) = promised.take()
        {
            promise.keep(&mut state);
        }
        found
    }

    fn find(&self, state: &mut State, inner: &Arc<Inner>, key: &Key, jobtype: &str, version: &str) -> Found {
        let fits = |idle: &Idle| {
            let known = idle.context.handlers.get(jobtype);
            idle.key == *key && known.is_none_or(|(known, _)| known == version)
        };
        // The last used: its memory is warm, and the others can go.
        if let Some(at) = state.idle.iter().rposition(fits) {
            let idle = state.idle.remove(at);
            let seat = state.seat(inner, key, idle.slot);
            return Found::Warm(idle.context, seat);
        }
        let outdated = state.idle.iter().position(|idle| idle.key == *key);
        if outdated.is_none() && state.count(key) >= self.per_key {
            return Found::Full;
        }
        // One of its own that is out of date makes room first, then a free place, then the longest idle.
        let replaced = match (outdated, state.free.pop_first()) {
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

    /// Clients and the jobtypes that idle contexts know.
    pub fn warm(&self) -> Vec<(String, String)> {
        let state = self.state();
        let known = state.idle.iter().flat_map(|idle| {
            idle.context.handlers.keys().map(|jobtype| (idle.key.client.clone(), jobtype.clone()))
        });
        known.collect()
    }

    pub fn take_idle(&self) -> Vec<Context> {
        let mut state = self.state();
        let all = std::mem::take(&mut state.idle);
        state.free.extend(all.iter().map(|idle| idle.slot));
        all.into_iter().map(|idle| idle.context).collect()
    }

    /// Those that were idle too long, and when the next will be.
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
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// The context waits for the next batch.
    pub fn keep(mut self, context: Context) {
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

/// Ends contexts that nobody needs any more; is there only while there are idle ones.
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
