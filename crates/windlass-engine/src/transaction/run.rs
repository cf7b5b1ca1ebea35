//! `Engine::transact`: optimistic concurrency. A closure decides by the current jobs, and the commit succeeds
//! if they are unchanged.

use super::jobs::{Author, Jobs};
use super::{Commit, Halt, JOBS_MAX, ROUNDS_MAX, Transaction, too_deep};
use crate::engine::{Engine, Inner};
use crate::error::{EngineError, VerbError};
use crate::shutdown::InFlight;
use crate::tables::family_locks::FamiliesLocked;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use windlass_core::{Event, Job, JobId, Tenant};
use windlass_store::{StoreError, Verdict};

/// Reason why a closure returns no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop<E> {
    /// Returned by the transaction; the engine runs the closure again when it can continue.
    Halt(Halt),
    /// Writes nothing; the caller receives this error.
    Refuse(E),
}

impl<E> From<Halt> for Stop<E> {
    fn from(halt: Halt) -> Stop<E> {
        Stop::Halt(halt)
    }
}

impl<E: From<VerbError>> From<VerbError> for Stop<E> {
    fn from(error: VerbError) -> Stop<E> {
        Stop::Refuse(error.into())
    }
}

impl Engine {
    /// Runs `decide` on the current jobs and writes its changes in one commit, all or nothing, guarded by the
    /// versions it read. `ids`: jobs to load in advance; others are loaded when the closure asks for them,
    /// after which it runs again from the start. It also runs again after a stale commit, so it must keep no
    /// state between runs. Returns its result after the commit.
    pub async fn transact<T, E>(
        &self,
        tenant: &Tenant,
        ids: Vec<JobId>,
        decide: impl FnMut(&mut Transaction<'_>) -> Result<T, Stop<E>> + Send,
    ) -> Result<T, E>
    where
        T: Send,
        E: From<EngineError> + Send,
    {
        let mut work = Task { decide, by: self.by(), outcome: None };
        match self.inner.transact(tenant, &ids, &mut [&mut work]).await {
            Ok(()) => work.outcome.unwrap_or_else(|| Err(aborted_error().into())),
            Err(error) => Err(error.into()),
        }
    }
}

impl Engine {
    /// Like [`Engine::transact`], for lookups that are more than a load: `look` returns the jobs it found and
    /// a value, which is returned with the result. It is called again after every stale commit.
    pub async fn transact_seen<L, T, E, F>(
        &self,
        tenant: &Tenant,
        mut look: impl FnMut() -> F + Send,
        mut decide: impl FnMut(&mut Transaction<'_>, &L) -> Result<T, Stop<E>> + Send,
    ) -> Result<(T, L), E>
    where
        F: Future<Output = Result<(Vec<Arc<Job>>, L), E>> + Send,
        L: Send + Sync,
        T: Send,
        E: From<EngineError> + Send,
    {
        let _in_flight = self.inner.enter()?;
        let mut round = Round::default();
        for _ in 0..ROUNDS_MAX {
            let (seen, made) = look().await?;
            let mut jobs = Jobs::with_capacity(seen.len());
            seen.into_iter().for_each(|job| jobs.loaded(job.id, Some(job)));
            let decide = |tx: &mut Transaction<'_>| decide(tx, &made);
            let mut work = Task { decide, by: self.by(), outcome: None };
            if self.inner.round(tenant, jobs, &mut round, &mut [&mut work]).await?.is_none() {
                let outcome = work.outcome.unwrap_or_else(|| Err(aborted_error().into()));
                return outcome.map(|answer| (answer, made));
            }
        }
        Err(EngineError::Contended.into())
    }
}

/// Closure of a transaction, independent of its result type.
pub(super) trait Work: Send {
    fn run(&mut self, tx: &mut Transaction<'_>) -> Ended;
    fn fail(&mut self, error: EngineError);
}

pub(super) enum Ended {
    Done,
    Refused,
    Halted,
}

/// Closure and its result.
pub(super) struct Task<F, T, E> {
    pub(super) decide: F,
    pub(super) by: Author,
    pub(super) outcome: Option<Result<T, E>>,
}

impl<F, T, E> Work for Task<F, T, E>
where
    F: FnMut(&mut Transaction<'_>) -> Result<T, Stop<E>> + Send,
    T: Send,
    E: From<EngineError> + Send,
{
    fn run(&mut self, tx: &mut Transaction<'_>) -> Ended {
        tx.rules.by.clone_from(&self.by);
        let (outcome, ended) = match (self.decide)(tx) {
            Ok(answer) => (Some(Ok(answer)), Ended::Done),
            Err(Stop::Refuse(error)) => (Some(Err(error)), Ended::Refused),
            Err(Stop::Halt(_)) => (None, Ended::Halted),
        };
        self.outcome = outcome;
        ended
    }

    fn fail(&mut self, error: EngineError) {
        self.outcome = Some(Err(error.into()));
    }
}

/// State kept between rounds.
#[derive(Default)]
struct Round {
    locked: FamiliesLocked,
    keys_taken: FxHashMap<JobId, JobId>,
}

/// Result of a commit.
enum Written {
    Done,
    Stale,
    /// Jobs refused a key, and the holders of the keys.
    KeysTaken(Vec<(JobId, JobId)>),
}

impl Inner {
    /// Runs closures in order as one transaction. A closure that refuses is rolled back; the others are
    /// committed.
    pub(super) async fn transact(
        self: &Arc<Self>,
        tenant: &Tenant,
        ids: &[JobId],
        works: &mut [&mut dyn Work],
    ) -> Result<(), EngineError> {
        let _in_flight = self.enter()?;
        let mut jobs = Jobs::with_capacity(ids.len());
        self.remember_leased(&mut jobs, ids.iter().copied());
        let unknown: Vec<JobId> = ids.iter().copied().filter(|id| !jobs.knows(*id)).collect();
        jobs.missing.jobs.extend(unknown);
        self.load_missing(&mut jobs).await?;
        let mut round = Round { locked: self.lock_families(&jobs).await, keys_taken: FxHashMap::default() };
        for _ in 0..ROUNDS_MAX {
            let known = match self.round(tenant, jobs, &mut round, works).await? {
                Some(known) => known,
                None => return Ok(()),
            };
            jobs = Jobs::default();
            jobs.missing.jobs.extend(known);
            self.load_missing(&mut jobs).await?;
        }
        Err(EngineError::Contended)
    }

    async fn lock_families(&self, jobs: &Jobs) -> FamiliesLocked {
        let parents = jobs.present().filter_map(|job| Some(job.spec.family()?.parent));
        let parents: Vec<JobId> = parents.collect();
        self.family_locks.lock(parents.into_iter()).await
    }

    /// Decides and commits once. Returns the jobs to load for the next round if the commit was stale.
    async fn round(
        self: &Arc<Self>,
        tenant: &Tenant,
        jobs: Jobs,
        round: &mut Round,
        works: &mut [&mut dyn Work],
    ) -> Result<Option<Vec<JobId>>, EngineError> {
        let epoch = self.limits.epoch();
        let mut tx = self.transaction(tenant, jobs, std::mem::take(&mut round.keys_taken));
        self.decide(&mut tx, works).await?;
        if tx.writes_nothing() {
            return Ok(None);
        }
        let (commit, known, keys_taken) = tx.into_commit();
        round.keys_taken = keys_taken;
        let locked = std::mem::take(&mut round.locked);
        let (written, locked) = self.detached(write(InFlight::new(self), commit, epoch, locked)).await?;
        round.locked = locked;
        match written {
            Written::Done => return Ok(None),
            Written::Stale => self.meters.stale.add(1),
            Written::KeysTaken(rivals) => round.keys_taken.extend(rivals),
        }
        Ok(Some(known.ids().collect()))
    }

    fn transaction<'a>(
        &'a self,
        tenant: &'a Tenant,
        jobs: Jobs,
        keys_taken: FxHashMap<JobId, JobId>,
    ) -> Transaction<'a> {
        Transaction {
            tenant,
            options: &self.options,
            rules: self.rules(Author::default()),
            jobs,
            keys_taken,
            changed: Vec::new(),
            applied: Vec::new(),
            notes: Vec::new(),
            delete_later: Vec::new(),
            undo: Vec::new(),
            trouble: None,
        }
    }

