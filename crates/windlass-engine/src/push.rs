//! Making jobs: one batch, one step, one commit.

use crate::engine::{Engine, Inner};
use crate::error::{EngineError, PushRefused};
use crate::feed::FeedKind;
use crate::settle::Ask;
use crate::verbs::{Push, Pushed};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;
use windlass_core::event::Patch;
use windlass_core::family::Family;
use windlass_core::unique::OnConflict;
use windlass_core::{
    Event, Extras, Job, JobId, JobSpec, JobState, Name, Queue, StateName, Tenant, Timestamp, apply,
};
use windlass_store::{Change, Inserted, NewJob, Step, StoreError, Verdict};

/// Rounds for one batch before we stop: each lost one means that a parent moved on meanwhile.
const ROUNDS_MAX: usize = 100;

impl Engine {
    /// All of the batch in one atomic step; one answer per job, in order.
    pub async fn push(&self, tenant: &Tenant, jobs: Vec<Push>) -> Result<Vec<Pushed>, EngineError> {
        let visit = self.inner.enter()?;
        self.check_count(jobs.len())?;
        self.check_payloads(jobs.iter().map(|job| Some(&job.payload)))?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let tenant = tenant.clone();
        self.inner.unstoppable(async move { visit.push(&tenant, jobs).await }).await
    }
}

impl Inner {
    async fn push(self: &Arc<Self>, tenant: &Tenant, jobs: Vec<Push>) -> Result<Vec<Pushed>, EngineError> {
        let now = self.now();
        let epoch = self.limits.epoch();
        let batch = self.built(tenant, jobs, now);
        let after = Aftermath::of(self, &batch, now);
        let pushed = if batch.iter().any(|new| new.spec.family().is_some()) {
            self.insert_with_parents(batch, now).await?
        } else {
            self.insert(batch, now).await?
        };
        let pushed = self.resolve_conflicts(pushed, &after.specs).await?;
        self.pushed(tenant, &pushed, after, now);
        if self.limits.epoch() != epoch {
            self.relimit_new(pushed.iter().filter_map(|pushed| pushed.id()).collect()).await?;
        }
        Ok(pushed)
    }

    fn built(&self, tenant: &Tenant, jobs: Vec<Push>, now: Timestamp) -> Vec<NewJob> {
        let has_limits = self.limits.has_any(tenant);
        let build = |push: Push| {
            let run_at = push.run_at.from(now);
            let mut spec = JobSpec {
                tenant: tenant.clone(),
                queue: push.queue,
                name: push.name,
                payload: push.payload,
                priority: push.priority,
                created_at: now,
                policy: push.policy,
                extras: push.extras,
            };
            let keys = if has_limits { self.limits.keys(&spec) } else { Vec::new() };
            // Also over what the caller may have written there: these are ours to set.
            if !keys.is_empty() || !spec.limit_keys().is_empty() {
                spec.extras.get_or_insert_default().limit_keys = keys;
            }
            spec.extras.take_if(|extras| **extras == Extras::default());
            NewJob { spec: Arc::new(spec), run_at, body: push.body, held_by_parent: false }
        };
        jobs.into_iter().map(build).collect()
    }

    async fn insert(&self, batch: Vec<NewJob>, now: Timestamp) -> Result<Vec<Pushed>, EngineError> {
        match self.commit(vec![Step::insert(batch)], now).await?.pop() {
            Some(Verdict::Done(inserted)) => Ok(inserted.into_iter().map(as_pushed).collect()),
            // A step without changes has nothing to be stale about.
            Some(Verdict::Stale) | None => {
                Err(StoreError::Unknown("the store gave no answer to a push".to_owned()).into())
            }
        }
    }

