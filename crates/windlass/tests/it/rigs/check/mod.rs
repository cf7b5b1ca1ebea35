//! Checker: compares a history with the server's state afterwards, and reports violated invariants.
//!
//! Every check is sound: it reports a violation only if no order of the operations that fits their times
//! explains the observations. Operations without a response may have taken effect once, at any time between
//! their start and the dump. The numbers are those of the invariants in `docs/reliability.md`.

mod durable;
mod leases;
mod server;
#[cfg(test)]
mod tests;

use super::dump::Dump;
use super::history::{Action, Grant, How, Pushing, Record, What};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub invariant: u32,
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {}: {}", self.invariant, self.what)
    }
}

/// All violations; empty if there are none.
pub fn check(records: &[Record], dump: &Dump) -> Vec<Broken> {
    let story = Story::new(records, dump);
    let mut broken = Vec::new();
    let mut say = |invariant: u32, what: String| broken.push(Broken { invariant, what });
    server::counters_equal_rows(&story, &mut say);
    server::pages_list_each_job_once(&story, &mut say);
    server::pauses_hold(&story, &mut say);
    server::nothing_went_wrong(&story, &mut say);
    durable::no_phantoms(&story, &mut say);
    durable::batches_are_whole(&story, &mut say);
    durable::keys_hold(&story, &mut say);
    durable::families_add_up(&story, &mut say);
    for life in story.lives.values() {
        durable::nothing_is_lost(life, &mut say);
        durable::ends_stay_ends(life, &mut say);
        durable::last_word_counts(&story, life, &mut say);
        leases::one_holder_at_a_time(life, &mut say);
        leases::old_tokens_are_refused(life, &mut say);
        leases::nothing_runs_early(life, &mut say);
        leases::attempts_are_counted(life, &mut say);
    }
    broken
}

type Say<'a> = dyn FnMut(u32, String) + 'a;

/// Life of a job, as seen by clients.
#[derive(Default)]
struct Life<'a> {
    id: u64,
    /// First push that may have created it.
    push: Option<(&'a Record, &'a Pushing)>,
    /// First response that shows its existence.
    acknowledged: Option<&'a Record>,
    grants: Vec<(&'a Record, &'a Grant)>,
    extends: Vec<(&'a Record, u64, Option<i64>)>,
    settles: Vec<Settling<'a>>,
    acts: Vec<(&'a Record, Action, Option<&'a str>)>,
    reads: Vec<(&'a Record, Option<&'a str>)>,
    /// State at the end; `None`: deleted.
    now: Option<&'a Value>,
    /// A parent that ends its last run deletes its settled children.
    parent_finished: bool,
}

struct Settling<'a> {
    record: &'a Record,
    token: u64,
    how: How,
    delay_ms: i64,
    state: Option<&'a str>,
}

impl Life<'_> {
    fn state(&self) -> &str {
        self.now.and_then(|job| job["state"].as_str()).unwrap_or("gone")
    }

    fn repeats(&self) -> bool {
        self.push.is_some_and(|(_, push)| push.repeats)
    }

    /// True if the job may have been restarted after this time.
    fn may_be_revived_after(&self, moment: i64) -> bool {
        self.acts.iter().any(|(act, action, _)| action.revives() && act.may_be_done() && act.end >= moment)
    }

    fn may_be_deleted(&self) -> bool {
        self.acts.iter().any(|(act, action, _)| *action == Action::Delete && act.may_be_done())
    }

    /// True if its absence can be explained.
    fn may_be_gone(&self) -> bool {
        let forgets = self.push.is_none_or(|(_, push)| push.forget);
        let finished = self.settles.iter().any(|settle| {
            let gone = settle.state.is_none() || settle.state == Some("gone");
            settle.how == How::Finish && settle.record.may_be_done() && gone
        });
        self.may_be_deleted() || (forgets && finished) || self.parent_finished
    }
}