    /// Runs the closures until all have returned a result, loading the jobs they ask for.
    async fn decide(&self, tx: &mut Transaction<'_>, works: &mut [&mut dyn Work]) -> Result<(), EngineError> {
        let is_alone = works.len() == 1;
        loop {
            let mut refused_some = false;
            for work in works.iter_mut() {
                loop {
                    let mark = tx.mark();
                    let ended = work.run(tx);
                    if let Some(error) = tx.trouble.take() {
                        tx.roll_back(&mark);
                        if matches!(error, EngineError::TooMany { .. }) && !is_alone {
                            return Err(error);
                        }
                        work.fail(error);
                    } else if matches!(ended, Ended::Halted) || !tx.jobs.missing.is_empty() {
                        tx.roll_back(&mark);
                        self.load_asked(tx).await?;
                        continue;
                    } else if matches!(ended, Ended::Refused) {
                        tx.roll_back(&mark);
                        refused_some = true;
                    }
                    break;
                }
            }
            // Jobs from the lease table may be outdated. A commit guarded by their versions would detect it.
            let in_doubt = match refused_some || self.store.shared().is_some() || tx.writes_nothing() {
                true => tx.jobs.in_doubt(),
                false => Vec::new(),
            };
            if in_doubt.is_empty() {
                return Ok(());
            }
            tx.start_over();
            in_doubt.iter().for_each(|id| tx.jobs.forget(*id));
            tx.jobs.missing.jobs.extend(in_doubt);
            self.load_missing(&mut tx.jobs).await?;
        }
    }

