//! Push: one batch, one step, one commit.

use crate::engine::{Engine, Inner, NOTES};
use crate::error::{EngineError, PushRefused};
use crate::events::feed::FeedKind;
use crate::shutdown::InFlight;
use crate::tenants::quota::{self, Admitted};
use crate::verbs::{JobEvent, Push, Pushed, RunAt};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use windlass_core::event::Patch;
use windlass_core::unique::{IDEMPOTENCY_MARK, OnConflict};
use windlass_core::{Event, Extras, Job, JobId, JobSpec, Name, Queue, Scope, StateWord, Tenant, Timestamp};
use windlass_store::{Inserted, NewJob, Step, StoreError, Verdict};

/// Key and value of a setting of the store.
type Setting = (String, Option<Vec<u8>>);

impl Engine {
    /// Creates jobs in one atomic step; returns one result per job, in order.
    pub async fn push(&self, tenant: &Tenant, jobs: Vec<Push>) -> Result<Vec<Pushed>, EngineError> {
        self.push_with(tenant, jobs, None).await
    }

    /// Pushes, and puts a note (see [`Engine::put_note`]) in the same commit. An empty batch puts no note. For
    /// children the note follows in a commit of its own.
    pub async fn push_with_note(
        &self,
        tenant: &Tenant,
        jobs: Vec<Push>,
        note: (&str, Vec<u8>),
    ) -> Result<Vec<Pushed>, EngineError> {
        let (key, value) = note;
        self.push_with(tenant, jobs, Some((format!("{NOTES}{key}"), Some(value)))).await
    }

    /// Checks the number of jobs and the sizes of their payloads.
    pub fn check_pushes(&self, jobs: &[Push]) -> Result<(), EngineError> {
        self.check_count(jobs.len())?;
        self.check_payloads(jobs.iter().map(|job| Some(&job.payload)))
    }

    async fn push_with(
        &self,
        tenant: &Tenant,
        mut jobs: Vec<Push>,
        setting: Option<Setting>,
    ) -> Result<Vec<Pushed>, EngineError> {
        let in_flight = self.inner.enter()?;
        self.check_pushes(&jobs)?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.add_trace_tags(&mut jobs);
        let bytes: Vec<usize> = jobs.iter().map(|job| job.payload.bytes.len()).collect();
        if self.is_exempt {
            let pushed = self.push_admitted(in_flight, tenant, jobs, setting, None).await?;
            self.convert_reservations(
                tenant,
                bytes.len() as u64,
                bytes.iter().map(|bytes| *bytes as u64).sum(),
            );
            return Ok(pushed);
        }
        let admitted = self.reserve_jobs(tenant, jobs.iter().map(quota::size_of_push)).await?;
        self.push_admitted(in_flight, tenant, jobs, setting, Some((admitted, bytes))).await
    }

    /// Settles the quota reservation even if the caller stops waiting.
    async fn push_admitted(
        &self,
        in_flight: InFlight,
        tenant: &Tenant,
        jobs: Vec<Push>,
        setting: Option<Setting>,
        admitted: Option<(Admitted, Vec<usize>)>,
    ) -> Result<Vec<Pushed>, EngineError> {
        let (tenant, scope) = (tenant.clone(), self.scope.clone());
        let work = async move {
            let pushed = in_flight.push(&tenant, &scope, jobs, setting).await;
            if let Some((admitted, bytes)) = admitted {
                admitted.conclude(&bytes, &pushed);
            }
            pushed
        };
        self.inner.detached(work).await
    }
}

impl Inner {
    async fn push(
        self: &Arc<Self>,
        tenant: &Tenant,
        scope: &Scope,
        jobs: Vec<Push>,
        setting: Option<Setting>,
    ) -> Result<Vec<Pushed>, EngineError> {
        let now = self.now();
        let epoch = self.limits.epoch();
        let batch = self.build_jobs(tenant, jobs, now);
        let after = BatchFacts::of(self, &batch, now);
        let pushed = if batch.iter().any(|new| new.spec.family().is_some()) {
            let pushed = self.insert_with_parents(batch, scope, now).await?;
            if let Some((key, value)) = setting {
                self.store.put_setting(&key, value).await?;
            }
            pushed
        } else {
            self.insert(batch, setting, now).await?
        };
        self.after_push(tenant, &pushed, &after, now);
        let made_some = pushed.iter().any(|pushed| matches!(pushed, Pushed::New(_)));
        // The rest needs further commits. From here on an error must not claim that nothing was written.
        let resolved = self.resolve_conflicts(pushed, &after.specs, scope).await;
        let pushed = resolved.map_err(|error| if made_some { error.with_a_part_written() } else { error })?;
        self.relimit_since(epoch, pushed.iter().filter_map(|pushed| pushed.id())).await?;
        Ok(pushed)
    }

