//! Prints the outcome of a job: only the result on stdout, so that it can be piped; every state except
//! completed is an error.

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
    /// Raw JSON text of the worker: parsing it into a tree would reorder its keys.
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    message: Value,
    #[serde(default)]
    error: Value,
}

/// Prints the response of `/result` for a settled job.
pub(crate) fn print(id: impl std::fmt::Display, answer: &Accepted, json: bool) -> Outcome {
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
    // Escape sequences are removed on a terminal, but not in a pipe.
    match std::io::stdout().is_terminal() {
        true => text.lines().try_for_each(|line| output::say(output::harmless(line))),
        false => output::say(text),
    }
}
