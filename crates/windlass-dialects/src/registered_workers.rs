//! Workers registered with a dialect, with or without jobs.

use std::sync::Arc;
use windlass_core::{Tenant, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredWorker {
    /// Dialect of the worker.
    pub dialect: &'static str,
    pub tenant: Tenant,
    /// Worker name in the leases of its jobs.
    pub id: Arc<str>,
    /// Address at which it is called.
    pub address: Option<String>,
    /// Most jobs at once.
    pub slots: u32,
    pub running: u32,
    /// Paused: it gets no more jobs, its running jobs continue.
    pub is_quiet: bool,
    /// Last heartbeat, where its protocol has one.
    pub last_sign: Option<Timestamp>,
    /// From the configuration: after a dismissal it is back at the next start.
    pub is_fixed: bool,
}
