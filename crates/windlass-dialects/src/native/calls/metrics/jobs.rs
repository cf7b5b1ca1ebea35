//! Metrics by tenant, queue and name of the jobs.

use super::page::Page;
use std::sync::Arc;
use windlass_engine::job_meters::{JobKey, JobOutcome, JobSeries, OTHER};

/// Writes the series; `other` is the one for everything beyond the bound, if it is to be shown.
pub(super) fn write(page: &mut Page, series: &[(JobKey, Arc<JobSeries>)], other: Option<&JobSeries>) {
    let named = series.iter().map(|((tenant, queue, name), one)| ([&**tenant, &**queue, &**name], &**one));
    let all: Vec<([&str; 3], &JobSeries)> = named.chain(other.map(|one| ([OTHER; 3], one))).collect();
    for (family, help, counter) in COUNTERS {
        page.family(family, "counter", help);
        for (of, one) in &all {
            page.line(family, &labels(of), counter(one) as f64);
        }
    }
    let help =
        "Ends of runs by outcome: completed, failed for good, retried, lease expired, released, cancelled.";
    page.family("windlass_job_runs_total", "counter", help);
    for (of, one) in &all {
        for outcome in JobOutcome::ALL {
            let [tenant, queue, name] = labels(of);
            let with_outcome = [tenant, queue, name, ("outcome", outcome.as_str())];
            page.line("windlass_job_runs_total", &with_outcome, one.outcome(outcome).get() as f64);
        }
    }
    page.family(
        "windlass_job_wait_seconds",
        "histogram",
        "Time from when a job was due until it was claimed.",
    );
    for (of, one) in &all {
        page.buckets("windlass_job_wait_seconds", &labels(of), &one.wait_us, 1e-6);
    }
    let help = "Time from when a job was claimed until its outcome was reported.";
    page.family("windlass_job_run_seconds", "histogram", help);
    for (of, one) in &all {
        page.buckets("windlass_job_run_seconds", &labels(of), &one.run_us, 1e-6);
    }
}

type Counting = fn(&JobSeries) -> u64;

const COUNTERS: [(&str, &str, Counting); 2] = [
    ("windlass_job_pushes_total", "Jobs pushed.", |one| one.pushed.get()),
    ("windlass_job_claims_total", "Jobs claimed by workers.", |one| one.claimed.get()),
];

fn labels<'a>(of: &[&'a str; 3]) -> [(&'static str, &'a str); 3] {
    let [tenant, queue, name] = of;
    [("tenant", tenant), ("queue", queue), ("name", name)]
}
