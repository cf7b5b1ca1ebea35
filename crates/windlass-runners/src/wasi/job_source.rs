//! Source of a runner's jobs and destination of their outcomes: the server's own engine, or a server over
//! HTTP.

use async_trait::async_trait;
use std::pin::Pin;
use std::time::Duration;

/// Claimed job; `T` identifies it to the source.
#[derive(Clone, Debug)]
pub struct Assignment<T> {
    /// Job id for log messages.
    pub id: String,
    /// Blob address of the module.
    pub binary: String,
    /// Blob address of the input; `None`: empty input.
    pub input: Option<String>,
    /// Lease duration: without a heartbeat for so long, the job is given to another worker. `None`: no
    /// expiry.
    pub lease: Option<Duration>,
    pub ticket: T,
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Success, with stdout.
    Completed(Vec<u8>),
    Failed {
        /// Message for people, in one line.
        message: String,
        exit_code: Option<i32>,
        /// Standard error, followed by the runner's own message.
        stderr: Vec<u8>,
    },
}

/// Reply to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tickled {
    GoOn,
    /// The job should be stopped; its outcome is still accepted.
    Stop,
    /// The lease is lost: the job was cancelled, deleted, or given to another worker.
    Lost,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    /// The blob does not exist, or the address is invalid: a fault of the job.
    #[error("{0}")]
    Missing(String),
    /// The store failed; a retry may succeed.
    #[error("{0}")]
    Trouble(String),
}

/// Failure of the source itself, such as an unreachable server.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct JobSourceError(pub String);

pub type News<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveBack {
    /// True if the attempt is used up.
    pub counts: bool,
    /// Delay before the job can be claimed again.
    pub delay: Duration,
}

#[async_trait]
pub trait JobSource: Send + Sync + 'static {
    type Ticket: Send + Sync;

    /// Claims up to `limit` jobs. May wait for jobs; an empty list means that the caller should ask again at
    /// once. Cancel-safe: no job is lost.
    async fn claim(&self, limit: usize) -> Result<Vec<Assignment<Self::Ticket>>, JobSourceError>;

    /// Fetches a blob and verifies its hash.
    async fn fetch(&self, address: &str) -> Result<Vec<u8>, FetchError>;

    async fn tickle(&self, ticket: &Self::Ticket) -> Result<Tickled, JobSourceError>;

    /// Listens from the call on, and completes when the next heartbeat may bring news of the job. Never
    /// completes if the source cannot know.
    fn listen(&self, _ticket: &Self::Ticket) -> News<'_> {
        Box::pin(std::future::pending())
    }

    /// Stores the output and ends the job. A lost lease is not an error.
    async fn settle(&self, ticket: &Self::Ticket, verdict: Verdict) -> Result<(), JobSourceError>;

    /// Releases the job unfinished.
    async fn give_back(&self, ticket: &Self::Ticket, how: GiveBack) -> Result<(), JobSourceError>;
}
