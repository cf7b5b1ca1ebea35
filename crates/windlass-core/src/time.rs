//! Moments and spans. The rules never read a clock: `now` is always an argument.
//!
//! A `Timestamp` is a moment of the server's own timeline, which goes on evenly whatever is done to the machine's clock.
//! Dates that people read or write are by that clock: [`Timestamp::calendar_ms`] and [`Timestamp::from_calendar_ms`]
//! stand between the two. They differ only after the clock was set while a server ran; see `docs/adr`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

/// How far the machine's clock is ahead of the timeline, in ms. One number for the process: it has one clock.
static CALENDAR_AHEAD_MS: AtomicI64 = AtomicI64::new(0);

/// For the one who watches the machine's clock.
pub fn set_calendar_ahead_ms(ms: i64) {
    CALENDAR_AHEAD_MS.store(ms, Ordering::Relaxed);
}

pub fn calendar_ahead_ms() -> i64 {
    CALENDAR_AHEAD_MS.load(Ordering::Relaxed)
}

/// A moment: milliseconds since 1970-01-01 UTC, as the server counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const EPOCH: Timestamp = Timestamp(0);
    /// Later than every moment a client may ask for (year 9999); "never", where a number is needed.
    pub const MAX: Timestamp = Timestamp(253_402_300_799_999);

    /// Clamps to what the calendar can show, so that arithmetic on hostile numbers cannot overflow.
    pub fn from_millis(ms: i64) -> Self {
        Timestamp(ms.clamp(-62_135_596_800_000, Self::MAX.0))
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The moment at which the machine's clock shows this date.
    pub fn from_calendar_ms(ms: i64) -> Self {
        Timestamp::from_millis(ms.saturating_sub(calendar_ahead_ms()))
    }

    /// The date to show for this moment, in milliseconds since 1970-01-01 UTC.
    pub fn calendar_ms(self) -> i64 {
        self.0.saturating_add(calendar_ahead_ms())
    }

    pub fn plus_ms(self, ms: i64) -> Self {
        Self::from_millis(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to `self`; zero when the clock went back.
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
