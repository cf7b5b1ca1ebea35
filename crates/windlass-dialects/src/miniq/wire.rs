//! Parsing of requests: lines of jobs, names, handlers, and the type field of a journal line.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use windlass_core::handler::HandlerText;
use windlass_core::{Name, Tenant, Timestamp};

/// Most jobs per add: the response lists an id for each.
pub const LINES_MAX: usize = 100_000;
/// Longest text of a handler in bytes. Data belongs into blobs.
pub const HANDLER_BYTES_MAX: usize = 1 << 20;
/// Longest delay: about a hundred years.
const DELAY_S_MAX: f64 = 100.0 * 366.0 * 86_400.0;

/// Words that begin other paths of the server, or have a meaning in this dialect.
const RESERVED: &[&str] = &[
    "add",
    "api",
    "blob",
    "docs",
    "favicon.ico",
    "healthz",
    "job",
    "jobs",
    "jq",
    "metrics",
    "ping",
    "queue",
    "queue.sysid",
    "quit",
    "readyz",
    "robots.txt",
    "sidejob",
    "start",
    "stop",
    "ui",
    "windlass",
    "windlass.push",
];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    #[error("invalid client id {0:?}; use at most 64 letters, digits, `_` and `.`")]
    Client(String),
    /// Refused because `a` + `b-c` and `a-b` + `c` would be the same type.
    #[error("invalid client id {0:?}: it must not contain `-`")]
    Dash(String),
    #[error("invalid client id {0:?}: the name is reserved for other paths of this server")]
    Reserved(String),
    #[error("invalid job type {0:?}; use at most 200 bytes without `|`, `/`, `,` and control characters")]
    Jobtype(String),
    #[error("lang and body required")]
    LangAndBody,
    #[error("invalid handler: {0}")]
    Handler(String),
    #[error("the handler is {0} bytes long; the maximum is {HANDLER_BYTES_MAX}")]
    LongHandler(usize),
    #[error("{0} jobs in one call; the maximum is {LINES_MAX}, send several calls")]
    TooManyLines(usize),
    #[error("send either `delay`, a number of seconds, or `dt`, a time such as 2026-11-15T16:00:00Z")]
    When,
    #[error("the type {0:?} of a journal line is not of the form client-jobtype")]
    Kind(String),
    #[error("the payload of a journal line is not base64: {0}")]
    Payload(String),
}

pub fn client(text: &str) -> Result<Tenant, BadLine> {
    if text.contains('-') {
        return Err(BadLine::Dash(text.to_owned()));
    }
    if RESERVED.contains(&text) {
        return Err(BadLine::Reserved(text.to_owned()));
    }
    Tenant::new(text).map_err(|_| BadLine::Client(text.chars().take(100).collect()))
}

/// Shorter than a name may be: in the journal and in lists the client's id precedes it.
const JOBTYPE_BYTES_MAX: usize = 200;

pub fn jobtype(text: &str) -> Result<Name, BadLine> {
    let is_bad = |c: char| c.is_control() || matches!(c, '|' | '/' | ',');
    let bad = || BadLine::Jobtype(text.chars().take(100).collect());
    if text.len() > JOBTYPE_BYTES_MAX || text.contains(is_bad) {
        return Err(bad());
    }
    Name::new(text).map_err(|_| bad())
}

/// Payloads: one per line, without the newline. Empty lines and lines that begin with `#` are skipped.
pub fn payloads(body: &[u8]) -> Result<Vec<&[u8]>, BadLine> {
    let lines: Vec<&[u8]> =
        body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && line[0] != b'#').collect();
    if lines.len() > LINES_MAX { Err(BadLine::TooManyLines(lines.len())) } else { Ok(lines) }
}

