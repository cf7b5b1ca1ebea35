//! Workers that have registered with a dialect to be given jobs, whether or not they hold any.

use std::sync::Arc;
use windlass_core::{Tenant, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredWorker {
    /// The dialect it speaks.
    pub dialect: &'static str,
    pub tenant: Tenant,
    /// What its jobs name as their holder.
    pub id: Arc<str>,
    /// Where it is reached.
    pub address: Option<String>,
    /// Jobs it takes at once.
    pub slots: u32,
    pub running: u32,
    /// It is given no more jobs; what it has goes on.
    pub is_quiet: bool,
    /// Its last sign of life beside its jobs, where its protocol has such a thing.
    pub last_sign: Option<Timestamp>,
    /// Comes back by itself if it is let go: it stands in the configuration.
    pub is_fixed: bool,
}
