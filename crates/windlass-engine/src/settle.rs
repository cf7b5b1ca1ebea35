//! The one loop that changes jobs: know the job, apply the rules, write it guarded; if someone else was first, load it
//! and try again. Batch first: one commit for all.

use crate::engine::{Engine, Inner};
use crate::error::{EngineError, VerbError};
use crate::plan::{Draft, Missing, Plan, Round, View};
use crate::verbs::{Extend, Extended, How, LogEntry, Renew, Report, Settle, Settled, Wish};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use windlass_core::event::{Failure, Finish, Restart, RetryWish};
use windlass_core::{Event, Holder, Job, JobId, Refused, Scope, Tenant, Timestamp};
use windlass_store::{Change, Rival, Step, StoreError, Verdict};

mod together;

/// Rounds before we stop trying. Each round lost means that someone else's change went through; losing so many in a
/// row means that something is wrong with the store's versions.
const ROUNDS_MAX: usize = 100;
/// Loads within one round: a job, its parent, that one's parent, …; the rest of a deeper family is told of nothing.
const LOADS_MAX: usize = 64;

/// Something that should happen to a job.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) id: JobId,
    pub(crate) event: Event,
}

/// Whose doing a change is; the default is the engine's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct By {
    /// Remembered with the jobs.
    pub(crate) who: Option<Arc<str>>,
    /// Jobs outside of it are not there.
    pub(crate) scope: Scope,
}

/// A job before and after what was asked; `None`: it is gone.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    pub(crate) before: Arc<Job>,
    pub(crate) after: Option<Arc<Job>>,
}

type Answers = Vec<Result<Moved, VerbError>>;

impl Engine {
    /// Ends runs: each entry is answered by itself. One that reports too much is refused and its run goes on; it does not
    /// hold up the others.
    pub async fn settle(
        &self,
        tenant: &Tenant,
        mut entries: Vec<Settle>,
    ) -> Result<Vec<Result<Settled, VerbError>>, EngineError> {
        self.check_count(entries.len())?;
        self.check_payloads(entries.iter().map(|entry| entry.how.payload()))?;
        let max = self.inner.options.payload_bytes_max;
        if entries.iter().all(|entry| entry.how.report_bytes() <= max) {
            return self.settle_all(tenant, entries).await;
        }
        let sizes: Vec<usize> = entries.iter().map(|entry| entry.how.report_bytes()).collect();
        entries.retain(|entry| entry.how.report_bytes() <= max);
        let mut settled = match entries.is_empty() {
            true => Vec::new(),
            false => self.settle_all(tenant, entries).await?,
        }
        .into_iter();
        let answer = |bytes: usize| match bytes > max {
            true => Err(VerbError::ReportTooLarge { bytes, max }),
            false => settled.next().unwrap_or(Err(VerbError::NotFound)),
        };
        Ok(sizes.into_iter().map(answer).collect())
    }

    async fn settle_all(
        &self,
        tenant: &Tenant,
        entries: Vec<Settle>,
    ) -> Result<Vec<Result<Settled, VerbError>>, EngineError> {
        let now = self.now();
        let ask =
            |entry: Settle| Ask { id: entry.id, event: self.inner.end_of_run(entry.by, entry.how, now) };
        let answers = self.verb(tenant, entries.into_iter().map(ask).collect()).await?;
        let settled = |moved: Moved| Settled {
            state: moved.after.as_ref().map(|job| job.state().name()),
            run_at: moved.after.as_ref().and_then(|job| job.state().claimable_at()),
        };
        Ok(answers.into_iter().map(|answer| answer.map(settled)).collect())
    }

    /// Heartbeats.
    pub async fn extend(
        &self,
        tenant: &Tenant,
        entries: Vec<Extend>,
    ) -> Result<Vec<Result<Extended, VerbError>>, EngineError> {
        let ask = |entry: Extend| {
            let event = Event::Extend { by: entry.by, lease_ms: entry.lease_ms };
            Ask { id: entry.id, event }
        };
        let answers = self.verb(tenant, entries.into_iter().map(ask).collect()).await?;
        Ok(answers.into_iter().map(|answer| answer.map(extended)).collect())
    }

    /// Leases that begin anew, in the same hands or others.
    pub async fn renew(
        &self,
        tenant: &Tenant,
        entries: Vec<Renew>,
    ) -> Result<Vec<Result<Extended, VerbError>>, EngineError> {
        let ask = |entry: Renew| {
            let Renew { id, by, lease_ms, worker } = entry;
            Ask { id, event: Event::Renew { by, lease_ms, worker } }
        };
        let answers = self.verb(tenant, entries.into_iter().map(ask).collect()).await?;
        Ok(answers.into_iter().map(|answer| answer.map(extended)).collect())
    }

