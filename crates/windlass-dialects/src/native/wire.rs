//! Scalars and parts of bodies that several calls share, and the limits on requests. No access to sockets or
//! the engine.
//!
//! Everything borrows from the request body. Unknown fields are refused: a misspelled `delay_ms` that is
//! silently ignored would run a job at the wrong time.

use super::schema::{ConflictWord, HeldWord, NoneWord};
use crate::codec::{Nullable, Text};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::fmt;
use std::ops::Deref;
use windlass_core::unique::{HeldUntil, OnConflict};
use windlass_core::{JobId, KeepFor, StateWord, Timestamp};

/// Entries per call. A larger commit would delay other requests for too long.
pub(super) const BATCH_MAX: usize = 10_000;
/// Jobs per page, which both sides build in memory.
pub(super) const PAGE_MAX: usize = 1_000;
/// Longest wait of one call. Proxies close silent connections after about as long; clients repeat the call.
pub(super) const WAIT_MS_MAX: u64 = 300_000;
/// Longest lease: a year. A worker that needs longer extends it.
pub(super) const LEASE_MS_MAX: i64 = 366 * 86_400_000;
/// Shortest lease. Network delay alone would exceed a shorter one.
pub(super) const LEASE_MS_MIN: i64 = 10;
/// Tags per job, which are read with every listed job.
pub(super) const TAGS_MAX: usize = 32;
/// Bytes of a tag, a worker's name or a code: they are labels, not data.
pub(super) const LABEL_BYTES_MAX: usize = 255;
/// Bytes of an alias or a unique key: both are keys of an index.
pub(super) const KEY_BYTES_MAX: usize = 512;
/// Bytes of a message or note, which are for people; data belongs in `result` or `error`.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// Queues named in one claim.
pub(super) const QUEUES_MAX: usize = 1_000;
/// Bytes of a repeat rule.
pub(super) const REPEAT_BYTES_MAX: usize = 1_024;

/// Job id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Id(pub JobId);

/// Time in a response: milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub(super) struct Time(i64);

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Time {
        Time(at.calendar_ms())
    }
}

/// Word for a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub StateWord);

impl Serialize for State {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.as_str())
    }
}

/// Tenant named in a body.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct TenantText<'a>(#[serde(borrow)] Text<'a>);

impl Deref for TenantText<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

/// Time in a request: milliseconds since 1970, or text such as `2026-01-31T12:00:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct When(pub Timestamp);

impl When {
    pub(super) fn parse(text: &str) -> Option<When> {
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
                f.write_str("a time: milliseconds since 1970, or a string such as 2026-01-31T12:00:00Z")
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

/// Length of a lease, between the minimum and the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease(pub i64);

impl<'de> Deserialize<'de> for Lease {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let ms = i64::deserialize(from)?;
        if (LEASE_MS_MIN..=LEASE_MS_MAX).contains(&ms) {
            return Ok(Lease(ms));
        }
        Err(de::Error::custom(format_args!("lease_ms must be between {LEASE_MS_MIN} and {LEASE_MS_MAX}")))
    }
}

/// Unique key: at most one live job per key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Unique<'a> {
    /// Key.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = KEY_BYTES_MAX))]
    pub key: Text<'a>,
    /// Effect of a second push with the key.
    #[serde(default)]
    #[schemars(with = "ConflictWord")]
    pub on_conflict: OnConflict,
    /// Time until the key is released.
    #[serde(default)]
    #[schemars(with = "HeldWord")]
    pub held_until: HeldUntil,
}

/// Key alone, or key with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UniqueAsk<'a>(pub Unique<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for UniqueAsk<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
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
                Unique::deserialize(de::value::MapAccessDeserializer::new(map)).map(UniqueAsk)
            }
        }
        fn plain(key: Text<'_>) -> UniqueAsk<'_> {
            UniqueAsk(Unique { key, on_conflict: OnConflict::default(), held_until: HeldUntil::default() })
        }
        from.deserialize_any(UniqueVisitor)
    }
}

/// Retry policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Retry {
    /// Total number of attempts; null: unlimited.
    // Outer `None`: the default; inner `None`: unlimited.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Nullable<u32>")]
    pub max_attempts: Option<Option<u32>>,
    /// Delay before the next attempt.
    #[serde(default)]
    pub backoff: Option<BackoffAsk>,
    /// No attempt begins later than this after the push.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub give_up_after_ms: Option<i64>,
}

/// Total number of attempts, or a whole retry policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RetryAsk(pub Retry);

#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(inline, untagged, deny_unknown_fields)]
pub(super) enum BackoffAsk {
    /// No delay.
    #[schemars(with = "NoneWord")]
    None,
    /// Constant delay.
    Fixed {
        /// Delay in milliseconds.
        #[schemars(range(min = 0))]
        fixed_ms: i64,
    },
    /// Exponential backoff.
    Growing {
        /// First delay in milliseconds.
        #[schemars(range(min = 0))]
        base_ms: i64,
        /// Maximum delay in milliseconds.
        #[schemars(range(min = 0))]
        cap_ms: Option<i64>,
        /// Random addition to the delay, as a percentage.
        #[schemars(range(max = 100))]
        jitter_percent: Option<u8>,
    },
}

impl<'de> Deserialize<'de> for RetryAsk {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct RetryVisitor;
        impl<'de> Visitor<'de> for RetryVisitor {
            type Value = RetryAsk;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of attempts, or {\"max_attempts\", \"backoff\", \"give_up_after_ms\"}")
            }
            fn visit_u64<E: de::Error>(self, attempts: u64) -> Result<RetryAsk, E> {
                let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
                Ok(RetryAsk(Retry { max_attempts: Some(Some(attempts)), ..Retry::default() }))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RetryAsk, A::Error> {
                Retry::deserialize(de::value::MapAccessDeserializer::new(map)).map(RetryAsk)
            }
        }
        let ask = from.deserialize_any(RetryVisitor)?;
        if ask.0.max_attempts == Some(Some(0)) {
            return Err(de::Error::custom(
                "`retry` is the total number of attempts; use 1 for a single attempt",
            ));
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
                    _ => Err(de::Error::custom("`backoff` requires either fixed_ms alone or base_ms")),
                }
            }
        }
        from.deserialize_any(BackoffVisitor)
    }
}

/// Distinguishes `null` from a missing field.
pub(super) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

/// Keep times of a settled job; 0 deletes it at once.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Keep {
    /// After completion.
    #[serde(default)]
    pub completed_ms: Option<KeepMs>,
    /// After failure.
    #[serde(default)]
    pub failed_ms: Option<KeepMs>,
    /// After cancellation.
    #[serde(default)]
    pub cancelled_ms: Option<KeepMs>,
}

/// Milliseconds, 0 to delete at once, or `"ever"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeepMs(pub KeepFor);

impl Serialize for KeepMs {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            KeepFor::Drop => to.serialize_i64(0),
            KeepFor::Ms(ms) => to.serialize_i64(ms),
            KeepFor::Ever => to.serialize_str("ever"),
        }
    }
}

impl<'de> Deserialize<'de> for KeepMs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct KeepVisitor;
        impl Visitor<'_> for KeepVisitor {
            type Value = KeepMs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("milliseconds (0: delete at once) or \"ever\"")
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
