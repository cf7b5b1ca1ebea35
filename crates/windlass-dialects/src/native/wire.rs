//! Bytes to what is asked. No socket, no engine: this file compiles and is tested alone.
//!
//! Everything borrows from the request body. Unknown fields are refused, because a misspelt `delay_ms` that is quietly
//! ignored runs a job at the wrong time.

use crate::codec::{self, Encoding, Malformed, Raw, Text};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::fmt;
use windlass_core::unique::{HeldUntil, OnConflict};
use windlass_core::{Format, JobId, KeepFor, Timestamp, Token};

pub mod import;
#[cfg(test)]
mod tests;

/// Entries of one call: as much as one commit should hold up others for.
pub const BATCH_MAX: usize = 10_000;
/// Jobs of one page: a page is built in memory on both sides.
pub const PAGE_MAX: usize = 1_000;
/// Longest wait in one call. Proxies cut silent connections after about as long; clients just ask again.
pub const WAIT_MS_MAX: u64 = 300_000;
/// Longest lease: a year. A worker that needs longer wants to extend it.
pub const LEASE_MS_MAX: i64 = 366 * 86_400_000;
/// Shortest lease: below, network delay alone would lose it.
pub const LEASE_MS_MIN: i64 = 10;
/// Tags per job: they are read with every job that is listed.
pub const TAGS_MAX: usize = 32;
/// Bytes of a tag, a worker's name or a code: they are labels, not data.
pub const LABEL_BYTES_MAX: usize = 255;
/// Bytes of an alias or a unique key: both are keys of an index.
pub const KEY_BYTES_MAX: usize = 512;
/// Bytes of a message or note, which are for people; data belongs in `result` or `error`.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// Queues named in one claim.
pub const QUEUES_MAX: usize = 1_000;
/// Bytes of a repeat rule.
pub const REPEAT_BYTES_MAX: usize = 1_024;

/// `POST /api/v1/jobs`: one job, or a batch in `jobs`.
#[derive(Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "a job, or {\"jobs\": […]}")]
pub struct PushAsk<'a> {
    #[serde(borrow, default)]
    pub name: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub payload: Option<Raw<'a>>,
    #[serde(borrow, default)]
    pub payload_base64: Option<Text<'a>>,
    #[serde(default)]
    pub format: Option<Format>,
    #[serde(borrow, default)]
    pub queue: Option<Text<'a>>,
    #[serde(default)]
    pub priority: i32,
    #[serde(default)]
    pub run_at: Option<When>,
    #[serde(default)]
    pub delay_ms: Option<i64>,
    #[serde(borrow, default)]
    pub repeat: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub unique: Option<UniqueAsk<'a>>,
    #[serde(default)]
    pub retry: Option<RetryAsk>,
    #[serde(default)]
    pub lease_ms: Option<Lease>,
    #[serde(default)]
    pub keep: Option<KeepAsk>,
    #[serde(default)]
    pub parent: Option<JobId>,
    #[serde(borrow, default)]
    pub alias: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub tags: Vec<Text<'a>>,
    /// Only at the top: the jobs of a batch.
    #[serde(borrow, default)]
    pub jobs: Option<Vec<PushAsk<'a>>>,
    /// Only at the top.
    #[serde(borrow, default)]
    pub tenant: Option<Text<'a>>,
}

impl PushAsk<'_> {
    /// What the policy of the job follows from; equal neighbours of a batch share one.
    pub fn has_same_policy_as(&self, other: &PushAsk<'_>) -> bool {
        self.lease_ms == other.lease_ms
            && self.retry == other.retry
            && self.keep == other.keep
            && self.repeat.as_deref() == other.repeat.as_deref()
    }

    pub fn has_default_policy(&self) -> bool {
        self.lease_ms.is_none() && self.retry.is_none() && self.keep.is_none() && self.repeat.is_none()
    }
}

/// A push, told apart: the tenant asked for, the jobs, and whether it was written as a single job.
#[derive(Debug, PartialEq)]
pub struct Pushes<'a> {
    pub tenant: Option<Text<'a>>,
    pub jobs: Vec<PushAsk<'a>>,
    pub single: bool,
}

pub fn push(encoding: Encoding, body: &[u8]) -> Result<Pushes<'_>, Malformed> {
    let mut top: PushAsk<'_> = codec::read_map(encoding, body)?;
    let tenant = top.tenant.take();
    let Some(jobs) = top.jobs.take() else {
        return Ok(Pushes { tenant, jobs: vec![top], single: true });
    };
    if top != PushAsk::default() {
        return Err(Malformed("beside `jobs` only `tenant` may stand; put the rest into each job".into()));
    }
    if let Some(index) = jobs.iter().position(|job| job.jobs.is_some() || job.tenant.is_some()) {
        return Err(Malformed(format!("job {index}: `jobs` and `tenant` belong at the top of the body")));
    }
    Ok(Pushes { tenant, jobs, single: false })
}

