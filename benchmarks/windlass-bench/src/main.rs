//! `windlass-bench`: performance of a server on this machine, and comparison with other servers.

mod bedrock;
mod bedrock_cases;
mod cases;
mod client;
mod http;
mod native;
mod output;
mod peers;
mod procfs;
mod report;
mod scale;
mod servers;
mod targets;
mod wire;
mod workloads;

use cases::{Case, Settings};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use native::{Format, Windlass};
use report::{Row, Rows, Unit};
use serde_json::json;
use servers::{Kind, Launch, Server};
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Measure and compare servers: pushes, drains, a mix, memory, and costs that must not grow with the number of jobs
///
/// Without --server, starts servers on temporary stores and deletes the stores afterwards. The client uses one thread; the
/// CPU time per job of the client and of the server is shown, to see which of the two is the limit.
#[derive(Parser, Debug)]
#[command(version, args_override_self = true)]
#[command(after_help = "\
Examples:
  windlass-bench
  windlass-bench --workload W1,W2 --durability full
  windlass-bench --peer beanstalkd --rounds 3 --save results/today
  windlass-bench --dialect bedrock --durability full
  windlass-bench --server http://127.0.0.1:7373 --workload W3 --jobs 100000")]
struct BenchArgs {
    /// The windlass binary to measure [default: the one beside this program]
    #[arg(long, value_name = "PATH", env = "WINDLASS")]
    windlass: Option<PathBuf>,
    /// URL of a running server; uses queues named `bench-…` [default: temporary servers]
    #[arg(long, value_name = "URL", value_parser = http_address)]
    server: Option<String>,
    /// PostgreSQL URL for the temporary servers, each in its own schema, which is not deleted [default: embedded stores]
    #[arg(long, value_name = "URL", conflicts_with_all = ["server", "durability"])]
    store: Option<String>,
    /// Access token, if the server requires one
    #[arg(long, value_name = "TOKEN", env = "WINDLASS_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// W1 single pushes, W2 pushes over many connections, W3 batches, W4 drain, W5 mix, W6 memory and start, W7 flat cost
    #[arg(long, value_name = "W1,W2,…", value_delimiter = ',', ignore_case = true, value_enum,
          default_values = ["W1", "W2", "W3", "W4", "W5", "W6", "W7"], hide_default_value = true)]
    workload: Vec<Workload>,
    /// Protocol: the native API (W1 to W7), or the Bedrock dialect of temporary servers (B1 each command over one connection,
    /// pipelined and over many connections; B2 time until 64 waiting workers have a job; B3 claim of one job among many)
    #[arg(long, value_enum, default_value = "native", conflicts_with_all = ["server", "peer"])]
    dialect: Dialect,
    /// Jobs per measurement [default: by workload, 16,000 to 1,000,000]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Number of connections [default: by workload]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: Option<u16>,
    /// Jobs per call in W3 and W4 [default: 1000 and 500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    batch: Option<u16>,
    /// Size of each payload, at least 20
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    payload: usize,
    /// full: acknowledge a write after it is on disk; relaxed: before
    #[arg(long, value_name = "full,relaxed", value_delimiter = ',', value_enum, default_values = ["full", "relaxed"])]
    durability: Vec<Durability>,
    /// Encoding of the calls
    #[arg(long, value_enum, default_value = "json")]
    format: Format,
    /// Jobs per second in the mix at a steady rate
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    rate: u32,
    /// Time limit of one measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 10)]
    seconds: u64,
    /// Number of rounds; the best result of each measurement counts, for every server
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: u32,
    /// Also measure this server, in the same run
    #[arg(long, value_enum)]
    peer: Option<Peer>,
    /// Folder of the temporary stores, on the disk to be measured [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Also write PATH.json and PATH.md
    #[arg(long, value_name = "PATH")]
    save: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
