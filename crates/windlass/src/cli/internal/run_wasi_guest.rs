//! `windlass run-wasi-guest`: WASI guest process. Started by runners with pipes as stdin and stdout.

use crate::fault::{Fault, Outcome};
use clap::Args;

/// Run WebAssembly modules (internal)
///
/// Started by `windlass serve` and `windlass run-wasi`; communicates over standard input and output.
#[derive(Args, Debug)]
#[command(hide = true)]
#[command(after_help = "\
Example:
  windlass run-wasi-guest < /dev/null          exits at once: no module is given")]
pub(crate) struct RunWasiGuestArgs {}

pub(crate) fn run(_args: RunWasiGuestArgs) -> Outcome {
    windlass_runners::wasi::guest::serve().map_err(|error| Fault::failed(format!("WASI guest: {error}")))
}
