//! Handlers that a dialect keeps for its kinds of jobs, for people to look at and to try.

use serde_json::Value;
use windlass_core::Tenant;

/// What runs one kind of jobs, in all versions that are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct RegisteredHandler {
    /// The dialect that keeps it.
    pub dialect: &'static str,
    pub tenant: Tenant,
    /// The name of the jobs it is for, and the queue they wait in.
    pub name: String,
    pub queue: String,
    /// Why it would not run, if that is known.
    pub trouble: Option<String>,
    /// The newest, which is in force, first.
    pub versions: Vec<HandlerVersion>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HandlerVersion {
    pub id: String,
    /// As it was set; `None`: there was more to show than is shown at once.
    pub text: Option<Value>,
}
