//! Moments and spans. The rules never read a clock: `now` is always an argument.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A moment: milliseconds since 1970-01-01 UTC.
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
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}
