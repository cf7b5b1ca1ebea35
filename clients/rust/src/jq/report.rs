//! Execution of one job: runs its handler and reports the result.

use super::error::Error;
use super::handler::{Answer, Failure, Handler, Job};
use super::shared::{Active, Shared};
use super::wire;
use bytes::Bytes;
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinError;
use tokio::time::Instant;

/// First pause before a report is repeated; doubled each time.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// The server starts the timeout when it receives the 202, a little later than this worker.
const SLACK: Duration = Duration::from_secs(5);

/// Accepted job.
pub(super) struct Task {
    pub shared: Arc<Shared>,
    /// Worker id under which the job was accepted: a report is valid only for that registration.
    pub worker: Arc<str>,
    pub place: OwnedSemaphorePermit,
    pub active: Active,
}

impl Task {
    pub(super) async fn run(self, job: Job<Bytes>, handler: Handler) {
        let Task { shared, worker, place, active } = self;
        let (id, name, attempt, timeout) = (job.id.clone(), job.name.clone(), job.attempt, job.timeout);
        let until = Instant::now() + timeout + SLACK;
        // Separate task, so that a panic of the handler ends only that task.
        let mut running = tokio::spawn(async move { handler(job).await });
        let answer = tokio::select! {
            ended = &mut running => answer(ended),
            () = tokio::time::sleep(timeout) => {
                running.abort();
                // The slot stays in use until the handler has ended, which may succeed at the last moment.
                running.await.unwrap_or_else(|_| Err(Failure::timeout(timeout)))
            }
            () = shared.lost(&worker) => {
                running.abort();
                let _ = running.await;
                tracing::warn!(job.id = %id, name = %name, "job {id} dropped; it no longer belongs to this worker");
                shared.counts.dropped();
                return;
            }
        };
        // Freed before the report, because the server may send the next job at once.
        drop(place);
        let report = Report { shared: &shared, worker: &worker, id: &id, attempt, until };
        report.tell(answer).await;
        drop(active);
    }
}

fn answer(ended: Result<Answer, JoinError>) -> Answer {
    ended.unwrap_or_else(|error| {
        let why = match error.try_into_panic() {
            Ok(panic) => format!("the handler panicked: {}", panic_message(&*panic)),
            Err(_) => "the handler was stopped".to_owned(),
        };
        Err(Failure::retry(why))
    })
}

/// Message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

struct Report<'a> {
    shared: &'a Shared,
    worker: &'a str,
    id: &'a str,
    attempt: u32,
    /// Time at which the server has given up the attempt.
    until: Instant,
}

impl Report<'_> {
    /// Reports the result, repeatedly while the server is unavailable.
    async fn tell(&self, mut answer: Answer) {
        let finished_at = SystemTime::now();
        let mut pause = PAUSE;
        loop {
            let body = wire::done(self.id, self.attempt, finished_at, &answer);
            match self.shared.client.done(self.worker, body).await {
                Ok(()) => return self.told(&answer),
                Err(error) if error.is_retryable() && Instant::now() + pause < self.until => {
                    tracing::debug!(job.id = self.id, %error, "cannot report job {}; retrying", self.id);
                    tokio::select! {
                        () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
                        () = self.shared.lost(self.worker) => return self.given_up(&error),
                    }
                }
                // The result is too large, for example: the job fails.
                Err(Error::Refused { status: 400 | 413, message, .. }) if answer.is_ok() => {
                    answer = Err(Failure::give_up(format!("the server refused the result: {message}")));
                }
                Err(error) => return self.given_up(&error),
            }
        }
    }

    fn told(&self, answer: &Answer) {
        match answer {
            Ok(_) => {
                tracing::debug!(job.id = self.id, "job {} finished", self.id);
                self.shared.counts.done();
            }
            Err(failure) => {
                let again = if failure.should_retry { "will be retried" } else { "not retried" };
                tracing::warn!(job.id = self.id, "job {} failed, {again}: {}", self.id, failure.message);
                self.shared.counts.failed();
            }
        }
    }

    fn given_up(&self, error: &Error) {
        self.shared.counts.dropped();
        match error.is_not_found() {
            true => {
                tracing::warn!(
                    job.id = self.id,
                    "job {} ended too late: the server no longer expects its outcome",
                    self.id
                )
            }
            false => {
                tracing::error!(job.id = self.id, %error, "cannot report the outcome of job {}", self.id);
            }
        }
    }
}
