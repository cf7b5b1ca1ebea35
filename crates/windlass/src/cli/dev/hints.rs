//! Lines about events of jobs, and hints: each once per name of a job.

use crate::cli::quoted;
use crate::human_time::show_duration;
use crate::output;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::{JobId, StateWord};
use windlass_engine::{FeedEvent, FeedKind};

/// Events shown one by one in a step; more are summed up.
const SHOWN_MAX: usize = 20;
/// Names that are watched and hints that are given; a program that makes up names must not fill the memory.
const NAMES_MAX: usize = 1_000;
/// Characters of an error message or a name.
const MESSAGE_MAX: usize = 200;
const NAME_MAX: usize = 60;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Event {
        at_ms: i64,
        text: String,
        /// Word for the colour.
        state: &'static str,
    },
    Hint {
        text: String,
        /// Commands to paste.
        commands: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    Failed,
    Retrying,
    Lapsed,
    Unclaimed,
    Busy,
    Paused,
    Limited,
}

/// Queue and name of jobs.
type Lane = (String, String);

/// Oldest job of a lane that is ready.
struct Waiting {
    id: JobId,
    since_ms: i64,
}

pub(super) struct Hints {
    /// Flag that commands need to find the server, with a blank before it.
    at: String,
    after_ms: i64,
    given: BTreeSet<(Topic, Lane)>,
    waiting: BTreeMap<Lane, Waiting>,
    /// Lanes of which a job was claimed.
    claimed: BTreeSet<Lane>,
}

impl Hints {
    pub(super) fn new(at: String, after_ms: i64) -> Hints {
        Hints { at, after_ms, given: BTreeSet::new(), waiting: BTreeMap::new(), claimed: BTreeSet::new() }
    }

    /// Lines for the events since the last step. `look` reads a job.
    pub(super) fn step(
        &mut self,
        events: &[Arc<FeedEvent>],
        missed: u64,
        now_ms: i64,
        look: &mut dyn FnMut(JobId) -> Value,
    ) -> Vec<Line> {
        let mut lines = Vec::new();
        let shown = events.iter().filter(|event| word(event.kind).is_some()).count();
        let one_by_one = missed == 0 && shown <= SHOWN_MAX;
        for event in events {
            self.watch(event);
            let topic = topic(event.kind).filter(|topic| !self.is_given(*topic, &lane(event)));
            if !one_by_one && topic.is_none() {
                continue;
            }
            let Some(word) = word(event.kind) else { continue };
            // The server is asked only for jobs that failed.
            let job = if topic.is_some() || is_failure(event.kind) { look(event.id) } else { Value::Null };
            lines.push(event_line(event, word, &job, now_ms));
            if let Some(topic) = topic {
                lines.push(self.hint(topic, lane(event), event.id, &job));
            }
        }
        if !one_by_one {
            lines.push(summary(events, missed, now_ms));
        }
        lines.extend(self.overdue(now_ms, look));
        lines
    }

    /// Keeps account of lanes with jobs that wait.
    fn watch(&mut self, event: &FeedEvent) {
        let lane = lane(event);
        match event.kind {
            FeedKind::Pushed | FeedKind::Ready
                if event.state == StateWord::Ready && self.waiting.len() < NAMES_MAX =>
            {
                let since_ms = event.at.as_millis();
                self.waiting.entry(lane).or_insert(Waiting { id: event.id, since_ms });
            }
            FeedKind::Claimed => {
                self.waiting.remove(&lane);
                if self.claimed.len() < NAMES_MAX {
                    self.claimed.insert(lane);
                }
            }
            _ => {}
        }
    }

