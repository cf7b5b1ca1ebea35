//! Runner inside the server: same jobs and rules as over HTTP, but with waiting claims and lease tokens.

use super::Settings;
use super::commands;
use super::ids::Uuid;
use super::wire::{Complete, End};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::{Event, Holder, Job, JobId, Tenant, Token};
use windlass_engine::{Engine, EngineError, Extend, FeedEvent, FeedKind, JobEvent, RunTime, Stop};

/// Longest time without a heartbeat, even if the setting for remote runners is longer. A heartbeat is cheap
/// here, and jobs of a killed server run elsewhere, or after its restart, when this time is over. Longer than
/// a restart or failover of a database.
const SILENCE_MAX_MS: i64 = 30_000;

pub struct InProcessRunner {
    engine: Engine,
    tenant: Tenant,
    settings: Settings,
    runner: Uuid,
}

/// Job held by the runner.
#[derive(Clone, Debug)]
pub struct Held {
    /// Id as shown by the protocol.
    pub job_id: String,
    pub binary_addr: Option<String>,
    pub input_addr: Option<String>,
    /// Time without a heartbeat after which the job is abandoned.
    pub lease: Duration,
    job: Arc<Job>,
    token: Token,
    /// Run time is counted until the last clone is dropped.
    _run_time: Arc<RunTime>,
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    Completed { output_addr: String },
    Failed { output_addr: String, message: String, exit_code: Option<i32> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StillHeld {
    Yes,
    /// Cancellation was requested; the runner still reports the end.
    AskedToStop,
    No,
}

impl InProcessRunner {
    pub fn new(engine: Engine, tenant: Tenant, mut settings: Settings) -> InProcessRunner {
        settings.abandoned_age_ms = settings.abandoned_age_ms.min(SILENCE_MAX_MS);
        let runner = Uuid::new(engine.now().as_millis(), [engine.random_u64(), engine.random_u64()]);
        InProcessRunner { engine, tenant, settings, runner }
    }

    /// Claims up to `limit` jobs in claim order; waits for run time of the tenant, then for the first job.
    pub async fn claim(&self, limit: usize, wait_ms: u64) -> Result<Vec<Held>, EngineError> {
        while let Some(at) = self.engine.runs_wait_until(&self.tenant) {
            self.engine.sleep_until(at).await;
        }
        let Ok(claim) = commands::claim(self.tenant.clone(), self.runner, &self.settings) else {
            return Ok(Vec::new());
        };
        let delivery = self.engine.claim(windlass_engine::Claim { limit, wait_ms, ..claim }).await?;
        Ok(delivery.accept().into_iter().filter_map(|job| self.held(job)).collect())
    }

    fn held(&self, job: Arc<Job>) -> Option<Held> {
        let token = job.state().lease()?.token;
        let shown = commands::job_view(&job);
        let lease_ms = u64::try_from(commands::lease_ms(&self.settings)).unwrap_or(0);
        Some(Held {
            job_id: shown.job_id,
            binary_addr: shown.binary_addr,
            input_addr: shown.input_addr,
            lease: Duration::from_millis(lease_ms),
            job,
            token,
            _run_time: Arc::new(self.engine.begin_run(&self.tenant)),
        })
    }

    pub async fn tickle(&self, held: &Held) -> Result<StillHeld, EngineError> {
        let lease_ms = Some(commands::lease_ms(&self.settings));
        let entry = Extend { id: held.job.id, by: Holder::Token(held.token), lease_ms };
        Ok(match self.engine.extend(&self.tenant, vec![entry]).await?.pop() {
            Some(Ok(extended)) if extended.cancel_asked => StillHeld::AskedToStop,
            Some(Ok(_)) => StillHeld::Yes,
            Some(Err(_)) | None => StillHeld::No,
        })
    }

    /// Resolves when the job was changed by anyone but its runner. Listens from the call on.
    pub fn news(&self, held: &Held) -> impl Future<Output = ()> + Send + use<> {
        let mut events = self.engine.events();
        let id = held.job.id;
        async move {
            loop {
                match events.recv().await {
                    Ok(event) if is_news(&event, id) => return,
                    Ok(_) => {}
                    // A missed event may concern the job.
                    Err(_) => return,
                }
            }
        }
    }

    /// Completes the job. Returns false, without a change, if the lease is lost.
    pub async fn complete(&self, held: &Held, ending: Ending) -> Result<bool, EngineError> {
        let (id, by) = (held.job.id, Holder::Token(held.token));
        let ended = event(&ending, by, self.runner);
        let completed = self.engine.transact(&self.tenant, vec![id], |tx| {
            let is_ours = |job: &Arc<Job>| job.state().lease().is_some_and(|lease| lease.token == held.token);
            let job = tx.job(id)?.filter(is_ours).ok_or(Stop::Refuse(Failed::NotOurs))?;
            let remembering = Event::Update(Box::new(commands::save_run(&job)));
            for event in [remembering, ended.clone()] {
                tx.apply(id, event)?.map_err(|_| Stop::Refuse(Failed::NotOurs))?;
            }
            Ok(())
        });
        match completed.await {
            Ok(()) => Ok(true),
            Err(Failed::NotOurs) => Ok(false),
            Err(Failed::Engine(error)) => Err(error),
        }
    }

    /// Returns the job unfinished. `counts`: the attempt is used up.
    pub async fn release(&self, held: &Held, counts: bool, delay: Duration) -> Result<(), EngineError> {
        let delay_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        let run_at = self.engine.now().plus_ms(delay_ms);
        let event = Event::Release { by: Holder::Token(held.token), run_at, counts };
        let entry = JobEvent { id: held.job.id, event };
        // A refusal means that the lease is lost already.
        self.engine.settle(&self.tenant, vec![entry]).await.map(drop)
    }
}

/// Reason why a run could not be completed.
enum Failed {
    NotOurs,
    Engine(EngineError),
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Failed {
        Failed::Engine(error)
    }
}

fn event(ending: &Ending, by: Holder, runner: Uuid) -> Event {
    let (end, output_addr) = match ending {
        Ending::Completed { output_addr } => (End::Completed, output_addr),
        Ending::Failed { output_addr, .. } => (End::Failed, output_addr),
    };
    let told = Complete { end, output_addr: Some(output_addr.clone()), runner: Some(runner) };
    let mut event = commands::end_event(&told, by, Some(runner.to_string().into()));
    if let (Event::Fail(failure), Ending::Failed { message, exit_code, .. }) = (&mut event, ending) {
        failure.outcome.message = Some(message.clone());
        failure.outcome.exit_code = *exit_code;
    }
    event
}

fn is_news(event: &FeedEvent, id: JobId) -> bool {
    // Events of the runner itself are not news.
    let own = [FeedKind::Claimed, FeedKind::Progress, FeedKind::Updated];
    event.id == id && !own.contains(&event.kind)
}
