//! `windlass run-query`: the process in which the statements of Bedrock's Query run. Started by the server, with pipes on
//! both sides.

use crate::fault::{Fault, Outcome};
use clap::Args;
use windlass_dialects::bedrock::query;
use windlass_runners::confine;

/// Run SQL statements for the server
///
/// Started by `windlass serve` for itself; speaks to it over standard input and output.
#[derive(Args, Debug)]
#[command(hide = true)]
#[command(after_help = "\
Example:
  windlass run-query < /dev/null          ends at once: nobody gives it orders")]
pub struct RunQueryArgs {}

pub fn run(_args: RunQueryArgs) -> Outcome {
    query::serve(std::io::stdin().lock(), std::io::stdout().lock(), confined)
        .map_err(|error| Fault::failed(format!("query: {error}")))
}

/// SQLite asks the system for memory piece by piece, so a limit on it is exact: a statement that wants more is refused.
fn confined(limits: query::Limits) -> Vec<String> {
    let data_bytes =
        confine::data_bytes_now().map_or(u64::MAX, |now| now.saturating_add(limits.memory_bytes));
    let mut holds = confine::begin(data_bytes);
    confine::finish(&mut holds);
    holds
}
