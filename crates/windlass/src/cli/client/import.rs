//! `windlass import`: imports the jobs of another job system.

mod bedrock;
mod tally;

use crate::fault::Outcome;
use clap::{Args, Subcommand};

/// Take over the jobs of another job system
///
/// Shows what would happen; --apply does it.
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
