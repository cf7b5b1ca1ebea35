//! Subcommands that talk to a running server through the native API.

pub mod blobs;
pub mod import;
pub mod job;
pub mod jobs;
pub mod push;
pub mod queues;
pub mod result;
pub mod token;
pub mod top;
pub mod view;
pub mod work;
