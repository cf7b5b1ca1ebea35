//! Takes jobs from the engine while some worker could run them, and pushes each to one.
//!
//! ```text
//!   claim ──► assign ──► POST /worker-job ──► 202: runs until /done or its timeout ──► place free
//!     ▲                        │ 404: not this kind, to another   │
//!     │                        │ 400: a failed attempt            │
//!     └──── given back ◄───────┘ no answer, 5xx                   │
//!     ▲                                                           │
//!     └──────────────────── a place became free ◄─────────────────┘
//! ```
//!
//! A job belongs to the dispatcher's lease from the claim on, and its timeout runs from there, so that nothing hangs if the
//! server dies on the way. With the worker's 202 the lease begins anew in the worker's name. That is written a moment later
//! for all jobs of that moment at once, and not at all for those that are done by then.

use super::line::{Answer, Line};
use super::workers::{Accepted, AfterFailure, Held, Lost, Wanted, WorkerId, Workers};
use super::{QUEUE, commands, views};
use crate::query::Filter;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};
use windlass_core::{Holder, Job, JobId, Queue, StateName, Tenant, Timestamp, Token};
use windlass_engine::{Claim, Engine, EngineError, How, LeaseEnd, Renew, Settle};

/// How long a worker may take to say that it has a job. It is to answer at once and work afterwards.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// A job on its way keeps its lease at least this long, whatever its timeout.
const ON_THE_WAY_MS: i64 = 10_000;
/// Jobs taken by one claim: what is taken has to be delivered within seconds.
const CLAIM_MAX: usize = 1_000;
/// A claim that waits this long asks again.
const CLAIM_WAIT_MS: u64 = 3_600_000;
/// After trouble with the store.
const AFTER_TROUBLE: Duration = Duration::from_millis(500);
/// How long jobs that were accepted are collected before that is written down.
const COLLECT: Duration = Duration::from_millis(50);
/// The name in the lease of a job that is on its way.
pub const ON_THE_WAY: &str = "jq dispatcher";

/// The workers of one tenant and the jobs they have.
pub struct Yard {
    pub tenant: Tenant,
    engine: Engine,
    table: Mutex<Workers<Arc<Line>>>,
    /// Something in the table may allow another claim.
    changed: Notify,
    /// Something in the table may be due sooner.
    sooner: Notify,
    accepted: Mutex<Vec<Accepting>>,
    collect: Notify,
    on_the_way: AtomicUsize,
    arrived: Notify,
    ends: UnboundedSender<LeaseEnd>,
    stop: watch::Receiver<bool>,
}

/// A worker has taken a job, and that is to be written down.
struct Accepting {
    id: JobId,
    token: Token,
    worker: WorkerId,
    until: Timestamp,
}

impl Yard {
    /// With the jobs that run already, as far as they were written down.
    pub fn open(tenant: Tenant, engine: Engine, stop: watch::Receiver<bool>) -> Arc<Yard> {
        let (ends, ended) = unbounded_channel();
        let yard = Arc::new(Yard {
            tenant,
            engine,
            table: Mutex::default(),
            changed: Notify::new(),
            sooner: Notify::new(),
            accepted: Mutex::default(),
            collect: Notify::new(),
            on_the_way: AtomicUsize::new(0),
            arrived: Notify::new(),
            ends,
            stop,
        });
        tokio::spawn(Arc::clone(&yard).claiming());
        tokio::spawn(Arc::clone(&yard).freeing(ended));
        tokio::spawn(Arc::clone(&yard).keeping_time());
        tokio::spawn(Arc::clone(&yard).writing_down());
        yard
    }

