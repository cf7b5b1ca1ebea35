//! Fairness between clients. The rules have a table in `miniq/schedule.rs`.

use super::world::{Setup, by_type, eventually, report, settled};
use std::sync::{Arc, mpsc};
use windlass_store::Store;
use windlass_store::memory::MemoryStore;

#[tokio::test]
async fn a_client_with_many_jobs_does_not_hold_up_anothers_single_one() {
    let world = Setup { rooms: 2, ..Setup::default() }.start().await;
    world.handler("big", "t", "{}").await;
    world.handler("small", "t", "{}").await;
    world.fake.hold();
    world.add("big", "t", &"x\n".repeat(10_000)).await;
    eventually("big fills all the room", || world.fake.batches().len() == 2).await;
    let id = world.add("small", "t", "mine\n").await.remove(0);
    // In the store, not only in the journal.
    assert_eq!(world.job("small", "t", &id).await["lock"], "");
    // Ends batch by batch, until the job of `small` is next.
    for _ in 0..6 {
        let before = world.fake.batches().len();
        // Both running batches.
        world.fake.let_end(20);
        eventually("another batch is started", || world.fake.batches().len() > before).await;
        if world.fake.batches().iter().any(|batch| batch.starts_with("small/t")) {
            return;
        }
    }
    panic!("small waits too long: {:?}", by_type(&world.fake.batches()));
}

#[tokio::test]
async fn a_batch_is_cut_for_a_client_that_waits_and_the_rest_of_it_is_given_back() {
    let world = Setup { rooms: 2, ..Setup::default() }.start().await;
    world.handler("big", "t", "{\"batchSize\":1000}").await;
    world.handler("small", "t", "{}").await;
    world.fake.hold();
    let ids = world.add("big", "t", &"x\n".repeat(2_000)).await;
    eventually("big fills all the room", || world.fake.batches().len() == 2).await;
    let id = world.add("small", "t", "mine\n").await.remove(0);
    assert_eq!(world.job("small", "t", &id).await["lock"], "");
    settled().await;
    assert_eq!(world.fake.cuts(), 0, "they have only just begun");
    world.later(500);
    eventually("one of them is cut", || world.fake.cuts() == 1).await;
    // Ends jobs of both batches one by one; each has a thousand.
    let has_small = || world.fake.batches().iter().any(|batch| batch.starts_with("small/t"));
    for _ in 0..40 {
        world.fake.let_end(1);
        settled().await;
        if has_small() {
            break;
        }
    }
    assert!(has_small(), "{:?}", by_type(&world.fake.batches()));
    assert_eq!(world.fake.cuts(), 1, "one place was wanted");
    // Returned jobs have no attempt counted.
    let mut returned = 0;
    for id in ids.iter().rev().take(20) {
        returned += usize::from(world.job("big", "t", id).await["attempts"] == 0);
    }
    world.fake.let_end(1_000_000);
    world.until_code("small", "t", &id, "ok").await;
    world.until_code("big", "t", &ids[1_999], "ok").await;
    assert!(returned > 0, "the last ones waited again");
}

/// However fast slots become free, the next choice takes newly waiting clients into account.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_single_job_is_next_also_where_there_is_room_for_all() {
    // The fastest store: the test makes five thousand choices.
    let store = Some(Arc::new(MemoryStore::new()) as Arc<dyn Store>);
    let world = Setup { store, rooms: 100_000, ..Setup::default() }.start().await;
    world.handler("big", "t", "{\"batchSize\":1}").await;
    world.handler("small", "t", "{}").await;
    // The two hundredth job blocks the run loop until `small` has added its job.
    let (go, wait) = mpsc::channel::<()>();
    let (reached, mut is_reached) = tokio::sync::mpsc::unbounded_channel();
    world.fake.answers(move |payload, _| {
        if payload == "200" {
            let _ = reached.send(());
            let _ = wait.recv();
        }
        report(200)
    });
    let lines: String = (0..5_000).map(|n| format!("{n}\n")).collect();
    world.add("big", "t", &lines).await;
    is_reached.recv().await.unwrap();
    let id = world.add("small", "t", "mine\n").await.remove(0);
    // In the store, not only in the journal.
    assert_eq!(world.job("small", "t", &id).await["lock"], "");
    let before = world.fake.batches().len();
    go.send(()).unwrap();
    world.until_started(5_001).await;
    let place = world.fake.batches().iter().position(|batch| batch.starts_with("small/t")).unwrap();
    // The round in progress may finish; the job of `small` is in the next one.
    assert!(place < before + 200, "{place} of {}, asked for at {before}", world.fake.batches().len());
}

