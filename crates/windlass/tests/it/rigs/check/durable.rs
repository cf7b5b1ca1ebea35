//! Acknowledged changes are there, and no others.

use super::{Life, Say, Story};
use crate::rigs::history::{Action, How, Outcome, Pushing, Record, What};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const SETTLED: [&str; 3] = ["completed", "failed", "cancelled"];

/// Invariants 1 and 23: an acknowledged job exists or its deletion was requested, and it can be read at once.
pub fn nothing_is_lost(life: &Life<'_>, say: &mut Say<'_>) {
    let (Some((_, pushing)), Some(push)) = (life.push, life.acknowledged) else { return };
    if life.now.is_none() && !life.may_be_gone() {
        say(1, format!("job {} ({}), acknowledged by call {}, is lost", life.id, pushing.mark, push.call));
    }
    for (read, state) in &life.reads {
        if read.is_ok() && read.start > push.end && state.is_none() && !life.may_be_gone() {
            say(23, format!("job {} was not found by call {} after it was pushed", life.id, read.call));
        }
    }
}

/// Invariants 2 and 3: every job was pushed, with its contents, once; a refused push has no effect.
pub fn no_phantoms(story: &Story<'_>, say: &mut Say<'_>) {
    let pushes = pushes_by_mark(story);
    for (mark, ids) in &story.ids {
        if ids.len() > 1 {
            say(2, format!("{mark} became several jobs: {ids:?}"));
        }
        match pushes.get(mark) {
            None => say(2, format!("nobody asked for the job with mark {mark:?} ({ids:?})")),
            Some(tries) if tries.iter().all(|(record, _)| !record.may_be_done()) => {
                say(3, format!("{mark} was refused by call {}, and is there: {ids:?}", tries[0].0.call));
            }
            Some(_) => {}
        }
    }
    for life in story.lives.values() {
        if let Some((_, push)) = life.push {
            same_as_asked(life, push, say);
        }
    }
    leases_have_takers(story, say);
}

fn pushes_by_mark<'a>(story: &Story<'a>) -> BTreeMap<&'a str, Vec<(&'a Record, &'a Pushing)>> {
    let mut pushes: BTreeMap<&str, Vec<(&Record, &Pushing)>> = BTreeMap::new();
    for record in story.records {
        if let What::Push(push) = &record.what {
            pushes.entry(&push.mark).or_default().push((record, push));
        }
    }
    pushes
}

fn same_as_asked(life: &Life<'_>, push: &Pushing, say: &mut Say<'_>) {
    for (record, grant) in &life.grants {
        if grant.payload != push.payload() {
            say(2, format!("job {} was handed out with another payload (call {})", life.id, record.call));
        }
    }
    let Some(job) = life.now else { return };
    let tags: Value = if push.tags.is_empty() { Value::Null } else { push.tags.clone().into() };
    let parts = [
        ("payload", push.payload()),
        ("queue", push.queue.clone().into()),
        ("priority", push.priority.into()),
        ("tags", tags),
        ("max_attempts", push.max_attempts.into()),
        ("name", "rig".into()),
    ];
    for (part, asked) in parts {
        if job[part] != asked {
            say(2, format!("job {} has {part} {}, asked was {asked}", life.id, job[part]));
        }
    }
}

/// The worker of every lease has claimed, and its response listed no other jobs.
fn leases_have_takers(story: &Story<'_>, say: &mut Say<'_>) {
    let mut claims: BTreeMap<&str, (&Record, BTreeSet<u64>)> = BTreeMap::new();
    for record in story.records {
        if let What::Claim { worker, granted, .. } = &record.what {
            claims.insert(worker, (record, granted.iter().map(|grant| grant.id).collect()));
        }
    }
    for job in &story.dump.jobs {
        let Some(worker) = job["lease"]["worker"].as_str() else { continue };
        let id = job["id"].as_u64().unwrap_or_default();
        let explained = claims.get(worker).is_some_and(|(record, ids)| match record.outcome {
            Outcome::Ok => ids.contains(&id),
            _ => record.may_be_done(),
        });
        if !explained {
            say(2, format!("job {id} is leased to {worker}, who was not given it"));
        }
    }
}

