//! Flags of `windlass job ID edit` and `clone`, as a body of the API.

use crate::cli::client::payload::Payload;
use crate::fault::{Fault, Outcome};
use crate::human_time;
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Flags that `edit` and `clone` share.
#[derive(Args, Clone, Debug)]
pub(super) struct CopyArgs {
    /// Priority; jobs with smaller numbers run first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Earliest start time, e.g. 2030-01-31T09:00:00Z or 09:00
    #[arg(long, visible_alias = "run-at", value_name = "TIME", value_parser = human_time::parse_time_ms)]
    at: Option<i64>,
    /// Delay from now, e.g. 10m; 0s: now
    #[arg(long, value_name = "DURATION", conflicts_with = "at", value_parser = human_time::parse_duration_ms)]
    delay: Option<i64>,
    /// Queue
    #[arg(long)]
    queue: Option<String>,
    /// Payload: JSON if it parses as JSON, otherwise text
    #[arg(long, value_name = "PAYLOAD")]
    payload: Option<String>,
    /// Take the payload as text, even if it looks like JSON
    #[arg(long, requires = "payload")]
    text: bool,
}

/// Flags of `edit`; fields that are not given stay as they are.
#[derive(Args, Clone, Debug)]
pub(super) struct EditArgs {
    #[command(flatten)]
    shared: CopyArgs,
    /// Name, by which workers claim the job
    #[arg(long)]
    name: Option<String>,
    /// Tag, instead of the present ones; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Repeat rule, e.g. 'every 5m'; off ends the repetition
    #[arg(long, value_name = "RULE")]
    repeat: Option<String>,
}

/// Body of the API.
#[derive(Serialize)]
pub(super) struct ChangesBody {
    #[serde(flatten)]
    payload: Option<Payload>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl CopyArgs {
    pub(super) fn body(&self) -> Outcome<ChangesBody> {
        let read = |text: &String| {
            let payload = Payload::read(text.as_bytes(), self.text);
            payload.map_err(|broken| broken.fault("the payload"))
        };
        let others = given([
            ("priority", self.priority.map(Value::from)),
            ("run_at", self.at.map(Value::from)),
            ("delay_ms", self.delay.map(Value::from)),
            ("queue", self.queue.clone().map(Value::from)),
        ]);
        Ok(ChangesBody { payload: self.payload.as_ref().map(read).transpose()?, others })
    }
}

impl EditArgs {
    /// Body with at least one change.
    pub(super) fn body(&self) -> Outcome<ChangesBody> {
        let mut body = self.shared.body()?;
        let repeat = self.repeat.as_deref().map(|rule| match rule {
            "off" => Value::Null,
            rule => rule.into(),
        });
        body.others.extend(given([
            ("name", self.name.clone().map(Value::from)),
            ("tags", (!self.tags.is_empty()).then(|| json!(self.tags))),
            ("repeat", repeat),
        ]));
        if body.payload.is_none() && body.others.is_empty() {
            let flags = "--priority, --at, --delay, --queue, --name, --payload, --tag or --repeat";
            return Err(Fault::usage(format!("nothing to change; give {flags}")));
        }
        Ok(body)
    }
}

fn given<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        edit: EditArgs,
    }

    fn body(line: &[&str]) -> Outcome<Value> {
        let body = Line::parse_from([&["edit"], line].concat()).edit.body()?;
        Ok(serde_json::to_value(body).expect("JSON"))
    }

    #[test]
    fn every_flag_becomes_a_field_and_nothing_else_does() {
        let table: [(&[&str], Value); 8] = [
            (&["--priority", "-3"], json!({"priority": -3})),
            (&["--run-at", "1970-01-01T00:00:01Z"], json!({"run_at": 1000})),
            (&["--delay", "2s", "--queue", "q"], json!({"delay_ms": 2000, "queue": "q"})),
            (&["--name", "n", "--tag", "a", "--tag", "b"], json!({"name": "n", "tags": ["a", "b"]})),
            (&["--payload", "[1]"], json!({"payload": [1]})),
            (&["--payload", "[1]", "--text"], json!({"payload": "[1]", "format": "text"})),
            (&["--repeat", "every 5m"], json!({"repeat": "every 5m"})),
            (&["--repeat", "off"], json!({"repeat": null})),
        ];
        for (line, expected) in table {
            assert_eq!(body(line).expect("a body"), expected, "{line:?}");
        }
        assert!(matches!(body(&[]), Err(Fault::Usage(_))));
        assert!(matches!(body(&["--payload", "{"]), Err(Fault::Usage(_))));
    }
}