/// A moment: milliseconds since 1970, or text such as `2026-01-31T12:00:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When(pub Timestamp);

impl When {
    pub fn parse(text: &str) -> Option<When> {
        let moment: jiff::Timestamp = text.parse().ok()?;
        Some(When(Timestamp::from_calendar_ms(moment.as_millisecond())))
    }
}

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct WhenVisitor;
        impl Visitor<'_> for WhenVisitor {
            type Value = When;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time: milliseconds since 1970, or text such as 2026-01-31T12:00:00Z")
            }
            fn visit_i64<E: de::Error>(self, ms: i64) -> Result<When, E> {
                Ok(When(Timestamp::from_calendar_ms(ms)))
            }
            fn visit_u64<E: de::Error>(self, ms: u64) -> Result<When, E> {
                Ok(When(Timestamp::from_calendar_ms(i64::try_from(ms).unwrap_or(i64::MAX))))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<When, E> {
                When::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        from.deserialize_any(WhenVisitor)
    }
}

/// The length of a lease, within what makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease(pub i64);

impl<'de> Deserialize<'de> for Lease {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let ms = i64::deserialize(from)?;
        if (LEASE_MS_MIN..=LEASE_MS_MAX).contains(&ms) {
            return Ok(Lease(ms));
        }
        Err(de::Error::custom(format_args!("lease_ms must be between {LEASE_MS_MIN} and {LEASE_MS_MAX}")))
    }
}

/// A key alone, or a key and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueAsk<'a> {
    pub key: Text<'a>,
    pub on_conflict: OnConflict,
    pub held_until: HeldUntil,
}

impl<'de: 'a, 'a> Deserialize<'de> for UniqueAsk<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields<'a> {
            #[serde(borrow)]
            key: Text<'a>,
            #[serde(default)]
            on_conflict: OnConflict,
            #[serde(default)]
            held_until: HeldUntil,
        }
        struct UniqueVisitor;
        impl<'de> Visitor<'de> for UniqueVisitor {
            type Value = UniqueAsk<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key, or {\"key\", \"on_conflict\", \"held_until\"}")
            }
            fn visit_borrowed_str<E: de::Error>(self, key: &'de str) -> Result<Self::Value, E> {
                Ok(plain(Text(key.into())))
            }
            fn visit_str<E: de::Error>(self, key: &str) -> Result<Self::Value, E> {
                Ok(plain(Text(key.to_owned().into())))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let fields = Fields::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(UniqueAsk {
                    key: fields.key,
                    on_conflict: fields.on_conflict,
                    held_until: fields.held_until,
                })
            }
        }
        fn plain(key: Text<'_>) -> UniqueAsk<'_> {
            UniqueAsk { key, on_conflict: OnConflict::default(), held_until: HeldUntil::default() }
        }
        from.deserialize_any(UniqueVisitor)
    }
}

/// How often and how soon a failed job is tried again. A bare number is the number of attempts in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryAsk {
    /// Outer `None`: the default; inner: no bound.
    pub max_attempts: Option<Option<u32>>,
    pub backoff: Option<BackoffAsk>,
    pub give_up_after_ms: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackoffAsk {
    None,
    Fixed { fixed_ms: i64 },
    Growing { base_ms: i64, cap_ms: Option<i64>, jitter_percent: Option<u8> },
}

impl<'de> Deserialize<'de> for RetryAsk {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            #[serde(default, deserialize_with = "given")]
            max_attempts: Option<Option<u32>>,
            #[serde(default)]
            backoff: Option<BackoffAsk>,
            #[serde(default)]
            give_up_after_ms: Option<i64>,
        }
        struct RetryVisitor;
        impl<'de> Visitor<'de> for RetryVisitor {
            type Value = RetryAsk;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of attempts, or {\"max_attempts\", \"backoff\", \"give_up_after_ms\"}")
            }
            fn visit_u64<E: de::Error>(self, attempts: u64) -> Result<RetryAsk, E> {
                let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
                Ok(RetryAsk { max_attempts: Some(Some(attempts)), backoff: None, give_up_after_ms: None })
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RetryAsk, A::Error> {
                let fields = Fields::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(RetryAsk {
                    max_attempts: fields.max_attempts,
                    backoff: fields.backoff,
                    give_up_after_ms: fields.give_up_after_ms,
                })
            }
        }
        let ask = from.deserialize_any(RetryVisitor)?;
        if ask.max_attempts == Some(Some(0)) {
            return Err(de::Error::custom("retry counts the attempts in all: write 1 for a single attempt"));
        }
        Ok(ask)
    }
}

