//! Scenarios 72 to 75: whose turn it is. The rules themselves have a table in `miniq/schedule.rs`.

use super::world::{Setup, by_type, eventually, report};
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
    // Batch by batch, until it is small's turn.
    for _ in 0..6 {
        let before = world.fake.batches().len();
        // Both batches that run.
        world.fake.let_end(20);
        eventually("another batch is started", || world.fake.batches().len() > before).await;
        if world.fake.batches().iter().any(|batch| batch.starts_with("small/t")) {
            return;
        }
    }
    panic!("small waits too long: {:?}", by_type(&world.fake.batches()));
}

/// However quickly places are free again: what is chosen next takes into account who has come meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_single_job_is_next_also_where_there_is_room_for_all() {
    // The quickest store there is: this is about who is chosen, five thousand times.
    let store = Some(Arc::new(MemoryStore::new()) as Arc<dyn Store>);
    let world = Setup { store, rooms: 100_000, ..Setup::default() }.start().await;
    world.handler("big", "t", "{\"batchSize\":1}").await;
    world.handler("small", "t", "{}").await;
    // The two hundredth job stops whoever starts jobs, until small has added its own.
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
    // The round that was under way, and that small's job is in the next one.
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
