//! Scenarios 72 to 75: whose turn it is. The rules themselves have a table in `miniq/schedule.rs`.

use super::world::{Setup, by_type, eventually};

#[tokio::test]
async fn a_client_with_many_jobs_does_not_hold_up_anothers_single_one() {
    let world = Setup { rooms: 2, ..Setup::default() }.start().await;
    world.handler("big", "t", "{}").await;
    world.handler("small", "t", "{}").await;
    world.fake.hold();
    world.add("big", "t", &"x\n".repeat(10_000)).await;
    eventually("big fills all the room", || world.fake.batches().len() == 2).await;
    world.add("small", "t", "mine\n").await;
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
