//! Insertion of jobs unchanged, and copies of whole stores.

use super::fixtures::{Rig, ask, at, finish, id, ids, job, new_id, queue, tenant};
use super::random::{Dump, all_jobs};
use crate::copy::{Copied, CopyError, Stage, copy, unfinished};
use crate::faulty::{Call, FaultyStore, Kind};
use crate::memory::MemoryStore;
use crate::{ClaimAsk, KeyRule, StoreError};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::{Body, Event, Job, KeepFor, Payload, StateName, Tenant};

const QUIET: &(dyn Fn(Stage, u64, u64) + Send + Sync) = &|_, _, _| {};

/// A job in each state, with keys, bodies, a large payload and gaps between the ids.
async fn a_bit_of_everything() -> Rig {
    let rig = Rig::new(Arc::new(MemoryStore::new()));
    for state in StateName::ALL {
        let body = Body { note: Some(state.to_string()), ..Body::default() };
        let draft = job(state.as_str()).body(body).alias(&format!("alias of {state}")).unique(state.as_str());
        rig.job_in(state, draft.queue("all").lease_ms(Some(500)).keep_all(KeepFor::Ms(900))).await;
        let gap = rig.push(job("gap")).await;
        rig.happen(gap.id, Event::Delete, at(0)).await;
    }
    let large = Payload::json(&format!("{:?}", "x".repeat(100_000)));
    rig.push(job("large").payload(large).priority(-5).run_at(40)).await;
    rig.push(job("child").child_of(id(1), false).tenant("other").tag("t")).await;
    rig.store.put_setting("limit/default/mail", Some(b"words".to_vec())).await.expect("put_setting");
    rig.store.put_setting("empty", Some(Vec::new())).await.expect("put_setting");
    rig.store.set_paused(&Tenant::default(), &queue("all"), true).await.expect("set_paused");
    rig.store.set_paused(&tenant("other"), &queue("without jobs"), true).await.expect("set_paused");
    for (owner, bytes) in [("default", vec![7; 300_000]), ("other", vec![7; 300_000]), ("other", Vec::new())]
    {
        let mut writer = rig.store.blobs().create(&tenant(owner)).await.expect("a blob can be begun");
        writer.write(&bytes).await.expect("a piece is taken");
        writer.finish(at(3)).await.expect("a blob is kept");
    }
    rig
}

async fn copied(from: &Rig, to: &Rig) -> Result<Copied, CopyError> {
    copy(&*from.store, &*to.store, "a check", at(10), QUIET).await
}

pub(super) async fn restored_jobs_are_as_they_were(rig: &Rig) {
    let source = a_bit_of_everything().await;
    let expected = Dump::of(&*source.store, at(10)).await;
    let summary = copied(&source, rig).await.expect("copy");
    assert_eq!(
        (summary.jobs, summary.settings, summary.paused, summary.blobs),
        (expected.jobs.len() as u64, 2, 2, 3)
    );
    expected.expect_same(&Dump::of(&*rig.store, at(10)).await, "a copy");
    let back = Rig::new(Arc::new(MemoryStore::new()));
    assert_eq!(copied(rig, &back).await.expect("copy"), summary, "the copy of the copy");
    expected.expect_same(&Dump::of(&*back.store, at(10)).await, "a copy of a copy");
}

