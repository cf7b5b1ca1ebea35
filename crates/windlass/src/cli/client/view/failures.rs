//! Failed attempts on the page of a job: when, by whom, and all that the worker said about them.

use super::{Style, field};
use crate::fault::Outcome;
use crate::human_time;
use crate::output;
use serde_json::Value;

/// Prints the failed attempts, oldest first, and the message of the job unless the last attempt has said it.
pub(super) fn print(style: Style, job: &Value, now_ms: i64) -> Outcome {
    let attempts = job["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    for failure in attempts {
        let label = format!("attempt {}", output::plain(&failure["attempt"]));
        block(style, &label, &[vec![when(failure, now_ms)], told(failure)].concat())?;
    }
    let said: Vec<String> = attempts.last().map(told).unwrap_or_default();
    let more: Vec<String> = told(job).into_iter().filter(|line| !said.contains(line)).collect();
    block(style, "message", &more)
}

/// Prints lines below each other, the first beside the label.
fn block(style: Style, label: &str, lines: &[String]) -> Outcome {
    for (index, line) in lines.iter().enumerate() {
        field(style, if index == 0 { label } else { "" }, line)?;
    }
    Ok(())
}

fn when(failure: &Value, now_ms: i64) -> String {
    let at = failure["at"].as_i64();
    let mut text = at.map(|at| human_time::show_relative(at, now_ms)).unwrap_or_default();
    if let Some(ms) = at.zip(failure["started_at"].as_i64()).map(|(at, began)| at - began) {
        text.push_str(&format!(", after {}", human_time::show_duration(ms.max(0))));
    }
    if let Some(worker) = failure["worker"].as_str() {
        text.push_str(&format!(", by {worker}"));
    }
    match at.map(human_time::show_time) {
        Some(time) => format!("{time} ({text})"),
        None => text,
    }
}

/// Lines of a failure: class and message, the error if it says something else, the backtrace.
fn told(failure: &Value) -> Vec<String> {
    let [class, message, error] = ["class", "message", "error"].map(|key| output::plain(&failure[key]));
    let head = match (class.as_str(), message.as_str()) {
        ("", message) => message.to_string(),
        (class, "") => class.to_string(),
        (class, message) if message.starts_with(class) => message.to_string(),
        (class, message) => format!("{class}: {message}"),
    };
    let mut lines: Vec<String> = head.lines().map(str::to_string).collect();
    if error != message {
        lines.extend(error.lines().map(str::to_string));
    }
    match &failure["backtrace"] {
        Value::Array(frames) => lines.extend(frames.iter().map(output::plain)),
        text => lines.extend(output::plain(text).lines().map(str::to_string)),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_parts_of_a_failure_are_told_once() {
        for (failure, lines) in [
            (json!({"message": "no"}), &["no"][..]),
            (json!({"message": "no", "error": "no"}), &["no"]),
            (json!({"class": "ValueError", "message": "no"}), &["ValueError: no"]),
            (json!({"class": "ValueError", "message": "ValueError: no"}), &["ValueError: no"]),
            (json!({"class": "ValueError"}), &["ValueError"]),
            (json!({"message": "no", "error": {"a": 1}}), &["no", "{\"a\":1}"]),
            (
                json!({"message": "no", "backtrace": "Traceback:\n  line 1"}),
                &["no", "Traceback:", "  line 1"],
            ),
            (json!({"message": "no", "backtrace": ["a.rb:1", "b.rb:2"]}), &["no", "a.rb:1", "b.rb:2"]),
            (json!({}), &[]),
        ] {
            assert_eq!(told(&failure), lines, "{failure}");
        }
    }

    #[test]
    fn an_attempt_says_when_how_long_and_by_whom() {
        let failure = json!({"at": 60_000, "started_at": 58_000, "worker": "w1"});
        let said = when(&failure, 65_000);
        assert!(said.ends_with("(5s ago, after 2s, by w1)"), "{said}");
    }
}
