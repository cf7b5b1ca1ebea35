//! Claims jobs while a worker has a free slot, and pushes each to one worker.
//!
//! ```text
//!   claim ──► assign ──► commit ──► POST /worker-job ──► 2xx: runs until /done or its timeout ──► slot free
//!     ▲                                   │ 404: name refused, to another worker │
//!     │                                   │ 400: failed attempt                  │
//!     └──── returned ◄────────────────────┘ no answer, any other status          │
//!     ▲                                                                          │
//!     └──────────────────── a slot became free ◄─────────────────────────────────┘
//! ```
//!
//! The worker's name is committed to the job's lease before the job is sent. After a crash, every server on
//! the store knows which worker may have the job, and counts it against the worker's slots. The acceptance
//! (any 2xx) starts the timeout again; this is committed 50 ms later for all jobs of that interval, and not
//! at all for jobs that are done by then.

use super::tenant_dispatcher::{DISPATCHER_NAME, InDelivery, TenantDispatcher, TimeoutRestart, queue};
use super::worker_connection::{Answer, WorkerConnection};
use super::workers::{Acceptance, AfterFailure, Held, NextClaim, WorkerId};
use super::{commands, views};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::{Event, Holder, Job, Timestamp, Token};
use windlass_engine::{Claim, EngineError, JobEvent, Renew};

/// Time a worker has to accept a job. It should answer at once and work afterwards.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Shortest lease of a job in delivery, whatever its timeout.
const DELIVERY_LEASE_MS_MIN: i64 = 10_000;
/// Most jobs per claim: claimed jobs have to be delivered within seconds.
const CLAIM_MAX: usize = 1_000;
/// A claim is repeated after this time.
const CLAIM_WAIT_MS: u64 = 3_600_000;
/// Pause after an error of the store.
const AFTER_TROUBLE: Duration = Duration::from_millis(500);
/// Interval over which accepted jobs are collected for one commit.
const COLLECT: Duration = Duration::from_millis(50);

/// Job assigned to a worker.
struct Parcel {
    job: Arc<Job>,
    token: Token,
    worker: WorkerId,
    connection: Arc<WorkerConnection>,
    _in_delivery: InDelivery,
}

impl Parcel {
    fn by(&self) -> Holder {
        Holder::Token(self.token)
    }

    /// Puts the worker's name into the lease.
    fn addressed(&self) -> Renew {
        Renew { id: self.job.id, by: self.by(), lease_ms: None, worker: Some(self.worker.clone()) }
    }
}

impl TenantDispatcher {
    // --- loops
    // ---------------------------------------------------------------------------------------------------

