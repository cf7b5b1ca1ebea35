//! The machine's clocks: one that people set, and one that only goes on.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use windlass_core::Timestamp;

/// The machine's clock when it was first asked for, and how long the machine had been up then.
static ANCHOR: OnceLock<(i64, Duration)> = OnceLock::new();

/// What the machine's clock shows. It jumps when it is set.
pub fn wall() -> Timestamp {
    Timestamp::from_millis(wall_ms())
}

/// Begins as what the machine's clock shows and then goes on evenly, also while the machine sleeps, whatever is done to
/// that clock.
pub fn now() -> Timestamp {
    let (began_ms, began) = *ANCHOR.get_or_init(|| (wall_ms(), uptime()));
    let passed = uptime().saturating_sub(began);
    Timestamp::from_millis(began_ms.saturating_add(i64::try_from(passed.as_millis()).unwrap_or(i64::MAX)))
}

fn wall_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
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
