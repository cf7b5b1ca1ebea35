//! `windlass run-wasi`: runner of WASI jobs for a remote server.

use crate::client::{Client, ServerArgs};
use crate::fault::{Fault, Outcome};
use crate::human_time;
use crate::output;
use crate::telemetry;
use crate::wasi::remote::Remote;
use clap::Args;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use windlass_runners::wasi::message::Limits;
use windlass_runners::wasi::runner::{Options, Runner, Stopping};

/// Claim WASI jobs from a server and run them
///
/// Claims jobs of the queuey-queue dialect, runs each WebAssembly module with its input on standard input, uploads its
/// standard output as a blob, and completes the job with the address of the blob. If a module fails, the job fails with
/// its standard error. Modules run in separate processes without files, environment, arguments or network.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass run-wasi
  windlass run-wasi --server https://jobs.example.org --token TOKEN --workers 4
  windlass run-wasi --storage http://127.0.0.1:7475 --time-limit 60s")]
pub(crate) struct RunWasiArgs {
    /// Maximum number of jobs running at the same time, each in its own process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Server that stores the blobs, if it is another one: castaway or Windlass
    #[arg(long, value_name = "URL")]
    storage: Option<String>,
    /// Time limit of one module
    #[arg(long, value_name = "DURATION", default_value = "300s", value_parser = human_time::parse_duration_ms)]
    time_limit: i64,
    /// Memory limit of one module
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().memory_bytes_max)]
    memory_bytes: u64,
    /// Size limit of standard output and of standard error of one module, each
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().output_bytes_max)]
    output_bytes: u64,
    /// Compiled modules cached by each process
    #[arg(long, value_name = "N", default_value_t = Limits::default().cache_modules)]
    cache_modules: u32,
    /// Value of queuey.abandoned_age_s on the server; heartbeats are sent every third of it, at least once a minute
    #[arg(long, value_name = "DURATION", default_value = "300s", value_parser = human_time::parse_duration_ms)]
    abandoned_age: i64,
    /// Time for running modules to finish after SIGTERM or SIGINT
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = human_time::parse_duration_ms)]
    grace: i64,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(args: RunWasiArgs) -> Outcome {
    telemetry::start_plain();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run_jobs(args))
}

async fn run_jobs(args: RunWasiArgs) -> Outcome {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terms = signal(SignalKind::terminate())?;
    let server = args.server.client()?;
    let storage =
        args.storage.as_deref().map(|url| Client::new(url, None, args.server.ca.as_deref())).transpose()?;
    let place = server.server();
    let source = Arc::new(Remote::new(server, storage, duration(args.abandoned_age)));
    output::note(format!("runner {} claims WASI jobs from {place}", source.runner_id()));
    let options = Options {
        workers: usize::from(args.workers),
        limits: limits(&args),
        program: crate::wasi::guest_program()?,
        strict: false,
    };
    let (stop, stopping) = watch::channel(Stopping::No);
    let mut runner = tokio::spawn(Runner::new(source, options, stopping).run());
    tokio::select! {
        ended = &mut runner => return ended.map_err(|error| Fault::failed(format!("internal error: the runner panicked: {error}"))),
        _ = interrupts.recv() => {}
        _ = terms.recv() => {}
    }
    output::note("shutting down: waiting for running modules; send a second signal to stop them");
    stop.send_replace(Stopping::Finish);
    tokio::select! {
        _ = &mut runner => return Ok(()),
        () = tokio::time::sleep(duration(args.grace)) => {}
        _ = interrupts.recv() => {}
        _ = terms.recv() => {}
    }
    stop.send_replace(Stopping::Now);
    let _ = runner.await;
    Ok(())
}

fn limits(args: &RunWasiArgs) -> Limits {
    Limits {
        time_limit_ms: u64::try_from(args.time_limit).unwrap_or(0),
        memory_bytes_max: args.memory_bytes,
        output_bytes_max: args.output_bytes,
        cache_modules: args.cache_modules,
    }
}

fn duration(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
