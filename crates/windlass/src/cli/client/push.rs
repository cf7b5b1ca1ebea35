//! `windlass push`: pushes one job, or one per line, and optionally waits for the result.

mod wait;

use crate::cli::client::payload::Payload;
use crate::client::{Client, ServerArgs};
use crate::fault::{Fault, Outcome};
use crate::human_time;
use crate::output::{self, Colour};
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Read};

/// Jobs per request with `--lines`: large enough to hide the round trip, small enough to show progress.
const LINES_PER_CALL: usize = 1000;
/// Payload bytes per request with `--lines`, well below the server's limit on a request body.
const BYTES_PER_CALL: usize = 4 << 20;

/// Push a job
///
/// Prints the id of the job; with --wait, its result. A payload that begins with {, [ or " must be valid JSON, unless
/// --text is given; any other payload that does not parse as JSON is text, and bytes that are not UTF-8 stay bytes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass push mail '{\"to\":\"ann@example.org\"}'
  windlass push report --at 09:00 --priority -5
  windlass push cleanup --repeat 'every 5m' --unique nightly
  windlass push report --repeat '0 9 * * 1-5' --catch-up none
  windlass push note '[draft] call ann' --text
  windlass push resize - --wait < photo.json
  windlass push import - --lines < rows.ndjson")]
pub(crate) struct PushArgs {
    /// Name of the job, by which workers claim it
    name: String,
    /// Payload: JSON if it parses as JSON, otherwise text; - reads standard input
    payload: Option<String>,
    /// Take the payload as text, even if it looks like JSON
    #[arg(long)]
    text: bool,
    /// Queue
    #[arg(long, default_value = "default")]
    queue: String,
    /// Delay before the job may run, e.g. 10s, 1h30m
    #[arg(long, value_name = "DURATION", conflicts_with = "at", value_parser = human_time::parse_duration_ms)]
    delay: Option<i64>,
    /// Earliest start time, e.g. 2030-01-31T09:00:00Z, or 09:00 for the next 9 o'clock
    #[arg(long, value_name = "TIME", value_parser = human_time::parse_time_ms)]
    at: Option<i64>,
    /// Priority; jobs with smaller numbers run first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Repeat by an interval or cron rule, e.g. 'every 5m' or '0 9 * * 1-5'
    #[arg(long, value_name = "RULE")]
    repeat: Option<String>,
    /// Turns whose time has passed, because the server was down or no worker was there: one runs late (the default),
    /// or none (with --repeat)
    #[arg(long, value_name = "one|none", value_parser = ["one", "none"], requires = "repeat")]
    catch_up: Option<String>,
    /// Unique key: while an unfinished job has this key, a push returns the id of that job
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,
    /// Maximum number of attempts, including the first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    retry: Option<u32>,
    /// Lease: without a heartbeat for this long, the job goes to another worker
    #[arg(long, value_name = "DURATION", value_parser = human_time::parse_duration_ms)]
    lease: Option<i64>,
    /// How long the job and its result are kept after it finished
    #[arg(long, value_name = "DURATION", value_parser = human_time::parse_duration_ms)]
    keep: Option<i64>,
    /// Tag for searches; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Second id of the job, chosen by you
    #[arg(long)]
    alias: Option<String>,
    /// Id of the parent job
    #[arg(long, value_name = "ID")]
    parent: Option<u64>,
    /// Push one job per line of the payload
    #[arg(long, conflicts_with = "wait")]
    lines: bool,
    /// Wait until the job is finished, show its progress, and print its result
    #[arg(long)]
    wait: bool,
    /// Stop waiting after this long (with --wait)
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = human_time::parse_duration_ms)]
    timeout: Option<i64>,
    /// Print the server's response as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(args: PushArgs) -> Outcome {
    let mut client = args.server.client()?;
    if args.lines {
        return push_lines(&args, &mut client);
    }
    let payload = match args.payload.as_deref() {
        Some("-") => read_stdin()?,
        Some(text) => text.as_bytes().to_vec(),
        None => b"null".to_vec(),
    };
    let payload = Payload::read(&payload, args.text).map_err(|broken| broken.fault("the payload"))?;
    let answer = client.post("/api/v1/jobs", &args.job(payload))?;
    let id = answer["id"]
        .as_u64()
        .ok_or_else(|| Fault::failed(format!("the response of the server contains no job id: {answer}")))?;
    if args.wait {
        return wait::until_settled(&mut client, id, args.timeout, args.json);
    }
    if args.json {
        return output::say_json(&answer);
    }
    say_pushed(id, &answer)
}

