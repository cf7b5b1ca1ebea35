//! Parsing of requests, and jobs as JSON.

use super::ids::Uuid;
use serde::{Deserialize, Serialize};

/// Longest address in bytes. Hashes have less than a hundred in any form.
pub(crate) const ADDR_BYTES_MAX: usize = 4_096;

/// Reason why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    #[error("send the body as JSON, with the header Content-Type: application/json")]
    ContentType,
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    #[error("invalid body: {0}")]
    Fields(String),
    #[error("{field} must not be empty")]
    EmptyAddress { field: &'static str },
    #[error("{field} is longer than {ADDR_BYTES_MAX} bytes")]
    LongAddress { field: &'static str },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Create {
    pub binary_addr: String,
    #[serde(default)]
    pub input_addr: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub runner: Uuid,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tickle {
    /// Runner that sends the heartbeat; `None`: not checked.
    pub runner: Option<Uuid>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complete {
    pub end: End,
    pub output_addr: Option<String>,
    pub runner: Option<Uuid>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Completed,
    Failed,
}

/// Accepts `application/json` and types based on JSON.
pub(crate) fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

pub(crate) fn create(body: &[u8]) -> Result<Create, BadRequest> {
    let ask: Create = read(body)?;
    check_address("binary_addr", Some(&ask.binary_addr))?;
    check_address("input_addr", ask.input_addr.as_deref())?;
    Ok(ask)
}

pub(crate) fn claim(body: &[u8]) -> Result<Claim, BadRequest> {
    #[derive(Deserialize)]
    struct Written {
        runner_id: String,
    }
    let written: Written = read(body)?;
    Ok(Claim { runner: runner(&written.runner_id)? })
}

/// The body is optional. A JSON body must be valid: a runner that sends its id relies on the check.
pub(crate) fn tickle(body: &[u8], is_json: bool) -> Result<Tickle, BadRequest> {
    #[derive(Deserialize)]
    struct Written {
        #[serde(default)]
        runner_id: Option<String>,
    }
    let written: Written = match read(body) {
        Ok(written) => written,
        Err(BadRequest::NotJson(_)) if !is_json || body.trim_ascii().is_empty() => {
            return Ok(Tickle::default());
        }
        Err(bad) => return Err(bad),
    };
    Ok(Tickle { runner: written.runner_id.as_deref().map(runner).transpose()? })
}

pub(crate) fn complete(body: &[u8]) -> Result<Complete, BadRequest> {
    #[derive(Deserialize)]
    struct Written {
        status: String,
        #[serde(default)]
        output_addr: Option<String>,
        #[serde(default)]
        runner_id: Option<String>,
    }
    let written: Written = read(body)?;
    let end = match written.status.as_str() {
        "completed" | "Completed" => End::Completed,
        "failed" | "Failed" => End::Failed,
        other => {
            let shown: String = other.chars().take(40).collect();
            return Err(BadRequest::Fields(format!("invalid status {shown:?}; use completed or failed")));
        }
    };
    check_address("output_addr", written.output_addr.as_deref())?;
    let runner = written.runner_id.as_deref().map(runner).transpose()?;
    Ok(Complete { end, output_addr: written.output_addr, runner })
}

fn read<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, BadRequest> {
    // Malformed JSON is reported before wrong fields.
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(body);
    is_json.map_err(|error| BadRequest::NotJson(error.to_string()))?;
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(BadRequest::Fields("it must be an object".to_owned()));
    }
    serde_json::from_slice(body).map_err(|error| BadRequest::Fields(error.to_string()))
}

fn runner(text: &str) -> Result<Uuid, BadRequest> {
    Uuid::parse(text).ok_or_else(|| BadRequest::Fields("runner_id must be a UUID".to_owned()))
}

fn check_address(field: &'static str, address: Option<&str>) -> Result<(), BadRequest> {
    match address {
        Some("") => Err(BadRequest::EmptyAddress { field }),
        Some(address) if address.len() > ADDR_BYTES_MAX => Err(BadRequest::LongAddress { field }),
        _ => Ok(()),
    }
}

/// Job in a response; every field is present, null where unset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Shown {
    pub job_id: String,
    /// Same value: the original's name for the field.
    pub id: String,
    pub binary_addr: Option<String>,
    pub input_addr: Option<String>,
    pub output_addr: Option<String>,
    pub status: &'static str,
    pub run_attempts: u32,
    pub runner_id: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
    pub completed_at: Option<i64>,
}

impl Shown {
    /// For callers that may not see payloads.
    pub(crate) fn without_addresses(self) -> Shown {
        Shown { binary_addr: None, input_addr: None, output_addr: None, ..self }
    }
}

#[cfg(test)]
mod tests;
