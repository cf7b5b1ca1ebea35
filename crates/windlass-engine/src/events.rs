//! Effects of a commit inside this server: notifications, the event feed, metrics, spans.

pub(crate) mod after_commit;
pub mod feed;
pub mod job_meters;
pub mod meters;
pub(crate) mod other_servers;
pub(crate) mod ready_notifier;
pub mod spans;