    pub fn table(&self) -> MutexGuard<'_, Workers<Arc<Line>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn register(&self, id: WorkerId, max_jobs: u32, line: Arc<Line>, is_fixed: bool) {
        self.table().register(id, max_jobs, line, is_fixed);
        self.changed.notify_one();
    }

    /// `None`: there is no such worker.
    pub fn pinged(&self, id: &str) -> Option<bool> {
        let now = self.engine.now();
        let first = self.table().pinged(id, now)?;
        if first {
            self.sooner.notify_one();
        }
        Some(first)
    }

    /// No more jobs for it, or jobs again. `false`: there is no such worker.
    pub fn set_quiet(&self, id: &str, quiet: bool) -> bool {
        let knows = self.table().set_quiet(id, quiet);
        self.changed.notify_one();
        knows
    }

    /// Takes a worker out and fails what it had. Answers whether there was one.
    pub async fn dismiss(&self, id: &str, why: &str) -> bool {
        let lost = self.table().remove(id);
        match lost {
            Some(lost) => {
                self.lost(lost, why).await;
                true
            }
            None => false,
        }
    }

    /// A worker gets nothing more, ends what it has, and is gone then. Answers whether there was one.
    pub async fn leaving(&self, id: &str) -> bool {
        let is_known = self.table().leaving(id);
        self.forget_left().await;
        is_known
    }

    /// Nothing more is claimed, and what is on its way arrives or comes back.
    pub async fn drained(&self) {
        loop {
            let arrived = self.arrived.notified();
            if self.on_the_way.load(Ordering::SeqCst) == 0 {
                return;
            }
            arrived.await;
        }
    }

    /// Jobs that were handed out before this process began. What ends while we look is noticed: first watched, then looked
    /// at again.
    pub async fn adopt_running(&self) -> Result<(), EngineError> {
        let mut filter = Filter {
            tenant: Some(self.tenant.clone()),
            states: vec![StateName::Running],
            queue: Some(queue()),
            limit: 1_000,
            ..Filter::default()
        };
        loop {
            let page = self.engine.list(filter.clone()).await?;
            let ids: Vec<JobId> = page.jobs.iter().map(|job| job.id).collect();
            for job in &page.jobs {
                self.adopt(job);
            }
            let now = self.engine.get(&self.tenant, ids).await?;
            for (before, now) in page.jobs.iter().zip(now) {
                let token = |job: &Job| job.state().lease().map(|lease| lease.token);
                if let Some(old) = token(before)
                    && now.as_deref().and_then(token) != Some(old)
                {
                    self.ended(before.id, old).await;
                }
            }
            filter.before = page.next;
            if filter.before.is_none() {
                return Ok(());
            }
        }
    }

    fn adopt(&self, job: &Arc<Job>) {
        let Some(lease) = job.state().lease() else { return };
        let worker = lease.worker.clone().filter(|worker| self.table().knows(worker));
        // Somebody else's: claimed by name through another door.
        if worker.is_none() && lease.worker.as_deref() != Some(ON_THE_WAY) {
            return;
        }
        // Whether it still runs is looked at by the caller.
        self.engine.watch_lease(job, &self.ends);
        let held = Held {
            token: lease.token,
            worker,
            attempt: job.progress.attempts,
            until: lease.until.unwrap_or(lease.granted_at),
            accepted: true,
        };
        self.table().adopt(job.id, held);
        self.sooner.notify_one();
    }

    // --- the loops -----------------------------------------------------------------------------------------------

    async fn claiming(self: Arc<Self>) {
        while !self.is_stopping() {
            let Some(wanted) = self.table().wanted() else {
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = self.stopping() => {}
                }
                continue;
            };
            match self.claim(&wanted).await {
                Ok(jobs) => jobs.into_iter().for_each(|job| self.send(job)),
                Err(error) => {
                    tracing::warn!(%error, "jobs for push workers cannot be taken; trying again in a moment");
                    tokio::select! {
                        () = tokio::time::sleep(AFTER_TROUBLE) => {}
                        () = self.stopping() => {}
                    }
                }
            }
        }
    }

    /// Waits for jobs until there are some, or what is wanted changes.
    async fn claim(&self, wanted: &Wanted) -> Result<Vec<Arc<Job>>, EngineError> {
        let claim = Claim {
            tenant: self.tenant.clone(),
            queues: vec![queue()],
            names: wanted.names.clone(),
            priority: None,
            limit: wanted.slots.min(CLAIM_MAX),
            wait_ms: CLAIM_WAIT_MS,
            lease_ms: None,
            worker: Some(ON_THE_WAY.into()),
        };
        let mut claiming = std::pin::pin!(self.engine.claim(claim));
        loop {
            tokio::select! {
                biased;
                delivery = &mut claiming => return Ok(delivery?.accept()),
                () = self.changed.notified() => {
                    // More places are no reason to begin anew: the claim at hand comes back with what there is.
                    let names = self.table().wanted().map(|wanted| wanted.names);
                    if names.as_ref() != Some(&wanted.names) {
                        return Ok(Vec::new());
                    }
                }
                () = self.stopping() => return Ok(Vec::new()),
            }
        }
    }

    /// Places become free when leases end, whatever ended them.
    async fn freeing(self: Arc<Self>, mut ended: UnboundedReceiver<LeaseEnd>) {
        loop {
            let end = tokio::select! {
                end = ended.recv() => end,
                () = self.stopping() => None,
            };
            let Some(LeaseEnd { id, token }) = end else { return };
            self.ended(id, token).await;
        }
    }

    /// A lease is over: its place is free, and a worker that waited for it to leave is gone.
    async fn ended(&self, id: JobId, token: Token) {
        if self.table().ended(id, token) {
            self.changed.notify_one();
        }
        self.forget_left().await;
    }

    async fn forget_left(&self) {
        let left = self.table().take_left();
        for worker in left {
            tracing::info!(worker = %worker, "worker {worker} has ended what it had and left");
            self.forget(&worker).await;
        }
    }

    /// Rests end, silent workers are let go.
    async fn keeping_time(self: Arc<Self>) {
        while !self.is_stopping() {
            let next = self.table().plan();
            let waiting = async {
                match next {
                    Some(at) => self.engine.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = waiting => self.time_passed().await,
                () = self.sooner.notified() => {}
                () = self.stopping() => return,
            }
        }
    }

    async fn time_passed(&self) {
        let passed = self.table().pass(self.engine.now());
        self.changed.notify_one();
        for lost in passed.lost {
            self.forget(&lost.worker).await;
            self.lost(lost, "it gave no sign of life in time").await;
        }
        if passed.overdue.is_empty() {
            return;
        }
        let jobs = self.engine.get(&self.tenant, passed.overdue.clone()).await;
        for (id, job) in passed.overdue.into_iter().zip(jobs.unwrap_or_default()) {
            let Some(token) = self.table().held(id).map(|held| held.token) else { continue };
            let runs =
                job.as_ref().and_then(|job| job.state().lease()).is_some_and(|lease| lease.token == token);
            if !runs {
                self.ended(id, token).await;
            }
        }
        self.changed.notify_one();
    }

    /// The leases of accepted jobs begin anew in their workers' names.
    async fn writing_down(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.collect.notified() => {}
                () = self.stopping() => return,
            }
            tokio::time::sleep(COLLECT).await;
            let accepted = std::mem::take(&mut *self.accepted.lock().unwrap_or_else(PoisonError::into_inner));
            let now = self.engine.now();
            let renewals: Vec<Renew> = {
                let table = self.table();
                let still =
                    |entry: &Accepting| table.held(entry.id).is_some_and(|held| held.token == entry.token);
                accepted.into_iter().filter(still).map(|entry| entry.renewal(now)).collect()
            };
            for some in renewals.chunks(CLAIM_MAX) {
                // A refusal means that the job has ended meanwhile.
                if let Err(error) = self.engine.renew(&self.tenant, some.to_vec()).await {
                    tracing::warn!(%error, "who has which job could not be written down");
                }
            }
        }
    }

    // --- one job -------------------------------------------------------------------------------------------------

    /// Picks a worker for a claimed job and sends it there, without waiting for the answer.
    fn send(self: &Arc<Self>, job: Arc<Job>) {
        let Some(lease) = job.state().lease() else { return };
        let held = Held {
            token: lease.token,
            worker: None,
            attempt: job.progress.attempts,
            until: lease.until.unwrap_or(lease.granted_at),
            accepted: false,
        };
        let assigned = self.table().assign(&job.spec.name, job.id, held);
        let by = Holder::Token(lease.token);
        self.on_the_way.fetch_add(1, Ordering::SeqCst);
        let yard = Arc::clone(self);
        tokio::spawn(async move {
            match assigned {
                Some((worker, line)) => yard.deliver(&job, by, worker, &line).await,
                // The last place for this kind of job went to the one before it.
                None => yard.settle(&job, by, How::Return).await,
            }
            yard.on_the_way.fetch_sub(1, Ordering::SeqCst);
            yard.arrived.notify_waiters();
        });
    }

    async fn deliver(&self, job: &Arc<Job>, by: Holder, worker: WorkerId, line: &Line) {
        if !self.engine.watch_lease(job, &self.ends) {
            // Taken back between the claim and here.
            if let Holder::Token(token) = by {
                self.ended(job.id, token).await;
            }
            return;
        }
        match self.ask(job, by, line).await {
            Ok(Answer { status: 200..=299, .. }) => self.accepted(job, by, worker).await,
            Ok(Answer { status: 404, .. }) => {
                tracing::info!(worker = %worker, name = %job.spec.name, "a worker does not know this kind of job");
                let lost = self.table().refuses(&worker, &job.spec.name);
                self.settle(job, by, How::Return).await;
                if let Some(lost) = lost {
                    self.forget(&lost.worker).await;
                    self.lost(lost, "it knows none of the jobs it is given").await;
                }
                self.changed.notify_one();
            }
            Ok(Answer { status: 400, body }) => {
                let message = views::refusal(&worker, &body);
                self.settle(job, by, commands::lost(&worker, &message)).await;
            }
            Ok(Answer { status, .. }) => {
                self.undelivered(job, by, &worker, &format!("it answered {status}")).await
            }
            Err(why) => self.undelivered(job, by, &worker, &why).await,
        }
    }

    /// The worker's answer. A lease that would end on the way is lengthened: the timeout counts from the worker's yes.
    async fn ask(&self, job: &Arc<Job>, by: Holder, line: &Line) -> Result<Answer, String> {
        let mut asking =
            std::pin::pin!(tokio::time::timeout(ANSWER_WITHIN, line.post(views::worker_job(job))));
        let timeout_ms = job.spec.policy.lease.length_ms.unwrap_or(ON_THE_WAY_MS);
        if timeout_ms < ON_THE_WAY_MS
            && let Some(lease) = job.state().lease()
        {
            let half = lease.granted_at.plus_ms(timeout_ms / 2);
            tokio::select! {
                biased;
                answer = &mut asking => return answered(answer),
                () = self.engine.sleep_until(half) => {
                    let renewal = Renew { id: job.id, by, lease_ms: Some(ON_THE_WAY_MS), worker: None };
                    // If it is refused, the job has ended otherwise; the answer shows.
                    let _ = self.engine.renew(&self.tenant, vec![renewal]).await;
                }
            }
        }
        answered(asking.await)
    }

    async fn accepted(&self, job: &Arc<Job>, by: Holder, worker: WorkerId) {
        let Holder::Token(token) = by else { return };
        let timeout_ms = job.spec.policy.lease.length_ms.unwrap_or(i64::MAX);
        let until = self.engine.now().plus_ms(timeout_ms);
        let (accepted, is_sooner) = {
            let mut table = self.table();
            (table.accepted(job.id, token, until), table.is_before_plan(until))
        };
        match accepted {
            Accepted::Ended => {}
            Accepted::Runs => {
                let entry = Accepting { id: job.id, token, worker, until };
                self.accepted.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
                self.collect.notify_one();
                if is_sooner {
                    self.sooner.notify_one();
                }
            }
            Accepted::WorkerGone => {
                let why = commands::lost(&worker, &format!("worker {worker} was lost: it unregistered"));
                self.settle(job, by, why).await;
            }
        }
    }

    async fn undelivered(&self, job: &Arc<Job>, by: Holder, worker: &WorkerId, why: &str) {
        tracing::warn!(job.id = %job.id, worker = %worker, "a job did not reach its worker: {why}");
        let after = self.table().failed(worker, self.engine.now());
        self.settle(job, by, How::Return).await;
        if let AfterFailure::Lost(lost) = after {
            self.forget(worker).await;
            self.lost(lost, "it cannot be reached").await;
        }
        self.sooner.notify_one();
        self.changed.notify_one();
    }

    /// Its running jobs have failed.
    async fn lost(&self, lost: Lost, why: &str) {
        let Lost { worker, jobs } = lost;
        tracing::warn!(worker = %worker, jobs = jobs.len(), "worker {worker} is let go: {why}");
        let message = format!("worker {worker} was lost: {why}");
        let settle =
            |(id, token)| Settle { id, by: Holder::Token(token), how: commands::lost(&worker, &message) };
        if !jobs.is_empty()
            && let Err(error) = self.engine.settle(&self.tenant, jobs.into_iter().map(settle).collect()).await
        {
            // Their leases end some time; nothing is lost, only late.
            tracing::warn!(%error, "the jobs of a lost worker wait for their timeouts");
        }
        self.changed.notify_one();
    }

    /// After a restart it is not expected back.
    async fn forget(&self, worker: &WorkerId) {
        if let Err(error) = self.engine.put_note(&super::note_key(&self.tenant, worker), None).await {
            tracing::warn!(%error, worker = %worker, "a lost worker could not be forgotten");
        }
    }

    async fn settle(&self, job: &Arc<Job>, by: Holder, how: How) {
        if let Err(error) = self.engine.settle(&self.tenant, vec![Settle { id: job.id, by, how }]).await {
            tracing::warn!(%error, job.id = %job.id, "a job waits for its timeout");
        }
    }

    fn is_stopping(&self) -> bool {
        // Without a sender the server is gone.
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    async fn stopping(&self) {
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
    }
}

impl Accepting {
    fn renewal(self, now: Timestamp) -> Renew {
        let lease_ms = Some(self.until.since_ms(now));
        Renew { id: self.id, by: Holder::Token(self.token), lease_ms, worker: Some(self.worker) }
    }
}

fn answered(answer: Result<Result<Answer, String>, tokio::time::error::Elapsed>) -> Result<Answer, String> {
    answer.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs())))
}

pub fn queue() -> Queue {
    static QUEUE_NAME: std::sync::OnceLock<Queue> = std::sync::OnceLock::new();
    QUEUE_NAME.get_or_init(|| Queue::new(QUEUE).unwrap_or_default()).clone()
}