    pub(crate) fn build_jobs(&self, tenant: &Tenant, jobs: Vec<Push>, now: Timestamp) -> Vec<NewJob> {
        let has_limits = self.limits.has_any(tenant);
        let build = |push: Push| {
            let run_at = push.first_run(now);
            let is_dated = matches!(push.run_at, RunAt::At(at) if at > now);
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
            // Overwrites keys set by the caller: only the engine sets them.
            if !keys.is_empty() || !spec.limit_keys().is_empty() {
                spec.extras.get_or_insert_default().limit_keys = keys;
            }
            if is_dated || spec.is_dated() {
                spec.extras.get_or_insert_default().dated = is_dated;
            }
            spec.extras.take_if(|extras| **extras == Extras::default());
            NewJob { spec: Arc::new(spec), run_at, body: push.body, held_by_parent: false }
        };
        jobs.into_iter().map(build).collect()
    }

    pub(crate) async fn insert(
        &self,
        batch: Vec<NewJob>,
        setting: Option<Setting>,
        now: Timestamp,
    ) -> Result<Vec<Pushed>, EngineError> {
        let step = Step { settings: setting.into_iter().collect(), ..Step::insert(batch) };
        match self.commit(vec![step], now).await?.pop() {
            Some(Verdict::Done(inserted)) => Ok(inserted.into_iter().map(Pushed::from).collect()),
            // A step without changes, and without `all_new`, is always applied.
            Some(Verdict::Stale | Verdict::KeyTaken(_) | Verdict::Taken(_)) | None => {
                Err(StoreError::Unknown("the store returned no answer to a push".to_owned()).into())
            }
        }
    }

    /// Applies the conflict rule of each pushed job whose unique key is in use.
    async fn resolve_conflicts(
        self: &Arc<Self>,
        mut pushed: Vec<Pushed>,
        specs: &[Arc<JobSpec>],
        scope: &Scope,
    ) -> Result<Vec<Pushed>, EngineError> {
        if !scope.is_everything() {
            self.refuse_out_of_reach(&mut pushed, scope).await?;
        }
        let repeated = self.repeated_pushes(&pushed, specs).await?;
        let mut updates = Vec::new();
        for (answer, spec) in pushed.iter_mut().zip(specs) {
            let (Pushed::Existing(id), Some(unique)) = (*answer, spec.unique()) else { continue };
            if repeated.contains(&id) {
                continue;
            }
            match unique.on_conflict {
                OnConflict::Return => {}
                OnConflict::Refuse => *answer = Pushed::Refused(PushRefused::Duplicate(id)),
                OnConflict::Update => updates.push((id, spec)),
            }
        }
        if updates.is_empty() {
            return Ok(pushed);
        }
        let ask = |(id, spec): (JobId, &Arc<JobSpec>)| {
            let patch = Patch {
                payload: Some(spec.payload.clone()),
                priority: Some(spec.priority),
                repeat: Some(spec.policy.repeat.clone()),
                ..Patch::default()
            };
            JobEvent { id, event: Event::Update(Box::new(patch)) }
        };
        let asks = updates.into_iter().map(ask).collect();
        // A job deleted since the push needs no update.
        self.change(None, asks, Vec::new()).await?;
        Ok(pushed)
    }

    /// Jobs that an earlier push with the same idempotency key has created, beside a unique key with a conflict
    /// rule.
    async fn repeated_pushes(
        &self,
        pushed: &[Pushed],
        specs: &[Arc<JobSpec>],
    ) -> Result<FxHashSet<JobId>, EngineError> {
        let key = |spec: &JobSpec| {
            spec.alias().filter(|alias| alias.starts_with(IDEMPOTENCY_MARK)).map(str::to_owned)
        };
        let with_key = pushed.iter().zip(specs).filter_map(|(answer, spec)| match answer {
            Pushed::Existing(id) => Some((*id, key(spec)?)),
            Pushed::New(_) | Pushed::Refused(_) => None,
        });
        let with_key: Vec<(JobId, String)> = with_key.collect();
        if with_key.is_empty() {
            return Ok(FxHashSet::default());
        }
        let holders = self.store.load(with_key.iter().map(|(id, _)| *id).collect()).await?;
        let same = |(holder, (id, key)): (Option<Arc<Job>>, (JobId, String))| {
            holder.filter(|job| job.spec.alias() == Some(&key)).map(|_| id)
        };
        Ok(holders.into_iter().zip(with_key).filter_map(same).collect())
    }

