//! Which contexts there are: idle ones by what they are for, and seats for those that run.

use super::Inner;
use super::booking::{Hold, NoRoom, Resource};
use super::context::Context;
use super::handler::Lang;
use super::run::Batch;
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

/// Whether one context will do for both: each context runs one `before`, once, and handlers that share it by their eid have
/// the same one, or none.
fn can_share(before: Option<&str>, another: Option<&str>) -> bool {
    before.zip(another).is_none_or(|(before, another)| before == another)
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
    per_client: usize,
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
    pub fn new(contexts_max: usize, per_key: usize, per_client: usize) -> Pool {
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn promise(&self, inner: &Arc<Inner>, key: Key) -> Result<Promise, NoRoom> {
        let mut state = self.state();
        if state.used(|used| *used == key) >= self.per_key
            || state.used(|used| used.client == key.client) >= self.per_client
        {
            return Err(NoRoom::OwnShare);
        }
        // An idle context makes way for another if it has to.
        if state.free.len() + state.idle.len() <= state.promised.values().sum() {
            return Err(NoRoom::Full(Resource::Contexts));
        }
        *state.promised.entry(key.clone()).or_default() += 1;
        Ok(Promise { inner: Arc::clone(inner), key, is_kept: false })
    }

    /// Of the idle contexts only one that knows no older version of this handler, and in which no other `before` was run. If
    /// something is found, `promised` is kept by it.
    pub fn take(&self, inner: &Arc<Inner>, key: &Key, batch: &Batch, promised: &mut Option<Hold>) -> Found {
        let mut state = self.state();
        let found = self.find(&mut state, inner, key, batch);
        // Within the same lock: nobody sees both the promise and what it has become.
        if !matches!(found, Found::Full)
            && let Some(Hold::Context(promise)) = promised.take()
        {
            promise.keep(&mut state);
        }
        found
    }

    fn find(&self, state: &mut State, inner: &Arc<Inner>, key: &Key, batch: &Batch) -> Found {
        let is_old = |idle: &Idle| {
            let known = idle.context.handlers.get(&batch.jobtype);
            idle.key == *key && known.is_some_and(|(known, _)| *known != batch.version)
        };
        let fits = |idle: &Idle| {
            idle.key == *key
                && !is_old(idle)
                && can_share(idle.context.before.as_deref(), batch.handler.before.as_deref())
        };
        // The last used: its memory is warm, and the others can go.
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
        // One of its own that is out of date makes room first, then a free place, then the longest idle.
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

    /// Contexts that run or are promised.
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
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// The context waits for the next batch.
    pub fn keep(mut self, context: Context) {
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
