//! Command line: one file per subcommand. All commands except `serve`, `dev`, `demo`, `init`, `doctor`, `docs`, `report`
//! and those in `store/` are clients of the native API and could run on another machine.

mod anywhere;
mod bench;
mod client;
mod completions;
pub(crate) mod config;
mod confirm;
mod demo;
mod dev;
mod docs;
mod doctor;
mod findings;
mod init;
mod internal;
mod man;
mod own_server;
mod progress;
mod report;
mod signals;
mod store;

#[cfg(test)]
mod tests;

use crate::fault::Outcome;
use crate::serve;
use clap::{CommandFactory, Parser, Subcommand};

/// Windlass is a job server. It stores jobs durably, leases each job to one worker at a time, and retries failed
/// attempts.
///
/// Without a command, windlass starts the server (the same as `windlass serve`).
#[derive(Parser, Debug)]
#[command(name = "windlass", version, args_conflicts_with_subcommands = true, max_term_width = 110)]
#[command(after_help = "\
Examples:
  windlass                                    start a server on 127.0.0.1:7373
  windlass push hello '{\"to\":\"you\"}'          push a job
  windlass work hello -- cat                  claim jobs and run a command for each
  windlass dev                                temporary server with a log of its jobs and hints
  windlass demo                               guided tour on a temporary server

The client commands accept --server, --token, --ca and --json anywhere on the line.")]
pub(crate) struct Cli {
    #[command(flatten)]
    serve: serve::ServeArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

impl Cli {
    /// Parses the command line of the process; exits with a message if that fails.
    pub(crate) fn from_line() -> Cli {
        Cli::parse_from(anywhere::reordered(std::env::args_os().collect(), Cli::command()))
    }
}

#[derive(Subcommand, Debug)]
enum Command {
    Serve(serve::ServeArgs),
    Dev(dev::DevArgs),
    Push(client::push::PushArgs),
    Work(client::work::WorkArgs),
    #[cfg(feature = "wasi")]
    RunWasi(internal::run_wasi::RunWasiArgs),
    Jobs(client::jobs::JobsArgs),
    Job(client::job::JobArgs),
    Failures(client::failures::FailuresArgs),
    Queues(client::queues::QueuesArgs),
    Schedules(client::schedules::SchedulesArgs),
    Blobs(client::blobs::BlobsArgs),
    Top(client::top::TopArgs),
    Audit(client::audit::AuditArgs),
    Health(client::health::HealthArgs),
    Report(report::ReportArgs),
    Bench(bench::BenchArgs),
    Check(store::check::CheckArgs),
    Backup(store::backup::BackupArgs),
    Restore(store::restore::RestoreArgs),
    Compact(store::compact::CompactArgs),
    Migrate(store::migrate::MigrateArgs),
    UpgradeCheck(store::upgrade_check::UpgradeCheckArgs),
    Copy(store::copy::CopyArgs),
    Import(client::import::ImportArgs),
    Demo(demo::DemoArgs),
    Token(client::token::TokenArgs),
    Doctor(doctor::DoctorArgs),
    Init(init::InitArgs),
    Config(config::ConfigCommandArgs),
    Docs(docs::DocsArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    RunHandler(internal::run_handler::RunHandlerArgs),
    RunGuard(internal::run_guard::RunGuardArgs),
    RunQuery(internal::run_query::RunQueryArgs),
    #[cfg(feature = "wasi")]
    RunWasiGuest(internal::run_wasi_guest::RunWasiGuestArgs),
}

pub(crate) fn run(cli: Cli) -> Outcome {
    match cli.command {
        None => serve::run(cli.serve),
        Some(Command::Serve(args)) => serve::run(args),
        Some(Command::Dev(args)) => dev::run(args),
        Some(Command::Push(args)) => client::push::run(args),
        Some(Command::Work(args)) => client::work::run(args),
        #[cfg(feature = "wasi")]
        Some(Command::RunWasi(args)) => internal::run_wasi::run(args),
        Some(Command::Jobs(args)) => client::jobs::run(args),
        Some(Command::Job(args)) => client::job::run(args),
        Some(Command::Failures(args)) => client::failures::run(args),
        Some(Command::Queues(args)) => client::queues::run(args),
        Some(Command::Schedules(args)) => client::schedules::run(args),
        Some(Command::Blobs(args)) => client::blobs::run(args),
        Some(Command::Top(args)) => client::top::run(args),
        Some(Command::Audit(args)) => client::audit::run(args),
        Some(Command::Health(args)) => client::health::run(args),
        Some(Command::Report(args)) => report::run(args),
        Some(Command::Bench(args)) => bench::run(args),
        Some(Command::Check(args)) => store::check::run(args),
        Some(Command::Backup(args)) => store::backup::run(args),
        Some(Command::Restore(args)) => store::restore::run(args),
        Some(Command::Compact(args)) => store::compact::run(args),
        Some(Command::Migrate(args)) => store::migrate::run(args),
        Some(Command::UpgradeCheck(args)) => store::upgrade_check::run(args),
        Some(Command::Copy(args)) => store::copy::run(args),
        Some(Command::Import(args)) => client::import::run(args),
        Some(Command::Demo(args)) => demo::run(args),
        Some(Command::Token(args)) => client::token::run(args),
        Some(Command::Doctor(args)) => doctor::run(args),
        Some(Command::Init(args)) => init::run(args),
        Some(Command::Config(args)) => config::run(args),
        Some(Command::Docs(args)) => docs::run(args),
        Some(Command::Completions(args)) => completions::run(args),
        Some(Command::Man(args)) => man::run(args),
        Some(Command::RunHandler(args)) => internal::run_handler::run(args),
        Some(Command::RunGuard(args)) => internal::run_guard::run(args),
        Some(Command::RunQuery(args)) => internal::run_query::run(args),
        #[cfg(feature = "wasi")]
        Some(Command::RunWasiGuest(args)) => internal::run_wasi_guest::run(args),
    }
}

/// Quotes a word for the shell if needed.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
