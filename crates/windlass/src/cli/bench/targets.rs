//! What the figures are held against: the speed the project promises, as ratios within one run.

use super::cases::{self, Case};
use super::report::{Row, Rows};
use super::servers::Kind;
use crate::output::{Colour, Table};
use serde::Serialize;

/// A promise and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub what: String,
    pub value: f64,
    pub bound: f64,
    /// The value has to be at least the bound; otherwise at most.
    pub at_least: bool,
    pub unit: &'static str,
}

impl Verdict {
    pub fn is_met(&self) -> bool {
        if self.at_least { self.value >= self.bound } else { self.value <= self.bound }
    }

    fn cells(&self) -> [String; 4] {
        let Verdict { value, bound, unit, .. } = self;
        let sign = if self.at_least { "≥" } else { "≤" };
        let verdict = if self.is_met() { "met" } else { "missed" };
        [format!("{value:.2}{unit}"), format!("{sign} {bound}{unit}"), verdict.to_owned(), self.what.clone()]
    }
}

/// The promises that this run has the figures for.
pub fn verdicts(rows: &Rows) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    verdicts.extend(against(rows, Case::PushBatch, Kind::BeanstalkdMemory, 1.3));
    verdicts.extend(against(rows, Case::DrainBatch, Kind::BeanstalkdMemory, 1.3));
    verdicts.extend(against(rows, Case::Push64, Kind::BeanstalkdFsync, 4.0));
    verdicts.extend(against(rows, Case::MixFull, Kind::BeanstalkdFsync, 5.0));
    if let Some(sample) =
        rows.get(Kind::WindlassRelaxed.label(), Case::MixRate.label()).and_then(|row| row.sample)
    {
        let latency = sample.latency;
        let at_most = |what: &str, value, bound| Verdict {
            what: what.into(),
            value,
            bound,
            at_least: false,
            unit: " ms",
        };
        verdicts.push(at_most("W5 pick-up p50, relaxed", latency.p50_ms, 1.0));
        verdicts.push(at_most("W5 pick-up p99, relaxed", latency.p99_ms, 5.0));
    }
    for kind in [Kind::WindlassFull, Kind::WindlassRelaxed] {
        let label = kind.label();
        let bounded = |case: &str, bound, unit| {
            let row = rows.get(label, case)?;
            Some(Verdict {
                what: format!("{} {case}, {label}", row.workload),
                value: row.value,
                bound,
                at_least: false,
                unit,
            })
        };
        verdicts.extend(bounded(cases::MEMORY, 200.0, " bytes"));
        verdicts.extend(bounded(cases::START, 5.0, " s"));
        verdicts.extend(cases::FLAT_PAIRS.iter().filter_map(|(few, many)| flat(rows, label, few, many)));
    }
    verdicts
}

/// Durable Windlass as a multiple of the peer.
fn against(rows: &Rows, case: Case, peer: Kind, bound: f64) -> Option<Verdict> {
    let ours = rows.get(Kind::WindlassFull.label(), case.label())?;
    let theirs = rows.get(peer.label(), case.label())?;
    let what = format!("{} {}, windlass full against {}", ours.workload, ours.case, peer.label());
    Some(Verdict { what, value: ours.value / theirs.value, bound, at_least: true, unit: "x" })
}

/// The cost with many as a multiple of that with few.
fn flat(rows: &Rows, server: &str, few: &str, many: &str) -> Option<Verdict> {
    let (Row { value: few_us, .. }, row) = (rows.get(server, few)?, rows.get(server, many)?);
    let what = format!("{} {many} against {few}, {server}", row.workload);
    Some(Verdict { what, value: row.value / few_us, bound: 1.3, at_least: false, unit: "x" })
}

pub fn table(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(&[">VALUE", ">TARGET", "", "WHAT"]);
    for verdict in verdicts {
        let colour = if verdict.is_met() { Colour::Green } else { Colour::Red };
        let cells = verdict.cells().into_iter().enumerate();
        table.row(cells.map(|(at, cell)| (cell, if at == 2 { colour } else { Colour::Plain })).collect());
    }
    table
}

pub fn markdown(verdicts: &[Verdict]) -> String {
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
        assert_eq!((both[0].value, both[0].is_met()), (1.5, true));
    }

    #[test]
    fn a_cost_that_grows_misses_its_target() {
        let (few, many) = cases::FLAT_PAIRS[0];
        let found = verdicts(&rows(&[(Kind::WindlassFull, few, 10.0), (Kind::WindlassFull, many, 14.0)]));
        assert_eq!((found.len(), found[0].is_met()), (1, false));
        assert!(
            table(&found).lines(crate::output::Style { colours: false, width: 120 })[1].contains("missed")
        );
    }
}
