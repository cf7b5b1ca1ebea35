//! `windlass run-handler`: guard process of a handler context. Started by the server with a socket as stdin.

use crate::fault::{Fault, Outcome};
use clap::Args;
use windlass_runners::handlers::guard;

/// Run the interpreter of a handler (internal)
///
/// Started by `windlass serve`; drops its privileges, then starts the interpreter.
#[derive(Args, Debug)]
#[command(hide = true)]
#[command(after_help = "\
Example:
  windlass run-handler < /dev/null          exits at once: no handler is given")]
pub(crate) struct RunHandlerArgs {
    /// Stage of the isolation; without it, the guard process
    #[arg(value_parser = [guard::FIRST, guard::INSIDE])]
    stage: Option<String>,
}

pub(crate) fn run(args: RunHandlerArgs) -> Outcome {
    guard::serve(args.stage.as_deref()).map_err(|why| Fault::failed(format!("handler: {why}")))
}
