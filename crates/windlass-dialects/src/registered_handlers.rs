//! Handlers that a dialect stores, for display and for test runs.

use serde_json::Value;
use windlass_core::Tenant;

/// Handler of one kind of jobs, with all stored versions.
#[derive(Clone, Debug, PartialEq)]
pub struct RegisteredHandler {
    /// Dialect of the handler.
    pub dialect: &'static str,
    pub tenant: Tenant,
    /// Name of its jobs, and their queue.
    pub name: String,
    pub queue: String,
    /// Reason why it would not run, if known.
    pub trouble: Option<String>,
    /// Newest version first, which applies.
    pub versions: Vec<HandlerVersion>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HandlerVersion {
    pub id: String,
    /// Text as set; `None`: left out because the list has reached its size limit.
    pub text: Option<Value>,
}
