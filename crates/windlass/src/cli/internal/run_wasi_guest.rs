//! `windlass run-wasi-guest`: WASI guest process. Started by runners with pipes as stdin and stdout.

use crate::fault::{Fault, Outcome};
use clap::Args;

/// Run WebAssembly modules for a runner
///
/// Started by `windlass serve` and `windlass run-wasi` for themselves; speaks to them over standard input and output.
#[derive(Args, Debug)]
#[command(hide = true)]
#[command(after_help = "\
Example:
  windlass run-wasi-guest < /dev/null          ends at once: nobody gives it orders")]
pub(crate) struct RunWasiGuestArgs {}

pub(crate) fn run(_args: RunWasiGuestArgs) -> Outcome {
    windlass_runners::wasi::guest::serve().map_err(|error| Fault::failed(format!("WASI guest: {error}")))
}
