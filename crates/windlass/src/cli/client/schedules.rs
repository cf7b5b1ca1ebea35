//! `windlass schedules`: repeating jobs with their turns; pause, resume, run and edit.

use crate::client::{Client, ServerArgs};
use crate::fault::{Fault, Outcome};
use crate::human_time;
use crate::output::{self, Colour, Style, Table};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

/// Schedules shown without `--all`.
const SHOWN: usize = 100;
/// Schedules per call with `--all`.
const PAGE: usize = 1_000;

/// List repeating jobs; show their turns, pause, resume, run or edit one
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass schedules
  windlass schedules turns 7
  windlass schedules pause 7
  windlass schedules run 7
  windlass schedules edit 7 --repeat '0 5 * * *'")]
pub(crate) struct SchedulesArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// List all schedules, not only the newest 100
    #[arg(long)]
    all: bool,
    /// Print the server's response as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Show the last turns of a repeating job with their outcomes
    #[command(after_help = "Example:\n  windlass schedules turns 7")]
    Turns {
        /// Id of the job
        id: u64,
    },
    /// Start no further turn; a running one goes on
    #[command(after_help = "Example:\n  windlass schedules pause 7")]
    Pause {
        /// Id of the job
        id: u64,
    },
    /// Go on at the next scheduled time
    #[command(after_help = "Example:\n  windlass schedules resume 7")]
    Resume {
        /// Id of the job
        id: u64,
    },
    /// Run once now; the next scheduled time does not move
    #[command(after_help = "Example:\n  windlass schedules run 7")]
    Run {
        /// Id of the job
        id: u64,
    },
    /// Change the rule, payload, priority, queue or catch-up rule
    #[command(after_help = "\
Examples:
  windlass schedules edit 7 --repeat 'every 10m'
  windlass schedules edit 7 --payload '{\"full\":true}' --queue night
  windlass schedules edit 7 --catch-up none")]
    Edit(EditArgs),
}

#[derive(Args, Debug)]
struct EditArgs {
    /// Id of the job
    id: u64,
    /// New repeat rule, e.g. 'every 5m' or '0 4 * * *'; the next run is at the first time of this rule
    #[arg(long, value_name = "RULE")]
    repeat: Option<String>,
    /// New payload, in JSON
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    payload: Option<Value>,
    /// Priority; jobs with smaller numbers run first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Turns that were missed, e.g. while no server was running: run one of them late, or none
    #[arg(long, value_name = "one|none", value_parser = ["one", "none"])]
    catch_up: Option<String>,
}

fn parse_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}; a text needs quotes: '\"text\"'"))
}

impl EditArgs {
    fn body(&self) -> Outcome<Value> {
        let fields = [
            ("repeat", self.repeat.as_ref().map(|rule| json!(rule))),
            ("payload", self.payload.clone()),
            ("priority", self.priority.map(|priority| json!(priority))),
            ("queue", self.queue.as_ref().map(|queue| json!(queue))),
            ("catch_up", self.catch_up.as_ref().map(|word| json!(word))),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?)));
        let body: Map<String, Value> = given.collect();
        match body.is_empty() {
            true => Err(Fault::usage(
                "nothing to change; give --repeat, --payload, --priority, --queue or --catch-up",
            )),
            false => Ok(Value::Object(body)),
        }
    }
}

pub(crate) fn run(args: SchedulesArgs) -> Outcome {
    let mut client = args.server.client()?;
    let client = &mut client;
    match &args.action {
        None => list(client, args.all, args.json),
        Some(Action::Turns { id }) => turns(client, *id, args.json),
        Some(Action::Pause { id }) => act(client, *id, "pause", args.json),
        Some(Action::Resume { id }) => act(client, *id, "resume", args.json),
        Some(Action::Run { id }) => act(client, *id, "run", args.json),
        Some(Action::Edit(edit)) => {
            let body = edit.body()?.to_string();
            let job = client.call("PATCH", &path(edit.id), Some(&body), 0)?.value()?;
            answered(&job, "changed", args.json)
        }
    }
}

fn path(id: u64) -> String {
    format!("/api/v1/schedules/{id}")
}

fn act(client: &mut Client, id: u64, verb: &str, json: bool) -> Outcome {
    let job = client.post(&format!("{}/{verb}", path(id)), &json!({}))?;
    let done = match verb {
        "pause" => "paused",
        "resume" => "resumed",
        _ => "runs now",
    };
    answered(&job, done, json)
}

fn answered(job: &Value, done: &str, json: bool) -> Outcome {
    if json {
        return output::say_json(job);
    }
    let id = output::plain(&job["id"]);
    match (done, job["run_at"].as_i64()) {
        ("resumed" | "changed", Some(run_at)) if job["schedule"]["paused"] != true => {
            output::say(format!("schedule {id} {done}; next run {}", human_time::show_time(run_at)))
        }
        _ => output::say(format!("schedule {id} {done}")),
    }
}

