//! Bounds of each tenant: scopes of handles, limits on jobs, quotas on resources.

pub(crate) mod args;
pub(crate) mod limits;
pub mod quota;
pub(crate) mod scope;
