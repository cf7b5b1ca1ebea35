//! `windlass health`: readiness probe for containers and scripts.

use crate::client::{ClientError, ServerArgs};
use crate::fault::Outcome;
use crate::output;
use clap::Args;
use serde_json::json;

/// Ask the server whether it is ready; exit code 0 if it is, 1 if not
///
/// Calls /readyz, which needs no token: the server can store what it acknowledges, and has resources for more requests.
/// With --alive it calls /healthz, which succeeds whenever the process answers. The answer of another program is a failure.
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
    let answer = ask(&args);
    if args.json {
        output::say_json(&match &answer {
            Ok(text) => json!({"ok": true, "detail": text.lines().skip(1).collect::<Vec<_>>()}),
            Err(fault) => json!({"ok": false, "error": fault.to_string()}),
        })?;
        return answer.map(drop);
    }
    answer?.lines().try_for_each(output::say)
}

/// Text of the probe, which begins with OK.
fn ask(args: &HealthArgs) -> Outcome<String> {
    let path = if args.alive { "/healthz" } else { "/readyz" };
    let mut client = args.server.client()?;
    let text = client.call("GET", path, None, 0)?.text;
    if text.starts_with("OK") {
        return Ok(text);
    }
    let detail = format!("{path} does not begin with OK");
    Err(ClientError::NotWindlass { server: client.server(), detail }.into())
}
