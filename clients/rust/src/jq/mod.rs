//! JQ: jobs are pushed to workers. A [`Worker`] registers at the server, answers its calls, runs a handler per job and
//! reports how it went; a [`Client`] enqueues jobs and waits for their ends.
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
//! # How a job goes
//!
//! 1. The server calls `POST /worker-job`. The worker answers at once: 202 if it has a handler for the job's name and a
//!    free place, 404 if it has no handler (another worker gets the job), 503 if it has no place or is leaving.
//! 2. The handler runs as a task of its own. What it returns is the result; a [`Failure`] says whether trying again makes
//!    sense. A panic is a failure that is tried again. A handler that is not done within the job's timeout is dropped at
//!    its next `.await`.
//! 3. The end is told with `POST /done`, again and again while the server cannot be reached, for as long as the server
//!    would still accept it.
//!
//! # When things go wrong
//!
//! | what | then |
//! |---|---|
//! | the server restarts | it knows the worker and its jobs; the worker goes on |
//! | the server has let the worker go (it was away too long) | what runs is dropped, since the server has given it to others, and the worker registers anew |
//! | the worker is told to stop | it gets nothing more, ends what it has, and leaves; after the grace time the rest is dropped and tried again elsewhere |
//! | the worker dies | the server misses its pings within 10 seconds and gives its jobs to others |

mod client;
mod error;
mod handler;
mod http;
mod report;
mod serve;
mod shared;
mod signals;
mod wire;
mod worker;

pub use client::{Client, JobView, NewJob, Status};
pub use error::Error;
pub use handler::{Failure, Job};
pub use worker::{Builder, Summary, Worker};
