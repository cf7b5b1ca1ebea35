//! `Engine::transact`: a closure decides by the jobs as they are, and what it decides is written if they still are.

use super::jobs::{By, Jobs};
use super::{Commit, Halt, JOBS_MAX, ROUNDS_MAX, Transaction, too_deep};
use crate::engine::{Engine, Inner};
use crate::error::{EngineError, VerbError};
use crate::shutdown::InFlight;
use crate::tables::family_locks::FamiliesLocked;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use windlass_core::{Event, Job, JobId, Tenant};
use windlass_store::{StoreError, Verdict};

/// Why a closure ends without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop<E> {
    /// As the transaction says; the engine runs the closure again when it can go on.
    Halt(Halt),
    /// Nothing is written, and the caller gets this.
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
    /// Runs `decide` over the jobs as they are and writes what it applies in one commit, all or nothing, guarded by the
    /// versions it saw. `ids`: jobs it will look at; others are loaded when it asks for them, and then, as after every
    /// commit that was lost to somebody else's change, it is run again from the start. So it must not remember anything of
    /// the times before. Its answer is given when it is written.
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
            Ok(()) => work.outcome.unwrap_or_else(|| Err(broken_off().into())),
            Err(error) => Err(error.into()),
        }
    }
}

impl Engine {
    /// As [`Engine::transact`], where looking takes more than a load: `look` gives the jobs as it saw them and what it made
    /// of them, which comes back with the answer; it is asked again after every commit that was lost.
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
        let _visit = self.inner.enter()?;
        let mut round = Round::default();
        for _ in 0..ROUNDS_MAX {
            let (seen, made) = look().await?;
            let mut jobs = Jobs::with_capacity(seen.len());
            seen.into_iter().for_each(|job| jobs.loaded(job.id, Some(job)));
            let decide = |tx: &mut Transaction<'_>| decide(tx, &made);
            let mut work = Task { decide, by: self.by(), outcome: None };
            if self.inner.round(tenant, jobs, &mut round, &mut [&mut work]).await?.is_none() {
                let outcome = work.outcome.unwrap_or_else(|| Err(broken_off().into()));
                return outcome.map(|answer| (answer, made));
            }
        }
        Err(EngineError::Contended.into())
    }
}

/// A closure of a transaction, whatever it answers.
pub(super) trait Work: Send {
    fn run(&mut self, tx: &mut Transaction<'_>) -> Ended;
    fn fail(&mut self, error: EngineError);
}

pub(super) enum Ended {
    Done,
    Refused,
    Halted,
}

/// A closure, and what it came to.
pub(super) struct Task<F, T, E> {
    pub(super) decide: F,
    pub(super) by: By,
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

/// What a transaction keeps from one round to the next.
#[derive(Default)]
struct Round {
    locked: FamiliesLocked,
    keys_taken: FxHashMap<JobId, JobId>,
}

/// What became of a commit.
enum Written {
    Done,
    Stale,
    /// Which job may not have its key, and who has it.
    KeysTaken(Vec<(JobId, JobId)>),
}

impl Inner {
    /// Carries out closures one after another as one transaction. One that refuses leaves nothing behind; the others are
    /// written all the same.
    pub(super) async fn transact(
        self: &Arc<Self>,
        tenant: &Tenant,
        ids: &[JobId],
        works: &mut [&mut dyn Work],
    ) -> Result<(), EngineError> {
        let _visit = self.enter()?;
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

    /// Decides and commits once. Somebody else was first: the jobs that are to be loaded for the next time.
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
            rules: self.rules(By::default()),
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

    /// Runs the closures until all of them have come to an end, loading what they ask for.
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
            // What was remembered may be behind. A commit that is guarded by it would tell.
            let in_doubt = match refused_some || self.store.is_shared() || tx.writes_nothing() {
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
            return Err(broken_off());
        }
        // Whoever asks for one parent most likely asks for the others next.
        let parents = jobs.present().filter_map(|job| Some(job.spec.family()?.parent));
        let parents: FxHashSet<JobId> = parents.filter(|id| !jobs.knows(*id)).collect();
        if jobs.missing.jobs.iter().any(|id| parents.contains(id)) {
            jobs.missing.jobs.extend(parents);
        }
        self.load_missing(jobs).await
    }
}

/// Commits, and tells of it; to the end even if the caller goes away.
async fn write(
    visit: InFlight,
    commit: Commit,
    epoch: u64,
    locked: FamiliesLocked,
) -> Result<(Written, FamiliesLocked), EngineError> {
    let Commit { step, applied, delete_later } = commit;
    let (changes, now) = (step.changes.clone(), visit.now());
    let verdict = match visit.commit(vec![step], now).await {
        Ok(mut verdicts) => verdicts.pop(),
        Err(error) => return Err(visit.failed(error, changes)),
    };
    match verdict {
        Some(Verdict::Done(_)) => {}
        Some(Verdict::Stale) => return Ok((Written::Stale, locked)),
        Some(Verdict::KeyTaken(rivals)) => {
            let rivals = rivals.into_iter().map(|rival| (rival.job, rival.holder)).collect();
            return Ok((Written::KeysTaken(rivals), locked));
        }
        // Nothing is inserted here, so nothing can be taken.
        Some(Verdict::Taken(_)) | None => return Err(broken_off()),
    }
    for (event, moved) in &applied {
        // Told first, as in a batch. The others would wait for a store that is away in vain.
        if matches!(event, Event::Return { .. })
            && visit.limits.refund_shared(&*visit.store, &moved.before).await.is_err()
        {
            break;
        }
    }
    visit.after_commit(&changes, now);
    let asked: FxHashSet<JobId> = applied.iter().map(|(_, moved)| moved.before.id).collect();
    if visit.feed.has_listeners() {
        visit.tell_of_families(&changes, &asked);
    }
    applied.iter().for_each(|(event, moved)| visit.tell(event, moved));
    drop(locked);
    visit.delete_quietly(delete_later).await;
    visit.relimit_since(epoch, asked.into_iter()).await?;
    Ok((Written::Done, Vec::new()))
}

pub(super) fn broken_off() -> EngineError {
    StoreError::Unknown("the transaction broke off".to_owned()).into()
}
