//! Minimum rate of request bodies: slower than any network that carries jobs, but bounded.

use std::time::Duration;

/// Longest pause between two chunks of a body.
pub const STALL: Duration = Duration::from_secs(30);
/// Minimum rate in bytes per second.
const RATE_MIN: u64 = 16 << 10;
/// Minimum rate while other requests wait for the memory of this one.
const RATE_MIN_HURRIED: u64 = 256 << 10;
const HURRIED: Duration = Duration::from_secs(5);

/// Time within which this many bytes must have arrived.
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
            // A byte per second fails after half a minute; 64 MiB have more than an hour.
            (16 << 10, false, 31),
            (64 << 20, false, 30 + 4_096),
            (0, true, 5),
            (64 << 20, true, 5 + 256),
        ] {
            assert_eq!(time_for(bytes, is_hurried).as_secs(), seconds, "{bytes} {is_hurried}");
        }
    }
}
