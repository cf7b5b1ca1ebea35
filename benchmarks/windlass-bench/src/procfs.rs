//! CPU time and memory of a process, from `/proc`.

use std::time::Duration;

/// Unit of CPU time: 10 ms on every known Linux platform, precise enough for a run of seconds.
const TICK: Duration = Duration::from_millis(10);

/// User and system time so far. `None` if the process is gone or the system is not Linux.
pub(super) fn cpu_time(pid: u32) -> Option<Duration> {
    parse_cpu_time(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Busy and total time of all cores so far. I/O wait does not count as busy.
pub(super) fn machine_time() -> Option<(Duration, Duration)> {
    parse_machine_time(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// Anonymous resident memory of the process, in bytes.
pub(super) fn memory_bytes(pid: u32) -> Option<u64> {
    parse_memory(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn parse_cpu_time(stat: &str) -> Option<Duration> {
    // The command name may contain blanks, so the fields are counted from its closing bracket.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(TICK * (user + system))
}

fn parse_machine_time(stat: &str) -> Option<(Duration, Duration)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    // user nice system idle iowait irq softirq steal; guest time is part of user time.
    let ticks: Vec<u32> =
        line.split_ascii_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
    let (total, waiting) = (ticks.iter().sum::<u32>(), ticks.get(3)? + ticks.get(4)?);
    Some((TICK * (total - waiting), TICK * total))
}

fn parse_memory(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_user_plus_system_ticks() {
        let stat = "12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        assert_eq!(parse_cpu_time(stat), Some(Duration::from_secs(2)));
        assert_eq!(parse_cpu_time("nonsense"), None);
    }

    #[test]
    fn a_machine_that_waits_is_not_busy() {
        let seconds = Duration::from_secs;
        let stat = "cpu  100 0 50 700 100 0 50 0 0 0\ncpu0 1 2 3\n";
        assert_eq!(parse_machine_time(stat), Some((seconds(2), seconds(10))));
        assert_eq!(parse_machine_time("cpu  1"), None);
    }

    #[test]
    fn memory_is_the_anonymous_part() {
        assert_eq!(parse_memory("VmRSS:\t  9 kB\nRssAnon:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(parse_memory("VmRSS:\t  9 kB\n"), None);
    }
}