    /// Children and what they mean for their parents, in the same step.
    async fn insert_with_parents(
        self: &Arc<Self>,
        batch: Vec<NewJob>,
        now: Timestamp,
    ) -> Result<Vec<Pushed>, EngineError> {
        let parents = || batch.iter().filter_map(|new| Some(new.spec.family()?.parent));
        let _lanes = self.lanes.enter(parents()).await;
        let mut ids: Vec<JobId> = parents().collect();
        ids.sort_unstable();
        ids.dedup();
        for _ in 0..ROUNDS_MAX {
            let loaded = self.store.load(ids.clone()).await?;
            let mut parents: Parents = ids
                .iter()
                .copied()
                .zip(loaded)
                .filter_map(|(id, job)| Some((id, Parent::of(job?))))
                .collect();
            let mut refusals = vec![None; batch.len()];
            let mut inserts = Vec::with_capacity(batch.len());
            for (new, refusal) in batch.iter().zip(&mut refusals) {
                match adopt(new, &mut parents, now) {
                    Ok(held_by_parent) => inserts.push(NewJob { held_by_parent, ..new.clone() }),
                    Err(refused) => *refusal = Some(refused),
                }
            }
            let changes: SmallVec<[Change; 1]> = parents.into_values().filter_map(Parent::change).collect();
            let step = Step { changes: changes.clone(), inserts };
            if let Some(Verdict::Done(inserted)) = self.commit(vec![step], now).await?.pop() {
                self.after_commit(&changes);
                let pushed = merged(refusals, inserted);
                self.take_back_unmade(&batch, &pushed).await?;
                return Ok(pushed);
            }
            self.meters.stale.add(1);
        }
        Err(StoreError::Unavailable("the parent was changed by others again and again".to_owned()).into())
    }

    /// A child that was not made, because its key was taken, must not be waited for.
    async fn take_back_unmade(
        self: &Arc<Self>,
        batch: &[NewJob],
        pushed: &[Pushed],
    ) -> Result<(), EngineError> {
        let unmade = batch.iter().zip(pushed).filter(|(_, pushed)| matches!(pushed, Pushed::Existing(_)));
        let parents = unmade.filter_map(|(new, _)| new.spec.family().filter(|family| family.parent_waits()));
        let asks: Vec<Ask> =
            parents.map(|family| Ask { id: family.parent, event: Event::ChildSettled }).collect();
        if !asks.is_empty() {
            self.change(None, asks, Vec::new()).await?;
        }
        Ok(())
    }

    /// What a taken key means is the pushed job's to say.
    async fn resolve_conflicts(
        self: &Arc<Self>,
        mut pushed: Vec<Pushed>,
        specs: &[Arc<JobSpec>],
    ) -> Result<Vec<Pushed>, EngineError> {
        let mut updates = Vec::new();
        for (answer, spec) in pushed.iter_mut().zip(specs) {
            let (Pushed::Existing(id), Some(unique)) = (*answer, spec.unique()) else { continue };
            match unique.on_conflict {
                OnConflict::Return => {}
                OnConflict::Refuse => *answer = Pushed::Refused(PushRefused::Duplicate(id)),
                OnConflict::Update => updates.push((id, spec)),
            }
        }
        if updates.is_empty() {
            return Ok(pushed);
        }
        let existing = self.store.load(updates.iter().map(|(id, _)| *id).collect()).await?;
        let ask = |((id, spec), job): ((JobId, &Arc<JobSpec>), Option<Arc<Job>>)| {
            let patch = Patch {
                payload: Some(spec.payload.clone()),
                priority: Some(spec.priority),
                repeat: Some(spec.policy.repeat.clone()),
                ..Patch::default()
            };
            let patch = self.completed_patch(&*job?, patch);
            Some(Ask { id, event: Event::Update(Box::new(patch)) })
        };
        let asks = updates.into_iter().zip(existing).filter_map(ask).collect();
        // One that is gone by now was there when the push met it, and was updated too late to matter.
        self.change(None, asks, Vec::new()).await?;
        Ok(pushed)
    }

    fn pushed(&self, tenant: &Tenant, pushed: &[Pushed], after: Aftermath, now: Timestamp) {
        if let Some(next) = after.next_start {
            self.timers.plan(next);
        }
        let new = pushed.iter().filter(|pushed| matches!(pushed, Pushed::New(_))).count();
        self.meters.pushed.add(new);
        // The store has announced each address once; with several jobs there, several may look at once.
        for ((queue, name), count) in &after.ready {
            if *count > 1 {
                self.bell.announce(tenant, queue, name, count - 1);
            }
        }
        if self.feed.has_listeners() {
            for (pushed, spec) in pushed.iter().zip(&after.specs) {
                if let Pushed::New(id) = pushed {
                    let address = (tenant, &spec.queue, &spec.name);
                    self.feed.tell_of(FeedKind::Pushed, *id, address, StateName::Ready, now);
                }
            }
        }
    }
}

