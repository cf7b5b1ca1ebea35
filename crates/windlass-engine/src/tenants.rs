//! Bounds of each tenant: the jobs a handle may reach, limits of its queues, quotas of its use.

pub(crate) mod args;
pub(crate) mod limits;
pub mod quota;
pub(crate) mod scope;
