//! `windlass health`: readiness probe for containers and scripts.

use crate::client::ServerArgs;
use crate::fault::Outcome;
use crate::output;
use clap::Args;
use serde_json::json;

/// Ask the server whether it is ready; exit code 0 if it is, 1 if not
///
/// Calls /readyz, which needs no token: the server can store what it acknowledges, and has resources for more requests.
/// With --alive it calls /healthz, which succeeds whenever the process answers.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass health
  windlass health --alive --server http://127.0.0.1:9000")]
pub(crate) struct HealthArgs {
    /// Ask only whether the process answers
    #[arg(long)]
    alive: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(args: HealthArgs) -> Outcome {
    let path = if args.alive { "/healthz" } else { "/readyz" };
    let answer = args.server.client()?.call("GET", path, None, 0)?;
    let mut lines = answer.text.lines();
    if !args.json {
        return lines.try_for_each(output::say);
    }
    let detail: Vec<&str> = lines.skip(1).collect();
    output::say_json(&json!({"ok": true, "detail": detail}))
}
