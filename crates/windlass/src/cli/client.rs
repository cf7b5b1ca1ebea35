//! Subcommands that talk to a running server through the native API.

pub(super) mod audit;
pub(super) mod blobs;
pub(super) mod failures;
pub(super) mod health;
pub(super) mod import;
pub(super) mod job;
pub(super) mod jobs;
mod payload;
pub(super) mod push;
pub(super) mod queues;
pub(super) mod result;
pub(super) mod schedules;
pub(super) mod token;
pub(super) mod top;
pub(super) mod view;
pub(super) mod work;
