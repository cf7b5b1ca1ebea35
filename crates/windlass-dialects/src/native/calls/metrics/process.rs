//! Metrics of the process under the names that Prometheus clients use, read from `/proc`.

use super::families;
use super::page::Page;
use std::fs;

/// Clock ticks per second in `/proc`: the same on all Linux systems, whatever the kernel's own clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// Writes the metrics that can be read; none where there is no `/proc`.
pub(super) fn write(page: &mut Page) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let stat = Stat::parse(&read("/proc/self/stat"));
    let boot = boot_time(&read("/proc/stat"));
    let start = stat.as_ref().zip(boot).map(|(stat, boot)| boot + stat.started_ticks / TICKS_PER_SECOND);
    let values = [
        (&families::CPU_SECONDS, stat.as_ref().map(|stat| stat.cpu_ticks / TICKS_PER_SECOND)),
        (
            &families::RESIDENT_BYTES,
            kilobytes(&read("/proc/self/status"), "VmRSS:").map(|kilobytes| kilobytes * 1_024.0),
        ),
        (&families::VIRTUAL_BYTES, stat.as_ref().map(|stat| stat.virtual_bytes)),
        (&families::START_TIME, start),
        (&families::THREADS, stat.as_ref().map(|stat| stat.threads)),
        (&families::OPEN_FDS, open_descriptors()),
        (&families::MAX_FDS, descriptors_max(&read("/proc/self/limits"))),
    ];
    for (family, value) in values {
        if let Some(value) = value {
            page.single(family, value);
        }
    }
}

/// Fields of `/proc/self/stat`.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: f64,
    threads: f64,
    started_ticks: f64,
    virtual_bytes: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The name of the program is in parentheses and may contain anything; field 3 follows it.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Stat {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            started_ticks: field(22)?,
            virtual_bytes: field(23)?,
        })
    }
}

fn kilobytes(status: &str, key: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Boot time of the machine, in seconds since 1970.
fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn open_descriptors() -> Option<f64> {
    // Without the one that reads the folder.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn descriptors_max(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_proc_are_understood() {
        let fields = "S 1 2 3 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 7 0 12345 1048576 200";
        let stat = Stat::parse(&format!("42 (odd ) name) {fields}")).unwrap();
        let expected =
            Stat { cpu_ticks: 300.0, threads: 7.0, started_ticks: 12345.0, virtual_bytes: 1048576.0 };
        assert_eq!(stat, expected);
        assert_eq!(Stat::parse("nonsense"), None);
        assert_eq!(kilobytes("VmPeak:\t 9 kB\nVmRSS:\t  123 kB\n", "VmRSS:"), Some(123.0));
        assert_eq!(boot_time("cpu 1\nbtime 1700000000\n"), Some(1_700_000_000.0));
        let limits = "Limit  Soft Limit\nMax open files            1024                 524288       files\n";
        assert_eq!(descriptors_max(limits), Some(1024.0));
    }

    #[test]
    fn this_process_has_all_of_them() {
        let mut page = Page::default();
        write(&mut page);
        let names = page.text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(names, if cfg!(target_os = "linux") { 7 } else { 0 }, "{}", page.text);
    }
}