/// Checks the indexes: claims, keys, aliases, parents and deadlines.
pub(super) async fn restored_jobs_take_part_in_everything(rig: &Rig) {
    let source = a_bit_of_everything().await;
    copied(&source, rig).await.expect("copy");
    let no_ids: [u64; 0] = [];
    assert_eq!(ids(&rig.claim(ask(), at(10)).await), no_ids, "the queue is paused and the large one not due");
    rig.store.set_paused(&Tenant::default(), &queue("all"), false).await.expect("set_paused");
    for (store, whose) in [(&source, "the source"), (rig, "the copy")] {
        store.store.set_paused(&Tenant::default(), &queue("all"), false).await.expect("set_paused");
        let claimed = store.claim(ClaimAsk { limit: 2, ..ask() }, at(50)).await;
        assert_eq!(ids(&claimed), [19, 1], "claims from {whose}");
        let due = store.store.due(at(600), 10).await.expect("due");
        assert_eq!(ids(&due.jobs), [3, 1], "leases that ended in {whose}");
        store.happen(claimed[0].id, finish(), at(60)).await;
    }
    let expected = all_jobs(&*source.store).await;
    assert_eq!(all_jobs(&*rig.store).await, expected, "the copy goes on as the source does");
    let alias = rig.store.find_alias(&Tenant::default(), "alias of failed").await.expect("find_alias");
    assert_eq!(alias, Some(id(11)));
    assert_eq!(rig.store.children(id(1)).await.expect("children"), [id(20)]);
    let again = rig.insert(vec![job("again").unique("suspended"), job("fresh").unique("completed")]).await;
    assert_eq!(again, [super::fixtures::existing(7), new_id(21)], "keys are held by the jobs that had them");
}

pub(super) async fn ids_go_on_after_what_was_restored(rig: &Rig) {
    assert_eq!(rig.store.next_id().await.expect("next_id"), id(1), "of a new store");
    let source = Rig::new(Arc::new(MemoryStore::new()));
    let job_7 = as_job(&source, 7).await;
    rig.store.restore(vec![job_7], id(5), KeyRule::Yield).await.expect("restore");
    assert_eq!(rig.store.next_id().await.expect("next_id"), id(8), "after the highest");
    rig.store.restore(Vec::new(), id(30), KeyRule::Yield).await.expect("restore");
    assert_eq!(rig.insert(vec![job("a")]).await, [new_id(30)], "as told, where that is higher");
    rig.store.restore(Vec::new(), id(2), KeyRule::Yield).await.expect("restore");
    assert_eq!(rig.insert(vec![job("b")]).await, [new_id(31)], "never back");
}

pub(super) async fn a_restore_in_the_way_of_a_job_changes_nothing(rig: &Rig) {
    let source = Rig::new(Arc::new(MemoryStore::new()));
    rig.push(job("here")).await;
    let before = Dump::of(&*rig.store, at(10)).await;
    let (job_1, job_2) = (as_job(&source, 1).await, as_job(&source, 2).await);
    for jobs in [vec![job_2.clone(), job_1], vec![job_2.clone(), job_2]] {
        let refused = rig.store.restore(jobs, id(9), KeyRule::Yield).await;
        assert!(matches!(refused, Err(StoreError::Unsupported(_))), "{refused:?}");
    }
    before.expect_same(&Dump::of(&*rig.store, at(10)).await, "nothing of it happened");
    assert_eq!(rig.insert(vec![job("next")]).await, [new_id(2)], "not even the next id moved");
}

pub(super) async fn a_restored_job_takes_no_key_from_another_unless_told_to(rig: &Rig) {
    let source = Rig::new(Arc::new(MemoryStore::new()));
    source.push(job("filler")).await;
    let back = source.push(job("back").alias("one")).await;
    rig.push(job("holder").alias("one")).await;
    let before = Dump::of(&*rig.store, at(10)).await;
    let refused = rig.store.restore(vec![back.clone()], id(3), KeyRule::Ask).await;
    assert!(matches!(refused, Err(StoreError::Unsupported(_))), "{refused:?}");
    before.expect_same(&Dump::of(&*rig.store, at(10)).await, "nothing of it happened");
    rig.happen(id(1), Event::Delete, at(0)).await;
    rig.store.restore(vec![back], id(3), KeyRule::Ask).await.expect("the alias is free");
    let found = rig.store.find_alias(&Tenant::default(), "one").await.expect("find_alias");
    assert_eq!(found, Some(id(2)));
}

