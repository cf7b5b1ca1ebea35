//! How slowly a request may come: slower than any network that jobs are sent over, and not without end.

use std::time::Duration;

/// A client that sends nothing for this long has gone, or means harm.
pub const STALL: Duration = Duration::from_secs(30);
/// Bytes per second below which a request is not worth its connection.
const RATE_MIN: u64 = 16 << 10;
/// The same where others wait for the memory that it has.
const RATE_MIN_HURRIED: u64 = 256 << 10;
const HURRIED: Duration = Duration::from_secs(5);

/// How long a request may take until so many of its bytes are there.
pub fn time_for(bytes: usize, is_hurried: bool) -> Duration {
    let (at_first, rate) = if is_hurried { (HURRIED, RATE_MIN_HURRIED) } else { (STALL, RATE_MIN) };
    at_first + Duration::from_millis((bytes as u64).saturating_mul(1_000) / rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_trickles_ends_and_one_that_comes_steadily_does_not() {
        for (bytes, is_hurried, seconds) in [
            (0, false, 30),
            (1, false, 30),
            // A byte per second: over after half a minute. 64 MiB: over an hour.
            (16 << 10, false, 31),
            (64 << 20, false, 30 + 4_096),
            (0, true, 5),
            (64 << 20, true, 5 + 256),
        ] {
            assert_eq!(time_for(bytes, is_hurried).as_secs(), seconds, "{bytes} {is_hurried}");
        }
    }
}
