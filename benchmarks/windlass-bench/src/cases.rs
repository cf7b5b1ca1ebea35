//! Benchmark cases and their sizes.

use super::client::{Shape, Target};
use super::report::Sample;
use super::servers::{Kind, Launch};
use super::workloads::{self, Load};
use std::io;
use std::time::Duration;

/// Case names of W6 and W7, which do not measure a rate.
pub(super) const MEMORY: &str = "memory per waiting job";
pub(super) const MEMORY_RESTARTED: &str = "memory per waiting job after a restart";
pub(super) const START: &str = "start with waiting jobs";
/// Shape of a row to which the targets for many waiting jobs apply.
pub(super) const MILLION: &str = "1000000 jobs";
/// (few, many): the cost with many may be at most 1.3 times the cost with few.
pub(super) const FLAT_PAIRS: &[(&str, &str)] = &[
    ("push, 1,000 waiting", "push, many waiting"),
    ("claim, 1,000 waiting", "claim, many waiting"),
    ("finish, 1,000 waiting", "finish, many waiting"),
    ("claim by name, 1 name", "claim by name, 100,000 others"),
    ("claim by GLOB my.*, 1 name", "claim by GLOB my.*, 100,000 others"),
    ("claim by GLOB *.target, 1 name", "claim by GLOB *.target, 100,000 others"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    PushOne,
    Push16,
    Push64,
    PushBatch,
    Drain16,
    DrainBatch,
    MixRate,
    MixFull16,
    MixFull64,
}

impl Case {
    pub(super) const ALL: &[Case] = &[
        Case::PushOne,
        Case::Push16,
        Case::Push64,
        Case::PushBatch,
        Case::Drain16,
        Case::DrainBatch,
        Case::MixRate,
        Case::MixFull16,
        Case::MixFull64,
    ];

    pub(super) fn workload(self) -> &'static str {
        match self {
            Case::PushOne => "W1",
            Case::Push16 | Case::Push64 => "W2",
            Case::PushBatch => "W3",
            Case::Drain16 | Case::DrainBatch => "W4",
            Case::MixRate | Case::MixFull16 | Case::MixFull64 => "W5",
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Case::PushOne => "push, 1 connection",
            Case::Push16 => "push, 16 connections",
            Case::Push64 => "push, 64 connections",
            Case::PushBatch => "push in batches",
            Case::Drain16 => "drain, 16 connections",
            Case::DrainBatch => "drain in batches",
            Case::MixRate => "mix at a steady rate",
            Case::MixFull16 => "mix at full speed, 16 + 16",
            Case::MixFull64 => "mix at full speed, 64 + 64",
        }
    }

    /// Default number of jobs: a few seconds on a small machine.
    fn jobs(self) -> usize {
        match self {
            Case::PushOne => 20_000,
            Case::Push16 | Case::Push64 | Case::Drain16 => 60_000,
            // The same for every server: the backlog that builds up is part of the measurement.
            Case::MixFull16 | Case::MixFull64 => 20_000,
            Case::PushBatch | Case::DrainBatch => 400_000,
            Case::MixRate => 16_000,
        }
    }

    /// Combinations of (connections, batch) to try; the best counts.
    fn shapes(self, kind: Kind, settings: &Settings) -> Vec<(usize, usize)> {
        let connections = |usual: usize| settings.connections.unwrap_or(usual);
        let batch = |usual: usize| settings.batch.unwrap_or(usual);
        match self {
            Case::PushOne => vec![(1, 1)],
            Case::Push16 | Case::Drain16 | Case::MixRate | Case::MixFull16 => vec![(connections(16), 1)],
            Case::Push64 | Case::MixFull64 => vec![(connections(64), 1)],
            // The best pipeline for beanstalkd differs between machines, so several are tried.
            Case::PushBatch | Case::DrainBatch if !kind.is_windlass() => vec![(4, 100), (4, 500), (1, 500)],
            Case::PushBatch => vec![(connections(4), batch(1_000))],
            Case::DrainBatch => vec![(connections(4), batch(500))],
        }
    }
}

/// Options of the user.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub jobs: Option<usize>,
    pub connections: Option<usize>,
    pub batch: Option<usize>,
    pub payload_bytes: usize,
    pub rate: f64,
    pub at_most: Duration,
    pub launch: Launch,
}

impl Settings {
    pub(super) fn load(&self, jobs: usize, connections: usize, batch: usize) -> Load {
        Load { jobs, connections, batch, at_most: self.at_most }
    }
}

/// Runs a case in all its shapes and returns the best sample with its shape.
pub(super) async fn run<T: Target>(
    case: Case,
    kind: Kind,
    target: &T,
    settings: &Settings,
) -> io::Result<(Sample, String)> {
    let mut best: Option<(Sample, String)> = None;
    for (connections, batch) in case.shapes(kind, settings) {
        let mut jobs = settings.jobs.unwrap_or(case.jobs());
        if kind == Kind::BeanstalkdFsync && !matches!(case, Case::MixRate | Case::MixFull16 | Case::MixFull64)
        {
            // An fsync per job: a tenth of the jobs is enough for a rate; all would take minutes.
            jobs = (jobs / 10).max(1);
        }
        let sample = run_shape(case, target, settings, settings.load(jobs, connections, batch)).await?;
        if best.as_ref().is_none_or(|(so_far, _)| sample.rate() > so_far.rate()) {
            best = Some((sample, format!("{connections} x {batch}")));
        }
    }
    best.ok_or_else(|| io::Error::other("a case without shapes"))
}

async fn run_shape<T: Target>(case: Case, target: &T, settings: &Settings, load: Load) -> io::Result<Sample> {
    // A queue per case, so that leftover jobs do not affect the next case.
    let shape =
        Shape::new(&format!("bench-{case:?}-{}x{}", load.connections, load.batch), settings.payload_bytes);
    match case {
        Case::PushOne | Case::Push16 | Case::Push64 | Case::PushBatch => {
            let sample = workloads::push(target, &shape, load).await?;
            empty(target, &shape, settings).await?;
            Ok(sample)
        }
        Case::Drain16 | Case::DrainBatch => {
            workloads::push(target, &shape, settings.load(load.jobs, 4, 500)).await?;
            let sample = workloads::drain(target, &shape, load).await?;
            empty(target, &shape, settings).await?;
            Ok(sample)
        }
        Case::MixRate => {
            // Limits the number of jobs to the time that a run may take.
            let jobs = load.jobs.min((settings.rate * settings.at_most.as_secs_f64() * 0.8) as usize);
            workloads::mix_at_rate(target, &shape, Load { jobs, ..load }, settings.rate).await
        }
        Case::MixFull16 | Case::MixFull64 => workloads::mix_at_full_speed(target, &shape, load).await,
    }
}

/// Empties the queue, so that no job waits while the next case is measured.
async fn empty<T: Target>(target: &T, shape: &Shape, settings: &Settings) -> io::Result<()> {
    let load = Load { at_most: settings.at_most * 6, ..settings.load(0, 4, 500) };
    workloads::drain(target, shape, load).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_label_of_its_own() {
        let mut labels: Vec<_> = Case::ALL.iter().map(|case| case.label()).collect();
        labels.extend(FLAT_PAIRS.iter().flat_map(|(few, many)| [few, many]));
        labels.extend([MEMORY, MEMORY_RESTARTED, START]);
        let all = labels.len();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), all);
    }
}