impl<'de> Deserialize<'de> for BackoffAsk {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            fixed_ms: Option<i64>,
            base_ms: Option<i64>,
            cap_ms: Option<i64>,
            jitter_percent: Option<u8>,
        }
        struct BackoffVisitor;
        impl<'de> Visitor<'de> for BackoffVisitor {
            type Value = BackoffAsk;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"none\", {\"fixed_ms\"} or {\"base_ms\", \"cap_ms\", \"jitter_percent\"}")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<BackoffAsk, E> {
                match text {
                    "none" => Ok(BackoffAsk::None),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<BackoffAsk, A::Error> {
                match Fields::deserialize(de::value::MapAccessDeserializer::new(map))? {
                    Fields {
                        fixed_ms: Some(fixed_ms),
                        base_ms: None,
                        cap_ms: None,
                        jitter_percent: None,
                    } => Ok(BackoffAsk::Fixed { fixed_ms }),
                    Fields { fixed_ms: None, base_ms: Some(base_ms), cap_ms, jitter_percent } => {
                        Ok(BackoffAsk::Growing { base_ms, cap_ms, jitter_percent })
                    }
                    _ => Err(de::Error::custom("backoff needs either fixed_ms alone or base_ms")),
                }
            }
        }
        from.deserialize_any(BackoffVisitor)
    }
}

/// Tells a `null` from a field that is not there.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

/// How long the job stays to be looked at, by how it ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepAsk {
    #[serde(default)]
    pub completed_ms: Option<KeepMs>,
    #[serde(default)]
    pub failed_ms: Option<KeepMs>,
    #[serde(default)]
    pub cancelled_ms: Option<KeepMs>,
}

/// Milliseconds, 0 to forget at once, or `"ever"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepMs(pub KeepFor);

impl<'de> Deserialize<'de> for KeepMs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct KeepVisitor;
        impl Visitor<'_> for KeepVisitor {
            type Value = KeepMs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("milliseconds (0: forget at once) or \"ever\"")
            }
            fn visit_u64<E: de::Error>(self, ms: u64) -> Result<KeepMs, E> {
                Ok(KeepMs(match i64::try_from(ms) {
                    Ok(0) => KeepFor::Drop,
                    Ok(ms) => KeepFor::Ms(ms),
                    Err(_) => KeepFor::Ever,
                }))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<KeepMs, E> {
                match text {
                    "ever" => Ok(KeepMs(KeepFor::Ever)),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }
        from.deserialize_any(KeepVisitor)
    }
}

/// `POST /api/v1/claim`.
#[derive(Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClaimAsk<'a> {
    /// Empty: any.
    #[serde(borrow)]
    pub queues: Vec<Text<'a>>,
    /// One queue, for those who have only one.
    #[serde(borrow)]
    pub queue: Option<Text<'a>>,
    /// GLOB.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// Exact names; instead of `name`.
    #[serde(borrow)]
    pub names: Vec<Text<'a>>,
    pub priority: Option<i32>,
    pub limit: Option<usize>,
    pub wait_ms: u64,
    pub lease_ms: Option<Lease>,
    #[serde(borrow)]
    pub worker: Option<Text<'a>>,
    #[serde(borrow)]
    pub tenant: Option<Text<'a>>,
}

/// `POST /api/v1/settle`.
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettleAsk<'a> {
    #[serde(borrow)]
    pub settle: Vec<SettleEntry<'a>>,
    /// The next jobs in the same call, as in `POST /api/v1/claim`.
    #[serde(borrow, default)]
    pub claim: Option<ClaimAsk<'a>>,
    #[serde(borrow, default)]
    pub tenant: Option<Text<'a>>,
}

#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettleEntry<'a> {
    pub id: JobId,
    pub token: Token,
    pub outcome: OutcomeWord,
    #[serde(borrow, default)]
    pub result: Option<Raw<'a>>,
    #[serde(borrow, default)]
    pub error: Option<Raw<'a>>,
    #[serde(borrow, default)]
    pub message: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub code: Option<Text<'a>>,
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub delay_ms: Option<i64>,
    #[serde(default)]
    pub retry: Option<bool>,
    /// What the next run starts with, for a job that runs again.
    #[serde(borrow, default)]
    pub payload: Option<Raw<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeWord {
    Finish,
    Fail,
    Release,
}

