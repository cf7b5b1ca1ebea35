//! Scope check: jobs that a handle may access.
//!
//! Every call of the engine checks here, so no dialect can omit it. A call that gives a queue or a name
//! outside the scope is refused ([`EngineError::OutOfScope`]); a job given by its id is reported as not
//! found; lists and claims over several queues leave other jobs out. Data of the whole tenant (limits, the
//! list of blobs) needs a handle without a scope. Effects within a family are not restricted: they apply to
//! relatives in any queue.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::verbs::Claim;
use windlass_core::{Job, Name, NameMatch, Queue, Tenant};

impl Engine {
    /// True if the scope includes jobs with this name in this queue.
    pub fn reaches(&self, queue: &str, name: &str) -> bool {
        self.scope.allows(queue, name)
    }

    pub(crate) fn reaches_job(&self, tenant: &Tenant, job: &Job) -> bool {
        job.spec.tenant == *tenant && self.reaches(&job.spec.queue, &job.spec.name)
    }

    /// Check for data of all jobs with one name, such as their handler.
    pub fn check_reach(&self, queue: &Queue, name: &Name) -> Result<(), EngineError> {
        match self.reaches(queue, name) {
            true => Ok(()),
            false => Err(EngineError::OutOfScope { what: format!("jobs {name} of queue {queue}") }),
        }
    }

    /// Check for data of a whole queue.
    pub fn check_queue(&self, queue: &Queue) -> Result<(), EngineError> {
        match self.scope.allows_queue(queue) {
            true => Ok(()),
            false => Err(EngineError::OutOfScope { what: format!("queue {queue:?}") }),
        }
    }

    /// Check for data of the whole tenant.
    pub fn check_all(&self) -> Result<(), EngineError> {
        match self.scope.is_everything() {
            true => Ok(()),
            false => Err(EngineError::OutOfScope { what: "all queues".to_owned() }),
        }
    }

    /// Refuses a claim that could never get a job. Any other claim gets only the jobs within the scope.
    pub(crate) fn check_claim(&self, claim: &Claim) -> Result<(), EngineError> {
        let names: Option<&[Box<str>]> = match &claim.names {
            NameMatch::Exact(name) => Some(std::slice::from_ref(name)),
            NameMatch::OneOf(names) => Some(names),
            NameMatch::Any | NameMatch::NoneOf(_) | NameMatch::Glob(_) => None,
        };
        let is_reached = |queue: &Queue| match names {
            Some(names) => names.iter().any(|name| self.scope.allows(queue, name)),
            None => self.scope.touches_queue(queue),
        };
        match claim.queues.is_empty() || claim.queues.iter().any(is_reached) {
            true => Ok(()),
            false => {
                let queues: Vec<&str> = claim.queues.iter().map(|queue| &**queue).collect();
                Err(EngineError::OutOfScope { what: format!("these jobs of queues {queues:?}") })
            }
        }
    }
}
