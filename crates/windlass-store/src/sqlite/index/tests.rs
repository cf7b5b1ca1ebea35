#![cfg(test)]

use super::*;
use windlass_core::{JobSpec, NameMatch, Payload, Policy, created};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn job(id: u64, queue: &str, name: &str, priority: i32, run_at: i64) -> Job {
    let spec = JobSpec {
        tenant: Tenant::default(),
        queue: Queue::new(queue).unwrap(),
        name: Name::new(name).unwrap(),
        payload: Payload::default(),
        priority,
        created_at: at(0),
        policy: Arc::new(Policy::default()),
        extras: None,
    };
    created(JobId::new(id).unwrap(), Arc::new(spec), at(run_at), false, None)
}

fn ask(queues: &[&str], names: &str, limit: usize) -> ClaimAsk {
    ClaimAsk {
        scope: windlass_core::Scope::default(),
        tenant: Tenant::default(),
        queues: queues.iter().map(|queue| Queue::new(queue).unwrap()).collect(),
        names: NameMatch::glob(names),
        priority: None,
        limit,
        worker: None,
        lease_ms: None,
        seed: 1,
        gate: None,
    }
}

fn picked(index: &mut Index, ask: &ClaimAsk, now: i64) -> Vec<u64> {
    index.pick(ask, at(now)).into_iter().map(JobId::get).collect()
}

#[test]
fn jobs_come_by_priority_then_time_then_id() {
    let mut index = Index::default();
    for entry in
        [job(1, "a", "x", 5, 0), job(2, "a", "y", 0, 9), job(3, "a", "x", 0, 7), job(4, "b", "x", -1, 8)]
    {
        index.add(&entry);
    }
    assert_eq!(picked(&mut index, &ask(&[], "*", 10), 10), [4, 3, 2, 1]);
}

#[test]
fn a_delayed_job_comes_when_due_and_not_before() {
    let mut index = Index::default();
    index.add(&job(1, "a", "x", 0, 100));
    assert_eq!(index.next_deadline(at(0)), Some(at(100)));
    assert!(picked(&mut index, &ask(&[], "*", 10), 99).is_empty());
    assert_eq!(picked(&mut index, &ask(&["a"], "x", 10), 100), [1]);
}

#[test]
fn views_follow_shelves_that_come_and_go() {
    let mut index = Index::default();
    assert!(picked(&mut index, &ask(&["a"], "m*", 1), 1).is_empty());
    for id in 1..=3 {
        index.add(&job(id, "a", ["mail", "more", "other"][id as usize - 1], 0, 0));
    }
    assert_eq!(picked(&mut index, &ask(&["a"], "m*", 9), 2), [1, 2]);
    index.remove(&job(1, "a", "mail", 0, 0));
    index.remove(&job(2, "a", "more", 0, 0));
    assert_eq!(index.shelf_count(), 1);
    assert_eq!(picked(&mut index, &ask(&["a"], "*", 9), 2), [3]);
}

#[test]
fn more_patterns_than_are_remembered_still_find_their_jobs() {
    let mut index = Index::default();
    for id in 1..=200 {
        index.add(&job(id, "a", &format!("n{id}"), 0, 0));
    }
    for id in 1..=200 {
        assert_eq!(picked(&mut index, &ask(&["a"], &format!("n{id}*"), 1), 1).len(), 1, "n{id}");
    }
}

#[test]
fn a_paused_queue_gives_nothing_until_it_is_resumed() {
    let mut index = Index::default();
    index.add(&job(1, "a", "x", 0, 0));
    let queue = Queue::new("a").unwrap();
    index.set_paused(&Tenant::default(), &queue, true);
    assert!(picked(&mut index, &ask(&[], "*", 1), 1).is_empty());
    assert!(picked(&mut index, &ask(&["a"], "x", 1), 1).is_empty());
    index.take_news();
    index.set_paused(&Tenant::default(), &queue, false);
    assert_eq!(index.take_news().len(), 1);
    assert_eq!(picked(&mut index, &ask(&[], "*", 1), 1), [1]);
}
