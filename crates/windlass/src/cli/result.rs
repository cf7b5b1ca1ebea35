//! Printing what became of a job: the result alone on standard output, so that it can be piped; anything else than
//! completion is an error.

use crate::client::Accepted;
use crate::fault::{Fault, Outcome};
use crate::output;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::IsTerminal;

#[derive(Deserialize)]
struct Settled {
    state: String,
    /// As it was written by the worker: reading it into a tree would reorder its keys.
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    message: Value,
    #[serde(default)]
    error: Value,
}

/// `answer` is that of `/result` once the job is settled.
pub fn print(id: u64, answer: &Accepted, json: bool) -> Outcome {
    let settled: Settled = answer.read()?;
    if json {
        output::say(&answer.text)?;
    }
    if settled.state != "completed" {
        let reasons = [&settled.message, &settled.error].map(output::plain);
        let reason = reasons.into_iter().find(|text| !text.is_empty()).map(|text| format!(": {text}"));
        let reason = reason.unwrap_or_default();
        return Err(Fault::failed(format!("job {id} {}{}", settled.state, output::harmless(&reason))));
    }
    match settled.result {
        Some(result) if !json && result.get() != "null" => say(&result),
        _ => Ok(()),
    }
}

fn say(result: &RawValue) -> Outcome {
    let text = match serde_json::from_str::<String>(result.get()) {
        Ok(text) => text,
        Err(_) => result.get().to_string(),
    };
    // A pipe gets the bytes as they are; a terminal must not obey them.
    match std::io::stdout().is_terminal() {
        true => text.lines().try_for_each(|line| output::say(output::harmless(line))),
        false => output::say(text),
    }
}
