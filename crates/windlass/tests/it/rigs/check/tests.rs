//! Tests of the checker: each violation, written by hand, must be found.

use super::check;
use crate::rigs::dump::Dump;
use crate::rigs::history::{Action, Grant, How, Key, Outcome, Pushing, Record, What};
use serde_json::{Value, json};

/// Hand-written history. Each operation takes 10 ms, one after the other, unless stated otherwise.
#[derive(Default)]
struct Tale {
    records: Vec<Record>,
    jobs: Vec<Value>,
    paused: Vec<String>,
    clock_ms: i64,
}

fn pushing(mark: &str, id: u64) -> Pushing {
    let mut push = Pushing { mark: mark.to_owned(), id: Some(id), ..Pushing::default() };
    (push.queue, push.max_attempts) = ("red".to_owned(), 3);
    push
}

/// Job as the server would show it.
fn shown(push: &Pushing, state: &str) -> Value {
    let mut job = json!({
        "id": push.id, "name": "rig", "queue": push.queue, "state": state, "priority": push.priority,
        "payload": push.payload(), "attempts": 0, "max_attempts": push.max_attempts,
    });
    if let Some(key) = &push.key {
        let held_until = if key.forever { "forgotten" } else { "settled" };
        job["unique"] = json!({ "key": key.key, "held_until": held_until });
    }
    if let Some(parent) = push.parent {
        job["parent"] = parent.into();
    }
    job
}

impl Tale {
    fn tell(&mut self, what: What, outcome: Outcome) -> &mut Record {
        let start = self.clock_ms * 1_000;
        self.clock_ms += 10;
        let call = self.records.len() as u64;
        self.records.push(Record { call, start, end: self.clock_ms * 1_000, what, outcome });
        self.clock_ms += 10;
        self.records.last_mut().unwrap()
    }

    fn push(&mut self, push: &Pushing, outcome: Outcome) {
        self.tell(What::Push(push.clone()), outcome);
    }

    /// Lease granted in the middle of the call, for `lease_ms`.
    fn claim(&mut self, push: &Pushing, token: u64, attempt: i64, lease_ms: i64) {
        let granted_at = self.clock_ms + 5;
        let grant = Grant {
            id: push.id.unwrap(),
            token,
            attempt,
            granted_at,
            until: granted_at + lease_ms,
            run_at: 0,
            payload: push.payload(),
        };
        let worker = format!("w{token}");
        self.tell(What::Claim { worker, queues: vec!["red".to_owned()], granted: vec![grant] }, Outcome::Ok);
    }

    fn settle(&mut self, id: u64, token: u64, how: How, state: &str) {
        let state = Some(state.to_owned());
        self.tell(What::Settle { id, token, how, delay_ms: 0, state }, Outcome::Ok);
    }

    fn act(&mut self, id: u64, action: Action, state: &str) {
        self.tell(What::Act { id, action, state: Some(state.to_owned()) }, Outcome::Ok);
    }

    fn dump(&self) -> Dump {
        let count = |state: &str| self.jobs.iter().filter(|job| job["state"] == state).count();
        let queue = json!({
            "queue": "red", "paused": self.paused.contains(&"red".to_owned()), "ready": count("ready"),
            "running": count("running"), "waiting": count("waiting"), "completed": count("completed"),
            "failed": count("failed"), "cancelled": count("cancelled"), "delayed": 0,
        });
        Dump { at: self.clock_ms * 1_000, jobs: self.jobs.clone(), queues: vec![queue] }
    }

    fn broken(&self) -> Vec<u32> {
        let mut found: Vec<u32> =
            check(&self.records, &self.dump()).iter().map(|one| one.invariant).collect();
        found.dedup();
        found
    }

    #[track_caller]
    fn breaks(&self, invariant: u32) {
        let found = self.broken();
        assert!(found.contains(&invariant), "expected {invariant} among {found:?}");
    }

    #[track_caller]
    fn is_fine(&self) {
        let found = check(&self.records, &self.dump());
        assert!(found.is_empty(), "{found:?}");
    }
}

/// Job that was pushed, run and finished; the caller adds the rest.
fn finished() -> (Tale, Pushing) {
    let mut tale = Tale::default();
    let job = pushing("a", 1);
    tale.push(&job, Outcome::Ok);
    tale.claim(&job, 100, 1, 60_000);
    tale.settle(1, 100, How::Finish, "completed");
    (tale, job)
}