/// Prints a sentence on a terminal, only the id otherwise.
fn say_pushed(id: u64, answer: &Value) -> Outcome {
    if !std::io::stdout().is_terminal() {
        return output::say(id.to_string());
    }
    let known = answer["existing"].as_array().is_some_and(|existing| !existing.is_empty());
    let style = output::Style::of_stdout();
    let name = format!("job {id}");
    let name = style.paint(Colour::Bold, &name);
    output::say(if known {
        format!("{name} exists already (same unique key)")
    } else {
        format!("{name} pushed")
    })
}

/// Job in the format of the API.
#[derive(Serialize)]
struct Job<'a> {
    name: &'a str,
    queue: &'a str,
    priority: i32,
    #[serde(flatten)]
    payload: Payload,
    #[serde(flatten)]
    asked: Map<String, Value>,
}

impl PushArgs {
    fn job(&self, payload: Payload) -> Job<'_> {
        Job { name: &self.name, queue: &self.queue, priority: self.priority, payload, asked: self.asked() }
    }

    /// Optional fields that were given.
    fn asked(&self) -> Map<String, Value> {
        let asked = [
            ("delay_ms", self.delay.map(Value::from)),
            ("run_at", self.at.map(Value::from)),
            ("repeat", self.repeat.clone().map(Value::from)),
            ("catch_up", self.catch_up.clone().map(Value::from)),
            ("unique", self.unique.clone().map(Value::from)),
            ("retry", self.retry.map(Value::from)),
            ("lease_ms", self.lease.map(Value::from)),
            ("keep", self.keep.map(|ms| json!({"completed_ms": ms, "failed_ms": ms, "cancelled_ms": ms}))),
            ("alias", self.alias.clone().map(Value::from)),
            ("parent", self.parent.map(Value::from)),
            ("tags", (!self.tags.is_empty()).then(|| json!(self.tags))),
        ];
        asked.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))).collect()
    }
}

fn read_stdin() -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    // Removes the newline that an editor or echo appends to text.
    if bytes.ends_with(b"\n") && std::str::from_utf8(&bytes).is_ok() {
        bytes.pop();
    }
    Ok(bytes)
}

fn push_lines(args: &PushArgs, client: &mut Client) -> Outcome {
    let mut batch = Batch::default();
    let (mut pushed, mut sent_to) = (0, 0);
    let text = match args.payload.as_deref() {
        Some("-") | None => None,
        Some(text) => Some(text.as_bytes().to_vec()),
    };
    let lines: Box<dyn BufRead> = match text {
        Some(text) => Box::new(std::io::Cursor::new(text)),
        None => Box::new(std::io::stdin().lock()),
    };
    for (number, line) in (1_u64..).zip(lines.split(b'\n')) {
        let mut line = line?;
        if line.ends_with(b"\r") {
            line.pop();
        }
        if line.is_empty() {
            continue;
        }
        let payload = match Payload::read(&line, args.text) {
            Ok(payload) => payload,
            Err(broken) => return Err(broken.fault(&unpushed(number, sent_to))),
        };
        batch.bytes += line.len();
        batch.jobs.push(args.job(payload));
        if batch.jobs.len() >= LINES_PER_CALL || batch.bytes >= BYTES_PER_CALL {
            pushed += batch.send(client, args.json)?;
            sent_to = number;
        }
    }
    pushed += batch.send(client, args.json)?;
    if !args.json && std::io::stderr().is_terminal() {
        output::note(format!("{pushed} jobs pushed"));
    }
    Ok(())
}

/// Line that stops the push, and the lines that were pushed before it.
fn unpushed(line: u64, sent_to: u64) -> String {
    match sent_to {
        0 => format!("nothing was pushed: line {line}"),
        last => format!("only lines 1 to {last} were pushed: line {line}"),
    }
}

#[derive(Default)]
struct Batch<'a> {
    jobs: Vec<Job<'a>>,
    bytes: usize,
}

impl Batch<'_> {
    fn send(&mut self, client: &mut Client, json: bool) -> Outcome<usize> {
        if self.jobs.is_empty() {
            return Ok(0);
        }
        let Batch { jobs, .. } = std::mem::take(self);
        let count = jobs.len();
        let answer = client.post("/api/v1/jobs", &BTreeMap::from([("jobs", jobs)]))?;
        if json {
            output::say_json(&answer)?;
        } else {
            let ids = answer["ids"].as_array().map(Vec::as_slice).unwrap_or_default();
            let lines: Vec<String> = ids.iter().filter(|id| !id.is_null()).map(Value::to_string).collect();
            output::say(lines.join("\n"))?;
        }
        match answer["refused"].as_array().map(Vec::as_slice).unwrap_or_default() {
            [] => Ok(count),
            [first, ..] => {
                let message = output::plain(&first["message"]);
                Err(Fault::failed(format!(
                    "the server refused line {} of this batch: {message}",
                    first["index"]
                )))
            }
        }
    }
}