    /// Takes the result out of a settled job whose policy hands it out once, and answers with the job as it was; of
    /// several who ask at once one gets it. A result that may be read often, or that has had its time, stays or is gone:
    /// then the answer is the job as it is now. `None`: there is no such job.
    pub async fn take_result(&self, tenant: &Tenant, id: JobId) -> Result<Option<Arc<Job>>, EngineError> {
        let Some(job) = self.get(tenant, vec![id]).await?.pop().flatten() else { return Ok(None) };
        let is_over = job.result_expires_at().is_some_and(|at| at <= self.now());
        if job.result().is_none() || !(job.spec.policy.result.once || is_over) {
            return Ok(Some(job));
        }
        let event = if is_over { Event::Expire } else { Event::TakeResult };
        match self.verb(tenant, vec![Ask { id, event }]).await?.pop() {
            Some(Ok(moved)) if is_over => Ok(moved.after),
            Some(Ok(moved)) => Ok(Some(moved.before)),
            // Somebody else was first.
            Some(Err(_)) | None => Ok(self.get(tenant, vec![id]).await?.pop().flatten()),
        }
    }

    /// Progress of runs; the answer tells which jobs are asked to cancel.
    pub async fn report(
        &self,
        tenant: &Tenant,
        entries: Vec<Report>,
    ) -> Result<Vec<Result<Extended, VerbError>>, EngineError> {
        self.check_payloads(entries.iter().map(|entry| entry.payload.as_ref()))?;
        let ask = |entry: Report| {
            let Report { id, by, percent, note, payload } = entry;
            Ask { id, event: Event::Report { by, percent: percent.map(|p| p.min(100)), note, payload } }
        };
        let answers = self.verb(tenant, entries.into_iter().map(ask).collect()).await?;
        Ok(answers.into_iter().map(|answer| answer.map(extended)).collect())
    }

    /// Words of runs, kept with their jobs; each call writes what is kept of a job's words anew, so send many at once.
    /// The answer tells which jobs are asked to cancel.
    pub async fn log(
        &self,
        tenant: &Tenant,
        entries: Vec<LogEntry>,
    ) -> Result<Vec<Result<Extended, VerbError>>, EngineError> {
        let ask = |entry: LogEntry| {
            let LogEntry { id, by, source, lines } = entry;
            Ask { id, event: Event::Log { by, source, lines } }
        };
        let answers = self.verb(tenant, entries.into_iter().map(ask).collect()).await?;
        Ok(answers.into_iter().map(|answer| answer.map(extended)).collect())
    }

    pub(crate) fn by(&self) -> By {
        By { who: self.who.clone(), scope: self.scope.clone() }
    }

    /// The loop, behind the door, and to its end even if the caller goes away.
    pub(crate) async fn verb(&self, tenant: &Tenant, asks: Vec<Ask>) -> Result<Answers, EngineError> {
        let visit = self.inner.enter()?;
        self.check_count(asks.len())?;
        let (tenant, by) = (tenant.clone(), self.by());
        let work = async move {
            let epoch = visit.limits.epoch();
            let answers = visit.change_for(by, Some(&tenant), asks, Vec::new()).await?;
            let written = answers.iter().flatten().filter_map(|moved| moved.after.as_ref());
            visit.relimit_since(epoch, written.map(|job| job.id)).await?;
            Ok(answers)
        };
        self.inner.unstoppable(work).await
    }
}

fn extended(moved: Moved) -> Extended {
    let lease = moved.after.as_ref().and_then(|job| job.state().lease());
    Extended {
        until: lease.and_then(|lease| lease.until),
        cancel_asked: lease.is_some_and(|lease| lease.cancel_asked),
    }
}

impl Inner {
    pub(crate) fn end_of_run(&self, by: Holder, how: How, now: Timestamp) -> Event {
        match how {
            How::Finish { outcome, payload, ignore_repeat } => {
                Event::Finish(Finish { by, outcome, payload, ignore_repeat })
            }
            How::Fail { outcome, retry, payload } => {
                let retry = match retry {
                    Wish::Policy => RetryWish::Policy,
                    Wish::After(ms) => RetryWish::At(now.plus_ms(ms.max(0))),
                    Wish::Never => RetryWish::Never,
                };
                Event::Fail(Failure { by, outcome, retry, payload, chance: self.dice.chance() })
            }
            How::Release { delay_ms, counts } => {
                Event::Release { by, run_at: now.plus_ms(delay_ms.max(0)), counts }
            }
            How::Return => Event::Return { by },
            How::Restart { at, heed_repeat, patch } => {
                Event::Restart(Box::new(Restart { by, run_at: at.from(now), heed_repeat, patch: *patch }))
            }
            How::Suspend => Event::Suspend { by },
        }
    }

