//! Main loop of a worker: reports ended runs, claims jobs for free slots, and starts them.

use super::Shared;
use crate::api::{Backoff, WITHIN};
use crate::error::Error;
use crate::hooks;
use crate::outcome::Settlement;
use crate::run::{self, Run, lock};
use crate::wire::{ClaimAnswer, ClaimAsk, ClaimedJob, SettleEntry};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

pub(super) async fn pump(shared: Arc<Shared>) -> Result<(), Error> {
    let mut backoff = Backoff::new();
    schedule(&shared, &mut backoff).await?;
    loop {
        match step(&shared).await {
            Ok(Step::Ended) => return Ok(()),
            Ok(Step::Worked) => backoff.reset(),
            // A report is kept until the server takes it; only a claim can be refused for good.
            Err(Failed::Report(error)) => shared.pause_after(&error, &mut backoff).await,
            Err(Failed::Claim(error)) if error.is_outage() => shared.pause_after(&error, &mut backoff).await,
            Err(Failed::Claim(error)) => return refused(&shared, error).await,
        }
    }
}
enum Step {
    Worked,
    Ended,
}

/// Call of a round that failed.
enum Failed {
    Report(Error),
    Claim(Error),
}

impl Shared {
    /// Pauses before the next call. A stop is seen at once; a pause while stopping is not cut short.
    async fn pause_after(&self, error: &Error, backoff: &mut Backoff) {
        let pause = backoff.pause();
        tracing::warn!(%error, "the server is unavailable; the next try is in {} ms", pause.as_millis());
        let (mut stop, was_stopping) = (self.stop.subscribe(), self.is_stopping());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stopped(&mut stop), if !was_stopping => {}
        }
    }
}

/// One round: a report with a claim, a claim alone, or a wait.
async fn step(shared: &Arc<Shared>) -> Result<Step, Failed> {
    let (running, is_stopping) = (lock(&shared.running).len(), shared.is_stopping());
    let free = shared.concurrency.saturating_sub(running);
    let has_reports = !lock(&shared.reports).is_empty();
    if has_reports {
        let claim = (free > 0 && !is_stopping).then(|| ask(shared, free, 0));
        start_all(shared, shared.report(claim.as_ref()).await.map_err(Failed::Report)?);
    } else if is_stopping && running == 0 {
        return Ok(Step::Ended);
    } else if is_stopping || free == 0 {
        wait_for_change(shared, is_stopping).await;
    } else {
        poll(shared, free).await?;
    }
    Ok(Step::Worked)
}

async fn wait_for_change(shared: &Shared, is_stopping: bool) {
    let mut stop = shared.stop.subscribe();
    tokio::select! {
        () = shared.ended.notified() => {}
        () = stopped(&mut stop), if !is_stopping => {}
    }
}

/// Completes when the worker is told to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The sender lives as long as the worker.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Claims with a long poll. Runs that end meanwhile are reported at once; the claim goes on during a report, and
/// after one that failed: jobs that it brings are not lost.
async fn poll(shared: &Arc<Shared>, free: usize) -> Result<(), Failed> {
    let ask = ask(shared, free, shared.claim.wait_ms);
    let within = WITHIN + Duration::from_millis(ask.wait_ms);
    let mut claiming = pin!(shared.api.post::<ClaimAnswer>("/api/v1/claim", &ask, within));
    let started = |claimed: Result<ClaimAnswer, Error>| {
        claimed.map(|claimed| start_all(shared, claimed.jobs)).map_err(Failed::Claim)
    };
    let mut stop = shared.stop.subscribe();
    let mut backoff = Backoff::new();
    let mut again: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            claimed = &mut claiming => return started(claimed),
            () = stopped(&mut stop) => return Ok(()),
            () = shared.ended.notified(), if again.is_none() => {}
            () = tokio::time::sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {}
        }
        let mut reporting = pin!(shared.report_all());
        let reported = tokio::select! {
            biased;
            claimed = &mut claiming => {
                let started = started(claimed);
                let reported = reporting.await;
                return started.and(reported.map_err(Failed::Report));
            }
            reported = &mut reporting => reported,
        };
        again = reported.err().map(|error| {
            let pause = backoff.pause();
            tracing::warn!(%error, "cannot report; the next try is in {} ms", pause.as_millis());
            Instant::now() + pause
        });
        if again.is_none() {
            backoff.reset();
        }
    }
}