/// Invariant 3: a batch is created as a whole or not at all.
pub fn batches_are_whole(story: &Story<'_>, say: &mut Say<'_>) {
    let mut batches: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for record in story.records.iter().filter(|record| record.may_be_done() && !record.is_ok()) {
        let What::Push(push) = &record.what else { continue };
        let (seen, unseen) = batches.entry(record.call).or_default();
        match story.ids.contains_key(push.mark.as_str()) {
            true => *seen += 1,
            // May have been created, then claimed with a lost response, and so on: only jobs that cannot be
            // deleted count.
            false if push.forget => {}
            false => *unseen += 1,
        }
    }
    for (call, (seen, unseen)) in batches {
        if seen > 0 && unseen > 0 {
            say(3, format!("of the batch of call {call} {seen} jobs are there and {unseen} are not"));
        }
    }
}

/// Invariants 4 and 10: a job acknowledged as finished, cancelled or deleted does not come back.
pub fn ends_stay_ends(life: &Life<'_>, say: &mut Say<'_>) {
    for settle in life.settles.iter().filter(|settle| settle.record.is_ok() && settle.how == How::Finish) {
        if !matches!(settle.state, Some("completed" | "gone"))
            || life.may_be_revived_after(settle.record.start)
        {
            continue;
        }
        if let Some((record, grant)) = life.grants.iter().find(|(_, grant)| grant.token > settle.token) {
            let (id, token) = (life.id, grant.token);
            say(10, format!("job {id} was finished, and given out again by call {} ({token})", record.call));
        }
        let there = life.state();
        if there != "gone" && there != settle.state.unwrap_or_default() {
            say(4, format!("job {} was acknowledged as finished, and is {there}", life.id));
        }
    }
    for (act, action, state) in life.acts.iter().filter(|(act, ..)| act.is_ok()) {
        if life.may_be_revived_after(act.start) {
            continue;
        }
        let ended = match (action, state) {
            (Action::Delete, _) => "gone",
            (Action::CancelAsk | Action::CancelNow, Some("cancelled")) => "cancelled",
            _ => continue,
        };
        let there = life.state();
        if there != "gone" && there != ended {
            say(
                4,
                format!("job {} was acknowledged as {ended} by call {}, and is {there}", life.id, act.call),
            );
        }
        if life.grants.iter().any(|(claim, _)| claim.start > act.end) {
            say(4, format!("job {} was given out after call {} had ended it", life.id, act.call));
        }
        if ended == "gone" && life.reads.iter().any(|(read, state)| read.start > act.end && state.is_some()) {
            say(4, format!("job {} was seen after call {} had deleted it", life.id, act.call));
        }
    }
}

/// Invariants 4 and 5: the state is that of the last acknowledged change, apart from the effects of time and
/// of unanswered calls.
pub fn last_word_counts(story: &Story<'_>, life: &Life<'_>, say: &mut Say<'_>) {
    let Some(Word { record, state, until }) = last_word(life) else { return };
    let there = life.state();
    let may_be_claimed = || unknown_claims(story, life, record.start);
    let lapsed = until.is_some_and(|until| until * 1_000 <= story.dump.at);
    let explained = match state {
        _ if there == state => true,
        "running" if lapsed => {
            // A failed child is deleted with its parent's last run.
            matches!(there, "ready" | "failed" | "cancelled" | "waiting")
                || may_be_claimed()
                || (there == "gone" && life.may_be_gone())
        }
        "ready" => {
            may_be_claimed()
                && (matches!(there, "running" | "failed") || (there == "gone" && life.may_be_gone()))
        }
        // The family changes it further.
        "waiting" => matches!(there, "ready" | "running" | "completed" | "failed") || life.may_be_gone(),
        _ => there == "gone" && life.may_be_gone(),
    };
    if !explained {
        say(5, format!("job {} was left {state} by call {}, and is {there}", life.id, record.call));
    }
    let Some(until) = until.filter(|_| state == "running" && there == "running") else { return };
    if !lapsed && life.now.and_then(|job| job["lease"]["until"].as_i64()) != Some(until) {
        say(5, format!("the lease of job {} ends at {until} by call {}, and does not", life.id, record.call));
    }
}

struct Word<'a> {
    record: &'a Record,
    state: &'a str,
    until: Option<i64>,
}

