//! `windlass run-query`: process that executes the SQL statements of Bedrock's Query command. Started by the
//! server with pipes as stdin and stdout.

use crate::fault::{Fault, Outcome};
use clap::Args;
use windlass_dialects::bedrock::query;
use windlass_runners::confine;

/// Run SQL statements of the Bedrock dialect (internal)
///
/// Started by `windlass serve`; communicates over standard input and output.
#[derive(Args, Debug)]
#[command(hide = true)]
#[command(after_help = "\
Example:
  windlass run-query < /dev/null          exits at once: no statement is given")]
pub(crate) struct RunQueryArgs {}

pub(crate) fn run(_args: RunQueryArgs) -> Outcome {
    query::serve(std::io::stdin().lock(), std::io::stdout().lock(), confined)
        .map_err(|error| Fault::failed(format!("query: {error}")))
}

/// Confines the process. SQLite allocates in small pieces, so RLIMIT_DATA is precise: a statement that needs
/// more memory fails.
fn confined(limits: query::QueryLimits) -> Vec<String> {
    let data_bytes =
        confine::data_bytes_now().map_or(u64::MAX, |now| now.saturating_add(limits.memory_bytes));
    let mut holds = confine::begin(data_bytes);
    confine::finish(&mut holds);
    holds
}
