//! `windlass run-handler`: guard process of a handler context. Started by the server with a socket as stdin.

use crate::fault::{Fault, Outcome};
use clap::Args;
use windlass_runners::handlers::guard;

/// Run a handler's interpreter for the server
///
/// Started by `windlass serve` for itself; gives up what handlers must not have, then starts the interpreter.
#[derive(Args, Debug)]
#[command(hide = true)]
#[command(after_help = "\
Example:
  windlass run-handler < /dev/null          ends at once: nobody says what to run")]
pub(crate) struct RunHandlerArgs {
    /// Which of the processes around an interpreter to be; without it, the guard
    #[arg(value_parser = [guard::FIRST, guard::INSIDE])]
    stage: Option<String>,
}

pub(crate) fn run(args: RunHandlerArgs) -> Outcome {
    guard::serve(args.stage.as_deref()).map_err(|why| Fault::failed(format!("handler: {why}")))
}
