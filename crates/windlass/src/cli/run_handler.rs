//! `windlass run-handler`: the process around the context of a handler. Started by the server, with a socket for standard input.

use crate::fault::{Fault, Outcome};
use clap::Args;

/// Run a handler's interpreter for the server
///
/// Started by `windlass serve` for itself; gives up what handlers must not have, then starts the interpreter.
#[derive(Args, Debug)]
#[command(hide = true)]
#[command(after_help = "\
Example:
  windlass run-handler < /dev/null          ends at once: nobody says what to run")]
pub struct RunHandlerArgs {}

pub fn run(_args: RunHandlerArgs) -> Outcome {
    windlass_runners::handlers::guard::serve().map_err(|why| Fault::failed(format!("handler: {why}")))
}
