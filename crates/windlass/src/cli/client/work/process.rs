//! Claimed job, and the process that runs it.

use super::held::{Run, Table};
use crate::output;
use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use rustix::process::Pid;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::sync::Arc;
use windlass_runners::process::{ProcessEnd, Task, Watch};

#[derive(Deserialize)]
pub(super) struct Job {
    pub id: u64,
    pub token: Value,
    pub name: String,
    #[serde(default)]
    pub queue: String,
    #[serde(default)]
    pub attempt: u64,
    #[serde(default)]
    priority: i64,
    #[serde(default)]
    payload: Option<Box<RawValue>>,
    #[serde(default)]
    payload_base64: Option<String>,
    #[serde(default)]
    format: Option<String>,
}

impl Job {
    /// Payload bytes.
    fn input(&self) -> Vec<u8> {
        let json = self.payload.as_deref().map(RawValue::get).unwrap_or_default();
        match (&self.payload_base64, self.format.as_deref()) {
            (Some(text), _) => BASE64.decode(text).unwrap_or_else(|_| text.as_bytes().to_vec()),
            // A text payload is a JSON string, whose quotes are not part of it.
            (None, Some("text")) => {
                serde_json::from_str(json).map_or_else(|_| json.into(), String::into_bytes)
            }
            (None, _) => json.into(),
        }
    }
}

/// Secrets of workers and servers, removed from the environment of commands. A command that pushes jobs gets
/// its own token in another variable.
const SECRETS: [&str; 5] = [
    "WINDLASS_TOKEN",
    "WINDLASS_STORE",
    "WINDLASS_STORE_URL",
    "WINDLASS_AUTH_TOKENS",
    "WINDLASS_OUTGOING_SIGNING_KEY",
];

/// Runs the command for this job to its end.
pub(super) fn run(job: &Job, run: Run, command: &[String], server: &str, table: &Arc<Table>) -> ProcessEnd {
    let environment = vec![
        ("WINDLASS_JOB_ID", job.id.to_string()),
        ("WINDLASS_JOB_NAME", job.name.clone()),
        ("WINDLASS_JOB_QUEUE", job.queue.clone()),
        ("WINDLASS_JOB_ATTEMPT", job.attempt.to_string()),
        ("WINDLASS_JOB_PRIORITY", job.priority.to_string()),
        ("WINDLASS_SERVER", server.to_owned()),
    ];
    let prefix = (!table.quiet).then(|| format!("job {} | ", job.id));
    let watch = Arc::new(WatchedRun { run, table: Arc::clone(table), prefix });
    windlass_runners::process::run(
        Task { command, environment, removed: &SECRETS, input: job.input() },
        watch,
    )
}

/// Observer that reports events of the process to the table.
struct WatchedRun {
    run: Run,
    table: Arc<Table>,
    /// Prefix of each log line; `None`: quiet.
    prefix: Option<String>,
}

impl Watch for WatchedRun {
    fn started(&self, group: Pid) {
        self.table.process_started(self.run, group);
    }

    fn ended(&self) {
        self.table.process_ended(self.run);
    }

    fn progress(&self, percent: u8, note: String) {
        self.table.report(self.run, percent, note);
    }

    fn message(&self, line: &str) {
        self.table.say(self.run, line);
        if let Some(prefix) = &self.prefix {
            output::note(format!("{prefix}{}", output::harmless(line)));
        }
    }
}

/// Result of a command: JSON if it is valid JSON, else text without trailing newlines; `None` if empty.
pub(super) fn result_of(stdout: &[u8]) -> Option<Box<RawValue>> {
    let text = String::from_utf8_lossy(stdout);
    let text = text.trim_end_matches(['\n', '\r']);
    match serde_json::from_str::<Box<RawValue>>(text) {
        Ok(json) => Some(json),
        Err(_) if text.is_empty() => None,
        Err(_) => to_raw_value(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_json_if_it_can_be_and_text_otherwise() {
        let check = |stdout: &str, result: Option<&str>| {
            assert_eq!(result_of(stdout.as_bytes()).as_deref().map(RawValue::get), result, "{stdout:?}");
        };
        check("", None);
        check("\n", None);
        check("{\"b\":1, \"a\":2}\n", Some("{\"b\":1, \"a\":2}"));
        check("42\n", Some("42"));
        check("two words\nand more\n", Some("\"two words\\nand more\""));
    }
}
