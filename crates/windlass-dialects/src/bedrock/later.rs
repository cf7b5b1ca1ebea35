//! Commands that nobody waits for: those that are forgotten by their clients, and those whose time has not come.
//!
//! They are kept in memory, as clients of this protocol know it; a server that stops carries out what it has begun, and
//! says how many it drops.

use super::commands::{Command, Commands, Shared};
use super::errors::Status;
use super::params;
use super::wire::Request;
use crate::auth::Caller;
use crate::listener::Phase;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use windlass_core::Timestamp;

/// Commands at once that nobody waits for. Each keeps its request in memory.
const WORKS_MAX: u32 = 10_000;

/// Everything a command needs once its connection is gone.
pub struct Work {
    pub command: Command,
    pub request: Request,
    pub caller: Caller,
    pub is_local: bool,
}

/// Clones are the same.
#[derive(Clone)]
pub struct Later {
    shared: Arc<Shared>,
    phase: watch::Receiver<Phase>,
    permits: Arc<Semaphore>,
}

impl Later {
    pub fn new(shared: Arc<Shared>, phase: watch::Receiver<Phase>) -> Later {
        Later { shared, phase, permits: Arc::new(Semaphore::new(WORKS_MAX as usize)) }
    }

    pub fn add(&self, work: Work) -> Result<(), Status> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| Status("503 Too many queued commands".into()))?;
        let (shared, phase) = (Arc::clone(&self.shared), self.phase.clone());
        tokio::spawn(carry_out(shared, work, phase, permit));
        Ok(())
    }

    /// Until all that was begun has ended.
    pub async fn ended(&self, grace: Duration) {
        let _ = tokio::time::timeout(grace, self.permits.acquire_many(WORKS_MAX)).await;
    }
}

async fn carry_out(
    shared: Arc<Shared>,
    work: Work,
    mut phase: watch::Receiver<Phase>,
    _permit: OwnedSemaphorePermit,
) {
    let Work { command, request, caller, is_local } = work;
    if let Some(at) = execute_at(&request) {
        tokio::select! {
            () = shared.engine.sleep_until(at) => {}
            _ = phase.wait_for(|phase| *phase >= Phase::Draining) => {
                tracing::warn!("the server stops before the time of a queued {command:?} has come; it is dropped");
                return;
            }
        }
    }
    let commands = Commands { shared: &shared, tenant: &caller.tenant, role: caller.role, is_local };
    // Nobody waits for jobs that nobody will get; what is found is given back at once.
    let request = if command.hands_out() { request.without("connection") } else { request };
    let outcome = commands.answer(command, &request).await;
    if !outcome.reply.is_ok() {
        tracing::info!("a {command:?} that nobody waits for was answered {}", outcome.reply.status);
    }
}

/// When a command is to be carried out, if its client says so: microseconds since 1970.
pub fn execute_at(request: &Request) -> Option<Timestamp> {
    let micros = params::leading_number(request.given("commandexecutetime")?);
    Some(Timestamp::from_calendar_ms(micros.div_euclid(1_000)))
}
