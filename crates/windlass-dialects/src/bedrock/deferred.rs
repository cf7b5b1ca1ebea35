//! Commands that run without a waiting client: `Connection: forget`, and commands with a later execution
//! time.
//!
//! They are kept in memory only, as the protocol allows. On shutdown, commands that have begun are completed;
//! each command that is dropped is logged.

use super::commands::{Command, Commands, Shared};
use super::errors::StatusLine;
use super::params;
use super::wire::Request;
use crate::auth::Caller;
use crate::listener::Phase;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use windlass_core::{Tenant, Timestamp};

/// Deferred commands in total and per tenant. Each holds its request in memory.
const WORKS_MAX: u32 = 10_000;
const WORKS_MAX_TENANT: usize = 5_000;
/// Bytes of their requests, in total and per tenant.
const BYTES_MAX: usize = 128 << 20;
const BYTES_MAX_TENANT: usize = 32 << 20;
/// Longest delay of a command. It is held in memory only; for a longer delay, create a job with `firstRun`.
const AHEAD_MAX_MS: i64 = 7 * 86_400_000;

/// Everything a command needs after its connection has closed.
pub struct Work {
    pub command: Command,
    pub request: Request,
    pub caller: Caller,
    pub is_local: bool,
}

/// Queue of deferred commands. Clones share it.
#[derive(Clone)]
pub struct Deferred {
    shared: Arc<Shared>,
    phase: watch::Receiver<Phase>,
    permits: Arc<Semaphore>,
    held: Arc<Held>,
}

impl Deferred {
    pub fn new(shared: Arc<Shared>, phase: watch::Receiver<Phase>) -> Deferred {
        let permits = Arc::new(Semaphore::new(WORKS_MAX as usize));
        Deferred { shared, phase, permits, held: Arc::default() }
    }

    pub fn add(&self, work: Work) -> Result<(), StatusLine> {
        let latest = self.shared.engine.now().plus_ms(AHEAD_MAX_MS);
        if execute_at(&work.request).is_some_and(|at| at > latest) {
            return Err(StatusLine("402 commandExecuteTime is more than 7 days ahead".into()));
        }
        let too_many = || StatusLine("503 Too many queued commands".into());
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| too_many())?;
        let place =
            Held::enter(&self.held, &work.caller.tenant, work.request.bytes()).ok_or_else(too_many)?;
        let (shared, phase) = (Arc::clone(&self.shared), self.phase.clone());
        tokio::spawn(run_deferred(shared, work, phase, (permit, place)));
        Ok(())
    }

    /// Waits until all commands have ended, at most `grace`.
    pub async fn ended(&self, grace: Duration) {
        let _ = tokio::time::timeout(grace, self.permits.acquire_many(WORKS_MAX)).await;
    }
}

/// Usage by tenant.
#[derive(Debug, Default)]
struct Held(Mutex<HashMap<Tenant, Taken>>);

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    works: usize,
    bytes: usize,
}

/// Usage of one command, released on drop.
#[derive(Debug)]
struct Place {
    of: Arc<Held>,
    tenant: Tenant,
    bytes: usize,
}

impl Held {
    /// Reserves a place for a command; `None`: a bound would be exceeded.
    fn enter(this: &Arc<Held>, tenant: &Tenant, bytes: usize) -> Option<Place> {
        let mut held = this.lock();
        let all: usize = held.values().map(|taken| taken.bytes).sum();
        let taken = held.get(tenant).copied().unwrap_or_default();
        let (works, own) = (taken.works + 1, taken.bytes.saturating_add(bytes));
        if works > WORKS_MAX_TENANT || own > BYTES_MAX_TENANT || all.saturating_add(bytes) > BYTES_MAX {
            return None;
        }
        held.insert(tenant.clone(), Taken { works, bytes: own });
        Some(Place { of: Arc::clone(this), tenant: tenant.clone(), bytes })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Tenant, Taken>> {
        self.0.lock()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.of.lock();
        let Some(taken) = held.get_mut(&self.tenant) else { return };
        taken.works -= 1;
        taken.bytes -= self.bytes;
        if taken.works == 0 {
            held.remove(&self.tenant);
        }
    }
}

async fn run_deferred(
    shared: Arc<Shared>,
    work: Work,
    mut phase: watch::Receiver<Phase>,
    _place: (OwnedSemaphorePermit, Place),
) {
    let Work { command, request, caller, is_local } = work;
    if let Some(at) = execute_at(&request) {
        tokio::select! {
            () = shared.engine.sleep_until(at) => {}
            _ = phase.wait_for(|phase| *phase >= Phase::Draining) => {
                tracing::warn!("a queued {command:?} is dropped: the server shuts down before its execution time");
                return;
            }
            () = shared.tokens.wait_until_refused(&caller, &shared.engine) => {
                tracing::warn!("a queued {command:?} is dropped: its token was revoked or has expired");
                return;
            }
        }
    }
    let engine = caller.engine(&shared.engine);
    let commands = Commands::new(&shared, &engine, &caller, is_local);
    // Does not wait for jobs, since no worker would receive them; claimed jobs are released at once.
    let request = if command.hands_out() { request.without("connection") } else { request };
    let outcome = commands.answer(command, &request).await;
    if !outcome.reply.is_ok() {
        tracing::info!("a queued {command:?} failed with {}", outcome.reply.status);
    }
}

/// Execution time that the client asks for, sent in microseconds since 1970.
pub fn execute_at(request: &Request) -> Option<Timestamp> {
    let micros = params::leading_number(request.given("commandexecutetime")?);
    Some(Timestamp::from_calendar_ms(micros.div_euclid(1_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tenant_takes_what_the_others_need() {
        let held = Arc::<Held>::default();
        let [a, b] = ["a", "b"].map(|name| Tenant::new(name).unwrap());
        let mut places: Vec<_> = (0..WORKS_MAX_TENANT).map(|_| Held::enter(&held, &a, 10).unwrap()).collect();
        assert!(Held::enter(&held, &a, 10).is_none());
        assert!(Held::enter(&held, &b, BYTES_MAX_TENANT + 1).is_none());
        places.push(Held::enter(&held, &b, BYTES_MAX_TENANT).unwrap());
        assert!(Held::enter(&held, &b, 1).is_none());
        places.clear();
        assert!(held.lock().is_empty());
    }

    #[test]
    fn all_tenants_together_have_their_bound() {
        let held = Arc::<Held>::default();
        let tenant = |number: usize| Tenant::new(&format!("t{number}")).unwrap();
        let fits = BYTES_MAX / BYTES_MAX_TENANT;
        let places: Vec<_> =
            (0..=fits).map(|number| Held::enter(&held, &tenant(number), BYTES_MAX_TENANT)).collect();
        assert!(places[..fits].iter().all(Option::is_some));
        assert!(places[fits].is_none());
    }
}