    /// Hints about jobs that have waited for too long.
    fn overdue(&mut self, now_ms: i64, look: &mut dyn FnMut(JobId) -> Value) -> Vec<Line> {
        let is_late = |waiting: &Waiting| now_ms - waiting.since_ms >= self.after_ms;
        let late: Vec<Lane> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| is_late(waiting))
            .map(|(lane, _)| lane.clone())
            .take(SHOWN_MAX)
            .collect();
        let mut lines = Vec::new();
        for lane in late {
            let Some(waiting) = self.waiting.remove(&lane) else { continue };
            let job = look(waiting.id);
            let why = job["waiting_for"].as_str().unwrap_or_default();
            let topic = match why {
                _ if job["state"] != "ready" => continue,
                "a worker" if self.claimed.contains(&lane) => Topic::Busy,
                "a worker" => Topic::Unclaimed,
                "paused queue" => Topic::Paused,
                _ if why.starts_with("limit ") => Topic::Limited,
                _ => continue,
            };
            if !self.is_given(topic, &lane) {
                lines.push(self.hint(topic, lane, waiting.id, &job));
            }
        }
        lines
    }

    fn is_given(&self, topic: Topic, lane: &Lane) -> bool {
        self.given.len() >= NAMES_MAX || self.given.contains(&(topic, lane.clone()))
    }

    fn hint(&mut self, topic: Topic, lane: Lane, id: JobId, job: &Value) -> Line {
        let (text, commands) = self.words(topic, &lane, id, job);
        self.given.insert((topic, lane));
        let commands = commands.iter().map(|command| output::harmless(command).into_owned()).collect();
        Line::Hint { text: output::harmless(&text).into_owned(), commands }
    }

    fn words(&self, topic: Topic, (queue, name): &Lane, id: JobId, job: &Value) -> (String, Vec<String>) {
        let at = &self.at;
        let time = show_duration(self.after_ms);
        let shown = output::shortened(name, NAME_MAX);
        let from = if queue == "default" { String::new() } else { format!(" --queue {}", quoted(queue)) };
        match topic {
            Topic::Failed => (
                "no attempt is left; look at the job, then run it again:".to_owned(),
                vec![format!("windlass job {id}{at}"), format!("windlass job {id} retry{at}")],
            ),
            Topic::Retrying => (
                "it is retried by itself; look at the job, or run it now:".to_owned(),
                vec![format!("windlass job {id}{at}"), format!("windlass job {id} run{at}")],
            ),
            Topic::Lapsed => (
                "its worker did not extend the lease in time: it crashed, or the lease is too short"
                    .to_owned(),
                vec![format!("windlass job {id}{at}")],
            ),
            Topic::Unclaimed if job["origin"] != "native" => (
                format!("job {id} has waited for {time}; no worker claims {shown} in queue {queue}"),
                Vec::new(),
            ),
            Topic::Unclaimed => (
                format!("job {id} has waited for {time}; no worker claims {shown}. Start one:"),
                vec![format!("windlass work {}{from}{at} -- cat", quoted(name))],
            ),
            Topic::Busy => (
                format!("job {id} has waited for {time}; the workers for {shown} are busy or gone:"),
                vec![format!("windlass top{at}")],
            ),
            Topic::Paused => (
                format!("job {id} waits because its queue is paused:"),
                vec![format!("windlass queues resume {}{at}", quoted(queue))],
            ),
            Topic::Limited => (
                format!(
                    "job {id} waits because of the {}; see Limits in the web UI",
                    output::plain(&job["waiting_for"])
                ),
                Vec::new(),
            ),
        }
    }
}

fn lane(event: &FeedEvent) -> Lane {
    (event.queue.to_string(), event.name.to_string())
}

/// Hint that an event may need.
fn topic(kind: FeedKind) -> Option<Topic> {
    match kind {
        FeedKind::Failed => Some(Topic::Failed),
        FeedKind::Retrying => Some(Topic::Retrying),
        FeedKind::Lapsed => Some(Topic::Lapsed),
        _ => None,
    }
}

fn is_failure(kind: FeedKind) -> bool {
    matches!(kind, FeedKind::Failed | FeedKind::Retrying | FeedKind::TurnFailed)
}

/// Words for an event, and the state that gives its colour. `None`: the event is not shown.
fn word(kind: FeedKind) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        FeedKind::Pushed => ("pushed", ""),
        FeedKind::Claimed => ("claimed", "running"),
        FeedKind::Completed => ("completed", "completed"),
        FeedKind::Repeating => ("completed its turn", "completed"),
        FeedKind::Failed => ("failed", "failed"),
        FeedKind::TurnFailed => ("failed its turn", "failed"),
        FeedKind::TurnMissed => ("missed its turn", "retrying"),
        FeedKind::Retrying => ("attempt failed", "retrying"),
        FeedKind::Lapsed => ("lease expired", "retrying"),
        FeedKind::Released => ("released", ""),
        FeedKind::Suspended => ("suspended", ""),
        FeedKind::Cancelled => ("cancelled", "cancelled"),
        FeedKind::Terminated => ("terminated", "terminated"),
        FeedKind::Waiting
        | FeedKind::CancelAsked
        | FeedKind::Terminating
        | FeedKind::Ready
        | FeedKind::Progress
        | FeedKind::Updated
        | FeedKind::Deleted
        | FeedKind::Expired => return None,
    })
}

fn event_line(event: &FeedEvent, word: (&str, &'static str), job: &Value, now_ms: i64) -> Line {
    let (word, state) = word;
    let name = output::shortened(&event.name, NAME_MAX);
    let mut text = format!("job {} {name} {word}", event.id);
    let errors = job["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(error) = errors.last() {
        let class = error["class"].as_str().map(|class| format!("{class}: ")).unwrap_or_default();
        let message = format!("{class}{}", output::plain(&error["message"]));
        text.push_str(&format!(": {}", output::shortened(&message, MESSAGE_MAX)));
    }
    let next = job["run_at"].as_i64().filter(|at| event.kind == FeedKind::Retrying && *at > now_ms);
    if let Some(next) = next {
        let left = job["max_attempts"].as_u64().map(|most| format!(" of {most}")).unwrap_or_default();
        let tried = output::plain(&job["attempts"]);
        text.push_str(&format!(" (attempt {tried}{left}, next in {})", show_duration(next - now_ms)));
    }
    Line::Event { at_ms: event.at.as_millis(), text: output::harmless(&text).into_owned(), state }
}

/// Line for more events than are shown one by one.
fn summary(events: &[Arc<FeedEvent>], missed: u64, now_ms: i64) -> Line {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (word, _) in events.iter().filter_map(|event| word(event.kind)) {
        *counts.entry(word).or_default() += 1;
    }
    let mut parts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    if missed > 0 {
        parts.push(format!("{missed} events not shown"));
    }
    Line::Event { at_ms: now_ms, text: format!("jobs: {}", parts.join(", ")), state: "" }
}

#[cfg(test)]
mod tests;