/// What has to be known of a batch after it was handed to the store.
struct Aftermath {
    /// When the first job that is not due yet will be.
    next_start: Option<Timestamp>,
    /// How many became ready where; empty when nobody waits for any.
    ready: FxHashMap<(Queue, Name), usize>,
    /// Empty when nobody will ask for them.
    specs: Vec<Arc<JobSpec>>,
}

impl Aftermath {
    fn of(engine: &Inner, batch: &[NewJob], now: Timestamp) -> Aftermath {
        let mut ready = FxHashMap::default();
        if batch.len() > 1 && engine.bell.waiters() > 0 {
            for new in batch.iter().filter(|new| new.run_at <= now) {
                *ready.entry((new.spec.queue.clone(), new.spec.name.clone())).or_default() += 1;
            }
        }
        let are_asked_for =
            engine.feed.has_listeners() || batch.iter().any(|new| new.spec.unique().is_some());
        Aftermath {
            next_start: batch.iter().map(|new| new.run_at).filter(|run_at| *run_at > now).min(),
            ready,
            specs: if are_asked_for {
                batch.iter().map(|new| new.spec.clone()).collect()
            } else {
                Vec::new()
            },
        }
    }
}

type Parents = FxHashMap<JobId, Parent>;

/// A parent while its children are added to it.
struct Parent {
    base: Arc<Job>,
    now: Option<Job>,
}

impl Parent {
    fn of(base: Arc<Job>) -> Parent {
        Parent { base, now: None }
    }

    fn happen(&mut self, event: Event, now: Timestamp) {
        let job = self.now.as_ref().unwrap_or(&self.base);
        // Adding a child and an empty update are refused in no state.
        if let Ok(transition) = apply(job, event, now) {
            self.now = transition.job;
        }
    }

    /// Several children in one step are one version.
    fn change(self) -> Option<Change> {
        let mut after = self.now?;
        after.version = self.base.version + 1;
        Some(Change { before: self.base, after: Some(Arc::new(after)) })
    }
}

/// Whether the child has to wait for its parent's run to end, or why it cannot be made.
fn adopt(new: &NewJob, parents: &mut Parents, now: Timestamp) -> Result<bool, PushRefused> {
    let Some(Family { parent: id, .. }) = new.spec.family() else { return Ok(false) };
    let parent = parents.get_mut(id).filter(|parent| parent.base.spec.tenant == new.spec.tenant);
    let parent = parent.ok_or(PushRefused::NoParent(*id))?;
    if !new.spec.family().is_some_and(Family::parent_waits) {
        // Nothing changes but the version: the step fails if the parent goes away meanwhile, and whoever sees the
        // parent in its first versions knows that it has no children.
        parent.happen(Event::Update(Box::default()), now);
        return Ok(false);
    }
    let is_running = match parent.base.state() {
        JobState::Running(_) => true,
        // One that waits for its own parent has not begun: children come from a run.
        JobState::Waiting if parent.base.progress.started_at.is_some() => false,
        other => return Err(PushRefused::ParentNotActive(other.name())),
    };
    parent.happen(Event::ChildAdded, now);
    Ok(is_running)
}

fn as_pushed(inserted: Inserted) -> Pushed {
    match inserted {
        Inserted::New(id) => Pushed::New(id),
        Inserted::Existing(id) => Pushed::Existing(id),
    }
}

/// The refusals in their places, the answers of the store in the others.
fn merged(refusals: Vec<Option<PushRefused>>, inserted: Vec<Inserted>) -> Vec<Pushed> {
    let mut inserted = inserted.into_iter();
    let answer = |refusal: Option<PushRefused>| match refusal {
        Some(refused) => Some(Pushed::Refused(refused)),
        None => inserted.next().map(as_pushed),
    };
    refusals.into_iter().filter_map(answer).collect()
}