#[test]
fn a_good_history_is_good() {
    let (mut tale, job) = finished();
    tale.jobs.push(shown(&job, "completed"));
    tale.is_fine();
}

#[test]
fn a_lost_job_is_found() {
    let mut tale = Tale::default();
    tale.push(&pushing("a", 1), Outcome::Ok);
    tale.breaks(1);
    tale.records[0].outcome = Outcome::Unknown;
    tale.is_fine();
}

#[test]
fn a_push_that_was_sent_again_is_acknowledged_by_its_second_answer() {
    let key = Some(Key { key: "once".to_owned(), forever: true, refuse: false });
    let mut tale = Tale::default();
    tale.push(&Pushing { id: None, key: key.clone(), ..pushing("a", 1) }, Outcome::Unknown);
    let job = Pushing { key, existing: true, ..pushing("a", 1) };
    tale.push(&job, Outcome::Ok);
    tale.breaks(1);
    tale.jobs.push(shown(&job, "ready"));
    tale.is_fine();
}

#[test]
fn a_job_that_may_be_deleted_is_not_lost() {
    let mut tale = Tale::default();
    tale.push(&pushing("a", 1), Outcome::Ok);
    tale.tell(What::Act { id: 1, action: Action::Delete, state: None }, Outcome::Unknown);
    tale.is_fine();
    tale.records[1].outcome = Outcome::Fail("409 running".to_owned());
    tale.breaks(1);
}

#[test]
fn a_phantom_a_double_and_another_payload_are_found() {
    let mut tale = Tale::default();
    let job = pushing("a", 1);
    tale.jobs.push(shown(&job, "ready"));
    tale.breaks(2);
    tale.push(&job, Outcome::Ok);
    tale.is_fine();
    tale.jobs.push(shown(&pushing("a", 2), "ready"));
    tale.breaks(2);
    tale.jobs.pop();
    tale.jobs[0]["payload"]["pad"] = "y".into();
    tale.breaks(2);
}

#[test]
fn a_change_of_anything_that_was_asked_for_is_found() {
    for (part, other) in [("queue", json!("blue")), ("priority", json!(9)), ("tags", json!(["b"]))] {
        let mut tale = Tale::default();
        let job = pushing("a", 1);
        tale.push(&job, Outcome::Ok);
        tale.jobs.push(shown(&job, "ready"));
        tale.jobs[0][part] = other;
        tale.breaks(2);
    }
}

#[test]
fn a_lease_of_someone_who_was_not_given_it_is_found() {
    let mut tale = Tale::default();
    let job = pushing("a", 1);
    tale.push(&job, Outcome::Ok);
    tale.jobs.push(shown(&job, "running"));
    tale.jobs[0]["lease"] = json!({ "worker": "nobody", "until": 90_000 });
    tale.breaks(2);
}

#[test]
fn a_refused_push_that_happened_is_found() {
    let mut tale = Tale::default();
    let job = pushing("a", 1);
    tale.push(&Pushing { id: None, ..job.clone() }, Outcome::Fail("507 store_full".to_owned()));
    tale.is_fine();
    tale.jobs.push(shown(&job, "ready"));
    tale.breaks(3);
}

#[test]
fn half_a_batch_is_found() {
    let mut tale = Tale::default();
    for mark in ["a", "b"] {
        tale.push(&Pushing { id: None, ..pushing(mark, 0) }, Outcome::Unknown);
    }
    tale.records[1].call = 0;
    tale.is_fine();
    tale.jobs.push(shown(&pushing("b", 2), "ready"));
    tale.breaks(3);
    tale.jobs.push(shown(&pushing("a", 1), "ready"));
    tale.is_fine();
}

#[test]
fn an_undone_finish_is_found() {
    for state in ["ready", "running", "failed"] {
        let (mut tale, job) = finished();
        tale.jobs.push(shown(&job, state));
        tale.breaks(4);
    }
    let (mut tale, job) = finished();
    tale.act(1, Action::Retry, "ready");
    tale.jobs.push(shown(&job, "ready"));
    tale.is_fine();
}

