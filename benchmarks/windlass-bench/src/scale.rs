//! W6 and W7: cost of many waiting jobs in memory, at startup, and per verb.

use super::cases::{self, FLAT_PAIRS, Settings};
use super::client::{Shape, Target};
use super::native::{Format, Windlass};
use super::procfs;
use super::report::{Row, Unit};
use super::servers::{Kind, Server};
use super::workloads::{self, Load};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Default number of waiting jobs.
const MANY: usize = 1_000_000;
const FEW: usize = 1_000;
const OTHER_NAMES: usize = 100_000;
/// Jobs per call while filling.
const FILL_BATCH: usize = 1_000;
/// Waiting jobs for beanstalkd with an fsync per job, which would take minutes for more.
const MANY_FSYNC: usize = 50_000;
/// Jobs per call in cost measurements: small, so that a growing cost per call shows.
const COST_BATCH: usize = 10;
const COST_JOBS: usize = 30_000;
const FILL_AT_MOST: Duration = Duration::from_secs(180);

/// Measures W6. The server is restarted in between, so it must be a server started here.
pub(super) async fn memory_and_start(kind: Kind, folder: &Path, settings: &Settings) -> io::Result<Vec<Row>> {
    let server = Server::start(kind, folder, &settings.launch)?;
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
        let server = Server::start(kind, folder, &settings.launch)?;
        rows.push(row(cases::START, server.started_in.as_secs_f64(), Unit::Seconds));
        rows.push(row(cases::MEMORY_RESTARTED, per_job(memory_of(&server)?), Unit::BytesPerJob));
        server.stop()?;
    }
    Ok(rows)
}

fn memory_of(server: &Server) -> io::Result<u64> {
    procfs::memory_bytes(server.pid())
        .ok_or_else(|| io::Error::other("cannot read the memory use of the server"))
}

/// Measures W7 on two servers: one with few jobs or names, one with many.
pub(super) async fn flat_costs(
    label: &'static str,
    few: &Windlass,
    many: &Windlass,
    settings: &Settings,
) -> io::Result<Vec<Row>> {
    let mut rows = waiting_costs(label, few, many, settings).await?;
    rows.extend(name_costs(label, few, many, settings).await?);
    Ok(rows)
}

async fn waiting_costs(
    label: &'static str,
    few: &Windlass,
    many: &Windlass,
    settings: &Settings,
) -> io::Result<Vec<Row>> {
    let shape = Shape::new("bench-flat", settings.payload_bytes);
    let jobs = settings.jobs.unwrap_or(MANY);
    fill(few, &shape, FEW).await?;
    fill(many, &shape, jobs).await?;
    let costs = workloads::costs_in_turns([(few, &shape), (many, &shape)], cost_load(settings)).await?;
    let [with_few, with_many] = costs.map(|costs| [costs.push_us, costs.claim_us, costs.finish_us]);
    Ok(pair_rows(label, &FLAT_PAIRS[..3], with_few.into_iter().zip(with_many), &format!("{jobs} jobs")))
}

async fn name_costs(
    label: &'static str,
    few: &Windlass,
    many: &Windlass,
    settings: &Settings,
) -> io::Result<Vec<Row>> {
    let shapes = ["my.target", "my.*", "*.target"].map(|pattern| Shape {
        name: "my.target".to_owned(),
        pattern: pattern.to_owned(),
        ..Shape::new("bench-names", settings.payload_bytes)
    });
    fill(few, &shapes[0], FEW).await?;
    fill(many, &shapes[0], FEW).await?;
    push_other_names(many, &shapes[0]).await?;
    let mut values = Vec::new();
    for shape in &shapes {
        let [alone, among_others] =
            workloads::costs_in_turns([(few, shape), (many, shape)], cost_load(settings)).await?;
        values.push((alone.claim_us, among_others.claim_us));
    }
    Ok(pair_rows(label, &FLAT_PAIRS[3..], values.into_iter(), ""))
}

fn cost_load(settings: &Settings) -> Load {
    settings.load(COST_JOBS, 1, COST_BATCH)
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
