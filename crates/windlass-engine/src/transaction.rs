//! Transactions: the one way in which jobs that exist are changed.
//!
//! ```text
//!  know        the lease table, or a load           jobs.rs
//!  decide      a caller's closure hands events to   transaction.rs  Transaction::apply
//!              the rules of windlass-core; limits   jobs.rs         Jobs::work_out
//!              are completed, parent and children   family.rs
//!              move along
//!  commit      guarded by the versions that were    run.rs          all or nothing
//!              seen; somebody else was first: know, batch.rs        each group of related jobs by itself
//!              decide and commit again
//!  tell        tables, limits, watchers, the feed   aftermath.rs
//! ```
//!
//! [`Engine::transact`] is for callers that decide by what they see; the batch verbs (`runs.rs`, `act.rs`) and the
//! scheduler hand over events that need no decision. `queue.rs` commits the transactions of one busy job together.

mod batch;
mod family;
mod jobs;
pub(crate) mod queue;
mod run;

pub(crate) use jobs::Moved;
pub use queue::Queued;
pub use run::Stop;

use crate::engine::{Inner, NOTES};
use crate::error::{EngineError, VerbError};
use crate::verbs::{self, Options};
use jobs::{By, Drafted, Jobs, NoResult, Rules, asks_for_its_key};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use windlass_core::{Event, Job, JobId, Refused, Tenant, Timestamp};
use windlass_store::{Change, KeyRule, Step, StoreError};

/// Commits that may be lost to others before we stop. Each one means that somebody else's change went through; losing so
/// many in a row means that something is wrong with the store's versions, or that a job is changed all the time.
const ROUNDS_MAX: usize = 100;
/// Loads within one round of a batch: a job, its parent, that one's parent, …
const LOADS_MAX: usize = 64;
/// Jobs that one transaction may come to know. The largest family a caller may look at is half of that.
const JOBS_MAX: usize = 20_000;

/// A transaction cannot be worked out to its end now: a job has to be loaded, or what is asked is out of bounds. The
/// closure hands it on with `?`; the engine knows what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Halt(());

/// Jobs as they are while a transaction is worked out, before anything is written.
pub struct Transaction<'a> {
    tenant: &'a Tenant,
    options: &'a Options,
    rules: Rules<'a>,
    jobs: Jobs,
    /// Jobs that the store refused a key, and who has it.
    keys_taken: FxHashMap<JobId, JobId>,
    /// Jobs with a new version, in the order of their first change.
    changed: Vec<JobId>,
    applied: Vec<(Event, Moved)>,
    notes: Vec<(String, Option<Vec<u8>>)>,
    delete_later: Vec<JobId>,
    undo: Vec<Undo>,
    trouble: Option<EngineError>,
}

/// How one part of a transaction is taken back.
enum Undo {
    Job(JobId, Drafted, KeyRule),
    /// What the event in this place left of its job.
    After(usize, Option<Arc<Job>>),
    /// What a note was to be.
    Note(usize, Option<Vec<u8>>),
}

/// Up to where a transaction is kept when the rest is taken back.
struct Mark {
    applied: usize,
    notes: usize,
    delete_later: usize,
    undo: usize,
}

/// What is to be written of a transaction, and told afterwards.
struct Commit {
    step: Step,
    applied: Vec<(Event, Moved)>,
    delete_later: Vec<JobId>,
}

