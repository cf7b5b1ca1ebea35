//! Calls that change jobs: one transaction of the engine, with the log entries in the same commit.

use super::errors::Problem;
use super::log::PortEvents;
use super::registry::Queues;
use super::state_of;
use super::wire::Context;
use crate::route::Call;
use std::sync::Arc;
use windlass_core::ports::{PortError, Ports};
use windlass_core::{Event, Job, JobId, Tenant, Timestamp};
use windlass_engine::{Queued, Transaction, VerbError};

/// Reason to end a call without a result.
pub(super) type Stop = windlass_engine::Stop<Problem>;

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Stop {
        Stop::Refuse(problem)
    }
}

/// Response of a call, sent after the commit.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub text: String,
    /// Error to report although the changes are committed.
    pub trouble: Option<Problem>,
}

impl Reply {
    pub(super) fn new(text: impl Into<String>) -> Reply {
        Reply { text: text.into(), trouble: None }
    }

    pub(super) fn null() -> Reply {
        Reply::new("null")
    }

    pub(super) fn with_error(self, trouble: Option<Problem>) -> Reply {
        Reply { trouble: self.trouble.or(trouble), ..self }
    }
}

/// Operation of a call. It may run several times, so it must not keep state between runs.
pub(super) type Op = Box<dyn FnMut(&mut Tx<'_, '_>) -> Result<Reply, Stop> + Send>;

/// Transaction of the engine, with the registry and the log entries.
pub(super) struct Tx<'t, 'e> {
    jobs: &'t mut Transaction<'e>,
    pub queues: &'t Queues,
    entries: Vec<String>,
}

/// Runs a call, even if the client disconnects. Concurrent calls on one job share a commit. `others` lists
/// further jobs that the call names.
pub(super) async fn run(
    call: &Call,
    tenant: &Tenant,
    id: JobId,
    others: Vec<JobId>,
    mut op: Op,
) -> Result<Reply, Problem> {
    check_reach(call, tenant, id, &others).await?;
    // Unscoped, because a write may run a parent outside the caller's scope; `check_reach` has checked the
    // jobs named.
    let (engine, own) = (&call.server.engine, state_of(&call.server));
    let queues = own.registry.queues(engine, tenant).await?;
    own.log.recall(engine, tenant).await?;
    let queued = Queued { job: id, is_large: call.weight().is_large() };
    let (server, of) = (Arc::clone(&call.server), tenant.clone());
    let decide = move |jobs: &mut Transaction<'_>| {
        let mut tx = Tx { jobs, queues: &queues, entries: Vec::new() };
        let reply = op(&mut tx)?;
        let entries = tx.entries;
        Ok((reply, state_of(&server).log.note(&server.engine, &of, jobs, &entries)))
    };
    let (reply, note) = engine.transact_queued(tenant, queued, others, decide).await?;
    if let Some(note) = note {
        own.log.record_committed(engine, tenant, note).await;
    }
    Ok(reply)
}

/// Checks that the jobs named by a call are in the caller's scope. Effects on related jobs are not
/// restricted.
async fn check_reach(call: &Call, tenant: &Tenant, id: JobId, others: &[JobId]) -> Result<(), Problem> {
    if call.caller.scope.is_everything() {
        return Ok(());
    }
    let named: Vec<JobId> = std::iter::once(id).chain(others.iter().copied()).collect();
    let found = call.engine.get(tenant, named.clone()).await?;
    match named.into_iter().zip(found).find(|(_, job)| job.is_none()) {
        Some((missing, _)) => Err(Problem::no_job(missing)),
        None => Ok(()),
    }
}

impl Tx<'_, '_> {
    pub(super) fn now(&self) -> Timestamp {
        self.jobs.now()
    }

    pub(super) fn find(&mut self, id: JobId) -> Result<Option<Arc<Job>>, Stop> {
        Ok(self.jobs.job(id)?)
    }

    pub(super) fn job(&mut self, id: JobId) -> Result<Arc<Job>, Stop> {
        self.find(id)?.ok_or_else(|| Problem::no_job(id).into())
    }

    /// Applies an event, if the rules allow it.
    pub(super) fn apply(&mut self, id: JobId, event: Event) -> Result<Result<(), VerbError>, Stop> {
        self.job(id)?;
        Ok(self.jobs.apply(id, event)?)
    }

    /// Makes the commit stale if this job changes in the meantime.
    pub(super) fn hold(&mut self, id: JobId) -> Result<(), Stop> {
        let _ = self.jobs.hold(id)?;
        Ok(())
    }

    pub(super) fn ports(&mut self, id: JobId) -> Result<Ports, Stop> {
        Ok(self.job(id)?.ports().map(|ports| Ports::clone(ports)).unwrap_or_default())
    }

    pub(super) fn set_ports(&mut self, id: JobId, ports: Ports) -> Result<(), Stop> {
        let set = self.jobs.apply(id, Event::SetPorts(Arc::new(ports)))?;
        Ok(set.map_err(|refused| Problem::refused(refused.to_string()))?)
    }

    /// Changes the ports of a job.
    pub(super) fn with_ports<T>(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut Ports) -> Result<T, PortError>,
    ) -> Result<T, Stop> {
        let mut ports = self.ports(id)?;
        let outcome = change(&mut ports).map_err(|error| Problem::port(id, &error))?;
        self.set_ports(id, ports)?;
        Ok(outcome)
    }

    pub(super) fn log(&mut self, entry: String) {
        self.entries.push(entry);
    }

    pub(super) fn log_ports(&mut self, events: &PortEvents, context: &Context) {
        self.entries.extend(events.entry(context, self.now()));
    }
}
