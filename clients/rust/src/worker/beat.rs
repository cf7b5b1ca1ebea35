//! Heartbeats, progress and log lines of running jobs.

use super::{Shared, WITHIN_MIN};
use crate::api::{Backoff, WITHIN};
use crate::error::Error;
use crate::run::{Run, lock};
use crate::wire::{ExtendAnswer, ExtendAsk, ExtendEntry, Extended, LogAsk};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Entries per call.
const BATCH_MAX: usize = 1_000;
/// Time in which progress and lines are collected before they are sent.
const COLLECT: Duration = Duration::from_millis(20);

/// Renews the leases of all runs, every third of a lease; sooner after an outage.
pub(super) async fn heartbeats(shared: Arc<Shared>) {
    let every = shared.lease() / 3;
    let mut backoff = Backoff::new();
    let mut next = Instant::now() + every;
    loop {
        tokio::time::sleep_until(next).await;
        next = match shared.beat(every.clamp(WITHIN_MIN, WITHIN)).await {
            Ok(()) => {
                backoff.reset();
                // Notes that an outage held back.
                shared.noted.notify_one();
                Instant::now() + every
            }
            Err(error) => {
                tracing::debug!(%error, "heartbeats failed");
                Instant::now() + backoff.pause().min(every)
            }
        };
    }
}

/// Sends progress and log lines soon after a handler has noted them.
pub(super) async fn notes(shared: Arc<Shared>) {
    loop {
        shared.noted.notified().await;
        tokio::time::sleep(COLLECT).await;
        for run in shared.runs() {
            if run.has_notes() {
                shared.send_notes(&run).await;
            }
        }
    }
}

impl Shared {
    async fn beat(&self, within: Duration) -> Result<(), Error> {
        // A run whose report is on its way needs its lease too.
        let mut held: Vec<(u64, u64)> = lock(&self.running).keys().copied().collect();
        held.extend(lock(&self.reports).iter().map(|report| (report.id, report.token)));
        held.sort_unstable();
        held.dedup();
        for held in held.chunks(BATCH_MAX) {
            self.extend(held.iter().map(|held| self.entry(*held)).collect(), within).await?;
        }
        Ok(())
    }

    fn entry(&self, (id, token): (u64, u64)) -> ExtendEntry {
        ExtendEntry { id, token, lease_ms: self.claim.lease_ms, progress: None, note: None }
    }

    async fn extend(&self, extend: Vec<ExtendEntry>, within: Duration) -> Result<(), Error> {
        let tokens: Vec<u64> = extend.iter().map(|entry| entry.token).collect();
        let answer: ExtendAnswer = self.api.post("/api/v1/extend", &ExtendAsk { extend }, within).await?;
        for (extended, token) in answer.extended.into_iter().zip(tokens) {
            self.extended(extended, token);
        }
        Ok(())
    }

    /// Passes the answer to a heartbeat on to the handler.
    fn extended(&self, extended: Extended, token: u64) {
        let run = lock(&self.running).get(&(extended.id, token)).cloned();
        let Some(run) = run else { return };
        match extended {
            Extended { ok: true, cancel: Some(true), .. } => run.cancel(),
            Extended { ok: true, .. } => {}
            Extended { error, id, .. } => {
                let message = error.unwrap_or_default().message;
                tracing::warn!(job.id = id, "the lease of job {id} is lost: {message}");
                run.lose();
            }
        }
    }

    /// Sends the progress and the log lines of a run. Notes that an unavailable server does not get are kept for the
    /// next time.
    pub(super) async fn send_notes(&self, run: &Run) {
        // One call at a time: the end of a run waits here for notes on their way.
        let _sending = run.sending.lock().await;
        let mut notes = run.take_notes();
        if let Some((percent, note)) = notes.progress.clone() {
            let entry = self.entry((run.job.id, run.token));
            let entry = ExtendEntry { progress: Some(percent), note, ..entry };
            let sent = self.extend(vec![entry], WITHIN).await;
            if is_done(run, &sent) {
                notes.progress = None;
            }
        }
        if !notes.lines.is_empty() {
            let path = format!("/api/v1/jobs/{}/log", run.job.id);
            let ask = LogAsk { token: run.token, lines: &notes.lines };
            let sent = self.api.post::<Extended>(&path, &ask, WITHIN).await.map(drop);
            if is_done(run, &sent) {
                notes.lines.clear();
            }
        }
        run.put_back(notes);
    }
}

/// False if the call is to be repeated.
fn is_done(run: &Run, sent: &Result<(), Error>) -> bool {
    match sent {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(job.id = run.job.id, %error, "cannot send progress or log of job {}", run.job.id);
            !error.is_outage()
        }
    }
}
