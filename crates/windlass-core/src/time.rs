//! Timestamps. The rules never read a clock: `now` is always an argument.
//!
//! A `Timestamp` is a point on the server's own timeline, which advances evenly even if the machine's wall
//! clock is set. Dates that users read or write follow the wall clock; [`Timestamp::calendar_ms`] and
//! [`Timestamp::from_calendar_ms`] convert between the two. The two differ only after the wall clock was set
//! while a server ran; see `docs/adr`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

/// Offset of the machine's wall clock from the timeline, in ms. Process-wide, because the machine has one
/// clock.
static CALENDAR_AHEAD_MS: AtomicI64 = AtomicI64::new(0);

/// Sets the offset. Called only by the task that watches the wall clock.
pub fn set_calendar_ahead_ms(ms: i64) {
    CALENDAR_AHEAD_MS.store(ms, Ordering::Relaxed);
}

pub fn calendar_ahead_ms() -> i64 {
    CALENDAR_AHEAD_MS.load(Ordering::Relaxed)
}

/// Milliseconds since 1970-01-01 UTC on the server's timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const EPOCH: Timestamp = Timestamp(0);
    /// Later than every time a client may ask for (end of year 9999); stands for "never" where a number is
    /// needed.
    pub const MAX: Timestamp = Timestamp(253_402_300_799_999);

    /// Clamps to the range of the calendar (years 1 to 9999), so arithmetic on hostile numbers cannot
    /// overflow.
    pub fn from_millis(ms: i64) -> Self {
        Timestamp(ms.clamp(-62_135_596_800_000, Self::MAX.0))
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Timestamp at which the wall clock shows this date.
    pub fn from_calendar_ms(ms: i64) -> Self {
        Timestamp::from_millis(ms.saturating_sub(calendar_ahead_ms()))
    }

    /// Wall-clock date of this timestamp, in milliseconds since 1970-01-01 UTC.
    pub fn calendar_ms(self) -> i64 {
        self.0.saturating_add(calendar_ahead_ms())
    }

    pub fn plus_ms(self, ms: i64) -> Self {
        Self::from_millis(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to `self`; zero if `earlier` is later.
    pub fn since_ms(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.calendar_ms()) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => write!(f, "{}ms", self.calendar_ms()),
        }
    }
}
