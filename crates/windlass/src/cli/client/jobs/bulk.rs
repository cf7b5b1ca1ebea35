//! Actions of `windlass jobs` on all jobs of a search: counts them, asks, acts in steps and sums up.

use super::Query;
use crate::cli::confirm::confirm;
use crate::cli::progress;
use crate::client::Client;
use crate::fault::{Fault, Outcome};
use crate::human_time;
use crate::output;
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Refusals kept for the summary; the others are only counted.
const REFUSALS_KEPT: usize = 100;
/// Ids named per reason in the summary.
const IDS_NAMED: usize = 5;

/// Action on all jobs of a search, at most one.
#[derive(Args, Debug, Default)]
#[group(id = "action", multiple = false)]
pub(super) struct ActionArgs {
    /// Start all found jobs again; attempts count from zero
    #[arg(long, help_heading = "Actions on all found jobs")]
    retry: bool,
    /// Cancel all found jobs; workers of running ones are asked to stop
    #[arg(long, help_heading = "Actions on all found jobs")]
    cancel: bool,
    /// Run all found delayed jobs now
    #[arg(long, help_heading = "Actions on all found jobs")]
    run: bool,
    /// Delete all found jobs
    #[arg(long, help_heading = "Actions on all found jobs")]
    delete: bool,
    /// Move all found jobs to this queue
    #[arg(long, value_name = "QUEUE", help_heading = "Actions on all found jobs")]
    queue_to: Option<String>,
    /// Change the priority of all found jobs
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Actions on all found jobs")]
    set_priority: Option<i32>,
    /// Change the earliest start time of all found jobs, e.g. 09:00
    #[arg(
        long,
        value_name = "TIME",
        value_parser = human_time::parse_time_ms,
        help_heading = "Actions on all found jobs"
    )]
    run_at: Option<i64>,
}

impl ActionArgs {
    pub(super) fn action(&self) -> Option<Action> {
        let flags = [
            self.retry.then_some(Action::Retry),
            self.cancel.then_some(Action::Cancel),
            self.run.then_some(Action::Run),
            self.delete.then_some(Action::Delete),
            self.queue_to.clone().map(Action::Queue),
            self.set_priority.map(Action::Priority),
            self.run_at.map(Action::RunAt),
        ];
        flags.into_iter().flatten().next()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Retry,
    Cancel,
    Run,
    Delete,
    Queue(String),
    Priority(i32),
    RunAt(i64),
}

impl Action {
    /// Body of the API, without the search.
    fn ask(&self) -> Value {
        match self {
            Action::Retry => json!({"action": "retry"}),
            Action::Cancel => json!({"action": "cancel"}),
            Action::Run => json!({"action": "run"}),
            Action::Delete => json!({"action": "delete"}),
            Action::Queue(queue) => json!({"action": "move", "queue": queue}),
            Action::Priority(priority) => json!({"action": "priority", "priority": priority}),
            Action::RunAt(at) => json!({"action": "reschedule", "run_at": at}),
        }
    }

    /// Question, as in `retry 412 jobs`.
    fn question(&self, jobs: &str) -> String {
        match self {
            Action::Retry => format!("retry {jobs}"),
            Action::Cancel => format!("cancel {jobs}"),
            Action::Run => format!("run {jobs} now"),
            Action::Delete => format!("delete {jobs}"),
            Action::Queue(queue) => format!("move {jobs} to the queue {queue}"),
            Action::Priority(priority) => format!("set the priority of {jobs} to {priority}"),
            Action::RunAt(at) => format!("set the start time of {jobs} to {}", human_time::show_time(*at)),
        }
    }

    /// Participle of the summary, as in `412 jobs retried`.
    fn done(&self) -> &'static str {
        match self {
            Action::Retry => "retried",
            Action::Cancel => "cancelled, or their workers asked to stop",
            Action::Run => "run now",
            Action::Delete => "deleted",
            Action::Queue(_) => "moved",
            Action::Priority(_) | Action::RunAt(_) => "changed",
        }
    }
}

/// Number of jobs that a search finds.
#[derive(Clone, Copy, Deserialize)]
struct Count {
    count: u64,
    at_least: bool,
}

impl Count {
    fn shown(self) -> String {
        let jobs = if self.count == 1 { "job" } else { "jobs" };
        format!("{}{} {jobs}", if self.at_least { "at least " } else { "" }, grouped(self.count))
    }
}

/// Answer of the API to one step.
#[derive(Deserialize)]
struct Step {
    done: u64,
    refused: u64,
    errors: Vec<Refusal>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    id: u64,
    message: String,
}

#[derive(Default)]
struct Sum {
    done: u64,
    refused: u64,
    errors: Vec<Refusal>,
}

impl Sum {
    fn add(&mut self, step: Step) {
        self.done += step.done;
        self.refused += step.refused;
        let room = REFUSALS_KEPT.saturating_sub(self.errors.len());
        self.errors.extend(step.errors.into_iter().take(room));
    }

    /// Lines of the summary: number of jobs changed, and the reasons why others were not.
    fn lines(&self, done: &str) -> Vec<String> {
        let jobs = |count: u64| if count == 1 { "job" } else { "jobs" };
        let mut lines = vec![format!("{} {} {done}", grouped(self.done), jobs(self.done))];
        if self.refused > 0 {
            let were = if self.refused == 1 { "was" } else { "were" };
            lines.push(format!("{} {} {were} not changed:", grouped(self.refused), jobs(self.refused)));
        }
        let mut reasons: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        self.errors.iter().for_each(|one| reasons.entry(&one.message).or_default().push(one.id));
        for (reason, ids) in reasons {
            let named: Vec<String> = ids.iter().take(IDS_NAMED).map(u64::to_string).collect();
            let more = if ids.len() > IDS_NAMED { ", …" } else { "" };
            let which = jobs(ids.len() as u64);
            lines.push(format!("  {} {which} ({}{more}): {reason}", ids.len(), named.join(", ")));
        }
        let untold = self.refused.saturating_sub(self.errors.len() as u64);
        if untold > 0 && untold < self.refused {
            lines.push(format!("  {} other {}: no reasons listed", grouped(untold), jobs(untold)));
        }
        lines
    }

