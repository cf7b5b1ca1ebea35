//! `windlass job ID …`: shows or changes one job.

mod changes;
mod signal;

use crate::cli::client::{result, view};
use crate::client::{Client, ServerArgs, escaped};
use crate::fault::{Fault, Outcome};
use crate::human_time;
use crate::output;
use changes::{ChangesBody, CopyArgs, EditArgs};
use clap::{Args, Subcommand};
use serde_json::json;
use signal::SignalArgs;
use std::io::IsTerminal;

/// Show, cancel, retry, run, signal, change, copy, delete or bring back one job
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass job 42
  windlass job order-7 result --wait 30s
  windlass job 42 cancel
  windlass job 42 retry --from charge
  windlass job 42 signal approval '{\"by\":\"ann\"}'
  windlass job 42 edit --priority -10 --queue urgent
  windlass job 42 clone --payload '{\"to\":\"bob\"}'")]
pub(crate) struct JobArgs {
    /// Id of the job, or its alias if that is not a number
    #[arg(value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    id: String,
    #[command(subcommand)]
    action: Option<Action>,
    /// Print the server's response as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Subcommand, Debug, Clone)]
enum Action {
    /// Show the job (default)
    #[command(after_help = "Example:\n  windlass job 42 show --json")]
    Show,
    /// Cancel the job; if it is running, its worker is asked to stop
    #[command(after_help = "Example:\n  windlass job 42 cancel")]
    Cancel,
    /// Start a completed, failed or cancelled job again, or the next attempt of a failed one at once; attempts count
    /// from zero
    ///
    /// A failed or cancelled job keeps the results of its steps and continues after them; a completed job starts
    /// without any. With --from, the steps before that one are kept in both cases.
    #[command(after_help = "\
Examples:
  windlass job 42 retry
  windlass job 42 retry --from charge")]
    Retry {
        /// Execute this step and all steps kept after it again
        #[arg(long, value_name = "STEP")]
        from: Option<String>,
    },
    /// Send a signal to the job
    ///
    /// A job that waits for the signal runs again; otherwise the signal is kept until the job waits for it. The payload
    /// becomes the result of the wait. A payload that begins with {, [ or " must be valid JSON, unless --text is given.
    #[command(after_help = "\
Examples:
  windlass job 42 signal approval
  windlass job 42 signal approval '{\"by\":\"ann\"}'
  windlass job order-7 signal paid - < receipt.json")]
    Signal(SignalArgs),
    /// Run a delayed job now
    #[command(after_help = "Example:\n  windlass job 42 run")]
    Run,
    /// Delete the job
    #[command(after_help = "Example:\n  windlass job 42 delete")]
    Delete,
    /// Bring back a job that was deleted less than a minute ago (native.undo_delete_s); needs its id
    #[command(after_help = "Example:\n  windlass job 42 undelete")]
    Undelete,
    /// Print the result of the job
    #[command(after_help = "Example:\n  windlass job 42 result --wait 30s")]
    Result {
        /// Wait up to this long for the job to finish, e.g. 30s
        #[arg(long, value_name = "DURATION", value_parser = human_time::parse_duration_ms)]
        wait: Option<i64>,
    },
    /// Change a job that is not running
    #[command(alias = "set")]
    #[command(after_help = "\
Examples:
  windlass job 42 edit --priority -10
  windlass job 42 edit --at 09:00 --queue night
  windlass job 42 edit --payload '{\"to\":\"bob\"}'")]
    Edit(EditArgs),
    /// Push a copy of the job and print its id
    ///
    /// The copy has the name, queue, payload, priority, tags and policies of the job, and runs once, now. It gets no
    /// alias, unique key, parent or repeat rule. The flags change the copy.
    #[command(after_help = "\
Examples:
  windlass job 42 clone
  windlass job 42 clone --queue test --delay 10m")]
    Clone(CopyArgs),
}

pub(crate) fn run(args: JobArgs) -> Outcome {
    let mut client = args.server.client()?;
    let path = format!("/api/v1/jobs/{}", escaped(&args.id));
    match args.action.unwrap_or(Action::Show) {
        Action::Show => {
            let job = client.get(&path)?;
            if args.json { output::say_json(&job) } else { view::job_page(&job, human_time::now_ms()) }
        }
        Action::Cancel => act(&mut client, "POST", &format!("{path}/cancel"), args.json),
        Action::Retry { from } => retry(&mut client, &format!("{path}/retry"), from.as_deref(), args.json),
        Action::Signal(signal) => signal.send(&mut client, &path, args.json),
        Action::Run => act(&mut client, "POST", &format!("{path}/run"), args.json),
        Action::Delete => act(&mut client, "DELETE", &path, args.json),
        Action::Result { wait } => show_result(&mut client, &path, &args.id, wait, args.json),
        Action::Undelete => act(&mut client, "POST", &format!("{path}/undelete"), args.json),
        Action::Edit(changes) => edit(&mut client, &path, &changes.body()?, args.json),
        Action::Clone(changes) => copy(&mut client, &path, &args.id, &changes.body()?, args.json),
    }
}

fn act(client: &mut Client, method: &str, path: &str, json: bool) -> Outcome {
    let job = client.call(method, path, None, 0)?.value()?;
    if json {
        return output::say_json(&job);
    }
    let id = output::plain(&job["id"]);
    match job["state"].as_str() {
        Some("running") if path.ends_with("/cancel") => {
            output::say(format!("job {id} is running; its worker was asked to stop"))
        }
        Some("gone") | None if method == "DELETE" => {
            output::say(format!("job {id} deleted"))?;
            if let Some(until) = job["undo_until"].as_i64().filter(|_| std::io::stderr().is_terminal()) {
                let left = human_time::show_duration(until - human_time::now_ms());
                output::note(format!("for {left}, windlass job {id} undelete brings it back"));
            }
            Ok(())
        }
        state => output::say(format!("job {id} is {}", state.unwrap_or("gone"))),
    }
}

fn retry(client: &mut Client, path: &str, from: Option<&str>, json: bool) -> Outcome {
    let Some(step) = from else { return act(client, "POST", path, json) };
    let job = client.post(path, &json!({"from_step": step}))?;
    if json {
        return output::say_json(&job);
    }
    let (id, state) = (output::plain(&job["id"]), output::plain(&job["state"]));
    output::say(format!("job {id} is {state}; it runs again from step {}", output::harmless(step)))
}

fn edit(client: &mut Client, path: &str, changes: &ChangesBody, json: bool) -> Outcome {
    let body = serde_json::to_string(changes).unwrap_or_default();
    let job = client.call("PATCH", path, Some(&body), 0)?.value()?;
    if json {
        return output::say_json(&job);
    }
    let (id, state) = (output::plain(&job["id"]), output::plain(&job["state"]));
    output::say(format!("job {id} changed; it is {state}"))
}

/// Pushes a copy. Prints a sentence on a terminal, only the id otherwise, as `push` does.
fn copy(client: &mut Client, path: &str, original: &str, changes: &ChangesBody, json: bool) -> Outcome {
    let answer = client.post(&format!("{path}/clone"), changes)?;
    if json {
        return output::say_json(&answer);
    }
    let id = output::plain(&answer["id"]);
    match std::io::stdout().is_terminal() {
        true => output::say(format!("job {id} pushed, a copy of job {}", output::harmless(original))),
        false => output::say(id),
    }
}

fn show_result(client: &mut Client, path: &str, id: &str, wait: Option<i64>, json: bool) -> Outcome {
    let wait_ms = wait.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
    let answer = client.call("GET", &format!("{path}/result?wait_ms={wait_ms}"), None, wait_ms)?;
    if answer.status != 200 {
        let state = output::plain(&answer.value()?["state"]);
        let message =
            format!("job {id} has no result yet: it is {state}; wait for the result with --wait 30s");
        return Err(Fault::failed(message));
    }
    result::print(id, &answer, json)
}