fn ask(shared: &Shared, limit: usize, wait_ms: u64) -> ClaimAsk {
    ClaimAsk { limit, wait_ms, ..shared.claim.clone() }
}

fn start_all(shared: &Arc<Shared>, jobs: Vec<ClaimedJob>) {
    for job in jobs {
        start(shared, job);
    }
}

fn start(shared: &Arc<Shared>, claimed: ClaimedJob) {
    let (id, token) = (claimed.id, claimed.token);
    let Some(task) = shared.tasks.get(&claimed.name).cloned() else {
        let release = Settlement::Release { delay: Duration::from_secs(1) };
        lock(&shared.reports).extend(SettleEntry::new(id, token, release).map(Arc::new));
        return;
    };
    let run = Run::new(claimed, &task, shared.app.backend(), Arc::clone(&shared.noted));
    let run = Arc::new(run);
    lock(&shared.running).insert((id, token), Arc::clone(&run));
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let handler = hooks::start(&task, &run, &shared.hooks);
        let settlement = run::drive(&run, handler, task.timeout, shared.cancel_grace).await;
        if run.has_noted() && !matches!(settlement, Settlement::Drop) {
            shared.send_notes(&run).await;
        }
        end(&shared, &run, settlement);
    });
}

fn end(shared: &Shared, run: &Run, settlement: Settlement) {
    let (id, name) = (run.job.id, &run.job.name);
    match &settlement {
        Settlement::Fail { class, message, .. } => {
            tracing::warn!(job.id = id, name = %name, "job {id} failed: {class}: {message}");
        }
        Settlement::Drop => {
            tracing::warn!(job.id = id, name = %name, "job {id} dropped: its lease is lost");
        }
        _ => tracing::debug!(job.id = id, name = %name, "run of job {id} ended"),
    }
    let entry = SettleEntry::new(id, run.token, settlement);
    // Together, so that the slot is free exactly when the report is there.
    let mut reports = lock(&shared.reports);
    reports.extend(entry.map(Arc::new));
    lock(&shared.running).remove(&(id, run.token));
    drop(reports);
    shared.ended.notify_one();
}

/// Creates the schedules of tasks with a repeat rule.
async fn schedule(shared: &Shared, backoff: &mut Backoff) -> Result<(), Error> {
    let jobs: Vec<_> = shared.tasks.values().filter_map(|task| task.schedule.clone()).collect();
    while !jobs.is_empty() && !shared.is_stopping() {
        match shared.api.push(&jobs).await {
            Ok(_) => break,
            Err(error) if error.is_outage() => tokio::time::sleep(backoff.pause()).await,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// End of a worker that the server refuses: running jobs finish first. Reports that it refuses too are given up
/// when their leases have expired.
async fn refused(shared: &Arc<Shared>, error: Error) -> Result<(), Error> {
    tracing::error!(%error, "the server refuses the worker; running jobs are finished");
    shared.stop.send_replace(true);
    let mut backoff = Backoff::new();
    let mut until = Instant::now() + shared.lease();
    loop {
        if !lock(&shared.running).is_empty() {
            until = Instant::now() + shared.lease();
        }
        match step(shared).await {
            Ok(Step::Ended) => return Err(error),
            Ok(Step::Worked) => {}
            Err(_) if Instant::now() > until => return Err(error),
            Err(_) => tokio::time::sleep(backoff.pause()).await,
        }
    }
}
