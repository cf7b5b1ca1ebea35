//! Clocks of the machine: the wall clock, which can be set, and the monotonic clock.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use windlass_core::Timestamp;

/// Uptime and wall-clock time at the first call of [`now`]. Kept to the nanosecond: an anchor truncated to
/// milliseconds would make the timeline lag behind the wall clock, and delays would end early.
static ANCHOR: OnceLock<(Duration, Duration)> = OnceLock::new();

/// Wall-clock time, which jumps when the clock is set.
pub fn wall() -> Timestamp {
    timestamp(since_epoch())
}

/// Time on the server's timeline: starts at the wall-clock time, then advances with the uptime, including
/// suspend, even if the wall clock is set.
pub fn now() -> Timestamp {
    // Uptime is read first: the time between the two readings puts the timeline ahead of the wall clock,
    // never behind.
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
