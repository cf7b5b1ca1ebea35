//! Parsing of request bodies: no socket, no engine.
//!
//! Bodies are maps in MessagePack or JSON. Integers may have any width and keys any order; unknown keys are
//! skipped. Arguments, results and errors stay the bytes they arrived in.

use crate::codec::{self, Encoding, Malformed, Raw, Text};
use serde::Deserialize;
use windlass_core::{JobId, Name, Timestamp};

/// Longest timeout in seconds: about thirty years, far from an overflow in milliseconds.
pub const TIMEOUT_S_MAX: i64 = 1_000_000_000;
/// Most retries: attempts are counted in 32 bits.
pub const MAX_RETRY_MAX: i64 = u32::MAX as i64 - 1;
/// Most jobs of one worker at once. Each takes memory and possibly a connection.
pub const MAX_JOBS_MAX: i64 = 100_000;
/// Longest name of a worker in bytes: it is shown in lists.
pub const WORKER_NAME_BYTES_MAX: usize = 255;
/// Longest URL of a worker in bytes.
pub const URL_BYTES_MAX: usize = 2_048;
/// Longest failure message in bytes. It is shown to people and kept for the last ten attempts; data belongs
/// into `error`.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1_024;
/// Longest wait of a poll in seconds: proxies may close a connection that is idle for longer.
pub const POLL_S_MAX: u64 = 300;
pub const POLL_S_DEFAULT: u64 = 5;

pub const PRIORITY_DEFAULT: i32 = 0;
pub const MAX_RETRY_DEFAULT: i64 = 10;
pub const TIMEOUT_S_DEFAULT: i64 = 30;

/// Reason why a body is invalid, for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    #[error("invalid body: {0}")]
    Malformed(#[from] Malformed),
    #[error("{0}")]
    Field(String),
}

fn field(message: impl Into<String>) -> Bad {
    Bad::Field(message.into())
}

/// Job of an enqueue request.
#[derive(Clone, Debug, PartialEq)]
pub struct Job<'a> {
    pub name: Name,
    /// A map.
    pub argument: Raw<'a>,
    pub priority: i32,
    pub max_retry: u32,
    pub keep_result: bool,
    pub timeout_s: i64,
}

#[derive(Deserialize)]
struct JobBody<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    argument: Option<Raw<'a>>,
    priority: Option<i32>,
    max_retry: Option<i64>,
    keep_result: Option<bool>,
    timeout: Option<i64>,
}

pub fn job(encoding: Encoding, body: &[u8]) -> Result<Job<'_>, Bad> {
    let body: JobBody<'_> = codec::read_map(encoding, body)?;
    let name = body.name.ok_or_else(|| field("`name` is missing"))?;
    let argument = body.argument.ok_or_else(|| field("`argument` is missing; send {} for an empty one"))?;
    if !is_map(argument) {
        return Err(field("`argument` must be a map"));
    }
    let max_retry = body.max_retry.unwrap_or(MAX_RETRY_DEFAULT);
    let timeout_s = body.timeout.unwrap_or(TIMEOUT_S_DEFAULT);
    Ok(Job {
        name: Name::new(&name).map_err(|e| field(e.to_string()))?,
        argument,
        priority: body.priority.unwrap_or(PRIORITY_DEFAULT),
        max_retry: within("max_retry", max_retry, 0, MAX_RETRY_MAX)?.try_into().unwrap_or(u32::MAX - 1),
        keep_result: body.keep_result.unwrap_or(false),
        timeout_s: within("timeout", timeout_s, 1, TIMEOUT_S_MAX)?,
    })
}

fn within(what: &str, number: i64, min: i64, max: i64) -> Result<i64, Bad> {
    match (min..=max).contains(&number) {
        true => Ok(number),
        false => Err(field(format!("`{what}` must be a whole number from {min} to {max}"))),
    }
}

fn is_map(raw: Raw<'_>) -> bool {
    match raw {
        Raw::Json(text) => text.trim_ascii_start().starts_with('{'),
        Raw::Msgpack(bytes) => matches!(bytes.first(), Some(0x80..=0x8f | 0xde | 0xdf)),
    }
}

/// Worker of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    pub name: String,
    pub max_jobs: u32,
    pub place: Place,
}

/// Address at which the server calls the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Url(String),
    /// Port at the client's address.
    Port(u16),
    /// Default port at the client's address.
    Usual,
}

#[derive(Deserialize)]
struct WorkerBody<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    max_jobs: Option<i64>,
    #[serde(borrow)]
    url: Option<Text<'a>>,
    port: Option<u16>,
}

