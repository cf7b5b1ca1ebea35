//! `windlass job ID …`: shows or changes one job.

use crate::cli::client::{result, view};
use crate::client::{Client, ServerArgs};
use crate::fault::{Fault, Outcome};
use crate::human_time;
use crate::output;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

/// Show one job, or cancel, retry, run, change or delete it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass job 42
  windlass job 42 cancel
  windlass job 42 retry
  windlass job 42 set --priority -10
  windlass job 42 result --wait 30s")]
pub(crate) struct JobArgs {
    /// Id of the job
    id: u64,
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
    Show,
    /// Cancel the job; if it is running, its worker is asked to stop
    Cancel,
    /// Start a failed, cancelled or completed job again, with its attempts counted from zero
    Retry,
    /// Run a delayed job now
    Run,
    /// Delete the job
    Delete,
    /// Print the result of the job
    Result {
        /// Wait up to this long for the job to finish, e.g. 30s
        #[arg(long, value_name = "DURATION", value_parser = human_time::parse_duration_ms)]
        wait: Option<i64>,
    },
    /// Change a job that is not running
    Set {
        /// Priority; jobs with smaller numbers run first
        #[arg(long, allow_negative_numbers = true)]
        priority: Option<i32>,
        /// Earliest start time, e.g. 2030-01-31T09:00:00Z or 09:00
        #[arg(long, value_name = "TIME", value_parser = human_time::parse_time_ms)]
        at: Option<i64>,
        /// New payload: JSON if it parses as JSON, otherwise text
        #[arg(long, value_name = "PAYLOAD")]
        payload: Option<String>,
    },
}

pub(crate) fn run(args: JobArgs) -> Outcome {
    let mut client = args.server.client()?;
    let path = format!("/api/v1/jobs/{}", args.id);
    match args.action.unwrap_or(Action::Show) {
        Action::Show => {
            let job = client.get(&path)?;
            if args.json { output::say_json(&job) } else { view::job_page(&job, human_time::now_ms()) }
        }
        Action::Cancel => act(&mut client, "POST", &format!("{path}/cancel"), None, args.id, args.json),
        Action::Retry => act(&mut client, "POST", &format!("{path}/retry"), None, args.id, args.json),
        Action::Run => act(&mut client, "POST", &format!("{path}/run"), None, args.id, args.json),
        Action::Delete => act(&mut client, "DELETE", &path, None, args.id, args.json),
        Action::Result { wait } => show_result(&mut client, &path, args.id, wait, args.json),
        Action::Set { priority, at, payload } => {
            let changes = changes(priority, at, payload)?;
            act(&mut client, "PATCH", &path, Some(&changes), args.id, args.json)
        }
    }
}

fn changes(priority: Option<i32>, at: Option<i64>, payload: Option<String>) -> Outcome<Value> {
    let mut changes = Map::new();
    if let Some(priority) = priority {
        changes.insert("priority".to_string(), json!(priority));
    }
    if let Some(at) = at {
        changes.insert("run_at".to_string(), json!(at));
    }
    if let Some(payload) = payload {
        match serde_json::from_str::<Value>(&payload) {
            Ok(value) => changes.insert("payload".to_string(), value),
            Err(_) => {
                changes.insert("format".to_string(), json!("text"));
                changes.insert("payload".to_string(), json!(payload))
            }
        };
    }
    match changes.is_empty() {
        true => Err(Fault::usage("nothing to change; give --priority, --at or --payload")),
        false => Ok(Value::Object(changes)),
    }
}

fn act(client: &mut Client, method: &str, path: &str, body: Option<&Value>, id: u64, json: bool) -> Outcome {
    let body = body.map(Value::to_string);
    let answer = client.call(method, path, body.as_deref(), 0)?.value()?;
    if json {
        return output::say_json(&answer);
    }
    match answer["state"].as_str() {
        Some("running") if path.ends_with("/cancel") => {
            output::say(format!("job {id} is running; its worker was asked to stop"))
        }
        Some("gone") | None if method == "DELETE" => output::say(format!("job {id} deleted")),
        state => output::say(format!("job {id} is {}", state.unwrap_or("gone"))),
    }
}

fn show_result(client: &mut Client, path: &str, id: u64, wait: Option<i64>, json: bool) -> Outcome {
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
