//! Transactions: the way to change existing jobs, with two exceptions. A claim is decided and committed in
//! the store (`verbs/claim.rs`), and the push of children changes their parents in a loop of its own
//! (`verbs/children.rs`, `docs/adr/0016-children-are-pushed-by-a-loop-of-their-own.md`).
//!
//! ```text
//!  read        the lease table, or a load           jobs.rs
//!  decide      a caller's closure hands events to   transaction.rs  Transaction::apply
//!              the rules of windlass-core; limits   jobs.rs         Jobs::compute
//!              are completed, parent and children   family.rs
//!              change along
//!  commit      guarded by the versions read; if     run.rs          all or nothing
//!              stale: read, decide and commit       batch.rs        each group of related jobs by itself
//!              again
//!  notify      tables, limits, waiters, the feed    events/after_commit.rs
//! ```
//!
//! [`Engine::transact`] is for callers whose decision depends on the jobs; the batch calls (`verbs/runs.rs`,
//! `verbs/actions.rs`) and the scheduler pass events that need no decision. `queue.rs` commits the
//! transactions of one busy job together.

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
use jobs::{Author, Drafted, Jobs, NoResult, Rules, asks_for_its_key};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use windlass_core::{Event, Job, JobId, Refused, Tenant, Timestamp};
use windlass_store::{Change, KeyRule, Step, StoreError};

/// Most stale commits in a row. Each means that a concurrent change was committed; so many in a row mean that
/// the store's versions are wrong, or that the job is changed all the time.
pub(crate) const ROUNDS_MAX: usize = 100;
/// Loads within one round of a batch: a job, its parent, the parent's parent, …
const LOADS_MAX: usize = 64;
/// Most jobs that one transaction may read. The largest family that a caller may read is half of that.
const JOBS_MAX: usize = 20_000;

/// The closure cannot complete now: a job has to be loaded, or the request is out of bounds. The closure
/// returns it with `?`; the engine handles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Halt(());

/// Jobs during a transaction, before anything is written.
pub struct Transaction<'a> {
    tenant: &'a Tenant,
    options: &'a Options,
    rules: Rules<'a>,
    jobs: Jobs,
    /// Jobs whose key the store refused, and the holder of the key.
    keys_taken: FxHashMap<JobId, JobId>,
    /// Changed jobs, in the order of their first change.
    changed: Vec<JobId>,
    applied: Vec<(Event, Moved)>,
    notes: Vec<(String, Option<Vec<u8>>)>,
    delete_later: Vec<JobId>,
    undo: Vec<Undo>,
    trouble: Option<EngineError>,
}

/// Undo record.
enum Undo {
    Job(JobId, Drafted, KeyRule),
    /// Previous result of the event at this index.
    After(usize, Option<Arc<Job>>),
    /// Previous value of the note at this index.
    Note(usize, Option<Vec<u8>>),
}

/// Savepoint: lengths of the lists, to which a rollback truncates them.
struct Mark {
    applied: usize,
    notes: usize,
    delete_later: usize,
    undo: usize,
}

/// Step to be committed, and the events to be reported afterwards.
struct Commit {
    step: Step,
    applied: Vec<(Event, Moved)>,
    delete_later: Vec<JobId>,
}