pub fn worker(encoding: Encoding, body: &[u8]) -> Result<Worker, Bad> {
    let body: WorkerBody<'_> = codec::read_map(encoding, body)?;
    let name = body.name.ok_or_else(|| field("`name` is missing"))?;
    if name.is_empty() || name.len() > WORKER_NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(field(format!(
            "`name` must have 1 to {WORKER_NAME_BYTES_MAX} bytes, without control characters"
        )));
    }
    let max_jobs = body.max_jobs.ok_or_else(|| field("`max_jobs` is missing"))?;
    let max_jobs = within("max_jobs", max_jobs, 1, MAX_JOBS_MAX)?;
    let place = match (body.url, body.port) {
        (Some(_), Some(_)) => return Err(field("`url` and `port` cannot be combined; send one of them")),
        (Some(url), None) if url.len() > URL_BYTES_MAX => return Err(field("`url` is too long")),
        (Some(url), None) => Place::Url(url.to_string()),
        (None, Some(0)) => return Err(field("`port` must be a number from 1 to 65535")),
        (None, Some(port)) => Place::Port(port),
        (None, None) => Place::Usual,
    };
    Ok(Worker { name: name.to_string(), max_jobs: max_jobs.try_into().unwrap_or(u32::MAX), place })
}

/// Report of a worker on the end of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Done<'a> {
    /// `None` if the text is not a job id.
    pub job_id: Option<JobId>,
    /// Attempt of the report; `None`: the current one.
    pub attempt: Option<u32>,
    pub finished_at: Option<Timestamp>,
    pub end: End<'a>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum End<'a> {
    Success { result: Option<Raw<'a>> },
    Failure { reason: Reason, should_retry: bool, message: String, error: Option<Raw<'a>> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Other,
    Timeout,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Other => "other",
            Reason::Timeout => "timeout",
        }
    }
}

#[derive(Deserialize)]
struct DoneBody<'a> {
    #[serde(borrow, alias = "id")]
    job_id: Option<Text<'a>>,
    attempt: Option<u32>,
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    finished_at: Option<Text<'a>>,
    #[serde(borrow)]
    result: Option<Raw<'a>>,
    #[serde(borrow)]
    reason: Option<Text<'a>>,
    should_retry: Option<bool>,
    #[serde(borrow)]
    message: Option<Text<'a>>,
    #[serde(borrow)]
    error: Option<Raw<'a>>,
}

pub fn done(encoding: Encoding, body: &[u8]) -> Result<Done<'_>, Bad> {
    let body: DoneBody<'_> = codec::read_map(encoding, body)?;
    let job_id = body.job_id.ok_or_else(|| field("`job_id` is missing"))?;
    let end = match body.kind.as_deref() {
        None => return Err(field("`type` is missing")),
        Some("success") => End::Success { result: body.result },
        Some("failure") => End::Failure {
            reason: match body.reason.as_deref() {
                Some("other") => Reason::Other,
                Some("timeout") => Reason::Timeout,
                _ => return Err(field("`reason` must be \"other\" or \"timeout\"")),
            },
            should_retry: body.should_retry.ok_or_else(|| field("`should_retry` is missing"))?,
            message: message(body.message)?,
            error: body.error,
        },
        Some(_) => return Err(field("`type` must be \"success\" or \"failure\"")),
    };
    let finished_at = body.finished_at.map(|text| moment(&text)).transpose()?;
    Ok(Done { job_id: self::job_id(&job_id), attempt: body.attempt, finished_at, end })
}

fn message(text: Option<Text<'_>>) -> Result<String, Bad> {
    let text = text.ok_or_else(|| field("`message` is missing"))?;
    match text.len() {
        bytes if bytes > MESSAGE_BYTES_MAX => Err(field(format!(
            "`message` is {bytes} bytes long; the maximum is {MESSAGE_BYTES_MAX}; send data in \
             `error`"
        ))),
        _ => Ok(text.to_string()),
    }
}

/// Parses RFC 3339 with an offset or `Z`, with or without a fraction.
fn moment(text: &str) -> Result<Timestamp, Bad> {
    let parsed: Result<jiff::Timestamp, _> = text.parse();
    match parsed {
        Ok(at) => Ok(Timestamp::from_calendar_ms(at.as_millisecond())),
        Err(_) => Err(field(
            "`finished_at` must be a time like 2024-03-24T17:39:18Z or 2024-03-24T17:39:18.5+09:00",
        )),
    }
}

/// Parses a job id: the job's number in decimal digits.
pub fn job_id(text: &str) -> Option<JobId> {
    // No sign and no leading zeros, so that a job has one id.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    is_plain.then(|| text.parse().ok().and_then(JobId::new)).flatten()
}

/// Argument, result or error as MessagePack. JSON is converted; MessagePack keeps its bytes.
pub fn as_msgpack(raw: Raw<'_>) -> Result<Vec<u8>, Bad> {
    match raw {
        Raw::Msgpack(bytes) => Ok(bytes.to_vec()),
        Raw::Json(text) => {
            let value: serde_json::Value = codec::read(Encoding::Json, text.as_bytes())?;
            let mut out = codec::Out::new(Encoding::Msgpack, text.len());
            out.value(&value);
            Ok(out.into_bytes())
        }
    }
}

#[cfg(test)]
mod tests;
