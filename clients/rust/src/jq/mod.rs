//! JQ: the server pushes jobs to workers. A [`Worker`] registers at the server, accepts its calls, runs a
//! handler per job and reports the result; a [`Client`] enqueues jobs and waits for their results.
//!
//! ```no_run
//! use windlass_client::jq::{Failure, Job, Worker};
//!
//! #[derive(serde::Deserialize)]
//! struct Add {
//!     a: i64,
//!     b: i64,
//! }
//!
//! # async fn example() -> Result<(), windlass_client::jq::Error> {
//! Worker::builder("http://127.0.0.1:7373/jq")
//!     .name("adder")
//!     .max_jobs(8)
//!     .handle("add", |job: Job<Add>| async move { Ok::<_, Failure>(job.argument.a + job.argument.b) })
//!     .run()
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Course of a job
//!
//! 1. The server calls `POST /worker-job`. The worker replies at once: 202 if it has a handler for the job's
//!    name and a free slot, 404 if it has no handler (another worker gets the job), 503 if it has no free
//!    slot or is shutting down.
//! 2. The handler runs as a separate task. Its return value is the result; a [`Failure`] says whether to
//!    retry. A panic is a failure that is retried. A handler that exceeds the job's timeout is dropped at its
//!    next `.await`.
//! 3. The worker reports the result with `POST /done`. While the server is unavailable it repeats the report,
//!    for as long as the server would still accept it.
//!
//! # Failures
//!
//! | event | effect |
//! |---|---|
//! | the server restarts | it remembers the worker and its jobs; the worker continues |
//! | the server has removed the worker (its heartbeats failed for too long) | running jobs are dropped, because the server has given them to other workers, and the worker registers again |
//! | the worker is asked to stop | it gets no more jobs, finishes its running jobs, and deregisters; after the grace time the remaining jobs are dropped and retried elsewhere |
//! | the worker dies | the server misses its heartbeats for 10 seconds and gives its jobs to other workers |

mod client;
mod error;
mod handler;
mod report;
mod serve;
mod shared;
mod wire;
mod worker;

pub use client::{Client, JobView, NewJob, Status};
pub use error::Error;
pub use handler::{Failure, Job};
pub use worker::{Builder, Summary, Worker};
