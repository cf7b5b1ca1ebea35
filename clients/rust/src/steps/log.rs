//! Kept steps of a job against the calls of a run: names, replay and changes of the code. Pure.

use crate::wire::{KeptStep, NewStep};
use serde_json::value::RawValue;
use std::collections::HashMap;

/// Step that holds the version of the task at the first step of the job.
pub(crate) const VERSION: &str = "@version";
/// Step names listed in a message.
const NAMES_SHOWN: usize = 5;

/// Effect of kept steps that the handler does not ask for any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnChange {
    /// Writes a warning to the log of the job and of the process.
    #[default]
    Warn,
    /// Fails the job for good, with the class `StepsChanged`.
    Refuse,
}

/// Call of a step: its full name, and the kept result if there is one.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) name: String,
    pub(crate) kept: Option<KeptStep>,
}

/// Steps of one run.
#[derive(Debug, Default)]
pub(crate) struct StepLog {
    /// Kept steps that the run has not asked for yet, with their positions.
    unvisited: HashMap<String, (usize, KeptStep)>,
    /// Calls per name.
    used: HashMap<String, u32>,
    /// Version at the first step of the job; `None` until a step is kept.
    version: Option<u32>,
    /// Version of the task in this program; 0 if it has none.
    version_now: u32,
    is_change_reported: bool,
}

impl StepLog {
    pub(crate) fn new(kept: Vec<KeptStep>, version_now: u32) -> StepLog {
        let is_first = kept.is_empty();
        let mut log = StepLog { version_now, ..StepLog::default() };
        if !is_first {
            log.version = Some(0);
        }
        for (position, step) in kept.into_iter().enumerate() {
            if step.name == VERSION {
                let number = step.result.as_deref().and_then(|text| text.get().parse().ok());
                log.version = Some(number.unwrap_or(0));
            } else {
                log.unvisited.insert(step.name.clone(), (position, step));
            }
        }
        log
    }

    /// Next call of this name: `charge`, `charge#2`, …
    pub(crate) fn next(&mut self, name: &str) -> Turn {
        let count = self.used.entry(name.to_owned()).or_insert(0);
        *count += 1;
        let name = match count {
            1 => name.to_owned(),
            count => format!("{name}#{count}"),
        };
        let kept = self.unvisited.remove(&name).map(|(_, step)| step);
        Turn { name, kept }
    }

    /// Version at the first step of the job, or of the task if no step is kept yet.
    pub(crate) fn version(&self) -> u32 {
        self.version.unwrap_or(self.version_now)
    }

    /// Step that keeps the version, before the first step of the job; until a step is kept.
    pub(crate) fn version_step(&self) -> Option<NewStep> {
        if self.version.is_some() {
            return None;
        }
        let result = RawValue::from_string(self.version_now.to_string()).ok()?;
        (self.version_now > 0).then(|| NewStep { name: VERSION.to_owned(), result, started_at: None })
    }

    /// Notes that the server has kept steps, and the version with them.
    pub(crate) fn version_kept(&mut self) {
        self.version.get_or_insert(self.version_now);
    }

    /// Message about kept steps that the run has not asked for; once. `now` is a new step, or the end of the run.
    pub(crate) fn change(&mut self, now: &str) -> Option<String> {
        if self.unvisited.is_empty() || std::mem::replace(&mut self.is_change_reported, true) {
            return None;
        }
        let mut left: Vec<(usize, &str)> =
            self.unvisited.iter().map(|(name, (position, _))| (*position, name.as_str())).collect();
        left.sort_unstable();
        let shown: Vec<&str> = left.iter().take(NAMES_SHOWN).map(|(_, name)| *name).collect();
        let more = match left.len().saturating_sub(NAMES_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "the steps of the task have changed: {now} is reached without the kept steps {}{more}",
            shown.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(names: &[&str]) -> Vec<KeptStep> {
        let result =
            |name: &str| RawValue::from_string(if name == VERSION { "3" } else { "null" }.into()).ok();
        let step = |name: &&str| KeptStep {
            name: (*name).into(),
            result: result(name),
            timed_out: false,
            generation: 0,
        };
        names.iter().map(step).collect()
    }

    #[test]
    fn a_name_used_again_gets_a_number() {
        let mut log = StepLog::new(kept(&["charge", "charge#2"]), 0);
        let turns: Vec<Turn> = ["charge", "pack", "charge", "charge"].map(|name| log.next(name)).into();
        let seen: Vec<_> = turns.iter().map(|turn| (turn.name.as_str(), turn.kept.is_some())).collect();
        assert_eq!(seen, [("charge", true), ("pack", false), ("charge#2", true), ("charge#3", false)]);
        assert_eq!(log.change("the end"), None, "all kept steps were asked for");
    }

    #[test]
    fn a_kept_step_that_is_gone_from_the_code_is_reported_once() {
        let mut log = StepLog::new(kept(&["a", "b", "c"]), 0);
        assert!(log.next("b").kept.is_some());
        let message = log.change("d").unwrap();
        assert!(message.ends_with("d is reached without the kept steps a, c"), "{message}");
        assert_eq!(log.change("e"), None);
        let many: Vec<String> = (0..7).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let message = StepLog::new(kept(&many), 0).change("d").unwrap();
        assert!(message.ends_with("0, 1, 2, 3, 4 and 2 more"), "{message}");
    }

    #[test]
    fn the_version_is_that_of_the_first_step() {
        let mut fresh = StepLog::new(vec![], 4);
        assert_eq!(fresh.version(), 4);
        assert_eq!(fresh.version_step().unwrap().result.get(), "4");
        assert!(fresh.version_step().is_some(), "until it is kept");
        fresh.version_kept();
        assert!(fresh.version_step().is_none(), "kept once");
        let older = StepLog::new(kept(&[VERSION, "a"]), 4);
        assert_eq!((older.version(), older.version_step().is_none()), (3, true));
        assert_eq!(StepLog::new(kept(&["a"]), 4).version(), 0, "kept before the task had versions");
        assert!(StepLog::new(vec![], 0).version_step().is_none(), "a task without a version keeps none");
    }
}