enum Workload {
    W1,
    W2,
    W3,
    W4,
    W5,
    W6,
    W7,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Durability {
    Full,
    Relaxed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dialect {
    Native,
    Bedrock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// In memory, and with -b DIR -f0
    Beanstalkd,
}

fn main() -> ExitCode {
    match run(&BenchArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "windlass-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &BenchArgs) -> Outcome {
    // A single thread, so that the client takes little CPU time from the server under test.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = tokio::task::LocalSet::new().block_on(&runtime, measure_all(args))?;
    let verdicts = targets::verdicts(&rows);
    let data = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "payload_bytes": args.payload,
        "format": format!("{:?}", args.format).to_lowercase(),
        "rounds": args.rounds,
        "rows": rows.0,
        "targets": verdicts,
    });
    if let Some(path) = &args.save {
        save(path, "json", &format!("{data:#}\n"))?;
        save(path, "md", &format!("{}\n{}", rows.markdown(), targets::markdown(&verdicts)))?;
    }
    let mut out = std::io::stdout();
    match (args.json, verdicts.is_empty()) {
        (true, _) => writeln!(out, "{data}")?,
        (false, true) => write!(out, "{}", rows.table())?,
        (false, false) => write!(out, "{}\n{}", rows.table(), targets::table(&verdicts))?,
    }
    Ok(())
}

fn save(path: &Path, extension: &str, text: &str) -> Outcome {
    let path = path.with_extension(extension);
    std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()).into())
}

async fn measure_all(args: &BenchArgs) -> Outcome<Rows> {
    let mut bench = Bench { args, settings: settings(args)?, rows: Rows::default(), bar: progress_bar() };
    for _ in 0..args.rounds {
        if args.dialect == Dialect::Bedrock {
            bench.measure_bedrock().await?;
            continue;
        }
        bench.measure_cases().await?;
        for kind in kinds(args) {
            bench.measure_scale(kind).await?;
        }
    }
    if args.server.is_some() && (bench.wants("W6") || bench.wants("W7")) {
        let why = "W6 and W7 need temporary servers and cannot be combined with --server";
        let _ = writeln!(std::io::stderr(), "{why}");
    }
    bench.bar.finish_and_clear();
    Ok(bench.rows)
}

/// Servers to start.
fn kinds(args: &BenchArgs) -> Vec<Kind> {
    let mut kinds = Vec::new();
    if args.store.is_some() {
        kinds.push(Kind::WindlassPostgres);
    } else if args.server.is_none() {
        kinds.extend(args.durability.iter().map(|durability| kind_of(*durability)));
    }
    if args.peer == Some(Peer::Beanstalkd) {
        kinds.extend([Kind::BeanstalkdMemory, Kind::BeanstalkdFsync]);
    }
    kinds
}

fn settings(args: &BenchArgs) -> Outcome<Settings> {
    let windlass = match &args.windlass {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("windlass"),
    };
    Ok(Settings {
        jobs: args.jobs,
        connections: args.connections.map(usize::from),
        batch: args.batch.map(usize::from),
        payload_bytes: args.payload,
        rate: f64::from(args.rate.max(1)),
        at_most: Duration::from_secs(args.seconds.max(1)),
        launch: Launch { windlass, database: args.store.clone() },
    })
}

fn kind_of(durability: Durability) -> Kind {
    match durability {
        Durability::Full => Kind::WindlassFull,
        Durability::Relaxed => Kind::WindlassRelaxed,
    }
}

struct Bench<'a> {
    args: &'a BenchArgs,
    settings: Settings,
    rows: Rows,
    bar: ProgressBar,
}