    fn as_json(&self, found: Count) -> Value {
        let error = |one: &Refusal| json!({"id": one.id, "message": one.message});
        json!({
            "found": found.count, "at_least": found.at_least, "done": self.done, "refused": self.refused,
            "errors": self.errors.iter().map(error).collect::<Vec<_>>(),
        })
    }
}

/// Number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Applies the action to all jobs of the search. The exit code is 1 if a job could not be changed.
pub(super) fn run(client: &mut Client, query: &Query, action: &Action, yes: bool, json: bool) -> Outcome {
    let found: Count = client.call("GET", &query.count_path(), None, 0)?.read()?;
    if found.count == 0 && !found.at_least {
        return match json {
            true => output::say_json(&Sum::default().as_json(found)),
            false => {
                output::note("no jobs found");
                Ok(())
            }
        };
    }
    let matching = if query.words().is_empty() { String::new() } else { format!(" ({})", query.words()) };
    let question = format!("{}{matching}?", action.question(&found.shown()));
    confirm(&output::harmless(&question), yes)?;
    let mut sum = Sum::default();
    let acted = act(client, query, action, found, &mut sum);
    if json {
        output::say_json(&sum.as_json(found))?;
    } else {
        sum.lines(action.done()).into_iter().try_for_each(|line| output::say(output::harmless(&line)))?;
    }
    acted?;
    match sum.refused {
        0 => Ok(()),
        refused => {
            let all = grouped(refused + sum.done);
            Err(Fault::failed(format!("{} of {all} jobs could not be changed", grouped(refused))))
        }
    }
}

/// Sends the action step by step, with a progress bar on a terminal.
fn act(client: &mut Client, query: &Query, action: &Action, found: Count, sum: &mut Sum) -> Outcome {
    let bar = progress::bar("jobs");
    let mut ask = action.ask();
    ask["search"] = json!(query.words());
    loop {
        let answer = client.call("POST", "/api/v1/jobs/bulk", Some(&ask.to_string()), 0);
        let step: Step = answer.and_then(|answer| answer.read()).inspect_err(|_| bar.finish_and_clear())?;
        let next = step.next.clone();
        sum.add(step);
        let handled = sum.done + sum.refused;
        progress::show(&bar, handled, found.count.max(handled));
        match next {
            // Each step begins below the one before it.
            Some(cursor) if ask["cursor"] != json!(cursor) => ask["cursor"] = json!(cursor),
            _ => break,
        }
    }
    bar.finish_and_clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_an_action_of_the_api() {
        let none = ActionArgs::default;
        let table = [
            (ActionArgs { retry: true, ..none() }, json!({"action": "retry"}), "retry 3 jobs"),
            (ActionArgs { cancel: true, ..none() }, json!({"action": "cancel"}), "cancel 3 jobs"),
            (ActionArgs { run: true, ..none() }, json!({"action": "run"}), "run 3 jobs now"),
            (ActionArgs { delete: true, ..none() }, json!({"action": "delete"}), "delete 3 jobs"),
            (
                ActionArgs { queue_to: Some("q".to_string()), ..none() },
                json!({"action": "move", "queue": "q"}),
                "move 3 jobs to the queue q",
            ),
            (
                ActionArgs { set_priority: Some(-5), ..none() },
                json!({"action": "priority", "priority": -5}),
                "set the priority of 3 jobs to -5",
            ),
            (
                ActionArgs { run_at: Some(1_000), ..none() },
                json!({"action": "reschedule", "run_at": 1_000}),
                "set the start time of 3 jobs to ",
            ),
        ];
        for (args, ask, question) in table {
            let action = args.action().expect("an action");
            assert_eq!(action.ask(), ask);
            assert!(action.question("3 jobs").starts_with(question), "{action:?}");
        }
        assert_eq!(none().action(), None);
    }

    #[test]
    fn a_summary_counts_and_groups_the_refusals() {
        let error = |id, message: &str| Refusal { id, message: message.to_string() };
        let mut sum = Sum::default();
        sum.add(Step {
            done: 1_398,
            refused: 9,
            errors: (1..=6).map(|id| error(id, "the job is running")).chain([error(9, "gone")]).collect(),
            next: None,
        });
        assert_eq!(
            sum.lines("retried"),
            [
                "1,398 jobs retried",
                "9 jobs were not changed:",
                "  1 job (9): gone",
                "  6 jobs (1, 2, 3, 4, 5, …): the job is running",
                "  2 other jobs: no reasons listed",
            ]
        );
        let one = Sum { done: 1, ..Sum::default() };
        assert_eq!(one.lines("deleted"), ["1 job deleted"]);
        let none = Sum { refused: 1, errors: vec![error(7, "gone")], ..Sum::default() };
        assert_eq!(none.lines("deleted"), ["0 jobs deleted", "1 job was not changed:", "  1 job (7): gone"]);
    }

    #[test]
    fn counts_are_shown_with_their_bound() {
        let shown = |count, at_least| Count { count, at_least }.shown();
        assert_eq!(shown(1, false), "1 job");
        assert_eq!(shown(1_234_567, true), "at least 1,234,567 jobs");
        assert_eq!(shown(123, false), "123 jobs");
    }
}