fn list(client: &mut Client, all: bool, json: bool) -> Outcome {
    let limit = if all { PAGE } else { SHOWN };
    let mut jobs: Vec<Value> = Vec::new();
    let mut next = Value::Null;
    loop {
        let cursor = next.as_str().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let page = client.get(&format!("/api/v1/schedules?limit={limit}{cursor}"))?;
        jobs.extend(page["jobs"].as_array().cloned().unwrap_or_default());
        next = page["next"].clone();
        if !all || next.is_null() {
            break;
        }
    }
    if json {
        return output::say_json(&json!({"jobs": jobs, "next": next}));
    }
    if jobs.is_empty() {
        output::note("no schedules yet; push a job that repeats: windlass push report --repeat 'every 5m'");
        return Ok(());
    }
    schedule_table(&jobs, human_time::now_ms()).print(Style::of_stdout())?;
    if !next.is_null() {
        output::note("there are more; show them with --all");
    }
    Ok(())
}

fn schedule_table(jobs: &[Value], now_ms: i64) -> Table {
    let mut table = Table::new(&[">ID", "NAME", "RULE", "LAST RUN", "OUTCOME", ">TOOK", "NEXT RUN", "NOTE"]);
    for job in jobs {
        let last = &job["schedule"]["last_turn"];
        let outcome = output::plain(&last["outcome"]);
        let relative = |ms: Option<i64>| ms.map(|ms| human_time::show_relative(ms, now_ms));
        let paused = job["schedule"]["paused"] == true;
        let next_run = job["next_runs"][0].as_i64().filter(|_| !paused);
        table.row(vec![
            (output::plain(&job["id"]), Colour::Bold),
            (output::plain(&job["name"]), Colour::Plain),
            (output::plain(&job["repeat"]), Colour::Plain),
            (relative(last["ended_at"].as_i64()).unwrap_or_else(|| "-".to_string()), Colour::Dim),
            (outcome.clone(), outcome_colour(&outcome)),
            (took(last), Colour::Plain),
            (relative(next_run).unwrap_or_else(|| "-".to_string()), Colour::Plain),
            (note(job), Colour::Yellow),
        ]);
    }
    table
}

fn took(turn: &Value) -> String {
    turn["duration_ms"].as_i64().map(human_time::show_duration).unwrap_or_default()
}

fn outcome_colour(outcome: &str) -> Colour {
    if outcome == "missed" { Colour::Yellow } else { Colour::of_state(outcome) }
}

/// Special state of a schedule in a few words.
fn note(job: &Value) -> String {
    let schedule = &job["schedule"];
    let mut notes = Vec::new();
    if schedule["paused"] == true {
        notes.push("paused".to_string());
    }
    if job["state"] == "running" {
        notes.push("running".to_string());
    }
    if let Some(missed) = schedule["overdue"]["missed"].as_u64() {
        let why =
            if schedule["overdue"]["server_was_down"] == true { "server was down" } else { "no worker" };
        notes.push(format!("late, {missed} missed: {why}"));
    }
    if let Some(failed) = schedule["failed_in_a_row"].as_u64().filter(|failed| *failed > 1) {
        notes.push(format!("failed {failed} times in a row"));
    }
    notes.join("; ")
}

fn turns(client: &mut Client, id: u64, json: bool) -> Outcome {
    let answer = client.get(&format!("{}/turns", path(id)))?;
    if json {
        return output::say_json(&answer);
    }
    let turns = answer["turns"].as_array().map(Vec::as_slice).unwrap_or_default();
    if turns.is_empty() {
        output::note("no turn has ended yet");
        return Ok(());
    }
    let mut table = Table::new(&["DUE", "OUTCOME", ">TRY", ">TOOK", ">MISSED", "WORKER", "MESSAGE"]);
    for turn in turns {
        let outcome = output::plain(&turn["outcome"]);
        let due = turn["due_at"].as_i64().map(human_time::show_time).unwrap_or_default();
        let message = match turn["requested"] == true {
            true => format!("(requested) {}", output::plain(&turn["message"])).trim_end().to_string(),
            false => output::plain(&turn["message"]),
        };
        table.row(vec![
            (due, Colour::Plain),
            (outcome.clone(), outcome_colour(&outcome)),
            (output::plain(&turn["attempts"]), Colour::Plain),
            (took(turn), Colour::Plain),
            (output::plain(&turn["missed"]), Colour::Yellow),
            (output::plain(&turn["worker"]), Colour::Dim),
            (message, Colour::Plain),
        ]);
    }
    table.print(Style::of_stdout())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_says_what_is_special() {
        for (job, expected) in [
            (json!({"schedule": {"paused": false}}), ""),
            (json!({"schedule": {"paused": true}}), "paused"),
            (json!({"state": "running", "schedule": {"paused": true}}), "paused; running"),
            (
                json!({"schedule": {"overdue": {"missed": 3, "server_was_down": true}}}),
                "late, 3 missed: server was down",
            ),
            (
                json!({"schedule": {"overdue": {"missed": 1}, "failed_in_a_row": 1}}),
                "late, 1 missed: no worker",
            ),
            (json!({"schedule": {"failed_in_a_row": 4}}), "failed 4 times in a row"),
        ] {
            assert_eq!(note(&job), expected, "{job}");
        }
    }
}
