//! Readings of a running server, through its API.

use crate::client::{Client, ClientError, Page};
use crate::human_time::now_ms;
use serde_json::Value;
use std::ops::RangeInclusive;

/// Schedules that are looked at: one page.
const SCHEDULES_MAX: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Readings {
    pub url: String,
    /// Addressed by the loopback address.
    pub is_local: bool,
    pub is_https: bool,
    /// Lines of the readiness probe, or its code and message.
    pub readiness: Result<Vec<String>, (String, String)>,
    /// Bounds of the server's clock minus that of this machine; its probe tells whole seconds.
    pub clock_ahead_ms: Option<RangeInclusive<i64>>,
    /// Everything that needs rights, or why it cannot be read.
    pub inside: Result<Inside, String>,
    /// For admins only.
    pub resident_bytes: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inside {
    pub version: String,
    pub role: String,
    /// The server has no tokens.
    pub is_open: bool,
    /// Kind of the store; for admins only.
    pub store: Option<String>,
    pub queues: Vec<QueueReading>,
    pub schedules: Vec<ScheduleReading>,
    /// Open descriptors and their limit; for admins only.
    pub files: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueReading {
    pub queue: String,
    pub tenant: String,
    pub is_paused: bool,
    pub ready: u64,
    /// Waiting time of its oldest job that could run.
    pub oldest_ms: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScheduleReading {
    pub id: u64,
    pub name: String,
    pub failed_in_a_row: u64,
    /// Turns missed so far by a run that is late.
    pub missed: u64,
}

/// Asks the server. An error means that there is none, or another program.
pub(super) fn read(client: &mut Client) -> Result<Readings, ClientError> {
    let before_ms = now_ms();
    let probe = client.page("/readyz")?;
    let clock_ahead_ms = probe.date.as_deref().and_then(|date| ahead(date, before_ms, now_ms()));
    let readiness = readiness(client, &probe)?;
    let inside = match inside(client) {
        Ok(inside) => Ok(inside),
        Err(ClientError::Refused { message, .. }) => Err(message),
        Err(error) => return Err(error),
    };
    let metrics = inside.is_ok().then(|| client.page("/metrics").ok()).flatten();
    let metrics = metrics.filter(|page| page.status == 200).map(|page| page.text).unwrap_or_default();
    let files = figure(&metrics, "process_open_fds").zip(figure(&metrics, "process_max_fds"));
    Ok(Readings {
        url: client.server(),
        is_local: client.is_loopback(),
        is_https: client.is_https(),
        readiness,
        clock_ahead_ms,
        inside: inside.map(|inside| Inside { files, ..inside }),
        resident_bytes: figure(&metrics, "process_resident_memory_bytes"),
    })
}

/// Meaning of the probe. A page of another program is an error.
fn readiness(client: &Client, probe: &Page) -> Result<Result<Vec<String>, (String, String)>, ClientError> {
    let lines = || probe.text.lines().map(str::to_owned).collect::<Vec<String>>();
    if probe.status == 200 && probe.text.starts_with("OK") {
        return Ok(Ok(lines()));
    }
    let answer: Value = serde_json::from_str(&probe.text).unwrap_or_default();
    let word = |key: &str| answer["error"][key].as_str().map(str::to_owned);
    match word("code").zip(word("message")) {
        Some(why) => Ok(Err(why)),
        None => Err(ClientError::NotWindlass {
            server: client.server(),
            detail: format!("HTTP {}", probe.status),
        }),
    }
}

fn inside(client: &mut Client) -> Result<Inside, ClientError> {
    let me = client.get("/api/v1/me")?;
    let stats = client.get("/api/v1/stats")?;
    let queues = client.get("/api/v1/queues")?;
    let schedules = client.get(&format!("/api/v1/schedules?limit={SCHEDULES_MAX}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    Ok(Inside {
        version: text(&me["version"]),
        role: text(&me["role"]),
        is_open: me["open"] == true,
        store: stats["store"].as_str().map(str::to_owned),
        queues: list(&queues["queues"]).iter().map(queue).collect(),
        schedules: list(&schedules["jobs"]).iter().map(schedule).collect(),
        files: None,
    })
}

fn queue(value: &Value) -> QueueReading {
    QueueReading {
        queue: value["queue"].as_str().unwrap_or_default().to_owned(),
        tenant: value["tenant"].as_str().unwrap_or_default().to_owned(),
        is_paused: value["paused"] == true,
        ready: value["ready"].as_u64().unwrap_or(0),
        oldest_ms: value["oldest_ms"].as_i64(),
    }
}

fn schedule(value: &Value) -> ScheduleReading {
    let schedule = &value["schedule"];
    ScheduleReading {
        id: value["id"].as_u64().unwrap_or(0),
        name: value["name"].as_str().unwrap_or_default().to_owned(),
        failed_in_a_row: schedule["failed_in_a_row"].as_u64().unwrap_or(0),
        missed: schedule["overdue"]["missed"].as_u64().unwrap_or(0),
    }
}

/// Value of a metric without labels.
fn figure(metrics: &str, name: &str) -> Option<u64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse::<f64>().ok().map(|value| value as u64)
}

/// Bounds of a clock that showed the second `date` between two moments of this one.
fn ahead(date: &str, before_ms: i64, after_ms: i64) -> Option<RangeInclusive<i64>> {
    let shown = jiff::fmt::rfc2822::parse(date).ok()?.timestamp().as_millisecond();
    Some(shown - after_ms..=shown + 999 - before_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_a_response_bounds_the_clock_of_the_server() {
        // 1,000,000,000 s after the epoch.
        let date = "Sun, 09 Sep 2001 01:46:40 GMT";
        let same = ahead(date, 1_000_000_000_200, 1_000_000_000_250).unwrap();
        assert!(same.contains(&0), "{same:?}");
        assert_eq!(ahead(date, 999_999_990_000, 999_999_990_010), Some(9_990..=10_999));
        assert_eq!(ahead("yesterday", 0, 0), None);
    }

    #[test]
    fn figures_are_found_by_their_whole_name() {
        let metrics =
            "# TYPE process_max_fds gauge\nprocess_max_fds_total 7\nprocess_max_fds 65536\nx 1.5e3\n";
        assert_eq!(figure(metrics, "process_max_fds"), Some(65_536));
        assert_eq!(figure(metrics, "x"), Some(1_500));
        assert_eq!(figure(metrics, "y"), None);
    }
}