/// Job with this id, created in a store whose ids begin at 1.
async fn as_job(source: &Rig, number: u64) -> Arc<Job> {
    while source.store.next_id().await.expect("next_id").get() <= number {
        source.push(job("source")).await;
    }
    source.get(id(number)).await
}

pub(super) async fn a_target_in_use_is_refused(rig: &Rig) {
    let source = a_bit_of_everything().await;
    let made = rig.push(job("mine")).await;
    let refused = copied(&source, rig).await;
    assert!(matches!(&refused, Err(CopyError::NotEmpty(what)) if what.contains("1 jobs")), "{refused:?}");
    assert_eq!(ids(&all_jobs(&*rig.store).await), [1], "the target is left alone");
    rig.happen(made.id, Event::Delete, at(0)).await;
    let refused = copied(&source, rig).await;
    assert!(matches!(refused, Err(CopyError::NotEmpty(_))), "ids of jobs that are gone count: {refused:?}");
    let settled = Rig::new(Arc::new(MemoryStore::new()));
    settled.store.put_setting("token/x", Some(vec![1])).await.expect("put_setting");
    let refused = copied(&source, &settled).await;
    assert!(matches!(refused, Err(CopyError::NotEmpty(_))), "settings count: {refused:?}");
}

pub(super) async fn an_interrupted_copy_says_so_and_is_begun_again(rig: &Rig) {
    let source = a_bit_of_everything().await;
    let (target, faults) = FaultyStore::new(rig.store.clone());
    // The marker and the jobs are written; then the connection is lost.
    faults.fail_next_call(Call::Set, 2, Kind::Delay(Duration::ZERO));
    faults.fail_next_call(Call::Set, 1, Kind::BeforeDoing);
    let torn = copy(&*source.store, &*target, "from over there", at(10), QUIET).await;
    assert!(matches!(torn, Err(CopyError::Target(_))), "{torn:?}");
    let begun = unfinished(&*rig.store).await.expect("settings");
    assert_eq!(begun.as_deref(), Some("from over there"), "the target says what it is");
    assert!(!all_jobs(&*rig.store).await.is_empty(), "some jobs were copied");
    let refused = copied(rig, &Rig::new(Arc::new(MemoryStore::new()))).await;
    assert!(matches!(refused, Err(CopyError::Unfinished(_))), "half a store is no source: {refused:?}");

    source.push(job("meanwhile")).await;
    rig.store.set_paused(&Tenant::default(), &queue("left over"), true).await.expect("set_paused");
    rig.store.put_setting("left over", Some(vec![7])).await.expect("put_setting");
    let left_over = rig.store.blobs().create(&Tenant::default()).await.expect("a blob can be begun");
    left_over.finish(at(1)).await.expect("a blob is kept");
    copied(&source, rig).await.expect("the second try");
    let expected = Dump::of(&*source.store, at(10)).await;
    expected.expect_same(&Dump::of(&*rig.store, at(10)).await, "after the second try");
    assert_eq!(unfinished(&*rig.store).await.expect("settings"), None, "the target is whole");
}

pub(super) async fn a_source_that_changes_meanwhile_is_noticed(rig: &Rig) {
    let source = a_bit_of_everything().await;
    let (target, faults) = FaultyStore::new(rig.store.clone());
    faults.fail_next_call(Call::Set, 1, Kind::Delay(Duration::ZERO));
    faults.fail_next_call(Call::Set, 1, Kind::Hold);
    let changing = async {
        faults.until_held(1).await;
        source.happen(id(1), Event::Terminate, at(10)).await;
        faults.release();
    };
    let (torn, ()) = tokio::join!(copy(&*source.store, &*target, "a check", at(10), QUIET), changing);
    assert!(matches!(torn, Err(CopyError::Differs(_))), "{torn:?}");
    assert!(unfinished(&*rig.store).await.expect("settings").is_some(), "the target is not to be used");
}