/// Earliest start of the jobs; `None`: now.
pub fn when(delay: Option<&str>, dt: Option<&str>, now: Timestamp) -> Result<Option<Timestamp>, BadLine> {
    match (delay, dt) {
        (None, None) => Ok(None),
        (Some(delay), None) => {
            let seconds = delay.parse::<f64>().ok().filter(|s| (0.0..=DELAY_S_MAX).contains(s));
            seconds.map(|s| Some(now.plus_ms((s * 1_000.0) as i64))).ok_or(BadLine::When)
        }
        (None, Some(dt)) => {
            let at = dt.parse::<jiff::Timestamp>().map_err(|_| BadLine::When)?;
            Ok(Some(Timestamp::from_calendar_ms(at.as_millisecond())))
        }
        (Some(_), Some(_)) => Err(BadLine::When),
    }
}

/// Parses a handler: a JSON object, or any other text as the body in the language `method`.
pub fn handler(body: &[u8], method: Option<&str>) -> Result<HandlerText, BadLine> {
    if body.len() > HANDLER_BYTES_MAX {
        return Err(BadLine::LongHandler(body.len()));
    }
    let object = serde_json::from_slice::<Value>(body).ok().filter(Value::is_object);
    let handler = match object {
        Some(mut object) => {
            if object.get("lang").is_none_or(Value::is_null)
                && let Some(method) = method
            {
                object["lang"] = method.into();
            }
            if ["lang", "body"].iter().any(|key| object.get(*key).is_none_or(Value::is_null)) {
                return Err(BadLine::LangAndBody);
            }
            serde_json::from_value(object).map_err(|error| BadLine::Handler(error.to_string()))?
        }
        None => {
            let body =
                std::str::from_utf8(body).map_err(|_| BadLine::Handler("it is not UTF-8".to_owned()))?;
            let lang = method.unwrap_or_default().to_owned();
            let none = || None;
            HandlerText {
                eid: none(),
                lang,
                before: none(),
                before_each: none(),
                body: body.to_owned(),
                after_each: none(),
                options: None,
            }
        }
    };
    if handler.lang.is_empty() || handler.body.is_empty() {
        return Err(BadLine::LangAndBody);
    }
    match &handler.options {
        Some(options) if !options.is_object() => {
            Err(BadLine::Handler("options must be an object".to_owned()))
        }
        _ => Ok(handler),
    }
}

/// Type of a job in responses and in the journal.
pub fn full_type(client: &Tenant, jobtype: &Name) -> String {
    format!("{client}-{jobtype}")
}

/// Type field of a journal line: `client-jobtype`, then after commas the earliest start and the encoding of
/// the payload, if set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineKind {
    pub client: Tenant,
    pub jobtype: Name,
    pub run_at: Option<Timestamp>,
    pub is_base64: bool,
}

impl LineKind {
    pub fn text(&self) -> String {
        let mut text = full_type(&self.client, &self.jobtype);
        if let Some(run_at) = self.run_at {
            text.push_str(&format!(",dt={}", run_at.as_millis()));
        }
        if self.is_base64 {
            text.push_str(",base64");
        }
        text
    }

    pub fn parse(text: &str) -> Result<LineKind, BadLine> {
        let bad = || BadLine::Kind(text.chars().take(300).collect());
        let mut parts = text.split(',');
        let (client_text, jobtype_text) =
            parts.next().and_then(|full| full.split_once('-')).ok_or_else(bad)?;
        let (client, jobtype) = (client(client_text)?, jobtype(jobtype_text)?);
        let mut kind = LineKind { client, jobtype, run_at: None, is_base64: false };
        for part in parts {
            match part.split_once('=') {
                Some(("dt", ms)) => {
                    kind.run_at = Some(ms.parse().map(Timestamp::from_millis).map_err(|_| bad())?);
                }
                None if part == "base64" => kind.is_base64 = true,
                _ => return Err(bad()),
            }
        }
        Ok(kind)
    }
}

/// Payload for the journal in base64, if it contains a newline; `None`: it is written unchanged.
pub fn journaled(payload: &[u8]) -> Option<Vec<u8>> {
    payload.contains(&b'\n').then(|| STANDARD.encode(payload).into_bytes())
}

pub fn unjournaled(payload: &[u8]) -> Result<Vec<u8>, BadLine> {
    STANDARD.decode(payload).map_err(|error| BadLine::Payload(error.to_string()))
}

#[cfg(test)]
mod tests;
