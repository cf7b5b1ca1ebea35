//! Limits: the gate is asked in claim order, blocked jobs are skipped, and no token is lost.

use super::fixtures::{Rig, ask, at, ids, job};
use crate::{ClaimAsk, Gate, Held, UnderLimits};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::{Tenant, Timestamp};

/// Free slots by key; keys without an entry are unlimited.
#[derive(Default)]
struct Rooms {
    rooms: Mutex<BTreeMap<Arc<str>, Room>>,
}

#[derive(Default, Clone)]
struct Room {
    free: usize,
    until: Option<Timestamp>,
}

impl Rooms {
    fn with(key: &str, free: usize, until: Option<Timestamp>) -> Arc<Rooms> {
        let gate = Rooms::default();
        gate.set(key, free, until);
        Arc::new(gate)
    }

    fn set(&self, key: &str, free: usize, until: Option<Timestamp>) {
        let mut rooms = self.rooms.lock();
        rooms.insert(key.into(), Room { free, until });
    }

    fn free(&self, key: &str) -> usize {
        let rooms = self.rooms.lock();
        rooms.get(key).map_or(usize::MAX, |room| room.free)
    }
}

impl Gate for Rooms {
    fn admit(&self, _: &Tenant, keys: &[Arc<str>], _: Timestamp) -> Result<(), Held> {
        let mut rooms = self.rooms.lock();
        for key in keys {
            if let Some(room) = rooms.get(key)
                && room.free == 0
            {
                return Err(Held { key: key.clone(), until: room.until });
            }
        }
        for key in keys {
            if let Some(room) = rooms.get_mut(key) {
                room.free -= 1;
            }
        }
        Ok(())
    }

    fn give_back(&self, _: &Tenant, keys: &[Arc<str>], _: Timestamp) {
        let mut rooms = self.rooms.lock();
        for key in keys {
            if let Some(room) = rooms.get_mut(key) {
                room.free += 1;
            }
        }
    }
}

fn through(gate: &Arc<Rooms>) -> ClaimAsk {
    ClaimAsk { gate: Some(gate.clone()), ..ask() }
}

pub(super) async fn held_jobs_are_passed_over(rig: &Rig) {
    rig.insert(vec![
        job("a").limit("k"),
        job("b").limit("k"),
        job("c"),
        job("d").limit("j").limit("k"),
        job("e"),
    ])
    .await;
    let gate = Rooms::with("k", 1, None);
    let claimed = rig.claim(ClaimAsk { limit: 3, ..through(&gate) }, at(0)).await;
    assert_eq!(ids(&claimed), [1, 3, 5], "jobs that are held take no place from those behind them");
    assert!(rig.claim(through(&gate), at(0)).await.is_empty(), "the others are still held");
    for held in [2, 4] {
        let job = rig.get(super::fixtures::id(held)).await;
        assert_eq!(job.version, 1, "being held is no change to job {held}");
    }
}

pub(super) async fn admissions_equal_claims(rig: &Rig) {
    let hour = |n: i64| at(n * 3_600_000);
    rig.insert((0..20).map(|n| job("a").limit("k").run_at(hour(n).as_millis())).collect()).await;
    let gate = Rooms::with("k", 100, None);
    let mut given = 0;
    for now in [9, 4, 11, 19].map(hour) {
        // Also after the clock was set back, when a store may still treat jobs as due that are not.
        rig.store.due(hour(19), 10).await.expect("due");
        given += rig.claim(ClaimAsk { limit: 3, ..through(&gate) }, now).await.len();
        assert_eq!(gate.free("k"), 100 - given, "what the gate gave is held by claimed jobs, at {now}");
    }
    assert_eq!(given, 3 + 2 + 3 + 3);
}

pub(super) async fn reopened_jobs_are_given_out_and_told_of(rig: &Rig) {
    let ears = rig.listen();
    rig.insert(vec![job("a").limit("k"), job("b").limit("other"), job("c").limit("k")]).await;
    for name in ["a", "b", "c"] {
        ears.hear(name, "it can be claimed at once").await;
    }
    let gate = Rooms::with("k", 0, None);
    gate.set("other", 0, None);
    assert!(rig.claim(through(&gate), at(0)).await.is_empty());

    gate.set("k", 1, None);
    rig.store.reopen("k");
    ears.hear("a", "its limit was reopened").await;
    assert_eq!(ids(&rig.claim(through(&gate), at(0)).await), [1], "the first in order gets the one place");
    gate.set("k", 1, None);
    rig.store.reopen("k");
    ears.hear("c", "its limit was reopened").await;
    assert_eq!(ids(&rig.claim(through(&gate), at(0)).await), [3]);
    gate.set("other", 1, None);
    rig.store.reopen("other");
    ears.hear("b", "its limit was reopened").await;
    assert_eq!(ids(&rig.claim(through(&gate), at(0)).await), [2]);
}

pub(super) async fn jobs_held_until_a_time_are_tried_again_then(rig: &Rig) {
    let ears = rig.listen();
    rig.insert(vec![job("a").limit("k")]).await;
    ears.hear("a", "it can be claimed at once").await;
    let gate = Rooms::with("k", 0, Some(at(50)));
    assert!(rig.claim(through(&gate), at(0)).await.is_empty());
    let due = rig.store.due(at(10), 10).await.expect("due");
    assert_eq!(due.next, Some(at(50)), "the moment at which a held job may be tried again is planned");
    gate.set("k", 1, None);
    rig.store.due(at(50), 10).await.expect("due");
    ears.hear("a", "the time it was held until has come").await;
    assert_eq!(ids(&rig.claim(through(&gate), at(50)).await), [1]);
}

pub(super) async fn due_jobs_are_counted_by_the_limits_they_are_under(rig: &Rig) {
    for name in ["a", "b"] {
        rig.push(job(name).limit("L")).await;
    }
    rig.push(job("a").limit("L").limit("M")).await;
    rig.push(job("a").limit("L").run_at(50)).await;
    rig.push(job("a")).await;
    let counted = async |now| {
        let groups = rig.store.under_limits(&Tenant::default(), now).await.expect("groups");
        let one =
            |group: UnderLimits| (group.keys.join("+"), group.due, group.held.map(|key| key.to_string()));
        groups.into_iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(counted(at(0)).await, [("L".into(), 2, None), ("L+M".into(), 1, None)]);
    assert_eq!(counted(at(50)).await, [("L".into(), 3, None), ("L+M".into(), 1, None)]);
    let other = Tenant::new("other").expect("a name");
    assert_eq!(rig.store.under_limits(&other, at(50)).await.expect("groups"), []);

    let gate = Rooms::with("L", 1, None);
    let claimed = rig.claim(ClaimAsk { gate: Some(gate), limit: 9, ..ask() }, at(50)).await;
    assert_eq!(claimed.len(), 2, "one under the limit, and the one that is under none");
    let (held, key) = (counted(at(50)).await, Some("L".to_owned()));
    assert_eq!(held, [("L".into(), 2, key.clone()), ("L+M".into(), 1, key)]);
}
