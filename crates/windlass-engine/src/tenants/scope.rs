//! Which jobs a handle reaches.
//!
//! Every verb asks here, so a dialect cannot forget to. A call that names a queue or a name that is out of reach is refused
//! ([`EngineError::OutOfScope`]); a job that is named by its id is answered like one that never was; lists and claims over
//! several queues leave the rest out. What belongs to the tenant as a whole (limits, the list of blobs) is for handles without
//! a bound. Consequences within a family are the rules' doing, and happen wherever the relatives are.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::verbs::Claim;
use windlass_core::{Job, Name, NameMatch, Queue, Tenant};

impl Engine {
    /// Whether it reaches jobs of this name in this queue.
    pub fn reaches(&self, queue: &str, name: &str) -> bool {
        self.scope.allows(queue, name)
    }

    pub(crate) fn reaches_job(&self, tenant: &Tenant, job: &Job) -> bool {
        job.spec.tenant == *tenant && self.reaches(&job.spec.queue, &job.spec.name)
    }

    /// For what is kept beside the jobs and concerns those of one name, such as their handler.
    pub fn check_reach(&self, queue: &Queue, name: &Name) -> Result<(), EngineError> {
        match self.reaches(queue, name) {
            true => Ok(()),
            false => Err(EngineError::OutOfScope { what: format!("jobs {name:?} of the queue {queue:?}") }),
        }
    }

    /// For what concerns a queue as a whole.
    pub fn check_queue(&self, queue: &Queue) -> Result<(), EngineError> {
        match self.scope.allows_queue(queue) {
            true => Ok(()),
            false => Err(EngineError::OutOfScope { what: format!("the queue {queue:?}") }),
        }
    }

    /// For what concerns a tenant as a whole.
    pub fn check_all(&self) -> Result<(), EngineError> {
        match self.scope.is_everything() {
            true => Ok(()),
            false => Err(EngineError::OutOfScope { what: "all queues".to_owned() }),
        }
    }

    /// A claim that could never be given a job is refused; of others, what is out of reach is left out.
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
                Err(EngineError::OutOfScope { what: format!("these jobs of the queues {queues:?}") })
            }
        }
    }
}