impl Transaction<'_> {
    /// The time by which the transaction is decided.
    pub fn now(&self) -> Timestamp {
        self.rules.now
    }

    /// The job as the transaction leaves it so far. `None`: there is no such job of this tenant, within the caller's reach.
    pub fn job(&mut self, id: JobId) -> Result<Option<Arc<Job>>, Halt> {
        if !self.jobs.knows(id) {
            self.jobs.missing.jobs.insert(id);
            return Err(Halt(()));
        }
        let (by, tenant) = (&self.rules.by, Some(self.tenant));
        Ok(self.jobs.read(id).filter(|job| by.reaches(tenant, job)).cloned())
    }

    /// The children of a job, in the order of their ids.
    pub fn children(&mut self, parent: JobId) -> Result<Vec<Arc<Job>>, Halt> {
        let Some(ids) = self.jobs.children(parent).map(<[JobId]>::to_vec) else {
            self.jobs.missing.children_of.insert(parent);
            return Err(Halt(()));
        };
        let mut children = Vec::with_capacity(ids.len());
        for id in ids {
            children.extend(self.job(id)?);
        }
        Ok(children)
    }

    /// The job and all below it, parents before their children. Beyond `max` of them it looks no further, so a longer
    /// answer may lack some.
    pub fn with_descendants(&mut self, job: Arc<Job>, max: usize) -> Result<Vec<Arc<Job>>, Halt> {
        let mut seen: FxHashSet<JobId> = FxHashSet::from_iter([job.id]);
        let mut all = vec![job];
        let (mut next, mut halted) = (0, None);
        while next < all.len() && all.len() <= max {
            match self.children(all[next].id) {
                Ok(children) => all.extend(children.into_iter().filter(|child| seen.insert(child.id))),
                // On with the others, so that all of a generation is loaded at once.
                Err(halt) => halted = Some(halt),
            }
            next += 1;
        }
        halted.map_or(Ok(all), Err)
    }

    /// Makes an event happen to a job, with all that follows for its family, or answers why it may not.
    pub fn apply(&mut self, id: JobId, event: Event) -> Result<Result<(), VerbError>, Halt> {
        if let Err(error) = self.check(&event) {
            self.trouble = Some(error);
            return Err(Halt(()));
        }
        let worked = match self.jobs.work_out(&self.rules, Some(self.tenant), id, event.clone()) {
            Ok(worked) => worked,
            Err(NoResult::Missing) => return Err(Halt(())),
            Err(NoResult::Refused(error)) => {
                // A decision is made by it now.
                self.jobs.read(id);
                return Ok(Err(error));
            }
        };
        let asks = asks_for_its_key(&event);
        let after = worked.moves[0].1.clone();
        if let Some(holder) = self.keys_taken.get(&id)
            && asks
            && after.as_deref().is_some_and(|after| takes_a_key(self.jobs.base(id), after))
        {
            return Ok(Err(Refused::KeyTaken(*holder).into()));
        }
        for (moved, after) in worked.moves {
            let keys = (asks && moved == id).then_some(KeyRule::Ask);
            let (before, keys) = self.jobs.draft(moved, Some((after, 0)), keys);
            if before.is_none() {
                self.changed.push(moved);
            }
            self.undo.push(Undo::Job(moved, before, keys));
        }
        self.delete_later.extend(worked.delete_later);
        self.remember(event, Moved { before: worked.before, after });
        Ok(Ok(()))
    }

    /// What is written holds only if nothing else happens to this job meanwhile. A job that is changed is guarded anyway.
    pub fn hold(&mut self, id: JobId) -> Result<Result<(), VerbError>, Halt> {
        match self.jobs.drafted(id) {
            Some(_) => Ok(Ok(())),
            // It changes in nothing but its version; no state refuses that.
            None => self.apply(id, Event::Update(Box::default())),
        }
    }

    /// Puts a note (see [`Engine::put_note`](crate::Engine::put_note)), or with `None` forgets it, in the same commit.
    pub fn note(&mut self, key: &str, value: Option<Vec<u8>>) {
        match self.notes.iter_mut().position(|(known, _)| known == key) {
            Some(place) => {
                let before = std::mem::replace(&mut self.notes[place].1, value);
                self.undo.push(Undo::Note(place, before));
            }
            None => self.notes.push((key.to_owned(), value)),
        }
    }

    /// A note that this commit will put, by how its key begins. Transactions that are queued for a job share a commit.
    pub fn noted(&self, prefix: &str) -> Option<(&str, &[u8])> {
        let found = self.notes.iter().find(|(key, _)| key.starts_with(prefix))?;
        Some((&found.0, found.1.as_deref()?))
    }

    fn check(&self, event: &Event) -> Result<(), EngineError> {
        let (count, max) = (self.applied.len() + 1, self.options.batch_max);
        if count > max {
            return Err(EngineError::TooMany { count, max });
        }
        verbs::check_sizes(event, self.options.payload_bytes_max)
    }

    fn remember(&mut self, event: Event, moved: Moved) {
        let place = self.applied.len().saturating_sub(1);
        if let (Event::SetPorts(_), Some((Event::SetPorts(_), last))) = (&event, self.applied.last_mut())
            && last.before.id == moved.before.id
        {
            // Ports that are set again before anything else happened are told of once.
            self.undo.push(Undo::After(place, std::mem::replace(&mut last.after, moved.after)));
            return;
        }
        self.applied.push((event, moved));
    }

    fn mark(&self) -> Mark {
        Mark {
            applied: self.applied.len(),
            notes: self.notes.len(),
            delete_later: self.delete_later.len(),
            undo: self.undo.len(),
        }
    }

    fn roll_back(&mut self, mark: &Mark) {
        self.applied.truncate(mark.applied);
        for undo in self.undo.drain(mark.undo..).rev() {
            match undo {
                Undo::Job(id, before, keys) => {
                    if before.is_none() {
                        self.changed.pop();
                    }
                    self.jobs.draft(id, before, Some(keys));
                }
                Undo::After(place, after) => {
                    if let Some((_, moved)) = self.applied.get_mut(place) {
                        moved.after = after;
                    }
                }
                Undo::Note(place, value) => self.notes[place].1 = value,
            }
        }
        self.notes.truncate(mark.notes);
        self.delete_later.truncate(mark.delete_later);
    }

    /// Nothing of it is left but what is known of the jobs.
    fn start_over(&mut self) {
        self.jobs.undraft_all();
        self.changed.clear();
        self.applied.clear();
        self.notes.clear();
        self.delete_later.clear();
        self.undo.clear();
    }

    fn writes_nothing(&self) -> bool {
        self.changed.is_empty() && self.notes.is_empty()
    }

    /// What is to be written; the rest is the jobs as they were known.
    fn into_commit(self) -> (Commit, Jobs, FxHashMap<JobId, JobId>) {
        let notes = self.notes.into_iter().map(|(key, value)| (format!("{NOTES}{key}"), value));
        let step = Step {
            changes: self.changed.iter().filter_map(|id| self.jobs.change(*id)).collect(),
            settings: notes.collect(),
            ..Step::default()
        };
        let commit = Commit { step, applied: self.applied, delete_later: self.delete_later };
        (commit, self.jobs, self.keys_taken)
    }
}

