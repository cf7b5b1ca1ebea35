//! A handler: what its author wrote to have one kind of jobs run by the server.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A handler as it is set, kept and shown. Keys that are not here are dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandlerText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eid: Option<String>,
    pub lang: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_each: Option<String>,
    pub body: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_each: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
}

impl HandlerText {
    /// The type of the job that follows when one of this type has ended well.
    pub fn next(&self) -> Option<&str> {
        self.options.as_ref()?.get("next")?.as_str()
    }
}