    /// Makes each ask happen or answers why not. `tenant`: whose jobs these must be; `None`: the engine's own doing.
    /// `known`: jobs the caller has at hand.
    pub(crate) async fn change(
        self: &Arc<Self>,
        tenant: Option<&Tenant>,
        asks: Vec<Ask>,
        known: Vec<Arc<Job>>,
    ) -> Result<Answers, EngineError> {
        self.change_for(By::default(), tenant, asks, known).await
    }

    /// The same on behalf of a caller.
    pub(crate) async fn change_for(
        self: &Arc<Self>,
        by: By,
        tenant: Option<&Tenant>,
        asks: Vec<Ask>,
        known: Vec<Arc<Job>>,
    ) -> Result<Answers, EngineError> {
        let mut call = Call { by, ..Call::new(self, tenant, asks, known) };
        let outcome = call.run().await;
        let forget_later = std::mem::take(&mut call.forget_later);
        let answers = match outcome {
            Ok(()) => call.answers(),
            Err(error) if call.wrote_something => Err(error.with_a_part_written()),
            Err(error) => Err(error),
        };
        if !forget_later.is_empty() {
            self.delete_quietly(forget_later).await;
        }
        answers
    }

    /// Children nobody waits for any more. What fails here goes when its keep time is over.
    async fn delete_quietly(self: &Arc<Self>, ids: Vec<JobId>) {
        for chunk in ids.chunks(crate::effects::FORGET_PER_STEP_MAX) {
            let asks = chunk.iter().map(|id| Ask { id: *id, event: Event::Delete }).collect();
            // Boxed: this is the loop calling itself.
            if let Err(error) = Box::pin(self.change(None, asks, Vec::new())).await {
                tracing::warn!(%error, "settled children could not be forgotten");
                return;
            }
        }
    }
}

/// One call of the loop.
struct Call<'a> {
    engine: &'a Arc<Inner>,
    by: By,
    tenant: Option<&'a Tenant>,
    asks: Vec<Ask>,
    answers: Vec<Option<Result<Moved, VerbError>>>,
    /// Asks without an answer yet.
    open: Vec<usize>,
    view: View,
    forget_later: Vec<JobId>,
    wrote_something: bool,
    /// The time the store was told with the last commit.
    committed_at: Timestamp,
}

