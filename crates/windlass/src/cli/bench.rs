//! `windlass bench`: rates and latencies of one server. Comparisons with other servers are a program of their own, in
//! `benchmarks/` of the source.

mod load;
mod workers;

use super::own_server::{Home, OwnServer};
use super::signals::on_signals;
use crate::client::Client;
use crate::fault::{Fault, Outcome};
use crate::output::{self, Colour, Style, Table};
use clap::{Args, ValueEnum};
use load::{Hand, Load, Sample};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use workers::{BedrockWorker, NativeWorker, Worker};

/// Measure throughput and latency of pushes, claims and finishes
///
/// Without --server, starts a server on a temporary store in the same process, and deletes the store afterwards.
#[derive(Args, Debug)]
#[command(args_override_self = true)]
#[command(after_help = "\
Examples:
  windlass bench
  windlass bench --connections 64 --durability relaxed
  windlass bench --server http://127.0.0.1:7373 --jobs 100000 --batch 500
  windlass bench --dialect bedrock --json")]
pub(super) struct BenchArgs {
    /// URL of a running server; uses a queue named `bench-…` and leaves it empty [default: a temporary server]
    #[arg(long, value_name = "URL", conflicts_with_all = ["durability", "folder"])]
    server: Option<String>,
    /// Access token, if the server requires one
    #[arg(long, value_name = "TOKEN", env = "WINDLASS_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// PEM file of trusted CA certificates for https://, instead of the system's
    #[arg(long, value_name = "FILE", env = "WINDLASS_CA")]
    ca: Option<PathBuf>,
    /// Protocol: the native API, or the Bedrock dialect of a temporary server
    #[arg(long, value_enum, default_value = "native", conflicts_with = "server")]
    dialect: Dialect,
    /// Jobs per measurement
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    jobs: usize,
    /// Number of connections, each with its own thread
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Jobs per call
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    batch: u16,
    /// Size of each payload, at least 20
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    payload: usize,
    /// full: acknowledge a write after it is on disk; relaxed: before
    #[arg(long, value_parser = ["full", "relaxed"], default_value = "full")]
    durability: String,
    /// Jobs pushed per second while the time from push to claim is measured
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Time limit of one measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Folder of the temporary store, on the disk to be measured [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dialect {
    Native,
    Bedrock,
}

pub(super) fn run(args: BenchArgs) -> Outcome {
    let samples = match &args.server {
        Some(url) => on_running_server(&args, url),
        None => on_own_server(&args),
    }?;
    if args.json {
        let rows: Vec<_> = samples.iter().map(|(what, sample)| sample.json(what)).collect();
        let (connections, batch, payload_bytes) = (args.connections, args.batch, args.payload);
        let version = env!("CARGO_PKG_VERSION");
        return output::say_json(&json!({"version": version, "connections": connections, "batch": batch,
            "payload_bytes": payload_bytes, "rows": rows}));
    }
    let mut table = Table::new(&["MEASUREMENT", ">JOBS", ">JOBS/S", ">P50 MS", ">P99 MS", ">MAX MS"]);
    for (what, sample) in &samples {
        let cells = [
            (*what).to_owned(),
            sample.jobs.to_string(),
            format!("{:.0}", sample.rate()),
            format!("{:.2}", sample.percentile_ms(0.5)),
            format!("{:.2}", sample.percentile_ms(0.99)),
            format!("{:.2}", sample.percentile_ms(1.0)),
        ];
        table.row(cells.into_iter().map(|cell| (cell, Colour::Plain)).collect());
    }
    table.print(Style::of_stdout())
}

type Samples = Vec<(&'static str, Sample)>;

fn on_own_server(args: &BenchArgs) -> Outcome<Samples> {
    let settings = [("durability", args.durability.as_str())];
    let home = Home::Temporary { prefix: "windlass-bench-", parent: args.folder.as_deref() };
    let server = OwnServer::start(home, &settings)?;
    let measured = match args.dialect {
        Dialect::Native => server.url().and_then(|url| measure_native(args, &url)),
        Dialect::Bedrock => server
            .address("bedrock")
            .and_then(|address| measure(args, || Ok(Box::new(BedrockWorker::open(address, args.payload)?)))),
    };
    server.stop();
    measured
}

/// Measures a server that others use: a signal ends the measurement, and the jobs that were pushed are cleared away.
fn on_running_server(args: &BenchArgs, url: &str) -> Outcome<Samples> {
    on_signals(|_| load::interrupt(), |number| std::process::exit(128 + number))?;
    measure_native(args, url)
}

fn measure_native(args: &BenchArgs, url: &str) -> Outcome<Samples> {
    let client = Client::new(url, args.token.as_deref(), args.ca.as_deref())?;
    let queue = format!("bench-{}", std::process::id());
    let worker =
        || NativeWorker { client: client.another(), queue: queue.clone(), payload_bytes: args.payload };
    measure(args, || Ok(Box::new(worker())))
}

fn measure(args: &BenchArgs, open: impl Fn() -> Outcome<Box<dyn Worker>>) -> Outcome<Samples> {
    let connect = || open().map(Hand::new);
    let mut hands = (0..args.connections).map(|_| connect()).collect::<Outcome<Vec<Hand>>>()?;
    let at_most = Duration::from_secs(args.seconds);
    let load = Load { jobs: args.jobs, batch: usize::from(args.batch), at_most };
    // Clears what is left because the time was over.
    let rest = Load { jobs: usize::MAX, at_most: at_most * 6, ..load };
    let measured = measure_all(&mut hands, load, rest, args.rate, connect);
    if !load::is_interrupted() {
        return measured;
    }
    load::clear(&mut hands, rest)?;
    Err(Fault::Interrupted)
}

fn measure_all(
    hands: &mut [Hand],
    load: Load,
    rest: Load,
    rate: u32,
    connect: impl Fn() -> Outcome<Hand>,
) -> Outcome<Samples> {
    let mut samples = vec![
        ("push", load::each(hands, load, Hand::push)?),
        ("claim", load::each(hands, load, Hand::claim)?),
        ("finish", load::each(hands, Load { jobs: usize::MAX, ..load }, Hand::finish)?),
    ];
    load::each(hands, rest, Hand::drain)?;
    samples.push(("push to claim, steady rate", load::pick_up(connect()?, hands, load, rate)?));
    load::each(hands, rest, Hand::drain)?;
    Ok(samples)
}