/// Whether the change would give the job a unique key or an alias that it does not have.
fn takes_a_key(before: Option<&Arc<Job>>, after: &Job) -> bool {
    fn unique(job: &Job) -> Option<&str> {
        job.spec.unique().filter(|_| job.holds_unique_key()).map(|unique| &*unique.key)
    }
    let is_new = |before: Option<&str>, after: Option<&str>| after.is_some() && before != after;
    is_new(before.and_then(|job| unique(job)), unique(after))
        || is_new(before.and_then(|job| job.spec.alias()), after.spec.alias())
}

impl Inner {
    fn rules(&self, by: By) -> Rules<'_> {
        Rules { limits: &self.limits, now: self.now(), random: &*self.random, by }
    }

    /// Running jobs that were claimed through this server need no load.
    fn remember_leased(&self, jobs: &mut Jobs, ids: impl Iterator<Item = JobId>) {
        let leases = self.leases();
        for id in ids {
            if let Some(job) = leases.get(id) {
                jobs.remember(job);
            }
        }
    }

    async fn load_missing(&self, jobs: &mut Jobs) -> Result<(), EngineError> {
        let missing = std::mem::take(&mut jobs.missing);
        let mut ids = missing.jobs;
        for parent in missing.children_of {
            let children = self.store.children(parent).await?;
            ids.extend(children.iter().copied().filter(|child| !jobs.knows(*child)));
            jobs.loaded_children(parent, children);
        }
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<JobId> = ids.into_iter().collect();
        let loaded = self.store.load(ids.clone()).await?;
        for (id, job) in ids.into_iter().zip(loaded) {
            jobs.loaded(id, job);
        }
        Ok(())
    }

    /// Where nobody knows what happened, what we remember of the jobs is in doubt.
    fn failed(self: &Arc<Self>, error: StoreError, changes: impl IntoIterator<Item = Change>) -> EngineError {
        if matches!(error, StoreError::Unknown(_)) {
            self.doubt(changes.into_iter().collect());
        }
        error.into()
    }

    /// Children nobody waits for any more. What fails here goes when its keep time is over.
    async fn delete_quietly(self: &Arc<Self>, ids: Vec<JobId>) {
        for chunk in ids.chunks(family::DELETED_PER_STEP_MAX) {
            let events = chunk.iter().map(|id| verbs::JobEvent { id: *id, event: Event::Delete }).collect();
            // Boxed: this is a batch within a batch.
            if let Err(error) = Box::pin(self.change(None, events, Vec::new())).await {
                tracing::warn!(%error, "settled children could not be deleted");
                return;
            }
        }
    }
}

fn too_deep() -> EngineError {
    StoreError::Unavailable("the family of the job is too deep".to_owned()).into()
}
