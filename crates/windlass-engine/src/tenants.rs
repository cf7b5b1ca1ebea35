//! Bounds and settings of each tenant: scopes of handles, limits on jobs, quotas on resources, settings of its
//! queues.

pub(crate) mod args;
pub(crate) mod limits;
pub(crate) mod queue_settings;
pub mod quota;
pub(crate) mod scope;