    /// A key of a job outside the scope is reported as a duplicate; that job is neither returned nor updated.
    async fn refuse_out_of_reach(&self, pushed: &mut [Pushed], scope: &Scope) -> Result<(), EngineError> {
        let held = |pushed: &Pushed| if let Pushed::Existing(id) = pushed { Some(*id) } else { None };
        let ids: Vec<JobId> = pushed.iter().filter_map(held).collect();
        let holders = if ids.is_empty() { Vec::new() } else { self.store.load(ids).await? };
        let is_reached = |job: &Job| scope.allows(&job.spec.queue, &job.spec.name);
        let out_of_reach: FxHashSet<JobId> =
            holders.iter().flatten().filter(|job| !is_reached(job)).map(|job| job.id).collect();
        for answer in pushed {
            if let Some(id) = held(answer).filter(|id| out_of_reach.contains(id)) {
                *answer = Pushed::Refused(PushRefused::Duplicate(id));
            }
        }
        Ok(())
    }

    fn after_push(&self, tenant: &Tenant, pushed: &[Pushed], after: &BatchFacts, now: Timestamp) {
        if let Some(next) = after.next_start {
            self.timers.plan(next);
        }
        let new = pushed.iter().filter(|pushed| matches!(pushed, Pushed::New(_))).count();
        self.meters.pushed.add(new);
        let came = pushed.iter().zip(&after.addresses).filter(|(pushed, _)| matches!(pushed, Pushed::New(_)));
        let queues = came.clone().map(|(_, (queue, _))| queue);
        self.meters.queues.count(tenant, queues, |traffic, count| traffic.pushed += count);
        let mut by_name = self.meters.jobs.in_batch(tenant);
        came.for_each(|(_, (queue, name))| by_name.of(queue, name).pushed.add(1));
        self.record_pushes(pushed, &after.specs, now);
        if self.feed.has_listeners() {
            for ((pushed, spec), state) in pushed.iter().zip(&after.specs).zip(&after.states) {
                if let Pushed::New(id) = pushed {
                    let address = (tenant, &spec.queue, &spec.name);
                    self.feed.publish_for(FeedKind::Pushed, *id, address, *state, now);
                }
            }
        }
    }
}

/// Facts about a batch that are needed after its commit.
struct BatchFacts {
    /// Earliest start of the jobs that are not due yet.
    next_start: Option<Timestamp>,
    /// Empty if they are not needed.
    specs: Vec<Arc<JobSpec>>,
    /// State of each new job; empty if nobody listens.
    states: Vec<StateWord>,
    /// Queue and name of each job.
    addresses: Vec<(Queue, Name)>,
}

impl BatchFacts {
    fn of(engine: &Inner, batch: &[NewJob], now: Timestamp) -> BatchFacts {
        let are_asked_for = engine.feed.has_listeners()
            || engine.has_spans()
            || batch.iter().any(|new| new.spec.unique().is_some());
        BatchFacts {
            next_start: batch.iter().map(|new| new.run_at).filter(|run_at| *run_at > now).min(),
            specs: if are_asked_for {
                batch.iter().map(|new| new.spec.clone()).collect()
            } else {
                Vec::new()
            },
            states: if engine.feed.has_listeners() {
                batch.iter().map(|new| state_of_new(new, now)).collect()
            } else {
                Vec::new()
            },
            addresses: batch.iter().map(|new| (new.spec.queue.clone(), new.spec.name.clone())).collect(),
        }
    }
}

fn state_of_new(new: &NewJob, now: Timestamp) -> StateWord {
    if new.held_by_parent { StateWord::Waiting } else { StateWord::of_new(new.run_at, now) }
}

impl From<Inserted> for Pushed {
    fn from(inserted: Inserted) -> Pushed {
        match inserted {
            Inserted::New(id) => Pushed::New(id),
            Inserted::Existing(id) => Pushed::Existing(id),
        }
    }
}
