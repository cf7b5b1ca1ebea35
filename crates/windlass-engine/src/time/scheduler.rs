//! The scheduler: a deadline passes, an event goes through `transaction.rs`. Several servers on one store may all try; one
//! gets it written, the others find it done.

use crate::engine::{Engine, Inner};
use crate::error::EngineError;
use crate::tables::timers::Timers;
use crate::time::clock::Clock;
use crate::verbs::JobEvent;
use std::sync::{Arc, Weak};
use windlass_core::{Event, Job, Timestamp};

/// Deadlines handled by one commit.
const DUE_PER_STEP: usize = 1_000;
/// How long to leave a store alone that has just failed.
const AFTER_TROUBLE_MS: i64 = 1_000;

/// How long to wait when what is due cannot be moved: another server is at it, most likely.
const AFTER_NOTHING_MS: i64 = 1;

/// How often to look on a store that others work on too: what they planned is not told here, and they may be gone.
const SHARED_LOOK_MS: i64 = 1_000;

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stepped {
    /// Jobs that had a deadline.
    pub due: usize,
    pub next: Option<Timestamp>,
}

/// Sleeps until something is due, and handles it. LeaseWatch with the engine.
pub(crate) async fn run(timers: Arc<Timers>, clock: Arc<dyn Clock>, engine: Weak<Inner>) {
    while !timers.is_closed() {
        match timers.next_deadline() {
            Some(at) if at <= clock.now() => {
                let Some(engine) = engine.upgrade() else { return };
                if let Err(error) = step(&engine).await {
                    tracing::warn!(%error, "looking for what is due; trying again in a second");
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

/// Handles what is due now. Not to be dropped halfway: until it ends, nobody knows when to look next.
async fn step(engine: &Arc<Inner>) -> Result<Stepped, EngineError> {
    let visit = engine.enter()?;
    let _turn = visit.stepping.lock().await;
    // Before asking, so that what others plan meanwhile is kept.
    visit.timers.forget();
    let stepped = handle_due(&visit).await;
    if stepped.is_err() {
        visit.timers.plan(visit.now().plus_ms(AFTER_TROUBLE_MS));
    }
    stepped
}

async fn handle_due(visit: &Arc<Inner>) -> Result<Stepped, EngineError> {
    let now = visit.now();
    let due = visit.store.due(now, DUE_PER_STEP).await?;
    let count = due.jobs.len();
    let ask = |job: &Arc<Job>| {
        let event = match job.state().lease() {
            Some(lease) => Event::Lapse { token: lease.token, chance: visit.random.chance() },
            None => Event::Expire,
        };
        JobEvent { id: job.id, event }
    };
    let asks = due.jobs.iter().map(ask).collect();
    // A refusal means that someone else was first, or that the worker has shown signs of life since.
    let written = visit.change(None, asks, due.jobs).await;
    let is_idle = !matches!(&written, Ok(answers) if answers.iter().any(Result::is_ok));
    if let Some(next) = due.next {
        // With nothing moved there is no use in looking again at once.
        visit.timers.plan(if is_idle { next.max(now.plus_ms(AFTER_NOTHING_MS)) } else { next });
    }
    if visit.store.is_shared() {
        visit.timers.plan(now.plus_ms(SHARED_LOOK_MS));
    }
    written?;
    Ok(Stepped { due: count, next: due.next })
}

impl Engine {
    /// For callers that must not meet a job past its deadline: when this returns, whatever was due when it was called
    /// has been seen to. Costs next to nothing when nothing is.
    pub async fn catch_up(&self) -> Result<(), EngineError> {
        // Someone may be at it; and whoever takes a turn forgets the deadline first, so it is looked at between two turns.
        let turn = self.inner.stepping.lock().await;
        let next = self.inner.timers.next_deadline();
        drop(turn);
        match next {
            Some(at) if at <= self.now() => self.step().await.map(|_| ()),
            _ => Ok(()),
        }
    }

    /// What the scheduler does when it wakes up; for tests and simulation, which have no time to sleep.
    pub async fn step(&self) -> Result<Stepped, EngineError> {
        let engine = self.inner.clone();
        self.inner.detached(async move { step(&engine).await }).await
    }
}