    pub(super) async fn claim_loop(self: Arc<Self>) {
        while !self.is_stopping() {
            let Some(next) = self.table().next_claim() else {
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = self.stopping() => {}
                }
                continue;
            };
            match self.claim(&next).await {
                Ok(jobs) => self.send(jobs),
                Err(error) => {
                    tracing::warn!(%error, "cannot claim jobs for registered workers; retrying");
                    tokio::select! {
                        () = tokio::time::sleep(AFTER_TROUBLE) => {}
                        () = self.stopping() => {}
                    }
                }
            }
        }
    }

    /// Waits until there are jobs, or until the set of accepted names changes.
    async fn claim(&self, next: &NextClaim) -> Result<Vec<Arc<Job>>, EngineError> {
        let claim = Claim {
            tenant: self.tenant.clone(),
            queues: vec![queue()],
            names: next.names.clone(),
            priority: None,
            limit: next.slots.min(CLAIM_MAX),
            wait_ms: CLAIM_WAIT_MS,
            lease_ms: None,
            worker: Some(DISPATCHER_NAME.into()),
        };
        let mut claiming = std::pin::pin!(self.engine.claim(claim));
        loop {
            tokio::select! {
                biased;
                delivery = &mut claiming => return Ok(delivery?.accept()),
                () = self.changed.notified() => {
                    // More free slots do not restart the claim: it returns with the jobs there are.
                    let names = self.table().next_claim().map(|now| now.names);
                    if names.as_ref() != Some(&next.names) {
                        return Ok(Vec::new());
                    }
                }
                () = self.stopping() => return Ok(Vec::new()),
            }
        }
    }

    /// Commits the restarted timeouts of accepted jobs.
    pub(super) async fn restart_timeouts_loop(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.collect.notified() => {}
                () = self.stopping() => return,
            }
            tokio::time::sleep(COLLECT).await;
            let restarts = std::mem::take(&mut *self.restarts.lock());
            let now = self.engine.now();
            let renewals: Vec<Renew> = {
                let table = self.table();
                let still = |restart: &TimeoutRestart| {
                    table.held(restart.id).is_some_and(|held| held.token == restart.token)
                };
                restarts.into_iter().filter(still).map(|restart| renewal(&restart, now)).collect()
            };
            for some in renewals.chunks(self.batch_max()) {
                // A refusal means that the job has ended meanwhile.
                if let Err(error) = self.engine.renew(&self.tenant, some.to_vec()).await {
                    tracing::warn!(%error, "cannot restart the timeouts of accepted jobs; they end slightly early");
                }
            }
        }
    }

    // --- one job
    // -------------------------------------------------------------------------------------------------

    /// Assigns a worker to each claimed job and starts the deliveries without waiting for them.
    fn send(self: &Arc<Self>, jobs: Vec<Arc<Job>>) {
        let (mut parcels, mut back) = (Vec::new(), Vec::new());
        for job in jobs {
            let Some(lease) = job.state().lease() else { continue };
            let (token, in_delivery) = (lease.token, InDelivery::new(self));
            let held = |worker| Held::new(&job, lease, worker, false);
            match self.table().assign(&job.spec.name, job.id, held) {
                Some((worker, connection)) => {
                    parcels.push(Parcel { token, worker, connection, job, _in_delivery: in_delivery });
                }
                // An earlier job of this claim took the last slot for this name.
                None => back.push((job, token, in_delivery)),
            }
        }
        for (job, token, in_delivery) in back {
            let dispatcher = Arc::clone(self);
            tokio::spawn(async move {
                dispatcher.settle(&job, Event::Return { by: Holder::Token(token) }).await;
                drop(in_delivery);
            });
        }
        if !parcels.is_empty() {
            tokio::spawn(Arc::clone(self).hand_over(parcels));
        }
    }

    /// Commits the assignments, then sends the jobs.
    async fn hand_over(self: Arc<Self>, parcels: Vec<Parcel>) {
        let mut watched = Vec::with_capacity(parcels.len());
        for parcel in parcels {
            match self.engine.watch_lease(&parcel.job, &self.ends) {
                true => watched.push(parcel),
                // The lease ended between the claim and the watch.
                false => self.ended(parcel.job.id, parcel.token).await,
            }
        }
        if watched.is_empty() {
            return;
        }
        let written = self.engine.renew(&self.tenant, watched.iter().map(Parcel::addressed).collect()).await;
        let answers = match written {
            Ok(answers) => answers,
            Err(error) => {
                tracing::warn!(%error, "cannot assign jobs to workers; the jobs are released");
                for parcel in &watched {
                    self.settle(&parcel.job, Event::Return { by: parcel.by() }).await;
                    self.ended(parcel.job.id, parcel.token).await;
                }
                return;
            }
        };
        for (parcel, answer) in watched.into_iter().zip(answers) {
            match answer {
                Ok(_) => {
                    let dispatcher = Arc::clone(&self);
                    tokio::spawn(async move { dispatcher.deliver(&parcel).await });
                }
                Err(_) => self.ended(parcel.job.id, parcel.token).await,
            }
        }
    }

    async fn deliver(&self, parcel: &Parcel) {
        let Parcel { job, worker, .. } = parcel;
        match self.ask(parcel).await {
            Ok(Answer { status: 200..=299, .. }) => self.after_acceptance(parcel).await,
            Ok(Answer { status: 404, .. }) => {
                tracing::info!(worker = %worker, name = %job.spec.name, "the worker does not accept jobs of this name");
                let removed = self.table().refuses(worker, &job.spec.name);
                self.settle(job, Event::Return { by: parcel.by() }).await;
                if let Some(removed) = removed {
                    self.forget(&removed.worker).await;
                    self.fail_jobs_of(removed, "the worker rejected too many job names").await;
                }
                self.changed.notify_one();
            }
            Ok(Answer { status: 400, body }) => {
                let message = views::refusal(worker, &body);
                self.settle(job, commands::worker_lost(parcel.by(), worker, &message)).await;
            }
            Ok(Answer { status, .. }) => {
                self.undelivered(parcel, &format!("it responded with status {status}")).await
            }
            Err(why) => self.undelivered(parcel, &why).await,
        }
    }

    /// Sends the job and waits for the worker's answer. A lease that would expire meanwhile is extended,
    /// since the timeout counts from the worker's answer.
    async fn ask(&self, parcel: &Parcel) -> Result<Answer, String> {
        let Parcel { job, connection, .. } = parcel;
        let mut asking =
            std::pin::pin!(tokio::time::timeout(ANSWER_WITHIN, connection.post(views::worker_job(job))));
        let timeout_ms = job.spec.policy.lease.length_ms.unwrap_or(DELIVERY_LEASE_MS_MIN);
        if timeout_ms < DELIVERY_LEASE_MS_MIN
            && let Some(lease) = job.state().lease()
        {
            let half = lease.granted_at.plus_ms(timeout_ms / 2);
            tokio::select! {
                biased;
                answer = &mut asking => return answered(answer),
                () = self.engine.sleep_until(half) => {
                    let lease_ms = Some(DELIVERY_LEASE_MS_MIN);
                    let renewal = Renew { id: job.id, by: parcel.by(), lease_ms, worker: None };
                    // A refusal means that the job has ended meanwhile; `after_acceptance` finds out.
                    let _ = self.engine.renew(&self.tenant, vec![renewal]).await;
                }
            }
        }
        answered(asking.await)
    }

    async fn after_acceptance(&self, parcel: &Parcel) {
        let Parcel { job, token, worker, .. } = parcel;
        let timeout_ms = job.spec.policy.lease.length_ms.unwrap_or(i64::MAX);
        let until = self.engine.now().plus_ms(timeout_ms);
        let (acceptance, is_sooner) = {
            let mut table = self.table();
            (table.accept(job.id, *token, until), table.is_before_plan(until))
        };
        match acceptance {
            Acceptance::Ended => {}
            Acceptance::Runs => {
                self.restarts.lock().push(TimeoutRestart { id: job.id, token: *token, until });
                self.collect.notify_one();
                if is_sooner {
                    self.sooner.notify_one();
                }
            }
            Acceptance::WorkerGone => {
                let why = format!("worker {worker} was lost: it unregistered");
                self.settle(job, commands::worker_lost(parcel.by(), worker, &why)).await;
            }
        }
    }

    async fn undelivered(&self, parcel: &Parcel, why: &str) {
        let Parcel { job, worker, .. } = parcel;
        tracing::warn!(job.id = %job.id, worker = %worker, "cannot deliver a job to its worker: {why}");
        let after = self.table().failed(worker, self.engine.now());
        self.settle(job, Event::Return { by: parcel.by() }).await;
        if let AfterFailure::Removed(removed) = after {
            self.forget(worker).await;
            self.fail_jobs_of(removed, "the worker cannot be reached").await;
        }
        self.sooner.notify_one();
        self.changed.notify_one();
    }

    async fn settle(&self, job: &Arc<Job>, event: Event) {
        if let Err(error) = self.engine.settle(&self.tenant, vec![JobEvent { id: job.id, event }]).await {
            tracing::warn!(%error, job.id = %job.id, "cannot settle a job; it ends with its timeout");
        }
    }
}

fn answered(answer: Result<Result<Answer, String>, tokio::time::error::Elapsed>) -> Result<Answer, String> {
    answer.unwrap_or_else(|_| Err(format!("no response within {} s", ANSWER_WITHIN.as_secs())))
}

fn renewal(restart: &TimeoutRestart, now: Timestamp) -> Renew {
    let lease_ms = Some(restart.until.since_ms(now));
    Renew { id: restart.id, by: Holder::Token(restart.token), lease_ms, worker: None }
}
