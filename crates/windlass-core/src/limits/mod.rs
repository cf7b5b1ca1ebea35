//! Limits on rate and concurrency, for the jobs that a matcher selects, per key taken from the payload.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | [`Limit`]: a validated limit |
//! | `matcher.rs`, `parse.rs` | [`Matcher`]: selection of jobs |
//! | `values.rs` | payload paths; comparison and canonical text of values |
//! | `bucket.rs` | [`Gauge`]: token bucket and running count of one limit key |
//! | `table.rs` | [`Limits`]: all limits of one tenant and their gauges |

mod bucket;
mod matcher;
mod parse;
mod table;
mod values;

#[cfg(test)]
mod tests;

pub use bucket::{Gauge, Tokens, Verdict};
pub use matcher::{Matcher, Subject, Test};
pub use parse::{
    BadMatcher, Fault, MATCHER_DEPTH_MAX, MATCHER_PARTS_MAX, MATCHER_TEXT_BYTES_MAX, PATH_STEPS_MAX,
};
pub use table::{Held, LIMITS_MAX, Limits};
pub use values::{Path, Step};

use parse::parse_path;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Longest limit id in bytes. The id is part of a path and of the key of every job it limits.
pub const LIMIT_ID_BYTES_MAX: usize = 255;
/// Paths in one `group_by`. Every value found becomes part of a key stored with the job.
pub const GROUP_BY_MAX: usize = 8;
/// Slowest rate: one job in about twelve days. A bucket is kept until it is full again, and below this rate
/// rounding would lose more than a millionth of it.
pub const PER_SECOND_MIN: f64 = 1e-6;
/// Fastest rate: far above the throughput of one server, and small enough that a bucket cannot overflow.
pub const PER_SECOND_MAX: f64 = 1e6;

/// Separator between the id and each group value in a limit key. Ids contain no control character, and group
/// values escape every control character, so parts cannot merge.
const KEY_SEPARATOR: char = '\u{1f}';

/// Limit of a tenant. Built by [`Limit::parse`]; serialised in the client's format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Limit {
    pub id: Box<str>,
    pub matcher: Matcher,
    pub rate: Option<Rate>,
    /// Concurrency limit: jobs with the same limit key that may run at once.
    pub max_running: Option<u32>,
    /// Payload paths of the group; jobs of different groups do not block each other.
    pub group_by: Vec<Path>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub per_second: f64,
    /// Jobs that may start at once after an idle period.
    pub burst: u32,
}

/// Error of [`Limit::parse`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLimit {
    #[error("a limit must be an object")]
    NotAnObject,
    #[error("unknown field {name:?} in a limit")]
    UnknownField { name: String },
    #[error("{field} must be {wanted}")]
    Field { field: &'static str, wanted: &'static str },
    #[error("a limit requires rate, max_running or both")]
    NoBound,
    #[error("{0}")]
    Matcher(#[from] BadMatcher),
    #[error("the maximum of {max} limits is reached")]
    TooMany { max: usize },
}

impl Limit {
    /// Reads `{matcher, rate: {per_second, burst}, max_running, group_by: [path…]}`.
    ///
    /// A null field counts as absent. Without `burst`, one second's worth of jobs may start at once.
    pub fn parse(id: &str, value: &Value) -> Result<Limit, BadLimit> {
        let fields = value.as_object().ok_or(BadLimit::NotAnObject)?;
        known_fields(fields, &["id", "matcher", "rate", "max_running", "group_by"])?;
        let limit = Limit {
            id: checked_id(id, fields)?,
            matcher: Matcher::parse(fields.get("matcher").unwrap_or(&Value::Null))?,
            rate: given(fields, "rate").map(Rate::parse).transpose()?,
            max_running: given(fields, "max_running")
                .map(|value| positive_u32(value, "max_running"))
                .transpose()?,
            group_by: given(fields, "group_by").map_or(Ok(Vec::new()), parse_group_by)?,
        };
        match (limit.rate, limit.max_running) {
            (None, None) => Err(BadLimit::NoBound),
            (Some(_), _) | (_, Some(_)) => Ok(limit),
        }
    }