#[test]
fn an_undone_cancel_or_delete_is_found() {
    for (action, state) in [(Action::CancelNow, "cancelled"), (Action::Delete, "gone")] {
        let mut tale = Tale::default();
        let job = pushing("a", 1);
        tale.push(&job, Outcome::Ok);
        tale.act(1, action, state);
        tale.jobs.push(shown(&job, "ready"));
        tale.breaks(4);
    }
}

#[test]
fn a_deleted_job_that_is_read_again_is_found() {
    let mut tale = Tale::default();
    tale.push(&pushing("a", 1), Outcome::Ok);
    tale.act(1, Action::Delete, "gone");
    tale.tell(What::Read { id: 1, state: Some("ready".to_owned()) }, Outcome::Ok);
    tale.breaks(4);
}

#[test]
fn a_pause_that_does_not_hold_is_found() {
    let mut tale = Tale::default();
    let job = pushing("a", 1);
    tale.push(&job, Outcome::Ok);
    tale.tell(What::Pause { queue: "red".to_owned(), paused: true }, Outcome::Ok);
    tale.jobs.push(shown(&job, "ready"));
    tale.breaks(4);
    tale.paused.push("red".to_owned());
    tale.is_fine();
    tale.claim(&job, 100, 1, 60_000);
    tale.breaks(4);
}

#[test]
fn a_state_other_than_the_last_acknowledged_is_found() {
    let mut tale = Tale::default();
    let job = pushing("a", 1);
    tale.push(&job, Outcome::Ok);
    tale.claim(&job, 100, 1, 60_000);
    tale.jobs.push(shown(&job, "ready"));
    tale.breaks(5);
    // With an expired lease it is required.
    let mut tale = Tale::default();
    tale.push(&job, Outcome::Ok);
    tale.claim(&job, 100, 1, 5);
    tale.jobs.push(shown(&job, "ready"));
    tale.is_fine();
}

#[test]
fn a_lost_heartbeat_is_found() {
    let mut tale = Tale::default();
    let job = pushing("a", 1);
    tale.push(&job, Outcome::Ok);
    tale.claim(&job, 100, 1, 60_000);
    tale.tell(What::Extend { id: 1, token: 100, until: Some(90_000) }, Outcome::Ok);
    tale.jobs.push(shown(&job, "running"));
    tale.jobs[0]["lease"] = json!({ "worker": "w100", "until": 90_000 });
    tale.is_fine();
    tale.jobs[0]["lease"]["until"] = 60_025.into();
    tale.breaks(5);
}

#[test]
fn two_holders_at_once_are_found() {
    let mut tale = Tale::default();
    let job = pushing("a", 1);
    tale.push(&job, Outcome::Ok);
    tale.claim(&job, 100, 1, 60_000);
    tale.claim(&job, 200, 2, 60_000);
    tale.breaks(7);
    // After the expiry of the first lease it is correct.
    let mut tale = Tale::default();
    tale.push(&job, Outcome::Ok);
    tale.claim(&job, 100, 1, 5);
    tale.claim(&job, 200, 2, 60_000);
    tale.jobs.push(shown(&job, "running"));
    tale.jobs[0]["lease"] = json!({ "worker": "w200", "until": 60_045 });
    tale.is_fine();
}

#[test]
fn tokens_that_do_not_grow_are_found() {
    let mut tale = Tale::default();
    let job = pushing("a", 1);
    tale.push(&job, Outcome::Ok);
    tale.claim(&job, 200, 1, 5);
    tale.claim(&job, 100, 2, 60_000);
    tale.breaks(7);
    tale.records.pop();
    tale.claim(&job, 200, 2, 60_000);
    tale.breaks(7);
}

#[test]
fn an_old_token_that_works_is_found() {
    let mut tale = Tale::default();
    let job = pushing("a", 1);
    tale.push(&job, Outcome::Ok);
    tale.claim(&job, 100, 1, 5);
    tale.claim(&job, 200, 2, 60_000);
    tale.settle(1, 100, How::Finish, "completed");
    tale.breaks(8);
}

#[test]
fn a_token_that_works_twice_is_found() {
    let (mut tale, job) = finished();
    tale.settle(1, 100, How::Finish, "completed");
    tale.jobs.push(shown(&job, "completed"));
    tale.breaks(8);
}

#[test]
fn a_token_that_works_after_its_lease_is_found() {
    let mut tale = Tale::default();
    let job = pushing("a", 1);
    tale.push(&job, Outcome::Ok);
    tale.claim(&job, 100, 1, 5);
    tale.settle(1, 100, How::Finish, "completed");
    tale.jobs.push(shown(&job, "completed"));
    tale.breaks(8);
}

