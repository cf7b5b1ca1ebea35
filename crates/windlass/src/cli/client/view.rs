//! Display of jobs on a terminal: table rows and single pages.

mod failures;
mod steps;

use crate::fault::Outcome;
use crate::human_time;
use crate::output::{self, Colour, Style, Table};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::Value;

pub(crate) fn job_table(jobs: &[Value], now_ms: i64) -> Table {
    let mut table = Table::new(&[">ID", "STATE", "QUEUE", "NAME", ">TRY", "WHEN", "PAYLOAD"]);
    for job in jobs {
        let state = output::plain(&job["state"]);
        let colour = Colour::of_state(&state);
        table.row(vec![
            (output::plain(&job["id"]), Colour::Bold),
            (state, colour),
            (output::plain(&job["queue"]), Colour::Plain),
            (output::plain(&job["name"]), Colour::Plain),
            (output::plain(&job["attempts"]), Colour::Plain),
            (when(job, now_ms), Colour::Dim),
            (what(job), Colour::Plain),
        ]);
    }
    table
}

/// Time that matters in the current state.
fn when(job: &Value, now_ms: i64) -> String {
    let key = match job["state"].as_str().unwrap_or_default() {
        "running" => "started_at",
        "ready" | "delayed" | "retrying" => "run_at",
        "completed" | "failed" | "cancelled" | "terminated" => "finished_at",
        _ => "updated_at",
    };
    let moment = job[key].as_i64().or(job["created_at"].as_i64());
    moment.map(|ms| human_time::show_relative(ms, now_ms)).unwrap_or_default()
}

/// Most useful text for a cell: error, progress or payload.
fn what(job: &Value) -> String {
    let state = job["state"].as_str().unwrap_or_default();
    match (state, failure(job), job["progress"]["percent"].as_u64()) {
        ("failed" | "retrying", Some(message), _) => message,
        ("running", _, Some(percent)) => {
            format!("{percent}% {}", output::plain(&job["progress"]["note"])).trim_end().to_string()
        }
        _ => payload(job),
    }
}

/// Class and message of the last failure.
fn failure(job: &Value) -> Option<String> {
    let [class, message, error] = ["class", "message", "error"].map(|key| output::plain(&job[key]));
    let message = if message.is_empty() { error } else { message };
    match (class.is_empty() || message.starts_with(&class), message.is_empty()) {
        (true, true) => None,
        (true, false) => Some(message),
        (false, true) => Some(class),
        (false, false) => Some(format!("{class}: {message}")),
    }
}

fn payload(job: &Value) -> String {
    data(&job["payload"], &job["payload_base64"], &job["format"])
}

/// Text of a payload or result: its value, or what can be said of its bytes.
fn data(value: &Value, base64: &Value, format: &Value) -> String {
    match (value, base64.as_str()) {
        (Value::Null, Some(text)) => match BASE64.decode(text).map(String::from_utf8) {
            Ok(Ok(text)) => text,
            _ => format!("{} bytes, {}", text.len() / 4 * 3, output::plain(format)),
        },
        (value, _) => output::plain(value),
    }
}

/// Prints the page of one job.
pub(crate) fn job_page(job: &Value, now_ms: i64) -> Outcome {
    let style = Style::of_stdout();
    let state = output::plain(&job["state"]);
    let title = format!("job {} {}", output::plain(&job["id"]), output::plain(&job["name"]));
    let title = output::harmless(&title).into_owned();
    output::say(format!(
        "{}  {}",
        style.paint(Colour::Bold, &title),
        style.paint(Colour::of_state(&state), &state)
    ))?;
    for key in ["queue", "tenant", "alias", "origin", "priority", "parent", "tags", "repeat", "unique"] {
        field(style, key, &listed(&job[key]))?;
    }
    match job["wait"].is_object() {
        true => steps::print_wait(style, job, now_ms)?,
        false => field(style, "waiting for", &listed(&job["waiting_for"]))?,
    }
    field(style, "attempts", &attempts(job))?;
    for key in ["created_at", "run_at", "started_at", "finished_at"] {
        let label = if key == "run_at" { "due" } else { key.trim_end_matches("_at") };
        let shown = job[key].as_i64().map(|ms| {
            let relative = human_time::show_relative(ms, now_ms);
            format!("{} ({relative})", human_time::show_time(ms))
        });
        field(style, label, &shown.unwrap_or_default())?;
    }
    field(style, "worker", &output::plain(&job["lease"]["worker"]))?;
    if let Some(percent) = job["progress"]["percent"].as_u64() {
        field(style, "progress", &format!("{percent}% {}", output::plain(&job["progress"]["note"])))?;
    }
    failures::print(style, job, now_ms)?;
    field(style, "payload", &payload(job))?;
    for key in ["result", "code", "exit_code"] {
        field(style, &key.replace('_', " "), &output::plain(&job[key]))?;
    }
    steps::print(style, job, now_ms)?;
    history(style, job)?;
    log(style, job)
}

/// Prints actions of users; other history entries are shown above.
fn history(style: Style, job: &Value) -> Outcome {
    let told = ["pushed", "claimed", "attempt_failed", "completed", "failed", "waiting", "suspended"];
    for happening in job["history"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let what = output::plain(&happening["what"]);
        if happening["who"].is_null() || told.contains(&what.as_str()) {
            continue;
        }
        let at = happening["at"].as_i64().map(human_time::show_time).unwrap_or_default();
        field(style, &what.replace('_', " "), &format!("{at}  by {}", output::plain(&happening["who"])))?;
    }
    Ok(())
}

fn log(style: Style, job: &Value) -> Outcome {
    let dropped = job["log"]["dropped"].as_u64().unwrap_or_default();
    if dropped > 0 {
        field(style, "log", &format!("({dropped} earlier lines were dropped)"))?;
    }
    for line in job["log"]["lines"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let at = line["at"].as_i64().map(human_time::show_time).unwrap_or_default();
        field(style, "log", &format!("{at}  {}", output::plain(&line["text"])))?;
    }
    Ok(())
}

fn attempts(job: &Value) -> String {
    let attempts = output::plain(&job["attempts"]);
    match job["max_attempts"].as_u64() {
        Some(max) => format!("{attempts} of {max}"),
        None => attempts,
    }
}

fn listed(value: &Value) -> String {
    match value {
        Value::Array(entries) => entries.iter().map(output::plain).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| format!("{key} {}", output::plain(value)))
            .collect::<Vec<_>>()
            .join(", "),
        other => output::plain(other),
    }
}

fn field(style: Style, label: &str, text: &str) -> Outcome {
    if text.is_empty() {
        return Ok(());
    }
    let label = format!("  {label:<12}");
    output::say(format!("{}{}", style.paint(Colour::Dim, &label), output::harmless(text)))
}