/// `POST /api/v1/extend`.
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtendAsk<'a> {
    #[serde(borrow)]
    pub extend: Vec<ExtendEntry<'a>>,
    #[serde(borrow, default)]
    pub tenant: Option<Text<'a>>,
}

#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtendEntry<'a> {
    pub id: JobId,
    pub token: Token,
    #[serde(default)]
    pub lease_ms: Option<Lease>,
    #[serde(default)]
    pub progress: Option<u8>,
    #[serde(borrow, default)]
    pub note: Option<Text<'a>>,
}

/// `POST /api/v1/jobs/{id}/log`: what a run has to say, line by line.
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogAsk<'a> {
    pub token: Token,
    #[serde(borrow)]
    pub lines: Vec<Text<'a>>,
    #[serde(borrow, default)]
    pub source: Option<Text<'a>>,
}

/// `PATCH /api/v1/jobs/{id}`: what is not named stays.
#[derive(Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PatchAsk<'a> {
    #[serde(borrow)]
    pub payload: Option<Raw<'a>>,
    #[serde(borrow)]
    pub payload_base64: Option<Text<'a>>,
    pub format: Option<Format>,
    pub priority: Option<i32>,
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    #[serde(borrow)]
    pub queue: Option<Text<'a>>,
    pub run_at: Option<When>,
    pub delay_ms: Option<i64>,
    /// `null` ends the repetition.
    #[serde(borrow, deserialize_with = "given")]
    pub repeat: Option<Option<Text<'a>>>,
    #[serde(borrow)]
    pub tags: Option<Vec<Text<'a>>>,
}

/// `POST /api/v1/blobs/gc`; the body may be left out.
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlobGcAsk {
    pub remove: bool,
    pub older_than_s: u64,
}

impl Default for BlobGcAsk {
    /// A day: whoever puts a blob makes the job that names it long before.
    fn default() -> Self {
        BlobGcAsk { remove: false, older_than_s: 86_400 }
    }
}

/// `PUT /api/v1/tenants/{tenant}/quota`: what is left out stays as it is.
#[derive(Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaAsk {
    pub jobs: Option<u64>,
    pub blob_bytes: Option<u64>,
    pub handlers: Option<u64>,
    pub requests_in_flight: Option<u64>,
    pub requests_per_second: Option<u64>,
    pub waiting_claims: Option<u64>,
}

/// `POST /api/v1/tokens`; the body may be left out.
#[derive(Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenAsk<'a> {
    #[serde(borrow)]
    pub role: Option<Text<'a>>,
    #[serde(borrow)]
    pub tenant: Option<Text<'a>>,
    #[serde(borrow)]
    pub note: Option<Text<'a>>,
    pub expires_at: Option<i64>,
    pub expires_in_ms: Option<u64>,
    #[serde(borrow)]
    pub queues: Option<Vec<Text<'a>>>,
}

/// `POST /api/v1/tokens/{prefix}/rotate`; the body may be left out.
#[derive(Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RotateAsk {
    pub grace_ms: Option<u64>,
}

/// `POST /api/v1/jobs/{id}/cancel`; the body may be left out.
#[derive(Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CancelAsk {
    /// Take it from its worker at once instead of asking the worker to stop.
    pub now: bool,
}

/// `POST /api/v1/jobs/{id}/run` and `/retry`; the body may be left out.
#[derive(Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunAsk {
    pub run_at: Option<When>,
    pub delay_ms: Option<i64>,
    /// `run`: also revive what has ended. `retry`: also take it from its worker.
    pub force: bool,
}

/// `POST /api/v1/jobs/bulk`: what to do, and to which jobs.
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulkAsk<'a> {
    pub action: BulkAction,
    #[serde(borrow, default)]
    pub search: Option<Text<'a>>,
    #[serde(default)]
    pub ids: Option<Vec<JobId>>,
    /// With the action `priority`.
    #[serde(default)]
    pub priority: Option<i32>,
    /// `next` of the call before.
    #[serde(borrow, default)]
    pub cursor: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub tenant: Option<Text<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkAction {
    Retry,
    Cancel,
    Run,
    Delete,
    Priority,
}

/// A body that may be left out.
pub fn optional<'a, T: Deserialize<'a> + Default>(
    encoding: Encoding,
    body: &'a [u8],
) -> Result<T, Malformed> {
    if body.is_empty() { Ok(T::default()) } else { codec::read_map(encoding, body) }
}
