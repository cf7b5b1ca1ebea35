//! `windlass report`: statistics from a miniq job log file, without a server.

use crate::fault::{Fault, Outcome};
use crate::output::{self, Colour, Style, Table};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::PathBuf;

/// Compute throughput, durations and failures per job type from a job log
///
/// The server writes this log for jobs of the miniq dialect (see miniq.log_file). Rotated files end in .1, .2 and so on;
/// give them together, oldest first.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass report windlass-data/jobs.log
  windlass report jobs.log.2 jobs.log.1 jobs.log --json
  zcat old.gz | windlass report -")]
pub(super) struct ReportArgs {
    /// Log files, oldest first; - is standard input
    #[arg(required = true, value_name = "LOGFILE")]
    files: Vec<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: ReportArgs) -> Outcome {
    let mut report = Report::default();
    for path in &args.files {
        let name = match path.as_os_str() == "-" {
            true => "standard input".to_owned(),
            false => path.display().to_string(),
        };
        let failed = |error: io::Error| Fault::failed(format!("cannot read {name}: {error}"));
        let read = match path.as_os_str() == "-" {
            true => report.read(io::stdin().lock()).map_err(failed)?,
            false => report.read(BufReader::new(File::open(path).map_err(failed)?)).map_err(failed)?,
        };
        if read.ours == 0 && read.others > 0 {
            return Err(Fault::failed(format!(
                "{name} is not a job log of the miniq dialect: it contains no such line; the server \
                 writes it to jobs.log in its data folder, or to miniq.log_file"
            )));
        }
    }
    if args.json {
        return output::say_json(&report.as_json());
    }
    report.print()
}

#[derive(Deserialize)]
struct Line {
    time: String,
    message: String,
    info: Option<Info>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    #[serde(rename = "type")]
    jobtype: String,
    wait_ms: Option<i64>,
    run_ms: Option<i64>,
    total_ms: Option<i64>,
    bytes: Option<u64>,
    result_bytes: Option<u64>,
    status: Option<String>,
    code: Option<String>,
    done: Option<bool>,
}

/// Figures of one job type.
#[derive(Default)]
struct Type {
    added: u64,
    added_bytes: u64,
    started: u64,
    ok: u64,
    failed: u64,
    /// Runs after which the job is retried.
    again: u64,
    result_bytes: u64,
    wait_ms: Vec<i64>,
    run_ms: Vec<i64>,
    total_ms: Vec<i64>,
    /// Error codes of unsuccessful runs, with counts.
    codes: BTreeMap<String, u64>,
}

#[derive(Default)]
struct Report {
    types: BTreeMap<String, Type>,
    first_ms: Option<i64>,
    last_ms: Option<i64>,
    /// Lines that are not part of a job log.
    unread: u64,
}

/// Number of log lines and of other lines in one file.
#[derive(Clone, Copy, Default)]
struct Read {
    ours: u64,
    others: u64,
}

/// Longest line. Log lines have a few hundred bytes; a file without newlines must not be read into memory at
/// once.
const LINE_BYTES_MAX: u64 = 1 << 20;

