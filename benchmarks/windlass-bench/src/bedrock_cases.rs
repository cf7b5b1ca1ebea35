//! Benchmarks of the Bedrock dialect: each verb alone, waiting workers, and finding a job among many.

use super::bedrock::Bedrock;
use super::cases::Settings;
use super::client::{Client, Shape, Target, now_ns};
use super::report::{Latency, Row, Sample, Unit};
use super::servers::{Kind, Server};
use super::workloads::{self, Load};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Default number of jobs per measurement.
const JOBS: usize = 20_000;
/// Requests per write.
const PIPELINE: usize = 100;
/// Numbers of connections and of waiting jobs.
const MANY_CONNECTIONS: usize = 64;
const FEW_WAITING: usize = 1_000;
const MANY_WAITING: usize = 100_000;
/// Number of names among which the waiting jobs are spread.
const OTHER_NAMES: usize = 100;
/// Claims per figure, of which the median counts.
const LOOKS: usize = 2_000;

/// (case, connections, requests per write).
const SHAPES: [(&str, usize, usize); 3] = [
    ("1 connection", 1, 1),
    ("1 connection, pipelined", 1, PIPELINE),
    ("64 connections", MANY_CONNECTIONS, 1),
];
/// Calls in the measurement of the lower bounds.
const FLOOR_CALLS: usize = 5_000;
/// Bytes written by the commit of one job, and number of commits that fit in the file.
const COMMIT_BYTES: usize = 8_192;
const FILE_COMMITS: usize = 1_024;
const PING: &str = "Ping, 1 connection";
const DISK: &str = "no server: two pages to the disk";
pub(super) const VERBS: [&str; 3] = ["create", "get", "finish"];
pub(super) const PICK_UP: &str = "pick-up, 64 waiting workers";
/// Search cases: an existing job by its name or a prefix, and a missing one.
const LOOKED_FOR: [(&str, &str, &str); 3] = [
    ("exact name", "my.target", "my.target"),
    ("prefix GLOB", "my.target", "my.*"),
    ("missing name", "", "missing"),
];

pub(super) fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::WindlassRelaxed => "bedrock dialect, relaxed",
        _ => "bedrock dialect, full",
    }
}

/// Case names of one verb for all shapes.
pub(super) fn cases(verb: &str) -> impl Iterator<Item = String> {
    shapes().map(move |shape| case(verb, shape))
}

pub(super) fn shapes() -> impl Iterator<Item = &'static str> {
    SHAPES.into_iter().map(|(what, ..)| what)
}

pub(super) fn case(verb: &str, shape: &str) -> String {
    format!("{verb}, {shape}")
}

/// Runs all benchmarks on servers of its own; `show` gets the current step.
pub(super) async fn measure(
    kind: Kind,
    folders: [&Path; 2],
    settings: &Settings,
    show: &dyn Fn(&str),
) -> io::Result<Vec<Row>> {
    let few = Server::start_with_bedrock(kind, folders[0], &settings.launch)?;
    let many = Server::start_with_bedrock(kind, folders[1], &settings.launch)?;
    show("what a lone answer costs at least");
    let mut rows = floor(kind, &few.bedrock()?, folders[0], settings).await?;
    rows.extend(verbs(kind, &few.bedrock()?, settings, show).await?);
    show(PICK_UP);
    rows.push(pick_up(kind, &few.bedrock()?, settings).await?);
    show("looking for a job");
    rows.extend(looks(kind, &few.bedrock()?, &many.bedrock()?, settings).await?);
    few.stop()?;
    many.stop()?;
    Ok(rows)
}

/// Measures the lower bound of a single request: the round trip, and the disk for durable writes. The CPU
/// time of the latter is that of this program.
async fn floor(kind: Kind, target: &Bedrock, folder: &Path, settings: &Settings) -> io::Result<Vec<Row>> {
    let load = settings.load(settings.jobs.unwrap_or(JOBS).min(FLOOR_CALLS), 1, 1);
    let mut client = target.connect(&named("", settings)).await?;
    let sample = workloads::repeat(target.pid, load, async || client.ping().await).await?;
    let mut rows = vec![rate(kind, PING.to_owned(), sample, "1 x 1".to_owned())];
    if kind == Kind::WindlassFull {
        let path = folder.join("bench.pages");
        let file = File::create(&path)?;
        // Preallocates the file, because growing it costs more.
        file.write_all_at(&vec![0; FILE_COMMITS * COMMIT_BYTES], 0)?;
        file.sync_all()?;
        let page = [1; COMMIT_BYTES];
        let mut place = (0..FILE_COMMITS).cycle();
        let sample = workloads::repeat(Some(std::process::id()), load, async || {
            let at = place.next().unwrap_or_default() * COMMIT_BYTES;
            file.write_all_at(&page, at as u64)?;
            file.sync_data()
        });
        rows.push(rate(kind, DISK.to_owned(), sample.await?, "1 x 1".to_owned()));
        fs::remove_file(&path)?;
    }
    Ok(rows)
}

