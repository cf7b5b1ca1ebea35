//! Metrics by tenant, queue and name of the jobs.

use super::families::{self, MetricFamily};
use super::page::Page;
use std::sync::Arc;
use windlass_engine::job_meters::{JobKey, JobOutcome, JobSeries, OTHER};

/// Writes the series; `other` is the one for everything beyond the bound, if it is to be shown.
pub(super) fn write(page: &mut Page, series: &[(JobKey, Arc<JobSeries>)], other: Option<&JobSeries>) {
    let named = series.iter().map(|((tenant, queue, name), one)| ([&**tenant, &**queue, &**name], &**one));
    let all: Vec<([&str; 3], &JobSeries)> = named.chain(other.map(|one| ([OTHER; 3], one))).collect();
    for (family, counter) in COUNTERS {
        page.family(family);
        for (of, one) in &all {
            page.line(family, of, counter(one) as f64);
        }
    }
    page.family(&families::JOB_RUNS);
    for ([tenant, queue, name], one) in &all {
        for outcome in JobOutcome::ALL {
            let of = [tenant, queue, name, outcome.as_str()];
            page.line(&families::JOB_RUNS, &of, one.outcome(outcome).get() as f64);
        }
    }
    page.family(&families::JOB_WAIT);
    for (of, one) in &all {
        page.buckets(&families::JOB_WAIT, of, &one.wait_us, 1e-6);
    }
    page.family(&families::JOB_RUN);
    for (of, one) in &all {
        page.buckets(&families::JOB_RUN, of, &one.run_us, 1e-6);
    }
}

type Counting = fn(&JobSeries) -> u64;

static COUNTERS: [(&MetricFamily, Counting); 2] =
    [(&families::JOB_PUSHES, |one| one.pushed.get()), (&families::JOB_CLAIMS, |one| one.claimed.get())];
