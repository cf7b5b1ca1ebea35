//! The machine's clocks: one that people set, and one that only goes on.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use windlass_core::Timestamp;

/// The machine's uptime when the time was first asked for, and what its clock showed then, as time since the epoch. Kept to the
/// nanosecond: an anchor cut to milliseconds would let the timeline lag behind the clock, and delays end early by it.
static ANCHOR: OnceLock<(Duration, Duration)> = OnceLock::new();

/// What the machine's clock shows. It jumps when it is set.
pub fn wall() -> Timestamp {
    timestamp(since_epoch())
}

/// Begins as what the machine's clock shows and then goes on evenly, also while the machine sleeps, whatever is done to
/// that clock.
pub fn now() -> Timestamp {
    // The uptime first: what passes between the two readings puts the timeline ahead of the clock, never behind it.
    let (up_then, wall_then) = *ANCHOR.get_or_init(|| {
        let up = uptime();
        (up, since_epoch())
    });
    timestamp(wall_then.saturating_add(uptime().saturating_sub(up_then)))
}

fn timestamp(since_epoch: Duration) -> Timestamp {
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn uptime() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    let up = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(up.tv_sec), u32::try_from(up.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeline_is_never_behind_a_clock_that_nobody_sets() {
        now();
        for _ in 0..10_000 {
            let (clock, timeline) = (wall(), now());
            assert!(timeline >= clock, "{} ms behind", clock.since_ms(timeline));
        }
    }
}