#[test]
fn a_run_after_the_end_is_found() {
    let (mut tale, job) = finished();
    tale.claim(&job, 200, 2, 60_000);
    tale.breaks(10);
}

#[test]
fn a_job_that_runs_early_is_found() {
    let job = Pushing { delay_ms: 500, ..pushing("a", 1) };
    let mut tale = Tale::default();
    tale.push(&job, Outcome::Ok);
    tale.claim(&job, 100, 1, 60_000);
    tale.breaks(13);
    let mut tale = Tale::default();
    let job = pushing("a", 1);
    tale.push(&job, Outcome::Ok);
    tale.claim(&job, 100, 1, 60_000);
    let state = Some("ready".to_owned());
    tale.tell(What::Settle { id: 1, token: 100, how: How::Fail, delay_ms: 500, state }, Outcome::Ok);
    tale.claim(&job, 200, 2, 60_000);
    tale.breaks(13);
}

#[test]
fn too_many_attempts_and_attempts_that_are_not_counted_are_found() {
    let mut tale = Tale::default();
    let job = pushing("a", 1);
    tale.push(&job, Outcome::Ok);
    tale.claim(&job, 100, 4, 60_000);
    tale.breaks(15);
    let mut tale = Tale::default();
    tale.push(&job, Outcome::Ok);
    tale.claim(&job, 100, 1, 5);
    tale.claim(&job, 200, 1, 60_000);
    tale.breaks(15);
}

#[test]
fn two_living_jobs_with_one_key_are_found() {
    let key = Some(Key { key: "k".to_owned(), forever: false, refuse: false });
    let mut tale = Tale::default();
    for (mark, id) in [("a", 1), ("b", 2)] {
        let job = Pushing { key: key.clone(), ..pushing(mark, id) };
        tale.push(&job, Outcome::Ok);
        tale.jobs.push(shown(&job, "ready"));
    }
    tale.breaks(17);
    // Restarting one is no excuse.
    tale.act(1, Action::Retry, "ready");
    tale.breaks(17);
}

#[test]
fn being_turned_away_by_a_job_with_another_key_is_found() {
    let key = |text: &str| Some(Key { key: text.to_owned(), forever: false, refuse: true });
    let mut tale = Tale::default();
    let job = Pushing { key: key("other"), ..pushing("a", 1) };
    tale.push(&job, Outcome::Ok);
    tale.jobs.push(shown(&job, "ready"));
    let second = Pushing { key: key("k"), ..pushing("b", 1) };
    tale.push(&second, Outcome::Fail("409 duplicate".to_owned()));
    tale.breaks(17);
}

#[test]
fn a_parent_that_counts_its_children_wrong_is_found() {
    let mut tale = Tale::default();
    let (parent, child) = (pushing("p", 1), Pushing { parent: Some(1), ..pushing("c", 2) });
    tale.push(&parent, Outcome::Ok);
    tale.push(&child, Outcome::Ok);
    tale.jobs = vec![shown(&parent, "ready"), shown(&child, "waiting")];
    tale.breaks(18);
    tale.jobs[0]["pending_children"] = 1.into();
    tale.is_fine();
}

#[test]
fn a_counter_that_is_off_is_found() {
    let (mut tale, job) = finished();
    tale.jobs.push(shown(&job, "completed"));
    let mut dump = tale.dump();
    dump.queues[0]["completed"] = 2.into();
    assert_eq!(check(&tale.records, &dump)[0].invariant, 20);
    dump.queues.clear();
    assert_eq!(check(&tale.records, &dump)[0].invariant, 20);
}

#[test]
fn a_job_that_is_listed_twice_or_not_found_right_after_its_push_is_found() {
    let (mut tale, job) = finished();
    tale.jobs = vec![shown(&job, "completed"), shown(&job, "completed")];
    tale.breaks(23);
    tale.jobs.pop();
    tale.tell(What::Read { id: 1, state: None }, Outcome::Ok);
    tale.breaks(23);
}

#[test]
fn a_server_that_does_not_know_is_found() {
    let mut tale = Tale::default();
    tale.push(&pushing("a", 1), Outcome::Trouble("500".to_owned()));
    tale.breaks(24);
}
