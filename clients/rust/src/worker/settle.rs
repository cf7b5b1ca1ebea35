//! Reports of ended runs.

use super::{Shared, WITHIN_MIN};
use crate::api::WITHIN;
use crate::error::Error;
use crate::run::lock;
use crate::wire::{ClaimAsk, ClaimedJob, Said, SettleAnswer, SettleAsk, SettleEntry};
use std::sync::Arc;

/// Reports per call.
const BATCH_MAX: usize = 1_000;

impl Shared {
    /// Reports ended runs, and claims jobs in the same call if asked to. Reports stay in the list until the
    /// server has answered; only the main loop takes them out.
    ///
    /// # Errors
    /// If the server did not take the call: the reports are kept for the next one.
    pub(super) async fn report(&self, claim: Option<&ClaimAsk>) -> Result<Vec<ClaimedJob>, Error> {
        let batch: Vec<Arc<SettleEntry>> = lock(&self.reports).iter().take(BATCH_MAX).cloned().collect();
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        match self.settle(&batch, claim).await {
            // The claim may be the cause: a single report is then tried without it.
            Err(error) if is_about_content(&error) => {
                match (batch.as_slice(), claim) {
                    ([entry], None) => self.refused_call(entry, &error),
                    _ => self.report_singly(&batch).await?,
                }
                Ok(Vec::new())
            }
            answered => answered,
        }
    }

    /// Reports all ended runs.
    ///
    /// # Errors
    /// As for [`Shared::report`].
    pub(super) async fn report_all(&self) -> Result<(), Error> {
        while !lock(&self.reports).is_empty() {
            self.report(None).await?;
        }
        Ok(())
    }

    /// Settles the reports at the front of the list, and takes them out.
    async fn settle(
        &self,
        batch: &[Arc<SettleEntry>],
        claim: Option<&ClaimAsk>,
    ) -> Result<Vec<ClaimedJob>, Error> {
        let entries: Vec<&SettleEntry> = batch.iter().map(Arc::as_ref).collect();
        let ask = SettleAsk { settle: &entries, claim };
        // A repeated report must still find the lease.
        let within = (self.lease() / 3).clamp(WITHIN_MIN, WITHIN * 3);
        let answer: SettleAnswer = self.api.post("/api/v1/settle", &ask, within).await?;
        lock(&self.reports).drain(..batch.len());
        for (entry, settled) in batch.iter().zip(answer.settled) {
            match settled.ok {
                true => {
                    let state = settled.state.unwrap_or_default();
                    tracing::debug!(job.id = entry.id, "job {} is {state}", entry.id);
                }
                false => self.refused(entry, &settled.error.unwrap_or_default()),
            }
        }
        Ok(answer.jobs.unwrap_or_default())
    }

    /// One report that the server cannot read must not cost the others.
    async fn report_singly(&self, batch: &[Arc<SettleEntry>]) -> Result<(), Error> {
        for entry in batch {
            match self.settle(std::slice::from_ref(entry), None).await {
                Ok(_) => {}
                Err(error) if is_about_content(&error) => self.refused_call(entry, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Deals with the report at the front of the list, for which the server refused the whole call.
    fn refused_call(&self, entry: &SettleEntry, error: &Error) {
        lock(&self.reports).drain(..1);
        self.refused(entry, &Said { code: error.code().to_owned(), message: error.to_string() });
    }

    /// Deals with a refused report: nothing to do if the lease is lost; otherwise the job fails with the reason,
    /// because a result that is too large, for example, will be too large again.
    fn refused(&self, entry: &SettleEntry, said: &Said) {
        let (id, Said { code, message }) = (entry.id, said);
        if matches!(code.as_str(), "lease_lost" | "not_found" | "not_running") {
            tracing::warn!(job.id = id, "outcome of job {id} not accepted: {message}");
            return;
        }
        tracing::error!(job.id = id, "the server refused the outcome of job {id}: {code}: {message}");
        if let Some(replacement) = replacement(entry, said) {
            lock(&self.reports).push(Arc::new(replacement));
            self.ended.notify_one();
        }
    }
}

/// True if the server refuses what a report says. Any other error says nothing about the report.
fn is_about_content(error: &Error) -> bool {
    matches!(error, Error::Refused { status: 400 | 413, .. } | Error::Value { .. })
}

/// Failure in place of a refused report; `None` if the refused report was such a failure.
fn replacement(entry: &SettleEntry, said: &Said) -> Option<SettleEntry> {
    const CLASS: &str = "ReportRefused";
    (entry.class.as_deref() != Some(CLASS)).then(|| SettleEntry {
        id: entry.id,
        token: entry.token,
        outcome: "fail",
        class: Some(CLASS.to_owned()),
        message: Some(format!("the server refused the outcome: {}: {}", said.code, said.message)),
        retry: Some(false),
        ..SettleEntry::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_report_is_replaced_once() {
        let said = Said { code: "payload_too_large".into(), message: "20 MiB".into() };
        let entry = SettleEntry { id: 7, token: 9, outcome: "finish", ..SettleEntry::default() };
        let failure = replacement(&entry, &said).unwrap();
        assert_eq!((failure.id, failure.token, failure.outcome), (7, 9, "fail"));
        assert!(failure.message.as_deref().unwrap().contains("payload_too_large: 20 MiB"));
        assert!(replacement(&failure, &said).is_none());
    }
}