    async fn load_asked(&self, tx: &mut Transaction<'_>) -> Result<(), EngineError> {
        let jobs = &mut tx.jobs;
        if jobs.ids().count() > JOBS_MAX {
            return Err(too_deep());
        }
        if jobs.missing.is_empty() {
            return Err(aborted_error());
        }
        // A closure that reads one parent most likely reads the others next.
        let parents = jobs.present().filter_map(|job| Some(job.spec.family()?.parent));
        let parents: FxHashSet<JobId> = parents.filter(|id| !jobs.knows(*id)).collect();
        if jobs.missing.jobs.iter().any(|id| parents.contains(id)) {
            jobs.missing.jobs.extend(parents);
        }
        self.load_missing(jobs).await
    }
}

/// Commits and reports the changes. Runs to completion even if the caller is gone.
async fn write(
    in_flight: InFlight,
    commit: Commit,
    epoch: u64,
    locked: FamiliesLocked,
) -> Result<(Written, FamiliesLocked), EngineError> {
    let Commit { step, applied, delete_later } = commit;
    let (changes, now) = (step.changes.clone(), in_flight.now());
    let verdict = match in_flight.commit(vec![step], now).await {
        Ok(mut verdicts) => verdicts.pop(),
        Err(error) => return Err(in_flight.commit_error(error, changes)),
    };
    match verdict {
        Some(Verdict::Done(_)) => {}
        Some(Verdict::Stale) => return Ok((Written::Stale, locked)),
        Some(Verdict::KeyTaken(rivals)) => {
            let rivals = rivals.into_iter().map(|rival| (rival.job, rival.holder)).collect();
            return Ok((Written::KeysTaken(rivals), locked));
        }
        // `Taken` answers inserts only, and there are none here.
        Some(Verdict::Taken(_)) | None => return Err(aborted_error()),
    }
    for (event, moved) in &applied {
        // Before the notification, as in a batch. After an error the remaining refunds would fail too.
        if matches!(event, Event::Return { .. } | Event::Skip { .. })
            && in_flight.limits.refund_shared(&*in_flight.store, &moved.before).await.is_err()
        {
            break;
        }
    }
    in_flight.after_commit(&changes, now);
    let asked: FxHashSet<JobId> = applied.iter().map(|(_, moved)| moved.before.id).collect();
    if in_flight.feed.has_listeners() {
        in_flight.report_family_changes(&changes, &asked);
    }
    applied.iter().for_each(|(event, moved)| in_flight.report_event(event, moved));
    drop(locked);
    in_flight.delete_quietly(delete_later).await;
    in_flight.relimit_since(epoch, asked.into_iter()).await?;
    Ok((Written::Done, Vec::new()))
}

pub(super) fn aborted_error() -> EngineError {
    StoreError::Unknown("the transaction was aborted".to_owned()).into()
}
