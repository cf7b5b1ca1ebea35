//! Pool of processes that run statements: bounded concurrency, reuse, and replacement of killed processes.

use super::child::{Child, Program, grown_beyond};
use super::load::Loader;
use super::message::{Found, Order, QueryLimits, Run};
use super::narrow::Candidates;
use super::sandbox::{Accesses, QueryError, RowChange};
use super::{Change, Failure};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep_until, timeout_at};
use windlass_core::{Job, Tenant};
use windlass_engine::Engine;

/// Concurrent statements. Each may hold the jobs it reads in memory; more would only compete for the
/// processor.
const AT_ONCE: usize = 4;
/// Concurrent statements of one tenant; one slot remains for others.
const AT_ONCE_OF_A_TENANT: usize = AT_ONCE - 1;
/// A process ends a statement itself when its time is over; after this grace period it is killed.
const GRACE: Duration = Duration::from_millis(100);
/// Approximate size of the pieces in which rows are sent.
const PIECE_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Pool {
    program: Option<Program>,
    limits: QueryLimits,
    slots: Arc<Semaphore>,
    /// Permits of the tenants whose statements run or wait.
    shares: Mutex<HashMap<Tenant, Arc<Semaphore>>>,
    idle: Mutex<Vec<Child>>,
}

/// Statement, and the tenant whose jobs it reads.
pub(super) struct Search {
    pub engine: Engine,
    pub tenant: Tenant,
    pub run: Run,
    pub may_write: bool,
    pub sees_payloads: bool,
    pub until: Instant,
}

/// Output of a statement, and its changes ordered by id.
pub(super) struct Outcome {
    pub body: Vec<u8>,
    pub changes: Vec<Change>,
}

impl Pool {
    pub(super) fn new(program: Option<Program>, limits: QueryLimits) -> Pool {
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        Pool { program, limits, slots, shares: Mutex::default(), idle: Mutex::default() }
    }

    /// Runs a statement in a slot, which is released when the process has ended the statement or is dead.
    /// Dropping the future ends the statement.
    pub(super) async fn run(self: &Arc<Self>, search: Search) -> Result<Outcome, Failure> {
        let share = self.share_of(&search.tenant);
        // The tenant's own permit comes first: a statement that waits for it occupies no global slot.
        let slot = async { Ok::<_, AcquireError>([share.acquire_owned().await?, self.slot().await?]) };
        let Ok(Ok(slot)) = timeout_at(search.until.into(), slot).await else {
            return Err(QueryError::TimedOut.into());
        };
        let (tell, told) = oneshot::channel();
        tokio::spawn(Arc::clone(self).run_in(slot, search, tell));
        told.await.unwrap_or_else(|_| Err(QueryError::TimedOut.into()))
    }

    async fn run_in(
        self: Arc<Self>,
        slot: [OwnedSemaphorePermit; 2],
        search: Search,
        mut tell: oneshot::Sender<Result<Outcome, Failure>>,
    ) {
        let deadline = search.until + GRACE;
        loop {
            let (mut child, is_fresh) = match self.child(search.until).await {
                Ok(child) => child,
                Err(failure) => return drop(tell.send(Err(failure))),
            };
            let (pid, memory_max) = (child.pid(), self.limits.memory_bytes.saturating_mul(3) / 2);
            let end = tokio::select! {
                biased;
                end = search.converse(&mut child) => end,
                () = tell.closed() => End::Over(QueryError::TimedOut),
                () = sleep_until(deadline.into()) => End::Over(QueryError::TimedOut),
                () = grown_beyond(pid, memory_max) => End::Over(too_much_memory()),
            };
            // Replies first: the client does not wait for the kill, which still occupies the slot.
            match end {
                End::Died { had_looked: false, .. } if !is_fresh => {
                    child.kill().await;
                    continue;
                }
                End::Answered(answer) => {
                    let _ = tell.send(answer);
                    if child.is_fit() {
                        self.idle().push(child);
                    } else {
                        child.kill().await;
                    }
                }
                End::Over(trouble) => {
                    let _ = tell.send(Err(trouble.into()));
                    child.kill().await;
                }
                End::Died { error, .. } => {
                    tracing::info!(%error, "a query process exited while it ran a statement");
                    let _ = tell.send(Err(too_much_memory().into()));
                    child.kill().await;
                }
            }
            break;
        }
        drop(slot);
    }

    async fn slot(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        Arc::clone(&self.slots).acquire_owned().await
    }

