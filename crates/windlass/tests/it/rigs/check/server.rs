//! Counters, pages, pauses, and errors of the server.

use super::{Say, Story};
use crate::rigs::history::{Outcome, What};
use std::collections::{BTreeMap, BTreeSet};

/// Invariant 20: the counters of the queues equal the jobs.
pub fn counters_equal_rows(story: &Story<'_>, say: &mut Say<'_>) {
    let mut rows: BTreeMap<(String, String), u64> = BTreeMap::new();
    for job in &story.dump.jobs {
        let text = |key: &str| job[key].as_str().unwrap_or_default().to_owned();
        *rows.entry((text("queue"), text("state"))).or_default() += 1;
    }
    const STATES: [&str; 9] = [
        "ready",
        "running",
        "waiting",
        "suspended",
        "completed",
        "failed",
        "cancelled",
        "terminating",
        "terminated",
    ];
    let mut queues = BTreeSet::new();
    for queue in &story.dump.queues {
        let name = queue["queue"].as_str().unwrap_or_default();
        queues.insert(name.to_owned());
        for state in STATES {
            let mut told = queue[state].as_u64().unwrap_or(0);
            if state == "ready" {
                told +=
                    ["delayed", "retrying"].map(|word| queue[word].as_u64().unwrap_or(0)).iter().sum::<u64>();
            }
            let there = rows.get(&(name.to_owned(), state.to_owned())).copied().unwrap_or(0);
            if told != there {
                say(20, format!("queue {name} tells of {told} {state} jobs, {there} are there"));
            }
        }
    }
    for ((queue, state), count) in rows.iter().filter(|((queue, _), _)| !queues.contains(queue)) {
        say(20, format!("queue {queue} is not listed but holds {count} {state} jobs"));
    }
}

/// Invariant 23: pages list each job once.
pub fn pages_list_each_job_once(story: &Story<'_>, say: &mut Say<'_>) {
    let mut seen = BTreeSet::new();
    for job in &story.dump.jobs {
        if !seen.insert(job["id"].as_u64()) {
            say(23, format!("job {} is listed twice", job["id"]));
        }
    }
}

/// Invariant 4: an acknowledged pause stays, and no job is handed out meanwhile.
pub fn pauses_hold(story: &Story<'_>, say: &mut Say<'_>) {
    let mut switches: BTreeMap<&str, Vec<(&crate::rigs::history::Record, bool)>> = BTreeMap::new();
    for record in story.records.iter().filter(|record| record.may_be_done()) {
        if let What::Pause { queue, paused } = &record.what {
            switches.entry(queue).or_default().push((record, *paused));
        }
    }
    for (queue, switches) in &switches {
        let last = switches.iter().max_by_key(|(record, _)| record.end);
        let Some((last, paused)) = last.filter(|(last, _)| {
            last.is_ok()
                && switches.iter().all(|(other, _)| other.call == last.call || other.end <= last.start)
        }) else {
            continue;
        };
        let told = story.dump.queues.iter().find(|found| found["queue"] == **queue);
        if told.is_some_and(|told| told["paused"] != *paused) || (told.is_none() && *paused) {
            say(4, format!("queue {queue} was last set to paused={paused} (call {}), and is not", last.call));
        }
    }
    for record in story.records.iter().filter(|record| record.is_ok()) {
        let What::Claim { granted, .. } = &record.what else { continue };
        for grant in granted {
            let push = story.lives.get(&grant.id).and_then(|life| life.push);
            let Some(switches) = push.and_then(|(_, push)| switches.get(push.queue.as_str())) else {
                continue;
            };
            let before = switches.iter().filter(|(switch, _)| switch.is_ok() && switch.end < record.start);
            let Some((pause, true)) = before.max_by_key(|(switch, _)| switch.end) else { continue };
            let resumed = switches
                .iter()
                .any(|(switch, paused)| !paused && switch.start <= record.end && switch.end >= pause.start);
            if !resumed {
                say(4, format!("job {} was handed out of a paused queue (call {})", grant.id, record.call));
            }
        }
    }
}

/// Invariant 24: no response with an unknown result.
pub fn nothing_went_wrong(story: &Story<'_>, say: &mut Say<'_>) {
    for record in story.records {
        if let Outcome::Trouble(words) = &record.outcome {
            say(24, format!("call {} was answered with {words}", record.call));
        }
    }
}