impl Report {
    fn read(&mut self, mut from: impl BufRead) -> io::Result<Read> {
        let mut text = Vec::new();
        let mut read = Read::default();
        loop {
            text.clear();
            if from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text)? == 0 {
                self.unread += read.others;
                return Ok(read);
            }
            match serde_json::from_slice::<Line>(&text) {
                Ok(line) => {
                    read.ours += 1;
                    self.take(line);
                }
                Err(_) => read.others += 1,
            }
        }
    }

    fn take(&mut self, line: Line) {
        let Some(info) = line.info else { return };
        if let Ok(at) = line.time.parse::<jiff::Timestamp>() {
            let ms = at.as_millisecond();
            self.first_ms = Some(self.first_ms.map_or(ms, |first| first.min(ms)));
            self.last_ms = self.last_ms.max(Some(ms));
        }
        let one = self.types.entry(info.jobtype).or_default();
        match line.message.as_str() {
            "job added" => {
                one.added += 1;
                one.added_bytes += info.bytes.unwrap_or(0);
            }
            "job started" => {
                one.started += 1;
                one.wait_ms.extend(info.wait_ms);
            }
            "job returned" => one.started = one.started.saturating_sub(1),
            "job ended" => {
                one.run_ms.extend(info.run_ms);
                one.result_bytes += info.result_bytes.unwrap_or(0);
                let is_done = info.done.unwrap_or(false);
                if is_done {
                    one.total_ms.extend(info.total_ms);
                }
                let is_ok = info.status.as_deref() == Some("ok");
                match (is_ok, is_done) {
                    (true, _) => one.ok += 1,
                    (false, true) => one.failed += 1,
                    (false, false) => one.again += 1,
                }
                if !is_ok {
                    let code = info.code.filter(|code| !code.is_empty()).or(info.status);
                    *one.codes.entry(code.unwrap_or_else(|| "?".to_owned())).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    fn seconds(&self) -> f64 {
        match (self.first_ms, self.last_ms) {
            (Some(first), Some(last)) => (last - first) as f64 / 1_000.0,
            _ => 0.0,
        }
    }

    /// Ended jobs per second over the time span of the log.
    fn per_second(&self, one: &Type) -> Option<f64> {
        let seconds = self.seconds();
        (seconds > 0.0).then(|| (one.ok + one.failed) as f64 / seconds)
    }

    fn print(self) -> Outcome {
        let style = Style::of_stdout();
        if self.types.is_empty() {
            output::note("the log contains no jobs");
            return Ok(());
        }
        output::say(format!("{} job types over {:.1} s", self.types.len(), self.seconds()))?;
        let heads = [
            "TYPE",
            ">ADDED",
            ">STARTED",
            ">OK",
            ">FAILED",
            ">AGAIN",
            ">PER SECOND",
            ">BYTES IN",
            ">BYTES OUT",
        ];
        let mut counts = Table::new(&heads);
        for (name, one) in &self.types {
            let number = |count: u64, colour: Colour| {
                (count.to_string(), if count == 0 { Colour::Dim } else { colour })
            };
            let rate = self.per_second(one).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
            counts.row(vec![
                (output::harmless(name).into_owned(), Colour::Bold),
                number(one.added, Colour::Plain),
                number(one.started, Colour::Plain),
                number(one.ok, Colour::Green),
                number(one.failed, Colour::Red),
                number(one.again, Colour::Yellow),
                (rate, Colour::Plain),
                number(one.added_bytes, Colour::Plain),
                number(one.result_bytes, Colour::Plain),
            ]);
        }
        counts.print(style)?;
        output::say("")?;
        times(&self.types).print(style)?;
        if self.types.values().any(|one| !one.codes.is_empty()) {
            output::say("")?;
            codes(&self.types).print(style)?;
        }
        if self.unread > 0 {
            output::note(format!("{} lines are not job log entries and were skipped", self.unread));
        }
        Ok(())
    }

    fn as_json(&self) -> Value {
        let one = |(name, one): (&String, &Type)| {
            let times = |times: &[i64]| {
                let [p50, p95, p99, max] = percentiles(times);
                json!({"p50": p50, "p95": p95, "p99": p99, "max": max})
            };
            json!({
                "type": name, "added": one.added, "started": one.started, "ok": one.ok, "failed": one.failed,
                "again": one.again, "per_second": self.per_second(one), "bytes_in": one.added_bytes,
                "bytes_out": one.result_bytes, "wait_ms": times(&one.wait_ms), "run_ms": times(&one.run_ms),
                "total_ms": times(&one.total_ms), "codes": one.codes,
            })
        };
        let types: Vec<Value> = self.types.iter().map(one).collect();
        json!({"seconds": self.seconds(), "unread": self.unread, "types": types})
    }
}

fn times(types: &BTreeMap<String, Type>) -> Table {
    let mut table = Table::new(&["TYPE", "MS", ">P50", ">P95", ">P99", ">MAX"]);
    for (name, one) in types {
        for (what, times) in [("waited", &one.wait_ms), ("ran", &one.run_ms), ("total", &one.total_ms)] {
            let mut row =
                vec![(output::harmless(name).into_owned(), Colour::Bold), (what.to_owned(), Colour::Plain)];
            let shown = |ms: Option<i64>| ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string());
            row.extend(percentiles(times).map(|ms| (shown(ms), Colour::Plain)));
            table.row(row);
        }
    }
    table
}

fn codes(types: &BTreeMap<String, Type>) -> Table {
    let mut table = Table::new(&["TYPE", "CODE", ">RUNS"]);
    for (name, one) in types {
        for (code, count) in &one.codes {
            table.row(vec![
                (output::harmless(name).into_owned(), Colour::Bold),
                (output::harmless(code).into_owned(), Colour::Red),
                (count.to_string(), Colour::Plain),
            ]);
        }
    }
    table
}

/// 50th, 95th and 99th percentile, and maximum.
fn percentiles(times: &[i64]) -> [Option<i64>; 4] {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = |share: f64| {
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied()
    };
    [at(0.50), at(0.95), at(0.99), sorted.last().copied()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_occurred() {
        assert_eq!(percentiles(&[]), [None; 4]);
        assert_eq!(percentiles(&[7]), [Some(7); 4]);
        let hundred: Vec<i64> = (1..=100).rev().collect();
        assert_eq!(percentiles(&hundred), [Some(50), Some(95), Some(99), Some(100)]);
    }

    #[test]
    fn runs_are_counted_by_how_they_ended() {
        let log = r#"{"time":"2026-11-15T16:00:00.000Z","type":"INFO","level":6,"id":"vm-0000","message":"job added","info":{"id":"1","type":"acme-t","bytes":5}}
not of this log
{"time":"2026-11-15T16:00:00.010Z","type":"INFO","level":6,"id":"vm-0000","message":"job started","info":{"id":"1","type":"acme-t","waitMs":10}}
{"time":"2026-11-15T16:00:00.030Z","type":"INFO","level":6,"id":"vm-0000","message":"job ended","info":{"id":"1","type":"acme-t","status":"error","code":"ETIMEDOUT","exitcode":500,"runMs":20,"totalMs":30,"resultBytes":0,"done":false}}
{"time":"2026-11-15T16:00:02.000Z","type":"INFO","level":6,"id":"vm-0000","message":"job ended","info":{"id":"1","type":"acme-t","status":"ok","code":"OK","exitcode":200,"runMs":40,"totalMs":2000,"resultBytes":7,"done":true}}
{"time":"2026-11-15T16:00:02.000Z","type":"WARNING","level":4,"id":"vm-0000","message":"left out"}
"#;
        let mut report = Report::default();
        report.read(log.as_bytes()).unwrap();
        let json = report.as_json();
        assert_eq!((&json["seconds"], &json["unread"]), (&2.0.into(), &1.into()));
        let one = &json["types"][0];
        assert_eq!(
            (&one["added"], &one["started"], &one["ok"], &one["again"]),
            (&1.into(), &1.into(), &1.into(), &1.into())
        );
        assert_eq!((&one["per_second"], &one["bytes_out"]), (&0.5.into(), &7.into()));
        assert_eq!((&one["run_ms"]["p50"], &one["run_ms"]["max"]), (&20.into(), &40.into()));
        assert_eq!(one["total_ms"]["p99"], 2000);
        assert_eq!(one["codes"], json!({"ETIMEDOUT": 1}));
    }
}
