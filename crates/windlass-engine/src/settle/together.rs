//! Several things that happen together or not at all, to jobs as the caller saw them.

use super::{Ask, Call, Inner};
use crate::engine::{Engine, NOTES};
use crate::error::{EngineError, VerbError};
use crate::plan::{Draft, Round};
use crate::verbs::{Deed, Together};
use windlass_core::{JobId, Refused, Tenant};
use windlass_store::{Step, StoreError, Verdict};

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
        let visit = self.inner.enter()?;
        self.check_count(deeds.len())?;
        self.check_payloads(deeds.iter().map(|deed| deed.action.payload()))?;
        self.check_reports(deeds.iter().map(|deed| deed.action.report_bytes()))?;
        let now = self.now();
        let mut seen = Vec::with_capacity(deeds.len());
        let mut asks = Vec::with_capacity(deeds.len());
        for Deed { job, action } in deeds {
            asks.push(Ask { id: job.id, event: self.inner.event_of(action, now) });
            seen.push(job);
        }
        let (tenant, by) = (tenant.clone(), self.by());
        let work = async move {
            let epoch = visit.limits.epoch();
            let mut call = Call { by, ..Call::new(&visit, Some(&tenant), asks, Vec::new()) };
            // What the caller saw goes before what we remember: it was decided by that.
            seen.into_iter().for_each(|job| call.view.loaded(job.id, Some(job)));
            let outcome = call.run_together(notes).await;
            let forget_later = std::mem::take(&mut call.forget_later);
            if !forget_later.is_empty() {
                Inner::delete_quietly(&visit, forget_later).await;
            }
            if matches!(outcome, Ok(Together::Done)) {
                visit.relimit_since(epoch, call.asks.iter().map(|ask| ask.id)).await?;
            }
            outcome
        };
        self.inner.unstoppable(work).await
    }
}

impl Call<'_> {
    async fn run_together(&mut self, notes: Vec<(String, Option<Vec<u8>>)>) -> Result<Together, EngineError> {
        self.load_asked().await?;
        let parents = self.asks.iter().filter_map(|ask| Some(self.view.get(ask.id)?.spec.family()?.parent));
        let _lanes = self.engine.lanes.enter(parents).await;
        let Round { drafts, steps, verdicts, forget_later } = self.plan().await?;
        let of_drafts = drafts.iter().flat_map(|draft| &draft.answers);
        let refused =
            verdicts.iter().chain(of_drafts).filter_map(|(index, answer)| self.refusal(*index, answer));
        let refused: Vec<(JobId, VerbError)> = refused.collect();
        if !refused.is_empty() {
            return Ok(Together::Refused(refused));
        }
        let step = Step {
            changes: steps.into_iter().flat_map(|step| step.changes).collect(),
            settings: notes.into_iter().map(|(key, value)| (format!("{NOTES}{key}"), value)).collect(),
            ..Step::default()
        };
        if step.changes.is_empty() && step.settings.is_empty() {
            return Ok(Together::Done);
        }
        self.committed_at = self.engine.now();
        let verdict = match self.engine.commit(vec![step.clone()], self.committed_at).await {
            Ok(mut verdicts) => verdicts.pop(),
            Err(error) => return Err(self.trouble(error, vec![step])),
        };
        self.concluded(verdict, drafts, &step, forget_later)
    }

    fn concluded(
        &mut self,
        verdict: Option<Verdict>,
        drafts: Vec<Draft>,
        step: &Step,
        forget_later: Vec<(JobId, JobId)>,
    ) -> Result<Together, EngineError> {
        match verdict {
            Some(Verdict::Done(_)) => {
                self.forget_later = forget_later.into_iter().map(|(_, child)| child).collect();
                self.written(drafts, &step.changes);
                Ok(Together::Done)
            }
            Some(Verdict::Stale) => {
                self.engine.meters.stale.add(1);
                Ok(Together::Stale)
            }
            Some(Verdict::KeyTaken(rivals)) => {
                let refused =
                    |rival: &windlass_store::Rival| (rival.job, Refused::KeyTaken(rival.holder).into());
                Ok(Together::Refused(rivals.iter().map(refused).collect()))
            }
            // Nothing is inserted here, so nothing can be taken.
            Some(Verdict::Taken(_)) | None => {
                Err(StoreError::Unknown("the store gave no answer to a change".to_owned()).into())
            }
        }
    }

    fn refusal(&self, index: usize, answer: &Result<super::Moved, VerbError>) -> Option<(JobId, VerbError)> {
        answer.as_ref().err().map(|error| (self.asks[index].id, *error))
    }
}
