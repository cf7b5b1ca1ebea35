//! Command line: one file per subcommand. All commands except `serve`, `demo`, `check`, `backup`, `compact`,
//! `copy` and `report` are clients of the native API and could run on another machine.

mod backup;
mod bench;
mod blobs;
mod check;
mod compact;
mod completions;
pub mod config;
mod copy;
mod demo;
mod import;
mod job;
mod jobs;
mod man;
mod migrate;
mod progress;
mod push;
mod queues;
mod report;
mod result;
mod run_guard;
mod run_handler;
mod run_query;
#[cfg(feature = "wasi")]
mod run_wasi;
#[cfg(feature = "wasi")]
mod run_wasi_guest;
mod token;
mod top;
mod view;
mod work;

#[cfg(test)]
mod tests;

use crate::fault::Outcome;
use crate::serve;
use clap::{Parser, Subcommand};

/// A job server: keeps jobs safe, hands each to one worker at a time, and sees it to its end.
///
/// Without a command it starts the server, like `windlass serve`.
#[derive(Parser, Debug)]
#[command(name = "windlass", version, args_conflicts_with_subcommands = true, max_term_width = 110)]
#[command(after_help = "\
Examples:
  windlass                                    start a server on 127.0.0.1:7373
  windlass push hello '{\"to\":\"you\"}'          put a job in
  windlass work hello -- cat                  take jobs out and run a command for each
  windlass demo                               a guided tour on a temporary store")]
pub struct Cli {
    #[command(flatten)]
    serve: serve::ServeArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    Serve(serve::ServeArgs),
    Push(push::PushArgs),
    Work(work::WorkArgs),
    #[cfg(feature = "wasi")]
    RunWasi(run_wasi::RunWasiArgs),
    Jobs(jobs::JobsArgs),
    Job(job::JobArgs),
    Queues(queues::QueuesArgs),
    Blobs(blobs::BlobsArgs),
    Top(top::TopArgs),
    Report(report::ReportArgs),
    Bench(bench::BenchArgs),
    Check(check::CheckArgs),
    Backup(backup::BackupArgs),
    Compact(compact::CompactArgs),
    Migrate(migrate::MigrateArgs),
    Copy(copy::CopyArgs),
    Import(import::ImportArgs),
    Demo(demo::DemoArgs),
    Token(token::TokenArgs),
    Config(config::ConfigCommandArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    RunHandler(run_handler::RunHandlerArgs),
    RunGuard(run_guard::RunGuardArgs),
    RunQuery(run_query::RunQueryArgs),
    #[cfg(feature = "wasi")]
    RunWasiGuest(run_wasi_guest::RunWasiGuestArgs),
}

pub fn run(cli: Cli) -> Outcome {
    match cli.command {
        None => serve::run(cli.serve),
        Some(Command::Serve(args)) => serve::run(args),
        Some(Command::Push(args)) => push::run(args),
        Some(Command::Work(args)) => work::run(args),
        #[cfg(feature = "wasi")]
        Some(Command::RunWasi(args)) => run_wasi::run(args),
        Some(Command::Jobs(args)) => jobs::run(args),
        Some(Command::Job(args)) => job::run(args),
        Some(Command::Queues(args)) => queues::run(args),
        Some(Command::Blobs(args)) => blobs::run(args),
        Some(Command::Top(args)) => top::run(args),
        Some(Command::Report(args)) => report::run(args),
        Some(Command::Bench(args)) => bench::run(args),
        Some(Command::Check(args)) => check::run(args),
        Some(Command::Backup(args)) => backup::run(args),
        Some(Command::Compact(args)) => compact::run(args),
        Some(Command::Migrate(args)) => migrate::run(args),
        Some(Command::Copy(args)) => copy::run(args),
        Some(Command::Import(args)) => import::run(args),
        Some(Command::Demo(args)) => demo::run(args),
        Some(Command::Token(args)) => token::run(args),
        Some(Command::Config(args)) => config::run(args),
        Some(Command::Completions(args)) => completions::run(args),
        Some(Command::Man(args)) => man::run(args),
        Some(Command::RunHandler(args)) => run_handler::run(args),
        Some(Command::RunGuard(args)) => run_guard::run(args),
        Some(Command::RunQuery(args)) => run_query::run(args),
        #[cfg(feature = "wasi")]
        Some(Command::RunWasiGuest(args)) => run_wasi_guest::run(args),
    }
}