struct Story<'a> {
    records: &'a [Record],
    dump: &'a Dump,
    lives: BTreeMap<u64, Life<'a>>,
    /// Jobs by mark, from all observations.
    ids: BTreeMap<&'a str, Vec<u64>>,
}

impl<'a> Story<'a> {
    fn new(records: &'a [Record], dump: &'a Dump) -> Story<'a> {
        let mut story = Story { records, dump, lives: BTreeMap::new(), ids: BTreeMap::new() };
        story.find_marks();
        for record in records {
            story.tell(record);
        }
        for (id, job) in dump.by_id() {
            story.life(id).now = Some(job);
        }
        story.find_parents();
        story
    }

    fn life(&mut self, id: u64) -> &mut Life<'a> {
        self.lives.entry(id).or_insert_with(|| Life { id, ..Life::default() })
    }

    fn find_marks(&mut self) {
        let mut found: Vec<(&'a str, u64)> = Vec::new();
        for record in self.records {
            match &record.what {
                // A key may be held by the job itself: an earlier attempt of the push created it.
                What::Push(Pushing { mark, id: Some(id), existing, key, .. })
                    if record.is_ok() && (!existing || key.as_ref().is_some_and(|key| key.forever)) =>
                {
                    found.push((mark, *id));
                }
                What::Claim { granted, .. } => {
                    found.extend(granted.iter().map(|grant| (grant.mark(), grant.id)));
                }
                _ => {}
            }
        }
        for job in &self.dump.jobs {
            let mark = job["payload"]["mark"].as_str().unwrap_or_default();
            found.push((mark, job["id"].as_u64().unwrap_or_default()));
        }
        for (mark, id) in found {
            let ids = self.ids.entry(mark).or_default();
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
    }

    fn tell(&mut self, record: &'a Record) {
        match &record.what {
            What::Push(push) => self.tell_push(record, push),
            What::Claim { granted, .. } => {
                for grant in granted {
                    self.life(grant.id).grants.push((record, grant));
                }
            }
            What::Extend { id, token, until } => self.life(*id).extends.push((record, *token, *until)),
            What::Settle { id, token, how, delay_ms, state } => {
                let settling = Settling {
                    record,
                    token: *token,
                    how: *how,
                    delay_ms: *delay_ms,
                    state: state.as_deref(),
                };
                self.life(*id).settles.push(settling);
            }
            What::Act { id, action, state } => {
                self.life(*id).acts.push((record, *action, state.as_deref()));
            }
            What::Read { id, state } => self.life(*id).reads.push((record, state.as_deref())),
            What::Pause { .. } => {}
        }
    }

    /// Assigns the push to the job with its mark; its response, or a later observation, identifies the job.
    /// If a push was repeated after a lost response, the first may have worked, and any response is an
    /// acknowledgement.
    fn tell_push(&mut self, record: &'a Record, push: &'a Pushing) {
        let Some(id) = self.ids.get(push.mark.as_str()).and_then(|ids| ids.first()).copied() else { return };
        if !record.may_be_done() {
            return;
        }
        let life = self.life(id);
        if life.push.is_none_or(|(first, _)| record.start < first.start) {
            life.push = Some((record, push));
        }
        if record.is_ok() && life.acknowledged.is_none_or(|first| record.end < first.end) {
            life.acknowledged = Some(record);
        }
    }

    fn find_parents(&mut self) {
        let ended = |life: &&Life<'_>| {
            let finishes = |settle: &Settling<'_>| settle.how == How::Finish && settle.record.may_be_done();
            life.may_be_deleted() || life.settles.iter().any(finishes)
        };
        let finished: BTreeSet<u64> = self.lives.values().filter(ended).map(|life| life.id).collect();
        for life in self.lives.values_mut() {
            let parent = life.push.and_then(|(_, push)| push.parent);
            life.parent_finished = parent.is_some_and(|parent| finished.contains(&parent));
        }
    }
}