impl Transaction<'_> {
    /// Time of the decision.
    pub fn now(&self) -> Timestamp {
        self.rules.now
    }

    /// Job as changed by the transaction so far. `None`: there is no such job of this tenant within the
    /// caller's scope.
    pub fn job(&mut self, id: JobId) -> Result<Option<Arc<Job>>, Halt> {
        if !self.jobs.knows(id) {
            self.jobs.missing.jobs.insert(id);
            return Err(Halt(()));
        }
        let (by, tenant) = (&self.rules.by, Some(self.tenant));
        Ok(self.jobs.read(id).filter(|job| by.reaches(tenant, job)).cloned())
    }

    /// Children of a job, ordered by id.
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

    /// Job and all its descendants, parents before children. Stops at more than `max` jobs, so a longer
    /// result may be incomplete.
    pub fn with_descendants(&mut self, job: Arc<Job>, max: usize) -> Result<Vec<Arc<Job>>, Halt> {
        let mut seen: FxHashSet<JobId> = FxHashSet::from_iter([job.id]);
        let mut all = vec![job];
        let (mut next, mut halted) = (0, None);
        while next < all.len() && all.len() <= max {
            match self.children(all[next].id) {
                Ok(children) => all.extend(children.into_iter().filter(|child| seen.insert(child.id))),
                // Continues with the other jobs, so that a whole generation is loaded at once.
                Err(halt) => halted = Some(halt),
            }
            next += 1;
        }
        halted.map_or(Ok(all), Err)
    }

    /// Applies an event to a job, with all effects on its family, or returns the refusal.
    pub fn apply(&mut self, id: JobId, event: Event) -> Result<Result<(), VerbError>, Halt> {
        if let Err(error) = self.check(&event) {
            self.trouble = Some(error);
            return Err(Halt(()));
        }
        let worked = match self.jobs.compute(&self.rules, Some(self.tenant), id, event.clone()) {
            Ok(worked) => worked,
            Err(NoResult::Missing) => return Err(Halt(())),
            Err(NoResult::Refused(error)) => {
                // The caller may decide by this refusal, so the job counts as read.
                self.jobs.read(id);
                return Ok(Err(error));
            }
        };
        let asks = asks_for_its_key(&event);
        let (after, alone) = (worked.moves[0].1.clone(), worked.moves.len() == 1);
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
        self.remember(event, Moved { before: worked.before, after, alone });
        Ok(Ok(()))
    }

    /// Guards the commit by this job's version although the job is not changed. A changed job is guarded
    /// anyway.
    pub fn hold(&mut self, id: JobId) -> Result<Result<(), VerbError>, Halt> {
        match self.jobs.drafted(id) {
            Some(_) => Ok(Ok(())),
            // An empty update changes only the version, and no state refuses it.
            None => self.apply(id, Event::Update(Box::default())),
        }
    }

    /// Writes a note (see [`Engine::put_note`](crate::Engine::put_note)) in the same commit; `None` deletes
    /// it.
    pub fn note(&mut self, key: &str, value: Option<Vec<u8>>) {
        match self.notes.iter_mut().position(|(known, _)| known == key) {
            Some(place) => {
                let before = std::mem::replace(&mut self.notes[place].1, value);
                self.undo.push(Undo::Note(place, before));
            }
            None => self.notes.push((key.to_owned(), value)),
        }
    }

    /// Note with this key prefix that the commit will write. Transactions queued for a job share a commit.
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
            // Successive changes of the ports are reported once.
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

    /// Discards all changes; keeps the loaded jobs.
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

    /// Commit, loaded jobs and refused keys.
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

/// True if the change gives the job a unique key or an alias that it did not have.
fn takes_a_key(before: Option<&Arc<Job>>, after: &Job) -> bool {
    fn unique(job: &Job) -> Option<&str> {
        job.spec.unique().filter(|_| job.holds_unique_key()).map(|unique| &*unique.key)
    }
    let is_new = |before: Option<&str>, after: Option<&str>| after.is_some() && before != after;
    is_new(before.and_then(|job| unique(job)), unique(after))
        || is_new(before.and_then(|job| job.spec.alias()), after.spec.alias())
}

impl Inner {
    fn rules(&self, by: Author) -> Rules<'_> {
        Rules { limits: &self.limits, now: self.now(), random: &*self.random, by }
    }

    /// Takes running jobs from the lease table, without a load.
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

    /// Error of a commit. After an unknown outcome the lease table may be wrong and is corrected.
    fn commit_error(
        self: &Arc<Self>,
        error: StoreError,
        changes: impl IntoIterator<Item = Change>,
    ) -> EngineError {
        if matches!(error, StoreError::Unknown(_)) {
            self.resolve_unknown_commit(changes.into_iter().collect());
        }
        error.into()
    }

    /// Deletes children that their parent no longer needs. After an error they are deleted at the end of
    /// their keep time.
    async fn delete_quietly(self: &Arc<Self>, ids: Vec<JobId>) {
        for chunk in ids.chunks(family::DELETED_PER_STEP_MAX) {
            let events = chunk.iter().map(|id| verbs::JobEvent { id: *id, event: Event::Delete }).collect();
            // Boxed, because this is recursive.
            if let Err(error) = Box::pin(self.change(None, events, Vec::new())).await {
                tracing::warn!(%error, "cannot delete finished children");
                return;
            }
        }
    }
}

fn too_deep() -> EngineError {
    StoreError::Unavailable("the job tree is too deep".to_owned()).into()
}