#[tokio::test]
async fn types_without_room_do_not_keep_others_from_running() {
    let world = Setup { rooms: 4, ..Setup::default() }.start().await;
    for jobtype in ["t", "u", "v"] {
        world.handler("acme", jobtype, "{}").await;
        world.add("acme", jobtype, &"x\n".repeat(35)).await;
    }
    world.until_started(105).await;
    let counts = by_type(&world.fake.batches());
    assert!(counts.values().all(|count| *count == 35), "{counts:?}");
}

#[tokio::test]
async fn jobs_wait_while_their_client_has_used_up_its_run_time_and_others_run() {
    let world = Setup { rooms: 4, ..Setup::default() }.start().await;
    for client in ["big", "small"] {
        world.handler(client, "t", "{\"batchSize\":1000}").await;
    }
    let quota = |seconds: u64| format!("{{\"handler_seconds_per_minute\":{seconds}}}");
    let set = world.server.call("PUT", "/api/v1/tenants/big/quota", &quota(3)).await;
    assert_eq!(set.status, 200, "{}", set.text());
    world.fake.hold();
    let ids = world.add("big", "t", &"x\n".repeat(3)).await;
    eventually("its jobs run", || world.fake.batches().len() == 1).await;
    // Five seconds of one run, of which a quarter is paid back: the batch is cut when its first job ends.
    world.later(5_000);
    world.fake.let_end(1);
    eventually("the batch is cut", || world.fake.cuts() == 1).await;
    // The second job may have begun before; the third waits, unrun and not failed.
    world.fake.let_end(1);
    world.until_code("big", "t", &ids[0], "ok").await;
    let in_use = async || {
        let shown = world.server.get("/api/v1/tenants/big/quota").await.json();
        shown["in_use"]["handler_seconds_per_minute"].as_u64().unwrap()
    };
    assert_eq!(in_use().await, 5);
    let small = world.add("small", "t", "mine\n").await.remove(0);
    eventually("another client's job runs", || world.fake.batches().len() == 2).await;
    world.fake.let_end(1);
    world.until_code("small", "t", &small, "ok").await;
    let last = world.job("big", "t", &ids[2]).await;
    assert_eq!((&last["lock"], &last["attempts"]), (&"".into(), &0.into()), "{last}");
    // A second and three quarters too many are paid back by 35 seconds with three per minute.
    world.later(35_000);
    settled().await;
    assert_eq!((world.fake.batches().len(), in_use().await), (2, 3));
    world.later(1);
    eventually("there is time again", || world.fake.batches().len() == 3).await;
    assert!(world.fake.batches()[2].starts_with("big/t"));
    world.fake.let_end(10);
    world.until_code("big", "t", &ids[2], "ok").await;
}

#[tokio::test]
async fn a_client_whose_quota_of_run_time_is_raised_goes_on_soon() {
    let world = Setup::default().start().await;
    world.handler("acme", "t", "{}").await;
    let path = "/api/v1/tenants/acme/quota";
    assert_eq!(world.server.call("PUT", path, r#"{"handler_seconds_per_minute":0}"#).await.status, 200);
    let id = world.add("acme", "t", "x\n").await.remove(0);
    assert_eq!(world.job("acme", "t", &id).await["lock"], "");
    settled().await;
    assert_eq!(world.fake.batches().len(), 0);
    assert_eq!(world.server.call("PUT", path, r#"{"handler_seconds_per_minute":1}"#).await.status, 200);
    world.later(5_000);
    world.until_code("acme", "t", &id, "ok").await;
}
