//! W6 and W7: what many waiting jobs cost in memory, at the start, and in every verb.

use super::cases::{self, FLAT_PAIRS, Settings};
use super::client::{Shape, Target};
use super::native::{Format, Windlass};
use super::procfs;
use super::report::{Row, Unit};
use super::servers::{Kind, Server};
use super::workloads::{self, Costs, Load};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Waiting jobs when the user does not say.
const MANY: usize = 1_000_000;
const FEW: usize = 1_000;
const OTHER_NAMES: usize = 100_000;
/// Jobs per call while filling.
const FILL_BATCH: usize = 1_000;
/// beanstalkd with an fsync per job would take minutes to fill.
const MANY_FSYNC: usize = 50_000;
/// Jobs per call while costs are measured, enough that the network is a small part of them.
const COST_BATCH: usize = 100;
const COST_JOBS: usize = 30_000;
const FILL_AT_MOST: Duration = Duration::from_secs(180);

/// W6. The server is restarted in between, so it has to be ours.
pub async fn memory_and_start(kind: Kind, folder: &Path, settings: &Settings) -> io::Result<Vec<Row>> {
    let server = Server::start(kind, folder)?;
    let empty_bytes = memory_of(&server)?;
    let many = match kind {
        Kind::BeanstalkdFsync => MANY_FSYNC,
        _ => settings.jobs.unwrap_or(MANY),
    };
    let shape = Shape::new("bench-waiting", settings.payload_bytes);
    match kind.is_windlass() {
        true => fill(&server.windlass(Format::Json), &shape, many).await?,
        false => fill(&server.beanstalkd(), &shape, many).await?,
    }
    let row = |case: &str, value: f64, unit| {
        let (case, server, shape) = (case.to_owned(), kind.label(), format!("{many} jobs"));
        Row { workload: "W6", case, server, value, unit, shape, sample: None }
    };
    let per_job = |bytes: u64| bytes.saturating_sub(empty_bytes) as f64 / many as f64;
    let mut rows = vec![row(cases::MEMORY, per_job(memory_of(&server)?), Unit::BytesPerJob)];
    server.stop()?;
    if kind.survives_restart() {
        let server = Server::start(kind, folder)?;
        rows.push(row(cases::START, server.started_in.as_secs_f64(), Unit::Seconds));
        rows.push(row(cases::MEMORY_RESTARTED, per_job(memory_of(&server)?), Unit::BytesPerJob));
        server.stop()?;
    }
    Ok(rows)
}

fn memory_of(server: &Server) -> io::Result<u64> {
    procfs::memory_bytes(server.pid())
        .ok_or_else(|| io::Error::other("the memory of the server cannot be read"))
}

/// W7.
pub async fn flat_costs(label: &'static str, target: &Windlass, settings: &Settings) -> io::Result<Vec<Row>> {
    let mut rows = waiting_costs(label, target, settings).await?;
    rows.extend(name_costs(label, target, settings).await?);
    Ok(rows)
}

async fn waiting_costs(label: &'static str, target: &Windlass, settings: &Settings) -> io::Result<Vec<Row>> {
    let shape = Shape::new("bench-flat", settings.payload_bytes);
    let many = settings.jobs.unwrap_or(MANY);
    fill(target, &shape, FEW).await?;
    let with_few = costs(target, &shape, settings).await?;
    fill(target, &shape, many.saturating_sub(FEW)).await?;
    let with_many = costs(target, &shape, settings).await?;
    let by_verb = |costs: Costs| [costs.push_us, costs.claim_us, costs.finish_us];
    let values = by_verb(with_few).into_iter().zip(by_verb(with_many));
    Ok(pair_rows(label, &FLAT_PAIRS[..3], values, &format!("{many} jobs")))
}

async fn name_costs(label: &'static str, target: &Windlass, settings: &Settings) -> io::Result<Vec<Row>> {
    let shapes = ["my.target", "my.*", "*.target"].map(|pattern| Shape {
        name: "my.target".to_owned(),
        pattern: pattern.to_owned(),
        ..Shape::new("bench-names", settings.payload_bytes)
    });
    fill(target, &shapes[0], FEW).await?;
    let mut alone = Vec::new();
    for shape in &shapes {
        alone.push(costs(target, shape, settings).await?.claim_us);
    }
    push_other_names(target, &shapes[0]).await?;
    let mut among_others = Vec::new();
    for shape in &shapes {
        among_others.push(costs(target, shape, settings).await?.claim_us);
    }
    Ok(pair_rows(label, &FLAT_PAIRS[3..], alone.into_iter().zip(among_others), ""))
}

fn pair_rows(
    server: &'static str,
    pairs: &[(&str, &str)],
    values: impl Iterator<Item = (f64, f64)>,
    many: &str,
) -> Vec<Row> {
    let row = |case: &str, value| {
        let (case, shape) = (case.to_owned(), many.to_owned());
        Row { workload: "W7", case, server, value, unit: Unit::MicrosecondsPerJob, shape, sample: None }
    };
    let both = pairs.iter().zip(values);
    both.flat_map(|((few, many), (few_us, many_us))| [row(few, few_us), row(many, many_us)]).collect()
}

async fn costs<T: Target>(target: &T, shape: &Shape, settings: &Settings) -> io::Result<Costs> {
    workloads::costs(target, shape, settings.load(COST_JOBS, 1, COST_BATCH)).await
}

async fn push_other_names(target: &Windlass, shape: &Shape) -> io::Result<()> {
    let mut client = target.connect(shape).await?;
    for from in (0..OTHER_NAMES).step_by(FILL_BATCH) {
        let names: Vec<String> = (from..from + FILL_BATCH).map(|number| format!("other.{number}")).collect();
        client.push_names(&names).await?;
    }
    Ok(())
}

async fn fill<T: Target>(target: &T, shape: &Shape, jobs: usize) -> io::Result<()> {
    let load = Load { jobs, connections: 4, batch: FILL_BATCH, at_most: FILL_AT_MOST };
    let filled = workloads::push(target, shape, load).await?.jobs;
    match filled == jobs {
        true => Ok(()),
        false => {
            Err(io::Error::other(format!("only {filled} of {jobs} jobs were pushed in {FILL_AT_MOST:?}")))
        }
    }
}
