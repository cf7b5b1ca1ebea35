//! Reports of ended runs.

use super::Shared;
use crate::api::WITHIN;
use crate::error::Error;
use crate::run::lock;
use crate::wire::{ClaimAsk, ClaimedJob, Said, SettleAnswer, SettleAsk, SettleEntry};

/// Reports per call.
const BATCH_MAX: usize = 1_000;

impl Shared {
    /// Reports ended runs, and claims jobs in the same call if asked to. Reports stay in the list until the
    /// server has answered.
    ///
    /// # Errors
    /// If the server did not take the call: the reports are kept for the next one.
    pub(super) async fn report(&self, claim: Option<&ClaimAsk>) -> Result<Vec<ClaimedJob>, Error> {
        let batch: Vec<SettleEntry> = {
            let mut reports = lock(&self.reports);
            let count = reports.len().min(BATCH_MAX);
            reports.drain(..count).collect()
        };
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        match self.settle(&batch, claim).await {
            Ok(jobs) => Ok(jobs),
            // The claim may be the cause: a single report is then tried without it.
            Err(error) if is_about_content(&error) => match (batch.as_slice(), claim) {
                ([entry], None) => {
                    self.refused(entry, &said(&error));
                    Ok(Vec::new())
                }
                _ => self.report_singly(batch).await.map(|()| Vec::new()),
            },
            Err(error) => {
                lock(&self.reports).splice(0..0, batch);
                Err(error)
            }
        }
    }

    async fn settle(
        &self,
        batch: &[SettleEntry],
        claim: Option<&ClaimAsk>,
    ) -> Result<Vec<ClaimedJob>, Error> {
        let ask = SettleAsk { settle: batch, claim };
        let answer: SettleAnswer = self.api.post("/api/v1/settle", &ask, WITHIN * 3).await?;
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
    async fn report_singly(&self, batch: Vec<SettleEntry>) -> Result<(), Error> {
        let mut left = batch.into_iter();
        while let Some(entry) = left.next() {
            let one = std::slice::from_ref(&entry);
            match self.settle(one, None).await {
                Ok(_) => {}
                Err(error) if is_about_content(&error) => self.refused(&entry, &said(&error)),
                Err(error) => {
                    let unsent: Vec<SettleEntry> = std::iter::once(entry).chain(left).collect();
                    lock(&self.reports).splice(0..0, unsent);
                    return Err(error);
                }
            }
        }
        Ok(())
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
            lock(&self.reports).push(replacement);
            self.ended.notify_one();
        }
    }
}

/// True if the server refuses what a report says. Any other error says nothing about the report.
fn is_about_content(error: &Error) -> bool {
    matches!(error, Error::Refused { status: 400 | 413, .. } | Error::Value { .. })
}

fn said(error: &Error) -> Said {
    Said { code: error.code().to_owned(), message: error.to_string() }
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
