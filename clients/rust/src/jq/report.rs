//! One job: runs its handler, and tells the server how it ended.

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

/// The first pause before a report is tried again; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// The server counts the timeout from our answer, which it had a little later than we gave it.
const SLACK: Duration = Duration::from_secs(5);

/// A job that was taken.
pub(super) struct Task {
    pub shared: Arc<Shared>,
    /// As which it was taken: an answer is good for that registration only.
    pub worker: Arc<str>,
    pub place: OwnedSemaphorePermit,
    pub active: Active,
}

impl Task {
    pub(super) async fn run(self, job: Job<Bytes>, handler: Handler) {
        let Task { shared, worker, place, active } = self;
        let (id, name, attempt, timeout) = (job.id.clone(), job.name.clone(), job.attempt, job.timeout);
        let until = Instant::now() + timeout + SLACK;
        // A task of its own: its panic is its own, too.
        let mut running = tokio::spawn(async move { handler(job).await });
        let answer = tokio::select! {
            ended = &mut running => answer(ended),
            () = tokio::time::sleep(timeout) => {
                running.abort();
                // Until it is really gone its place is taken; it may have been done in the last moment.
                running.await.unwrap_or_else(|_| Err(Failure::timeout(timeout)))
            }
            () = shared.lost(&worker) => {
                running.abort();
                let _ = running.await;
                tracing::warn!(job.id = %id, name = %name, "job {id} dropped; it is not this worker's any more");
                shared.counts.dropped();
                return;
            }
        };
        // Before the server hears of it: it may send the next one at once.
        drop(place);
        let report = Report { shared: &shared, worker: &worker, id: &id, attempt, until };
        report.tell(answer).await;
        drop(active);
    }
}

fn answer(ended: Result<Answer, JoinError>) -> Answer {
    ended.unwrap_or_else(|error| {
        let why = match error.try_into_panic() {
            Ok(panic) => format!("the handler panicked: {}", words(&*panic)),
            Err(_) => "the handler was stopped".to_owned(),
        };
        Err(Failure::retry(why))
    })
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no words)")
}

struct Report<'a> {
    shared: &'a Shared,
    worker: &'a str,
    id: &'a str,
    attempt: u32,
    /// After that the server has given up on the attempt anyway.
    until: Instant,
}

impl Report<'_> {
    /// Again and again while the server is away.
    async fn tell(&self, mut answer: Answer) {
        let finished_at = SystemTime::now();
        let mut pause = PAUSE;
        loop {
            let body = wire::done(self.id, self.attempt, finished_at, &answer);
            match self.shared.client.done(self.worker, body).await {
                Ok(()) => return self.told(&answer),
                Err(error) if error.is_passing() && Instant::now() + pause < self.until => {
                    tracing::debug!(job.id = self.id, %error, "telling of job {} again in a moment", self.id);
                    tokio::select! {
                        () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
                        () = self.shared.lost(self.worker) => return self.given_up(&error),
                    }
                }
                // Too large, for example: that is how the job ended, then.
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
                tracing::debug!(job.id = self.id, "job {} done", self.id);
                self.shared.counts.done();
            }
            Err(failure) => {
                let again = if failure.should_retry { "to be tried again" } else { "for good" };
                tracing::warn!(job.id = self.id, "job {} failed, {again}: {}", self.id, failure.message);
                self.shared.counts.failed();
            }
        }
    }

    fn given_up(&self, error: &Error) {
        self.shared.counts.dropped();
        match error.is_not_found() {
            true => {
                tracing::warn!(job.id = self.id, "job {} ended too late: the server has given it up", self.id)
            }
            false => {
                tracing::error!(job.id = self.id, %error, "the end of job {} could not be told", self.id);
            }
        }
    }
}