impl Bench<'_> {
    fn wants(&self, workload: &str) -> bool {
        self.args.workload.iter().any(|wanted| format!("{wanted:?}") == workload)
    }

    /// Measures W1 to W5. All servers run, and each case is measured on one after the other: other load on
    /// the machine then affects all alike, and the ratios hold even where the figures do not.
    async fn measure_cases(&mut self) -> Outcome {
        let mut running = Vec::new();
        for kind in kinds(self.args) {
            let folder = self.temporary_folder()?;
            running.push((kind, Server::start(kind, folder.path(), &self.settings.launch)?, folder));
        }
        for case in Case::ALL {
            if !self.wants(case.workload()) {
                continue;
            }
            if let Some(server) = &self.args.server {
                let target = running_server(server, self.args);
                self.measure_case(*case, Kind::WindlassFull, "windlass running", &target).await?;
            }
            for (kind, server, _) in &running {
                let label = kind.label();
                match kind.is_windlass() {
                    true => {
                        self.measure_case(*case, *kind, label, &server.windlass(self.args.format)).await?
                    }
                    false => self.measure_case(*case, *kind, label, &server.beanstalkd()).await?,
                }
            }
        }
        for (_, server, _) in running {
            server.stop()?;
        }
        Ok(())
    }

    async fn measure_case<T: client::Target>(
        &mut self,
        case: Case,
        kind: Kind,
        label: &'static str,
        target: &T,
    ) -> Outcome {
        self.show(label, case.label());
        let (sample, shape) = cases::run(case, kind, target, &self.settings)
            .await
            .map_err(|error| format!("{label}, {}: {error}", case.label()))?;
        self.rows.add(Row {
            workload: case.workload(),
            case: case.label().to_owned(),
            server: label,
            value: sample.rate(),
            unit: Unit::JobsPerSecond,
            shape,
            sample: Some(sample),
        });
        Ok(())
    }

    /// Measures B1 to B3.
    async fn measure_bedrock(&mut self) -> Outcome {
        for kind in kinds(self.args) {
            let folders = [self.temporary_folder()?, self.temporary_folder()?];
            let label = bedrock_cases::label(kind);
            let places = [folders[0].path(), folders[1].path()];
            let show = |what: &str| self.show(label, what);
            let rows = bedrock_cases::measure(kind, places, &self.settings, &show)
                .await
                .map_err(|error| format!("{label}: {error}"))?;
            rows.into_iter().for_each(|row| self.rows.add(row));
        }
        Ok(())
    }

    /// Measures W6 and W7, each on servers of its own.
    async fn measure_scale(&mut self, kind: Kind) -> Outcome {
        if self.wants("W6") {
            self.show(kind.label(), "memory and start");
            let folder = self.temporary_folder()?;
            for row in scale::memory_and_start(kind, folder.path(), &self.settings).await? {
                self.rows.add(row);
            }
        }
        if self.wants("W7") && kind.is_windlass() {
            self.show(kind.label(), "flat cost");
            let folders = [self.temporary_folder()?, self.temporary_folder()?];
            let few = Server::start(kind, folders[0].path(), &self.settings.launch)?;
            let many = Server::start(kind, folders[1].path(), &self.settings.launch)?;
            let format = self.args.format;
            let targets = (few.windlass(format), many.windlass(format));
            for row in scale::flat_costs(kind.label(), &targets.0, &targets.1, &self.settings).await? {
                self.rows.add(row);
            }
            few.stop()?;
            many.stop()?;
        }
        Ok(())
    }

    fn temporary_folder(&self) -> Outcome<tempfile::TempDir> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("windlass-bench-");
        let folder = match &self.args.folder {
            Some(folder) => builder.tempdir_in(folder),
            None => builder.tempdir(),
        };
        folder.map_err(|error| format!("cannot create a temporary folder: {error}").into())
    }

    fn show(&self, label: &str, what: &str) {
        self.bar.set_message(format!("{label}: {what}"));
    }
}

/// Spinner drawn by its own thread ten times a second, only on a terminal.
fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Address of a running server, from its URL.
fn http_address(server: &str) -> Result<String, String> {
    let address = server.strip_prefix("http://").unwrap_or(server).trim_end_matches('/');
    match address.contains('/') {
        true => Err(format!("{server:?} is not a server URL; use the form http://HOST:PORT")),
        false => Ok(address.to_owned()),
    }
}

fn running_server(address: &str, args: &BenchArgs) -> Windlass {
    Windlass { address: address.to_owned(), pid: None, format: args.format, token: args.token.clone() }
}
