//! Requests to the writer, and replies that wait for their commit.

use crate::audit::{AuditBounds, AuditEntry};
use crate::change::{ClaimAsk, Due, KeyRule, Step, Verdict};
use crate::error::StoreError;
use std::sync::Arc;
use tokio::sync::oneshot;
use windlass_core::{Job, JobId, Queue, Tenant, Timestamp};

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Request to the writer. `Tidy` asks for a checkpoint and has no reply.
pub(super) enum Request {
    Commit { steps: Vec<Step>, now: Timestamp, reply: Reply<Vec<Verdict>> },
    Claim { ask: Box<ClaimAsk>, now: Timestamp, reply: Reply<Vec<Arc<Job>>> },
    Due { now: Timestamp, limit: usize, reply: Reply<Due> },
    Setting { key: String, value: Option<Vec<u8>>, reply: Reply<()> },
    Pause { tenant: Tenant, queue: Queue, paused: bool, reply: Reply<()> },
    NextId { reply: Reply<JobId> },
    Restore { jobs: Vec<Arc<Job>>, next: JobId, keys: KeyRule, reply: Reply<()> },
    Audit { entries: Vec<AuditEntry>, bounds: AuditBounds, reply: Reply<()> },
    Close { reply: Reply<()> },
    Tidy {},
}

impl Request {
    pub(super) fn jobs(&self) -> usize {
        match self {
            Request::Commit { steps, .. } => {
                steps.iter().map(|step| step.changes.len() + step.inserts.len() + step.settings.len()).sum()
            }
            Request::Claim { ask, .. } => ask.limit,
            Request::Restore { jobs, .. } => jobs.len(),
            Request::Tidy {} => 0,
            _ => 1,
        }
    }
}

/// Reply that waits for its commit.
pub(super) enum Answer {
    Commit(Reply<Vec<Verdict>>, Vec<Verdict>),
    Claim(Reply<Vec<Arc<Job>>>, Vec<Arc<Job>>, Box<ClaimAsk>),
    Due(Reply<Due>, Due),
    NextId(Reply<JobId>, JobId),
    Done(Reply<()>),
    /// Not applied, for a reason that does not affect the other requests of the group.
    Refused(Reply<()>, StoreError),
}

/// Applied request.
pub(super) enum Applied {
    Answer(Answer),
    Close(Reply<()>),
    Nothing,
}

/// Reply to the request that failed, and the error of its group.
pub(super) type Failed = (Box<dyn FnOnce(StoreError)>, StoreError);

pub(super) fn applied<R: 'static, T>(
    reply: Reply<R>,
    outcome: Result<T, StoreError>,
    answer: impl FnOnce(Reply<R>, T) -> Answer,
) -> Result<Applied, Failed> {
    match outcome {
        Ok(value) => Ok(Applied::Answer(answer(reply, value))),
        Err(error) => Err((Box::new(move |error| drop(reply.send(Err(error)))), error)),
    }
}

pub(super) fn refuse(requests: impl Iterator<Item = Request>, error: &StoreError) {
    for request in requests {
        match request {
            Request::Commit { reply, .. } => drop(reply.send(Err(error.clone()))),
            Request::Claim { reply, .. } => drop(reply.send(Err(error.clone()))),
            Request::Due { reply, .. } => drop(reply.send(Err(error.clone()))),
            Request::NextId { reply } => drop(reply.send(Err(error.clone()))),
            Request::Setting { reply, .. }
            | Request::Pause { reply, .. }
            | Request::Restore { reply, .. }
            | Request::Audit { reply, .. }
            | Request::Close { reply } => {
                drop(reply.send(Err(error.clone())));
            }
            Request::Tidy {} => {}
        }
    }
}

impl Answer {
    pub(super) fn send(self) {
        match self {
            Answer::Commit(reply, verdicts) => drop(reply.send(Ok(verdicts))),
            Answer::Claim(reply, jobs, _) => drop(reply.send(Ok(jobs))),
            Answer::Due(reply, due) => drop(reply.send(Ok(due))),
            Answer::NextId(reply, id) => drop(reply.send(Ok(id))),
            Answer::Done(reply) => drop(reply.send(Ok(()))),
            Answer::Refused(reply, why) => drop(reply.send(Err(why))),
        }
    }

    /// Sends an error; a claim also returns its tokens and slots.
    pub(super) fn refuse(self, error: StoreError) {
        match self {
            Answer::Commit(reply, _) => drop(reply.send(Err(error))),
            Answer::Claim(reply, jobs, ask) => {
                if let Some(gate) = &ask.gate {
                    for job in jobs.iter().filter(|job| !job.spec.limit_keys().is_empty()) {
                        gate.give_back(&ask.tenant, job.spec.limit_keys(), job.progress.updated_at);
                    }
                }
                drop(reply.send(Err(error)));
            }
            Answer::Due(reply, _) => drop(reply.send(Err(error))),
            Answer::NextId(reply, _) => drop(reply.send(Err(error))),
            Answer::Done(reply) | Answer::Refused(reply, _) => drop(reply.send(Err(error))),
        }
    }
}