impl<'a> Call<'a> {
    fn new(
        engine: &'a Arc<Inner>,
        tenant: Option<&'a Tenant>,
        asks: Vec<Ask>,
        known: Vec<Arc<Job>>,
    ) -> Call<'a> {
        let mut view = View::with_capacity(asks.len());
        let leases = engine.leases();
        for ask in &asks {
            if let Some(job) = leases.get(ask.id) {
                view.remember(job);
            }
        }
        drop(leases);
        for job in known {
            view.remember(job);
        }
        Call {
            engine,
            by: By::default(),
            tenant,
            answers: asks.iter().map(|_| None).collect(),
            open: (0..asks.len()).collect(),
            asks,
            view,
            forget_later: Vec::new(),
            wrote_something: false,
            committed_at: engine.now(),
        }
    }

    async fn run(&mut self) -> Result<(), EngineError> {
        self.load_asked().await?;
        // Siblings that finish at once would all but one lose the race for their parent's next version, over and over.
        let parents = self.asks.iter().filter_map(|ask| Some(self.view.get(ask.id)?.spec.family()?.parent));
        let _lanes = self.engine.lanes.enter(parents).await;
        for _ in 0..ROUNDS_MAX {
            if self.open.is_empty() {
                return Ok(());
            }
            let round = self.plan().await?;
            self.write(round).await?;
        }
        Err(StoreError::Unknown("the job was changed by others again and again".to_owned()).into())
    }

    /// The asked-for jobs, and their parents, which most likely have to hear of it.
    async fn load_asked(&mut self) -> Result<(), EngineError> {
        let mut missing = Missing::default();
        for ask in &self.asks {
            match self.view.get(ask.id) {
                None => {
                    missing.jobs.insert(ask.id);
                }
                Some(job) => missing.jobs.extend(
                    job.spec.family().map(|family| family.parent).filter(|parent| !self.view.knows(*parent)),
                ),
            }
        }
        self.load(missing).await
    }

    async fn load(&mut self, missing: Missing) -> Result<(), EngineError> {
        let mut ids = missing.jobs;
        for parent in missing.children_of {
            let children = self.engine.store.children(parent).await?;
            ids.extend(children.iter().copied().filter(|child| !self.view.knows(*child)));
            self.view.loaded_children(parent, children);
        }
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<JobId> = ids.into_iter().collect();
        let jobs = self.engine.store.load(ids.clone()).await?;
        for (id, job) in ids.into_iter().zip(jobs) {
            self.view.loaded(id, job);
        }
        Ok(())
    }

    /// Works out the open asks, loading whatever turns out to be needed.
    async fn plan(&mut self) -> Result<Round, EngineError> {
        for _ in 0..LOADS_MAX {
            let mut plan = Plan::new(&mut self.view, &self.engine.limits, self.engine.now());
            plan.by = self.by.clone();
            for &index in &self.open {
                plan.add(index, &self.asks[index], self.tenant);
            }
            if plan.missing.is_empty() {
                let round = plan.into_round();
                for (index, answer) in &round.verdicts {
                    self.answers[*index] = Some(answer.clone());
                }
                return Ok(round);
            }
            let missing = plan.missing;
            self.load(missing).await?;
        }
        Err(StoreError::Unavailable("the family of the job is too deep".to_owned()).into())
    }

    async fn write(&mut self, round: Round) -> Result<(), EngineError> {
        let Round { drafts, steps, forget_later, .. } = round;
        if !steps.is_empty() {
            self.committed_at = self.engine.now();
            let verdicts = match self.engine.commit(steps.clone(), self.committed_at).await {
                Ok(verdicts) => verdicts,
                Err(error) => return Err(self.trouble(error, steps)),
            };
            let mut done = Vec::with_capacity(steps.len());
            let mut written = Vec::with_capacity(drafts.len());
            for ((draft, step), verdict) in drafts.into_iter().zip(steps).zip(verdicts) {
                match verdict {
                    Verdict::Done(_) => {
                        done.extend(step.changes);
                        written.push(draft);
                    }
                    Verdict::KeyTaken(rivals) => self.refuse_keys(&draft, &rivals),
                    // Nothing is inserted here, so nothing can be taken.
                    Verdict::Stale | Verdict::Taken(_) => self.engine.meters.stale.add(1),
                }
            }
            if !forget_later.is_empty() {
                let parents: FxHashSet<JobId> = done.iter().map(|change| change.before.id).collect();
                let forgotten = forget_later.into_iter().filter(|(parent, _)| parents.contains(parent));
                self.forget_later.extend(forgotten.map(|(_, child)| child));
            }
            self.refund(&written).await;
            self.written(written, &done);
            // A round that was lost was worked out from what is no longer so: not only the jobs it would have changed.
            self.view = View::default();
        }
        self.open.retain(|index| self.answers[*index].is_none());
        Ok(())
    }

    /// Where the store counts what rates have left, it is told first: whoever hears of the freed place finds the token there.
    async fn refund(&self, drafts: &[Draft]) {
        for (index, answer) in drafts.iter().flat_map(|draft| &draft.answers) {
            if let (Ok(moved), Event::Return { .. }) = (answer, &self.asks[*index].event) {
                let refunded = self.engine.limits.refund_shared(&*self.engine.store, &moved.before).await;
                if refunded.is_err() {
                    // The others would wait for the store in vain, each for as long as this one.
                    return;
                }
            }
        }
    }

    /// The asks for these jobs are answered; the others of the draft are tried again without them.
    fn refuse_keys(&mut self, draft: &Draft, rivals: &[Rival]) {
        let rivals: FxHashMap<JobId, JobId> = rivals.iter().map(|rival| (rival.job, rival.holder)).collect();
        for (index, _) in &draft.answers {
            if let Some(holder) = rivals.get(&self.asks[*index].id) {
                self.answers[*index] = Some(Err(Refused::KeyTaken(*holder).into()));
            }
        }
    }

    fn written(&mut self, drafts: Vec<Draft>, changes: &[Change]) {
        self.wrote_something |= !changes.is_empty();
        self.engine.after_commit(changes, self.committed_at);
        if self.engine.feed.has_listeners() {
            let asked: FxHashSet<JobId> = self.asks.iter().map(|ask| ask.id).collect();
            let family = changes.iter().filter(|change| !asked.contains(&change.before.id));
            family.for_each(|change| self.engine.tell_of_family(change));
        }
        for (index, answer) in drafts.into_iter().flat_map(|draft| draft.answers) {
            if let Ok(moved) = &answer {
                if matches!(self.asks[index].event, Event::Return { .. }) {
                    self.engine.limits.refund(&*self.engine.store, &moved.before, self.engine.now());
                }
                self.engine.tell(&self.asks[index].event, moved);
            }
            self.answers[index] = Some(answer);
        }
    }

    /// Where nobody knows what happened, what we remember of the jobs is in doubt.
    fn trouble(&self, error: StoreError, steps: Vec<Step>) -> EngineError {
        if matches!(error, StoreError::Unknown(_)) {
            self.engine.doubt(steps.into_iter().flat_map(|step| step.changes).collect());
        }
        error.into()
    }

    fn answers(&mut self) -> Result<Answers, EngineError> {
        let answers = std::mem::take(&mut self.answers);
        // Every ask is answered or still open, and none is open when the loop has ended well.
        Ok(answers.into_iter().map(|answer| answer.unwrap_or(Err(VerbError::NotFound))).collect())
    }
}
