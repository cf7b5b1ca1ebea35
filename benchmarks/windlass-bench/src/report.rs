//! Results of a benchmark: rows and their display.

use super::output::Table;
use serde::Serialize;

/// Result of one run of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Sample {
    pub jobs: usize,
    pub seconds: f64,
    /// CPU time per job.
    pub server_us: Option<f64>,
    pub client_us: Option<f64>,
    /// Share of the machine's CPU time used by other processes, which distorts the figures.
    pub others_percent: Option<f64>,
    pub latency: Latency,
}

impl Sample {
    pub(super) fn rate(&self) -> f64 {
        self.jobs as f64 / self.seconds.max(1e-9)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Latency {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Latency {
    /// Sorts the values and computes percentiles; zero if there are none.
    pub(super) fn of(spans_ns: &mut [u64]) -> Latency {
        spans_ns.sort_unstable();
        let at = |fraction: f64| percentile(spans_ns, fraction) as f64 / 1e6;
        Latency { p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0) }
    }
}

/// Nearest-rank percentile: the smallest value not exceeded by at least this fraction of the values.
pub(super) fn percentile(sorted: &[u64], fraction: f64) -> u64 {
    let rank = (fraction * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    #[serde(rename = "jobs/s")]
    JobsPerSecond,
    #[serde(rename = "bytes/job")]
    BytesPerJob,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "us/job")]
    MicrosecondsPerJob,
}

impl Unit {
    fn more_is_better(self) -> bool {
        self == Unit::JobsPerSecond
    }

    fn show(self, value: f64) -> String {
        match self {
            Unit::JobsPerSecond => format!("{} jobs/s", thousands(value)),
            Unit::BytesPerJob => format!("{value:.0} bytes/job"),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::MicrosecondsPerJob => format!("{value:.2} us/job"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub workload: &'static str,
    pub case: String,
    pub server: &'static str,
    pub value: f64,
    pub unit: Unit,
    /// Connections and batch size of the best result.
    pub shape: String,
    #[serde(flatten)]
    pub sample: Option<Sample>,
}

/// Rows of a run; the best of repeated measurements is kept.
#[derive(Default, Debug)]
pub(super) struct Rows(pub Vec<Row>);

impl Rows {
    pub(super) fn add(&mut self, row: Row) {
        let same = |old: &&mut Row| old.case == row.case && old.server == row.server;
        match self.0.iter_mut().find(same) {
            None => self.0.push(row),
            Some(old) if (row.value > old.value) == row.unit.more_is_better() => *old = row,
            Some(_) => {}
        }
    }

    pub(super) fn get(&self, server: &str, case: &str) -> Option<&Row> {
        self.0.iter().find(|row| row.server == server && row.case == case)
    }

    fn sorted(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.0.iter().collect();
        // A stable sort keeps cases in the order of measurement, with servers side by side.
        let position = |row: &Row| self.0.iter().position(|first| first.case == row.case);
        rows.sort_by_key(|row| (row.workload, position(row)));
        rows
    }

    fn cells(row: &Row) -> [String; 9] {
        let sample = row.sample.as_ref();
        let number = |value: Option<f64>| value.map(|value| format!("{value:.2}")).unwrap_or_default();
        [
            row.workload.to_owned(),
            row.case.clone(),
            row.server.to_owned(),
            row.unit.show(row.value),
            number(sample.map(|sample| sample.latency.p50_ms)),
            number(sample.map(|sample| sample.latency.p99_ms)),
            number(sample.and_then(|sample| sample.server_us)),
            number(sample.and_then(|sample| sample.client_us)),
            sample
                .and_then(|sample| sample.others_percent)
                .map(|share| format!("{share:.0}"))
                .unwrap_or_default(),
        ]
    }

    pub(super) fn table(&self) -> Table {
        let mut table = Table::new(&[
            "",
            "WHAT",
            "SERVER",
            ">RESULT",
            ">P50 MS",
            ">P99 MS",
            ">SERVER US",
            ">CLIENT US",
            "OTHERS %",
        ]);
        for row in self.sorted() {
            table.row(Rows::cells(row));
        }
        table
    }

    pub(super) fn markdown(&self) -> String {
        let mut text = String::from(
            "| | what | server | result | p50 ms | p99 ms | server CPU us/job | client CPU us/job | others' CPU % |\n\
             |---|---|---|---:|---:|---:|---:|---:|---:|\n",
        );
        for row in self.sorted() {
            text.push_str(&format!("| {} |\n", Rows::cells(row).join(" | ")));
        }
        text
    }
}

/// Formats `1234567.8` as `1,234,568`.
pub(super) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(server: &'static str, case: &str, value: f64, unit: Unit) -> Row {
        Row { workload: "W1", case: case.into(), server, value, unit, shape: String::new(), sample: None }
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<u64> = (1..=100).collect();
        for (fraction, expected) in [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)] {
            assert_eq!(percentile(&values, fraction), expected, "{fraction}");
        }
        assert_eq!(percentile(&[7], 0.99), 7);
        assert_eq!(percentile(&[], 0.5), 0);
    }

    #[test]
    fn latencies_need_no_order() {
        let latency = Latency::of(&mut [3_000_000, 1_000_000, 2_000_000]);
        assert_eq!(latency, Latency { p50_ms: 2.0, p99_ms: 3.0, max_ms: 3.0 });
    }

    #[test]
    fn of_two_measurements_the_better_stays() {
        let mut rows = Rows::default();
        for value in [5.0, 9.0, 7.0] {
            rows.add(row("a", "rate", value, Unit::JobsPerSecond));
            rows.add(row("a", "memory", value, Unit::BytesPerJob));
        }
        let best = |case| rows.get("a", case).map(|row| row.value);
        assert_eq!((best("rate"), best("memory"), rows.0.len()), (Some(9.0), Some(5.0), 2));
    }

    #[test]
    fn servers_stand_side_by_side() {
        let mut rows = Rows::default();
        for (server, case) in [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")] {
            rows.add(row(server, case, 1234.0, Unit::JobsPerSecond));
        }
        let text = rows.table().to_string();
        let lines: Vec<&str> = text.lines().collect();
        let order: Vec<_> = lines[1..].iter().map(|line| line[4..].trim_start()[..5].to_owned()).collect();
        assert_eq!(lines.len(), 5);
        assert!(lines[1].contains("1,234 jobs/s"), "{lines:?}");
        assert!(lines[1].contains(" a ") && lines[2].contains(" b "), "{order:?} {lines:?}");
        assert_eq!(rows.markdown().lines().count(), 6);
    }

    #[test]
    fn thousands_are_set_apart() {
        for (value, expected) in [(7.0, "7"), (999.6, "1,000"), (1_234_567.0, "1,234,567")] {
            assert_eq!(thousands(value), expected);
        }
    }
}
