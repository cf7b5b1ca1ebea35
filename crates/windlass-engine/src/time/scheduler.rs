//! Scheduler: applies events through `transaction.rs` when deadlines pass. Several servers on one store may
//! all try; one commit succeeds, the others are stale.

use crate::engine::{Engine, Inner};
use crate::error::EngineError;
use crate::tables::timers::Timers;
use crate::time::clock::Clock;
use crate::verbs::JobEvent;
use std::sync::{Arc, Weak};
use windlass_core::{Event, Job, JobState, Timestamp};

/// Due jobs per commit.
const DUE_PER_STEP: usize = 1_000;
/// Pause after an error of the store.
const AFTER_TROUBLE_MS: i64 = 1_000;

/// Pause if none of the due jobs could be changed; most likely another server is processing them.
const AFTER_NOTHING_MS: i64 = 1;

/// Polling interval on a shared store: deadlines planned by other servers are not known here, and those
/// servers may have stopped.
const SHARED_LOOK_MS: i64 = 1_000;

/// Result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stepped {
    /// Number of jobs that were due.
    pub due: usize,
    pub next: Option<Timestamp>,
}

/// Sleeps until a deadline and processes the due jobs. Runs until the engine is dropped.
pub(crate) async fn run(timers: Arc<Timers>, clock: Arc<dyn Clock>, engine: Weak<Inner>) {
    while !timers.is_closed() {
        match timers.next_deadline() {
            Some(at) if at <= clock.now() => {
                let Some(engine) = engine.upgrade() else { return };
                if let Err(error) = step(&engine).await {
                    tracing::warn!(%error, "cannot look for due jobs and expired leases; retrying in a second");
                }
            }
            Some(at) => tokio::select! {
                () = clock.sleep_until(at) => {}
                () = timers.nudged() => {}
            },
            None => timers.nudged().await,
        }
    }
}

/// Processes the due jobs. Not cancel-safe: until it returns, the next deadline is not planned.
async fn step(engine: &Arc<Inner>) -> Result<Stepped, EngineError> {
    let in_flight = engine.enter()?;
    let _stepping = in_flight.stepping.lock().await;
    // Before the query, so that deadlines planned meanwhile are kept.
    in_flight.timers.forget();
    let stepped = handle_due(&in_flight).await;
    if stepped.is_err() {
        in_flight.timers.plan(in_flight.now().plus_ms(AFTER_TROUBLE_MS));
    }
    stepped
}

async fn handle_due(in_flight: &Arc<Inner>) -> Result<Stepped, EngineError> {
    let now = in_flight.now();
    let due = in_flight.store.due(now, DUE_PER_STEP).await;
    match &due {
        Ok(_) => in_flight.outages.store_answered(now),
        Err(_) => in_flight.outages.store_failed(now),
    }
    let due = due?;
    let count = due.jobs.len();
    let ask = |job: &Arc<Job>| {
        let event = match job.state() {
            JobState::Running(lease) => {
                let (token, chance) = (lease.token, in_flight.random.next_fraction());
                match in_flight.outages.excuse(lease) {
                    true => Event::LapseInOutage { token, chance },
                    false => Event::Lapse { token, chance },
                }
            }
            JobState::Suspended { .. } => Event::Wake,
            _ => Event::Expire,
        };
        JobEvent { id: job.id, event }
    };
    let asks = due.jobs.iter().map(ask).collect();
    // A refusal means that another server was first, or that the worker has sent a heartbeat.
    let written = in_flight.change(None, asks, due.jobs).await;
    let is_idle = !matches!(&written, Ok(answers) if answers.iter().any(Result::is_ok));
    if let Some(next) = due.next {
        // If no job changed, an immediate retry is useless.
        in_flight.timers.plan(if is_idle { next.max(now.plus_ms(AFTER_NOTHING_MS)) } else { next });
    }
    if in_flight.store.shared().is_some() {
        in_flight.timers.plan(now.plus_ms(SHARED_LOOK_MS));
    }
    written?;
    Ok(Stepped { due: count, next: due.next })
}

impl Engine {
    /// Processes all jobs that are due at the time of the call, for callers that must not see a job past its
    /// deadline. Costs very little if none is due.
    pub async fn catch_up(&self) -> Result<(), EngineError> {
        // A running step has cleared the deadline, so it is read only between two steps.
        let stepping = self.inner.stepping.lock().await;
        let next = self.inner.timers.next_deadline();
        drop(stepping);
        match next {
            Some(at) if at <= self.now() => self.step().await.map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Runs one step of the scheduler; for tests and simulation, which do not sleep.
    pub async fn step(&self) -> Result<Stepped, EngineError> {
        let engine = self.inner.clone();
        self.inner.detached(async move { step(&engine).await }).await
    }
}
