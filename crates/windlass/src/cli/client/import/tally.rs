//! Summary of an import: jobs in the file and their outcome.

use super::bedrock::Sent;
use crate::fault::Outcome;
use crate::output;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use windlass_dialects::bedrock::import::{ImportOutcome as Becomes, RowResult};

/// Example ids shown with each reason.
const EXAMPLES_MAX: usize = 5;

/// Reasons listed in the final error message; the summary before it lists all.
const REASONS_MAX: usize = 5;

/// Number of jobs with the same note or reason, with examples.
#[derive(Debug, Default)]
struct Group {
    count: u64,
    examples: Vec<i64>,
}

impl Group {
    fn add(&mut self, id: i64) {
        self.count += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(id);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Counts by state in the file and state after the import.
    becomes: BTreeMap<(String, &'static str), u64>,
    notes: BTreeMap<&'static str, Group>,
    left: BTreeMap<String, Group>,
}

impl Tally {
    pub(super) fn add(&mut self, fate: &RowResult) {
        match &fate.outcome {
            Becomes::Import { entry, note, .. } => {
                *self.becomes.entry((fate.state.clone(), entry.stands)).or_default() += 1;
                if let Some(note) = note {
                    self.notes.entry(note).or_default().add(fate.job_id);
                }
            }
            Becomes::Leave(why) => self.left.entry(why.clone()).or_default().add(fate.job_id),
        }
    }

    fn importable(&self) -> u64 {
        self.becomes.values().sum()
    }

    /// Prints the summary. `sent`: responses of the server; `None` for a dry run.
    pub(super) fn say(&self, file: &Path, sent: Option<&Sent>, as_json: bool) -> Outcome {
        if as_json {
            return output::say_json(&self.json(sent));
        }
        let left: u64 = self.left.values().map(|group| group.count).sum();
        output::say(format!("{}: {} jobs", file.display(), self.importable() + left))?;
        for ((state, stands), count) in &self.becomes {
            output::say(format!("  {count:>8} {state:<10} {}", word(stands)))?;
        }
        say_groups("notes:", self.notes.iter().map(|(note, group)| (*note, group)))?;
        say_groups("not imported:", self.left.iter().map(|(why, group)| (why.as_str(), group)))?;
        match sent {
            None => output::say(format!(
                "dry run: nothing was changed; --apply would import {} jobs",
                self.importable()
            )),
            Some(sent) => {
                for (id, why) in &sent.refused {
                    output::say(format!("  job {id} was refused: {why}"))?;
                }
                output::say(format!(
                    "{} jobs imported, {} already existed, {} refused",
                    sent.new,
                    sent.existing,
                    sent.refused.len()
                ))
            }
        }
    }

    /// Error message with the number of jobs not imported and the reasons; `None` if all were imported.
    pub(super) fn left_out(&self, sent: &Sent) -> Option<String> {
        let mut reasons: BTreeMap<&str, u64> =
            self.left.iter().map(|(why, group)| (why.as_str(), group.count)).collect();
        let all = self.importable() + reasons.values().sum::<u64>();
        for (_, why) in &sent.refused {
            *reasons.entry(why).or_default() += 1;
        }
        let count: u64 = reasons.values().sum();
        if count == 0 {
            return None;
        }
        let named: Vec<String> =
            reasons.iter().take(REASONS_MAX).map(|(why, count)| format!("{count}: {why}")).collect();
        let more = if reasons.len() > REASONS_MAX { "; …" } else { "" };
        Some(format!("{count} of {all} jobs were not imported ({}{more})", named.join("; ")))
    }

    fn json(&self, sent: Option<&Sent>) -> Value {
        let becomes = |((state, stands), count): (&(String, &'static str), &u64)| json!({ "state": state, "becomes": stands, "jobs": count });
        let groups = |name: &str, group: &Group| json!({ "why": name, "jobs": group.count, "examples": group.examples });
        json!({
            "importable": self.importable(),
            "states": self.becomes.iter().map(becomes).collect::<Vec<_>>(),
            "notes": self.notes.iter().map(|(note, group)| groups(note, group)).collect::<Vec<_>>(),
            "not_imported": self.left.iter().map(|(why, group)| groups(why, group)).collect::<Vec<_>>(),
            "applied": sent.map(Value::from),
        })
    }
}

fn word(stands: &str) -> &str {
    match stands {
        "ready" => "become ready",
        "waiting" => "become waiting, for their children",
        "completed" => "become completed; kept for their parent",
        "failed" => "become failed",
        "cancelled" => "become cancelled; kept for their parent",
        other => other,
    }
}

fn say_groups<'a>(title: &str, groups: impl Iterator<Item = (&'a str, &'a Group)>) -> Outcome {
    for (index, (what, group)) in groups.enumerate() {
        if index == 0 {
            output::say(title)?;
        }
        let ids: Vec<String> = group.examples.iter().map(ToString::to_string).collect();
        let more = if group.count > ids.len() as u64 { ", …" } else { "" };
        output::say(format!("  {:>8} {what} (jobID {}{more})", group.count, ids.join(", ")))?;
    }
    Ok(())
}
