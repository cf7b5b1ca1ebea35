//! Performance targets of the project, as ratios within one run.

use super::bedrock_cases;
use super::cases::{self, Case};
use super::output::Table;
use super::report::{Row, Rows};
use super::servers::Kind;
use serde::Serialize;

/// Share of other CPU load above which a comparison is void: on a busy machine the rates of the same workload
/// on the same server differed by a factor of nine.
const OTHERS_PERCENT_MAX: f64 = 10.0;

/// Allowed cost ratio of many waiting jobs to few: for the embedded store, and for a database with deeper
/// indexes.
const FLAT: f64 = 1.3;
const FLAT_POSTGRES: f64 = 1.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    Met,
    Missed,
    /// Other load on the machine was too high: neither met nor missed.
    Disturbed,
}

/// Target and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    pub what: String,
    pub value: f64,
    pub bound: f64,
    /// The value must be at least the bound; otherwise at most.
    pub at_least: bool,
    pub unit: &'static str,
    /// Highest share of other CPU load in the measurements used, if known.
    pub others_percent: Option<f64>,
    pub standing: Standing,
}

impl Verdict {
    fn new(what: String, (value, unit): (f64, &'static str), bound: Bound, rows: &[&Row]) -> Verdict {
        let (bound, at_least) = match bound {
            Bound::AtLeast(bound) => (bound, true),
            Bound::AtMost(bound) => (bound, false),
        };
        let shares = rows.iter().filter_map(|row| row.sample?.others_percent);
        let others_percent = shares.max_by(f64::total_cmp);
        let standing = match if at_least { value >= bound } else { value <= bound } {
            _ if others_percent.is_some_and(|share| share > OTHERS_PERCENT_MAX) => Standing::Disturbed,
            true => Standing::Met,
            false => Standing::Missed,
        };
        Verdict { what, value, bound, at_least, unit, others_percent, standing }
    }

    fn cells(&self) -> [String; 4] {
        let Verdict { value, bound, unit, .. } = self;
        let sign = if self.at_least { "≥" } else { "≤" };
        let standing = match (self.standing, self.others_percent) {
            (Standing::Met, _) => "met".to_owned(),
            (Standing::Missed, _) => "missed".to_owned(),
            (Standing::Disturbed, share) => {
                format!("disturbed: {:.0} % other work", share.unwrap_or_default())
            }
        };
        [format!("{value:.2}{unit}"), format!("{sign} {bound}{unit}"), standing, self.what.clone()]
    }
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// Targets for which this run has figures.
pub(super) fn verdicts(rows: &Rows) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    verdicts.extend(against(rows, Case::PushBatch, Kind::BeanstalkdMemory, 1.3));
    verdicts.extend(against(rows, Case::DrainBatch, Kind::BeanstalkdMemory, 1.3));
    verdicts.extend(against(rows, Case::Push64, Kind::BeanstalkdFsync, 4.0));
    verdicts.extend(against(rows, Case::MixFull16, Kind::BeanstalkdFsync, 5.0));
    verdicts.extend(against(rows, Case::MixFull64, Kind::BeanstalkdFsync, 5.0));
    verdicts.extend(pick_up(rows));
    verdicts.extend(bedrock(rows));
    let on_postgres = Kind::WindlassPostgres.label();
    let pairs = cases::FLAT_PAIRS.iter();
    verdicts.extend(pairs.filter_map(|(few, many)| flat(rows, on_postgres, few, many, FLAT_POSTGRES)));
    for kind in [Kind::WindlassFull, Kind::WindlassRelaxed] {
        let label = kind.label();
        verdicts.extend(bounded(rows, label, cases::MEMORY, Bound::AtMost(200.0), " bytes"));
        verdicts.extend(bounded(rows, label, cases::START, Bound::AtMost(5.0), " s"));
        verdicts
            .extend(cases::FLAT_PAIRS.iter().filter_map(|(few, many)| flat(rows, label, few, many, FLAT)));
    }
    verdicts
}

fn pick_up(rows: &Rows) -> Vec<Verdict> {
    let Some(row) = rows.get(Kind::WindlassRelaxed.label(), Case::MixRate.label()) else { return Vec::new() };
    let Some(sample) = row.sample else { return Vec::new() };
    let verdict =
        |what: &str, value, bound| Verdict::new(what.into(), (value, " ms"), Bound::AtMost(bound), &[row]);
    vec![
        verdict("W5 pick-up p50, relaxed", sample.latency.p50_ms, 1.0),
        verdict("W5 pick-up p99, relaxed", sample.latency.p99_ms, 5.0),
    ]
}

/// Targets of the Bedrock dialect: a tenth of the original server's time over one connection, for each verb
/// and for all three of a job, and a bound on the pick-up latency of waiting workers.
fn bedrock(rows: &Rows) -> Vec<Verdict> {
    const CPU_US_MAX: [f64; 3] = [30.0, 150.0, 40.0];
    const PICK_UP_MS_MAX: f64 = 20.0;
    let label = bedrock_cases::label(Kind::WindlassFull);
    let mut verdicts = Vec::new();
    for label in [label, bedrock_cases::label(Kind::WindlassRelaxed)] {
        let whole = |shape| whole_job(rows, label, shape, CPU_US_MAX.iter().sum());
        verdicts.extend(bedrock_cases::shapes().filter_map(whole));
    }
    for (verb, bound) in bedrock_cases::VERBS.into_iter().zip(CPU_US_MAX) {
        for case in bedrock_cases::cases(verb) {
            let Some(row) = rows.get(label, &case) else { continue };
            let Some(us) = row.sample.and_then(|sample| sample.server_us) else { continue };
            let what = format!("B1 server CPU, {case}, {label}");
            verdicts.push(Verdict::new(what, (us, " us"), Bound::AtMost(bound), &[row]));
        }
    }
    if let Some((row, sample)) =
        rows.get(label, bedrock_cases::PICK_UP).and_then(|row| Some((row, row.sample?)))
    {
        let what = format!("B2 {} p99, {label}", bedrock_cases::PICK_UP);
        let value = (sample.latency.p99_ms, " ms");
        verdicts.push(Verdict::new(what, value, Bound::AtMost(PICK_UP_MS_MAX), &[row]));
    }
    verdicts
}

/// Sum of create, get and finish of a job.
fn whole_job(rows: &Rows, server: &str, shape: &str, bound: f64) -> Option<Verdict> {
    let row = |verb: &str| rows.get(server, &bedrock_cases::case(verb, shape));
    let rows = bedrock_cases::VERBS.into_iter().map(row).collect::<Option<Vec<_>>>()?;
    let us = rows.iter().map(|row| row.sample?.server_us).sum::<Option<f64>>()?;
    let what = format!("B1 server CPU, a whole job, {shape}, {server}");
    Some(Verdict::new(what, (us, " us"), Bound::AtMost(bound), &rows))
}

fn bounded(rows: &Rows, server: &str, case: &str, bound: Bound, unit: &'static str) -> Option<Verdict> {
    // The target is for a million jobs: with fewer, fixed-size caches weigh more.
    let row = rows.get(server, case).filter(|row| row.shape == cases::MILLION)?;
    Some(Verdict::new(format!("{} {case}, {server}", row.workload), (row.value, unit), bound, &[row]))
}

/// Ratio of durable Windlass to the peer.
fn against(rows: &Rows, case: Case, peer: Kind, bound: f64) -> Option<Verdict> {
    let ours = rows.get(Kind::WindlassFull.label(), case.label())?;
    let theirs = rows.get(peer.label(), case.label())?;
    let what = format!("{} {}, windlass full against {}", ours.workload, ours.case, peer.label());
    let ratio = (ours.value / theirs.value, "x");
    Some(Verdict::new(what, ratio, Bound::AtLeast(bound), &[ours, theirs]))
}

/// Ratio of the cost with many to the cost with few.
fn flat(rows: &Rows, server: &str, few: &str, many: &str, bound: f64) -> Option<Verdict> {
    let (few_row, row) = (rows.get(server, few)?, rows.get(server, many)?);
    let what = format!("{} {many} against {few}, {server}", row.workload);
    Some(Verdict::new(what, (row.value / few_row.value, "x"), Bound::AtMost(bound), &[few_row, row]))
}

pub(super) fn table(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(&[">VALUE", ">TARGET", "", "WHAT"]);
    for verdict in verdicts {
        table.row(verdict.cells());
    }
    table
}

pub(super) fn markdown(verdicts: &[Verdict]) -> String {
    let mut text = String::from("| value | target | | what |\n|---:|---:|---|---|\n");
    for verdict in verdicts {
        text.push_str(&format!("| {} |\n", verdict.cells().join(" | ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::report::Unit;
    use super::*;

    fn rows(entries: &[(Kind, &str, f64)]) -> Rows {
        let mut rows = Rows::default();
        for (kind, case, value) in entries {
            let (case, server) = (case.to_string(), kind.label());
            let shape = String::new();
            let unit = Unit::JobsPerSecond;
            rows.add(Row { workload: "W3", case, server, value: *value, unit, shape, sample: None });
        }
        rows
    }

    #[test]
    fn a_ratio_needs_both_sides_of_the_same_case() {
        let case = Case::PushBatch.label();
        let ours = (Kind::WindlassFull, case, 300.0);
        assert!(verdicts(&rows(&[ours])).is_empty());
        let both = verdicts(&rows(&[ours, (Kind::BeanstalkdMemory, case, 200.0)]));
        assert_eq!(both.len(), 1);
        assert_eq!((both[0].value, both[0].standing), (1.5, Standing::Met));
    }

    #[test]
    fn a_cost_that_grows_misses_its_target() {
        let (few, many) = cases::FLAT_PAIRS[0];
        let found = verdicts(&rows(&[(Kind::WindlassFull, few, 10.0), (Kind::WindlassFull, many, 14.0)]));
        assert_eq!((found.len(), found[0].standing), (1, Standing::Missed));
        let text = table(&found).to_string();
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("missed")), "{text}");
    }

    #[test]
    fn a_ratio_from_a_busy_machine_is_neither_met_nor_missed() {
        let mut rows = rows(&[]);
        for (kind, value, share) in [(Kind::WindlassFull, 3_432.0, 5.0), (Kind::BeanstalkdFsync, 171.0, 98.0)]
        {
            let latency = super::super::report::Latency::of(&mut []);
            let (server_us, client_us) = (None, None);
            let sample = super::super::report::Sample {
                jobs: 1,
                seconds: 1.0,
                server_us,
                client_us,
                others_percent: Some(share),
                latency,
            };
            let (case, server) = (Case::MixFull64.label().to_owned(), kind.label());
            let (unit, shape, sample) = (Unit::JobsPerSecond, String::new(), Some(sample));
            rows.add(Row { workload: "W5", case, server, value, unit, shape, sample });
        }
        let found = verdicts(&rows);
        assert_eq!((found.len(), found[0].standing), (1, Standing::Disturbed));
        assert_eq!(found[0].others_percent, Some(98.0));
    }

    #[test]
    fn memory_is_judged_with_a_million_jobs_only() {
        for (shape, expected) in [("20000 jobs", 0), (cases::MILLION, 1)] {
            let mut rows = rows(&[(Kind::WindlassFull, cases::MEMORY, 150.0)]);
            rows.0[0].shape = shape.to_owned();
            assert_eq!(verdicts(&rows).len(), expected, "{shape}");
        }
    }
}
