#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod api;
mod app;
mod backend;
mod context;
pub mod dev;
mod error;
mod hooks;
mod http;
pub mod jq;
#[cfg(feature = "opentelemetry")]
mod otel;
mod outcome;
mod push;
mod random;
mod run;
mod signals;
mod sql;
mod steps;
mod task;
mod testing;
mod wire;
mod worker;

pub use app::Windlass;
pub use context::Context;
pub use error::{BoxError, Error};
pub use outcome::{Fail, Retry, Snooze};
pub use push::{JobHandle, Push};
pub use run::Job;
pub use sql::SqlPush;
pub use steps::{OnChange, Step, Wait};
pub use task::{Backoff, Call, Task, TaskBuilder};
pub use testing::{TestJob, Testing};
pub use worker::{Worker, WorkerBuilder};