    /// Limit key of a job; `None` if the limit does not apply to it. Jobs with the same key share one gauge;
    /// two jobs have the same key only if every group value is equal (or absent in both).
    pub fn key_for(&self, subject: &Subject<'_>) -> Option<String> {
        if !self.matcher.matches(subject) {
            return None;
        }
        let mut key = String::from(&*self.id);
        for path in &self.group_by {
            key.push(KEY_SEPARATOR);
            if let Some(value) = path.find(subject.args) {
                values::write_canonical(value, &mut key);
            }
        }
        Some(key)
    }

    /// True if the limit needs the decoded payload.
    pub fn needs_args(&self) -> bool {
        !self.group_by.is_empty() || self.matcher.needs_args()
    }
}

/// Id of the limit that a limit key belongs to.
pub(crate) fn limit_id_of(key: &str) -> &str {
    key.split_once(KEY_SEPARATOR).map_or(key, |(id, _groups)| id)
}

impl TryFrom<Value> for Limit {
    type Error = BadLimit;
    fn try_from(value: Value) -> Result<Limit, BadLimit> {
        let id = value.get("id").and_then(Value::as_str).ok_or(BAD_ID)?;
        Limit::parse(id, &value)
    }
}

impl From<Limit> for Value {
    fn from(limit: Limit) -> Value {
        let mut fields = Map::new();
        fields.insert("id".into(), json!(limit.id));
        fields.insert("matcher".into(), limit.matcher.to_value());
        if let Some(rate) = limit.rate {
            fields.insert("rate".into(), json!({"per_second": rate.per_second, "burst": rate.burst}));
        }
        if let Some(max_running) = limit.max_running {
            fields.insert("max_running".into(), json!(max_running));
        }
        if !limit.group_by.is_empty() {
            fields.insert("group_by".into(), limit.group_by.iter().map(Path::to_value).collect());
        }
        Value::Object(fields)
    }
}

impl Rate {
    fn parse(value: &Value) -> Result<Rate, BadLimit> {
        let bad = BadLimit::Field { field: "rate", wanted: "an object {per_second, burst}" };
        let fields = value.as_object().ok_or(bad)?;
        known_fields(fields, &["per_second", "burst"])?;
        let per_second = fields.get("per_second").and_then(Value::as_f64);
        let per_second = per_second.filter(|rate| (PER_SECOND_MIN..=PER_SECOND_MAX).contains(rate)).ok_or(
            BadLimit::Field { field: "rate.per_second", wanted: "a number from 0.000001 to 1000000" },
        )?;
        let burst = match given(fields, "burst") {
            Some(burst) => positive_u32(burst, "rate.burst")?,
            None => per_second.ceil().max(1.0) as u32,
        };
        Ok(Rate { per_second, burst })
    }
}

const BAD_ID: BadLimit =
    BadLimit::Field { field: "id", wanted: "a string of 1 to 255 bytes without control characters" };

fn checked_id(id: &str, fields: &Map<String, Value>) -> Result<Box<str>, BadLimit> {
    if id.is_empty() || id.len() > LIMIT_ID_BYTES_MAX || id.chars().any(char::is_control) {
        return Err(BAD_ID);
    }
    match given(fields, "id") {
        Some(written) if written.as_str() != Some(id) => {
            Err(BadLimit::Field { field: "id", wanted: "absent, or equal to the id in the path" })
        }
        Some(_) | None => Ok(id.into()),
    }
}

fn parse_group_by(value: &Value) -> Result<Vec<Path>, BadLimit> {
    const BAD: BadLimit = BadLimit::Field {
        field: "group_by",
        wanted: "a list of at most 8 paths, each a list of at most 16 keys, as in [[\"user\",\"id\"]]",
    };
    let paths = value.as_array().filter(|paths| paths.len() <= GROUP_BY_MAX).ok_or(BAD)?;
    paths.iter().map(|path| parse_path(path).ok_or(BAD)).collect()
}

/// Field that is present and not null.
fn given<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

/// Refuses unknown fields: a misspelt field would otherwise give a limit that does not limit.
fn known_fields(fields: &Map<String, Value>, known: &[&str]) -> Result<(), BadLimit> {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(BadLimit::UnknownField { name: name.clone() }),
        None => Ok(()),
    }
}

fn positive_u32(value: &Value, field: &'static str) -> Result<u32, BadLimit> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number >= 1);
    number.ok_or(BadLimit::Field { field, wanted: "a whole number from 1 to 4294967295" })
}
