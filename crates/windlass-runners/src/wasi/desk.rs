//! Where a runner gets its jobs and hands in their outcome. The server's own engine is one such desk, a server that is
//! reached over HTTP another.

use async_trait::async_trait;
use std::pin::Pin;
use std::time::Duration;

/// A job to run, and `T`: what the desk needs to know it by.
#[derive(Clone, Debug)]
pub struct Assignment<T> {
    /// For the log.
    pub id: String,
    /// Address of the module.
    pub binary: String,
    /// Address of what it reads; without one it reads nothing.
    pub input: Option<String>,
    /// Without a sign of life for so long, the job is given to another. `None`: it is ours until it ends.
    pub lease: Option<Duration>,
    pub ticket: T,
}

/// How a run ended, for whoever asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// With standard output.
    Completed(Vec<u8>),
    Failed {
        /// One line for people.
        message: String,
        exit_code: Option<i32>,
        /// Standard error, and at its end what the guest itself could not say.
        stderr: Vec<u8>,
    },
}

/// Answer to a sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tickled {
    GoOn,
    /// Someone wants it to stop; the outcome is still ours to tell.
    Stop,
    /// The job is no longer ours: it was cancelled, deleted, or given to another.
    Lost,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    /// There is no such blob, or it cannot be one: the job's own trouble.
    #[error("{0}")]
    Missing(String),
    /// Nobody could say. Another try may work.
    #[error("{0}")]
    Trouble(String),
}

/// Trouble with the desk itself: it cannot be reached, or does not know what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct DeskError(pub String);

pub type News<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveBack {
    /// Whether the attempt is used up.
    pub counts: bool,
    /// Before it may be claimed again.
    pub delay: Duration,
}

#[async_trait]
pub trait Desk: Send + Sync + 'static {
    type Ticket: Send + Sync;

    /// Up to `limit` jobs for good: from now on they are this runner's to answer for. May wait for some; an empty list
    /// is a reason to ask again at once. Can be dropped at any time without losing a job.
    async fn claim(&self, limit: usize) -> Result<Vec<Assignment<Self::Ticket>>, DeskError>;

    /// The blob at this address, verified.
    async fn fetch(&self, address: &str) -> Result<Vec<u8>, FetchError>;

    async fn tickle(&self, ticket: &Self::Ticket) -> Result<Tickled, DeskError>;

    /// Listens from the call on, and is ready when there may be news about this job, which the next sign of life will
    /// tell. A desk that cannot know is never ready.
    fn listen(&self, _ticket: &Self::Ticket) -> News<'_> {
        Box::pin(std::future::pending())
    }

    /// Keeps the output and ends the job. A job that is no longer ours is no error.
    async fn settle(&self, ticket: &Self::Ticket, verdict: Verdict) -> Result<(), DeskError>;

    /// Gives the job back unfinished.
    async fn give_back(&self, ticket: &Self::Ticket, how: GiveBack) -> Result<(), DeskError>;
}
