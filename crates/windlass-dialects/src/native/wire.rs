//! Scalars and parts that several calls share, and the bounds on what is asked. No socket, no engine.
//!
//! Everything borrows from the request body. Unknown fields are refused, because a misspelt `delay_ms` that is quietly
//! ignored runs a job at the wrong time.

use super::schema::{ConflictWord, HeldWord, NoneWord};
use crate::codec::{Nullable, Text};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::fmt;
use std::ops::Deref;
use windlass_core::unique::{HeldUntil, OnConflict};
use windlass_core::{JobId, KeepFor, StateName, Timestamp};

/// Entries of one call: as much as one commit should hold up others for.
pub(super) const BATCH_MAX: usize = 10_000;
/// Jobs of one page: a page is built in memory on both sides.
pub(super) const PAGE_MAX: usize = 1_000;
/// Longest wait in one call. Proxies cut silent connections after about as long; clients just ask again.
pub(super) const WAIT_MS_MAX: u64 = 300_000;
/// Longest lease: a year. A worker that needs longer wants to extend it.
pub(super) const LEASE_MS_MAX: i64 = 366 * 86_400_000;
/// Shortest lease: below, network delay alone would lose it.
pub(super) const LEASE_MS_MIN: i64 = 10;
/// Tags per job: they are read with every job that is listed.
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

/// The number of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Id(pub JobId);

/// A moment in an answer: milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub(super) struct Time(i64);

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Time {
        Time(at.calendar_ms())
    }
}

/// The word for a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub StateName);

impl Serialize for State {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.as_str())
    }
}

/// The tenant that a body names.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct TenantText<'a>(#[serde(borrow)] Text<'a>);

impl Deref for TenantText<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

/// A moment: milliseconds since 1970, or text such as `2026-01-31T12:00:00Z`.
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

/// One live job per key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Unique<'a> {
    /// The key.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = KEY_BYTES_MAX))]
    pub key: Text<'a>,
    /// What a second push does.
    #[serde(default)]
    #[schemars(with = "ConflictWord")]
    pub on_conflict: OnConflict,
    /// How long the key keeps others out.
    #[serde(default)]
    #[schemars(with = "HeldWord")]
    pub held_until: HeldUntil,
}

/// A key alone, or a key and what it means.
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

/// How often and how soon it is tried again.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Retry {
    /// Attempts in all; null: no bound.
    // Outer `None`: the default; inner: no bound.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Nullable<u32>")]
    pub max_attempts: Option<Option<u32>>,
    /// How long to wait before the next.
    #[serde(default)]
    pub backoff: Option<BackoffAsk>,
    /// No attempt begins later than this after the push.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub give_up_after_ms: Option<i64>,
}

/// A number of attempts in all, or more exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RetryAsk(pub Retry);

#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(inline, untagged, deny_unknown_fields)]
pub(super) enum BackoffAsk {
    /// At once.
    #[schemars(with = "NoneWord")]
    None,
    /// Always as long.
    Fixed {
        /// So long.
        #[schemars(range(min = 0))]
        fixed_ms: i64,
    },
    /// Doubles each time.
    Growing {
        /// The first wait.
        #[schemars(range(min = 0))]
        base_ms: i64,
        /// The longest wait.
        #[schemars(range(min = 0))]
        cap_ms: Option<i64>,
        /// Up to so much more, by chance.
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
pub(super) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

/// How long it stays to be looked at; 0 forgets it at once.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Keep {
    /// Once completed.
    #[serde(default)]
    pub completed_ms: Option<KeepMs>,
    /// Once failed.
    #[serde(default)]
    pub failed_ms: Option<KeepMs>,
    /// Once cancelled.
    #[serde(default)]
    pub cancelled_ms: Option<KeepMs>,
}

/// Milliseconds, 0 to forget at once, or `"ever"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeepMs(pub KeepFor);

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
