//! `windlass import`: imports the jobs of another job system.

mod bedrock;
mod tally;

use crate::fault::Outcome;
use clap::{Args, Subcommand};

/// Import jobs from another job system
///
/// A dry run by default; add --apply to import the jobs.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass import bedrock bedrock.db
  windlass import bedrock bedrock.db --apply")]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    system: System,
}

#[derive(Subcommand, Debug)]
enum System {
    Bedrock(bedrock::BedrockArgs),
}

pub(crate) fn run(args: ImportArgs) -> Outcome {
    match args.system {
        System::Bedrock(args) => bedrock::run(args),
    }
}