/// Last acknowledged change, if no other change can have followed it.
fn last_word<'a>(life: &Life<'a>) -> Option<Word<'a>> {
    let mut words: Vec<Word<'a>> = Vec::new();
    let mut others: Vec<&Record> = Vec::new();
    if let Some((record, push)) = life.push.filter(|(record, push)| !record.is_ok() || !push.existing) {
        let state = if push.parent.is_some() { "waiting" } else { "ready" };
        words.push(Word { record, state, until: None });
    }
    for (record, grant) in &life.grants {
        words.push(Word { record, state: "running", until: Some(grant.until) });
    }
    for (record, _, until) in &life.extends {
        words.push(Word { record, state: "running", until: *until });
    }
    for settle in &life.settles {
        words.push(Word { record: settle.record, state: settle.state.unwrap_or("?"), until: None });
    }
    for (record, action, state) in &life.acts {
        match (action, state) {
            // The lease continues, and its end has a record of its own.
            (Action::CancelAsk | Action::Run, Some("running")) => others.push(record),
            _ => words.push(Word { record, state: state.unwrap_or("?"), until: None }),
        }
    }
    words.retain(|word| word.record.may_be_done());
    let last = words.iter().map(|word| word.record.end).max()?;
    let place = words.iter().position(|word| word.record.end == last)?;
    let word = words.swap_remove(place);
    let alone = words.iter().all(|other| other.record.end <= word.record.start)
        && others.iter().all(|other| !other.may_be_done() || other.end <= word.record.start);
    (word.record.is_ok() && alone).then_some(word)
}

/// True if a claim without a response may have taken the job since.
fn unknown_claims(story: &Story<'_>, life: &Life<'_>, since: i64) -> bool {
    let Some((_, push)) = life.push else { return true };
    story.records.iter().any(|record| match &record.what {
        What::Claim { queues, .. } => {
            let unknown = record.may_be_done() && !record.is_ok();
            unknown && record.end >= since && queues.contains(&push.queue)
        }
        _ => false,
    })
}

/// Invariant 17: a key is held by one live job, and a refused push names that job.
pub fn keys_hold(story: &Story<'_>, say: &mut Say<'_>) {
    let mut holders: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for job in &story.dump.jobs {
        let Some(key) = job["unique"]["key"].as_str() else { continue };
        let forever = job["unique"]["held_until"] == "forgotten";
        if forever || !SETTLED.contains(&job["state"].as_str().unwrap_or_default()) {
            holders.entry(key).or_default().push(job["id"].as_u64().unwrap_or_default());
        }
    }
    for (key, ids) in holders.iter().filter(|(_, ids)| ids.len() > 1) {
        say(17, format!("the key {key} is held by several jobs: {ids:?}"));
    }
    for record in story.records {
        let What::Push(Pushing { key: Some(key), id: Some(id), existing, .. }) = &record.what else {
            continue;
        };
        let turned_away = *existing || matches!(record.outcome, Outcome::Fail(_));
        let Some(holder) = story.lives.get(id).and_then(|life| life.push).filter(|_| turned_away) else {
            continue;
        };
        if holder.1.key.as_ref().map(|held| &held.key) != Some(&key.key) {
            say(17, format!("call {} was turned away by job {id}, which has another key", record.call));
        }
    }
}

/// Invariant 18: a parent waits for exactly its unsettled children.
pub fn families_add_up(story: &Story<'_>, say: &mut Say<'_>) {
    let mut open: BTreeMap<u64, u64> = BTreeMap::new();
    for job in &story.dump.jobs {
        let settled = SETTLED.contains(&job["state"].as_str().unwrap_or_default());
        if let (Some(parent), false) = (job["parent"].as_u64(), settled) {
            *open.entry(parent).or_default() += 1;
        }
    }
    for job in &story.dump.jobs {
        let id = job["id"].as_u64().unwrap_or_default();
        let (waits, there) =
            (job["pending_children"].as_u64().unwrap_or(0), open.get(&id).copied().unwrap_or(0));
        if waits != there {
            say(18, format!("job {id} waits for {waits} children, {there} are not settled"));
        }
        if job["state"] == "waiting" && job["parent"].is_null() && waits == 0 {
            say(18, format!("job {id} waits for nothing"));
        }
    }
}