    fn share_of(&self, tenant: &Tenant) -> Arc<Semaphore> {
        let mut shares = self.shares.lock();
        // A held permit references its semaphore; unreferenced ones belong to tenants without statements.
        shares.retain(|_, share| Arc::strong_count(share) > 1);
        let share = shares.entry(tenant.clone());
        Arc::clone(share.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE_OF_A_TENANT))))
    }

    /// Returns an idle process, or starts a new one (`true`).
    async fn child(&self, until: Instant) -> Result<(Child, bool), Failure> {
        if let Some(child) = self.idle().pop() {
            return Ok((child, false));
        }
        let failed = |why: &str| {
            tracing::warn!("cannot start a query process: {why}");
            Failure::Process(format!("cannot start a query process: {why}"))
        };
        let Some(program) = &self.program else { return Err(failed("no program is configured")) };
        match timeout_at(until.into(), Child::start(program, self.limits)).await {
            Ok(Ok(child)) => Ok((child, true)),
            Ok(Err(error)) => Err(failed(&error.to_string())),
            Err(_) => Err(QueryError::TimedOut.into()),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Child>> {
        self.idle.lock()
    }
}

/// Outcome of an exchange with a process.
enum End {
    /// The process is ready for the next statement.
    Answered(Result<Outcome, Failure>),
    /// The process is still busy and has to be killed.
    Over(QueryError),
    /// The process is dead. An idle one may have died before this statement.
    Died { had_looked: bool, error: io::Error },
}

impl Search {
    async fn converse(&self, child: &mut Child) -> End {
        let left = self.until.saturating_duration_since(Instant::now());
        let run = Run { left_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX), ..self.run.clone() };
        let wants = match child.look(run).await {
            Ok(Ok(wants)) => wants,
            Ok(Err(trouble)) => return End::Answered(Err(trouble.into())),
            Err(error) => return End::Died { had_looked: false, error },
        };
        match self.send_rows_and_run(child, &wants).await {
            Ok(answer) => End::Answered(answer),
            Err(error) => End::Died { had_looked: true, error },
        }
    }

    async fn send_rows_and_run(
        &self,
        child: &mut Child,
        wants: &Accesses,
    ) -> io::Result<Result<Outcome, Failure>> {
        if wants.writes() && !self.may_write {
            child.order(&Order::GiveUp).await?;
            let why = "changing jobs with SQL requires the admin role".to_owned();
            return Ok(Err(QueryError::Refused(why).into()));
        }
        let mut seen = HashMap::new();
        if wants.reads_jobs
            && let Err(failure) = self.send_rows(child, wants, &mut seen).await?
        {
            child.order(&Order::GiveUp).await?;
            return Ok(Err(failure));
        }
        Ok(match child.run().await? {
            Ok(Found { body, touched }) => {
                let change = |touched: RowChange| Some(Change { job: seen.remove(&touched.id)?, touched });
                Ok(Outcome { body, changes: touched.into_iter().filter_map(change).collect() })
            }
            Err(trouble) => Err(trouble.into()),
        })
    }

    /// Sends the candidate rows. If the statement writes, `seen` keeps the jobs.
    async fn send_rows(
        &self,
        child: &mut Child,
        wants: &Accesses,
        seen: &mut HashMap<i64, Arc<Job>>,
    ) -> io::Result<Result<(), Failure>> {
        let mut loader = Loader::new(&self.engine, &self.tenant, Candidates::of(&self.run.sql));
        loader.hides_data = !self.sees_payloads;
        loop {
            let page = match loader.next().await {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(Ok(())),
                Err(failure) => return Ok(Err(failure)),
            };
            let mut rows = Vec::new();
            for job in &page {
                if let Err(trouble) = loader.put_row(job, wants, &mut rows)? {
                    return Ok(Err(trouble.into()));
                }
                if rows.len() >= PIECE_BYTES {
                    child.order(&Order::Rows(std::mem::take(&mut rows))).await?;
                }
            }
            if !rows.is_empty() {
                child.order(&Order::Rows(rows)).await?;
            }
            if wants.writes() {
                seen.extend(page.into_iter().map(|job| (job.id.get() as i64, job)));
            }
        }
    }
}

fn too_much_memory() -> QueryError {
    let why = "the query exceeded its memory limit; restrict it, sort fewer rows, or select fewer columns";
    QueryError::TooLarge(why.to_owned())
}