async fn verbs(
    kind: Kind,
    target: &Bedrock,
    settings: &Settings,
    show: &dyn Fn(&str),
) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (what, connections, batch) in SHAPES {
        show(what);
        let shape = named(&format!("bench.{connections}x{batch}"), settings);
        let load = settings.load(settings.jobs.unwrap_or(JOBS), connections, batch);
        let samples = workloads::each_verb(target, &shape, load).await?;
        for (verb, sample) in VERBS.into_iter().zip(samples) {
            rows.push(rate(kind, case(verb, what), sample, format!("{connections} x {batch}")));
        }
    }
    Ok(rows)
}

async fn pick_up(kind: Kind, target: &Bedrock, settings: &Settings) -> io::Result<Row> {
    let jobs = settings.jobs.unwrap_or(JOBS);
    let jobs = jobs.min((settings.rate * settings.at_most.as_secs_f64() * 0.8) as usize);
    let load = settings.load(jobs, MANY_CONNECTIONS, 1);
    let shape = named("bench.waiting", settings);
    let sample = workloads::mix_at_rate(target, &shape, load, settings.rate).await?;
    Ok(rate(kind, PICK_UP.to_owned(), sample, format!("{MANY_CONNECTIONS} x 1")))
}

/// Alternates between both servers, so that other load on the machine affects both alike.
async fn looks(kind: Kind, few: &Bedrock, many: &Bedrock, settings: &Settings) -> io::Result<Vec<Row>> {
    let waiting = settings.jobs.unwrap_or(MANY_WAITING).clamp(10 * FEW_WAITING, MANY_WAITING);
    fill(few, FEW_WAITING, settings).await?;
    fill(many, waiting, settings).await?;
    let mut rows = Vec::new();
    for (what, name, pattern) in LOOKED_FOR {
        let shape = Shape { name: name.to_owned(), pattern: pattern.to_owned(), ..named("", settings) };
        let us = match name {
            "" => missing_in_turns([few, many], &shape).await?,
            _ => {
                let load = settings.load(LOOKS, 1, 1);
                let costs = workloads::costs_in_turns([(few, &shape), (many, &shape)], load).await?;
                costs.map(|costs| costs.claim_us)
            }
        };
        for (us, waiting) in us.into_iter().zip([FEW_WAITING, waiting]) {
            rows.push(Row {
                workload: "B3",
                case: format!("get by {what}, {waiting} waiting"),
                server: label(kind),
                value: us,
                unit: Unit::MicrosecondsPerJob,
                shape: format!("{waiting} jobs"),
                sample: None,
            });
        }
    }
    Ok(rows)
}

async fn missing_in_turns(targets: [&Bedrock; 2], shape: &Shape) -> io::Result<[f64; 2]> {
    let mut clients = [targets[0].connect(shape).await?, targets[1].connect(shape).await?];
    let mut spans = [Vec::with_capacity(LOOKS), Vec::with_capacity(LOOKS)];
    let mut held = Vec::new();
    for _ in 0..LOOKS {
        for (client, spans) in clients.iter_mut().zip(&mut spans) {
            let begun = now_ns();
            client.claim(1, 0, &mut held).await?;
            spans.push(now_ns() - begun);
        }
    }
    if !held.is_empty() {
        return Err(io::Error::other("a job was found that should not be there"));
    }
    Ok(spans.map(|mut spans| Latency::of(&mut spans).p50_ms * 1e3))
}

async fn fill(target: &Bedrock, jobs: usize, settings: &Settings) -> io::Result<()> {
    let each = (jobs / OTHER_NAMES).max(1);
    for number in 0..OTHER_NAMES {
        let shape = named(&format!("other.{number}"), settings);
        let load =
            Load { jobs: each, connections: 4, batch: PIPELINE.min(each), ..settings.load(each, 1, 1) };
        let pushed = workloads::push(target, &shape, load).await?.jobs;
        if pushed != each {
            return Err(io::Error::other("cannot create the waiting jobs in time; increase --seconds"));
        }
    }
    Ok(())
}

fn named(name: &str, settings: &Settings) -> Shape {
    let name = name.to_owned();
    Shape { pattern: name.clone(), name, ..Shape::new("", settings.payload_bytes) }
}

fn rate(kind: Kind, case: String, sample: Sample, shape: String) -> Row {
    let workload = if case == PICK_UP { "B2" } else { "B1" };
    let (value, unit) = (sample.rate(), Unit::JobsPerSecond);
    Row { workload, case, server: label(kind), value, unit, shape, sample: Some(sample) }
}
