//! Several things that happen together or not at all, to jobs as the caller saw them.

use super::Stop;
use crate::engine::Engine;
use crate::error::{EngineError, VerbError};
use crate::verbs::{Deed, Together};
use windlass_core::{JobId, Tenant};

enum No {
    Stale,
    Refused(Vec<(JobId, VerbError)>),
    Engine(EngineError),
}

impl From<EngineError> for No {
    fn from(error: EngineError) -> No {
        No::Engine(error)
    }
}

impl Engine {
    /// For callers that decide by what they saw: each deed happens to the version of the job that comes with it, all of
    /// them in one atomic step, or none does. They happen in order; a job may come several times. A recursive
    /// termination reaches the job itself only: the others are the caller's to name.
    pub async fn act_together(&self, tenant: &Tenant, deeds: Vec<Deed>) -> Result<Together, EngineError> {
        self.act_and_note(tenant, deeds, Vec::new()).await
    }

    /// The same with notes that are put, or with `None` forgotten, in the same step.
    pub async fn act_and_note(
        &self,
        tenant: &Tenant,
        deeds: Vec<Deed>,
        notes: Vec<(String, Option<Vec<u8>>)>,
    ) -> Result<Together, EngineError> {
        let ids = deeds.iter().map(|deed| deed.job.id).collect();
        let now = self.now();
        let done = self.transact(tenant, ids, |tx| {
            for Deed { job, .. } in &deeds {
                let found = tx.job(job.id)?;
                if found.is_none_or(|found| found.version != job.version) && job.spec.tenant == *tenant {
                    return Err(Stop::Refuse(No::Stale));
                }
            }
            let mut refused = Vec::new();
            for Deed { job, action } in &deeds {
                if let Err(error) = tx.apply(job.id, self.inner.event_of(action.clone(), now))? {
                    refused.push((job.id, error));
                }
            }
            notes.iter().for_each(|(key, value)| tx.note(key, value.clone()));
            if refused.is_empty() { Ok(()) } else { Err(Stop::Refuse(No::Refused(refused))) }
        });
        match done.await {
            Ok(()) => Ok(Together::Done),
            Err(No::Stale) => Ok(Together::Stale),
            Err(No::Refused(refused)) => Ok(Together::Refused(refused)),
            Err(No::Engine(error)) => Err(error),
        }
    }
}
