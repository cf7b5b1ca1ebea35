use super::world::*;
use serde_json::{Value, json};

/// Finishes one job after the other and returns the order in which they arrived.
async fn order(world: &World, worker: &mut FakeWorker, mut running: String, count: usize) -> Vec<String> {
    let mut order = Vec::new();
    for _ in 0..count {
        world.succeed(&worker.id, &running, Value::Null).await;
        running = worker.next_id().await;
        order.push(running.clone());
    }
    order
}

#[tokio::test]
async fn smaller_priorities_first_and_among_equals_the_oldest() {
    let world = World::new().await;
    let mut worker = world.worker(1).await;
    let busy = world.enqueue(json!({})).await;
    assert_eq!(worker.next_id().await, busy);
    let mut ids = Vec::new();
    for priority in [json!(5), json!(-3), Value::Null, json!(7), json!(-3), json!(1), json!(-1)] {
        ids.push(world.enqueue(json!({"priority": priority})).await);
    }
    let expected = [1, 4, 6, 2, 5, 0, 3].map(|place: usize| ids[place].clone());
    assert_eq!(order(&world, &mut worker, busy, 7).await, expected);
}

#[tokio::test]
async fn a_failed_job_is_one_of_all_when_its_wait_is_over() {
    let world = World::new().await;
    let mut worker = world.worker(1).await;
    let failed = world.enqueue(json!({"priority": -1})).await;
    worker.next_id().await;
    world.fail(&worker.id, &failed, true).await;
    let busy = world.enqueue(json!({})).await;
    assert_eq!(worker.next_id().await, busy);
    let others = [world.enqueue(json!({})).await, world.enqueue(json!({})).await];
    world.pass(1_100);
    let expected = [failed, others[0].clone(), others[1].clone()];
    assert_eq!(order(&world, &mut worker, busy, 3).await, expected);
}

/// Among equal priorities a retried job is queued by the end of its backoff: behind jobs enqueued before
/// that, ahead of later ones. No job starves.
#[tokio::test]
async fn a_retried_job_is_never_behind_what_was_enqueued_after_its_wait() {
    let world = World::new().await;
    let mut worker = world.worker(1).await;
    let failed = world.enqueue(json!({})).await;
    worker.next_id().await;
    let before = world.enqueue(json!({})).await;
    world.fail(&worker.id, &failed, true).await;
    assert_eq!(worker.next_id().await, before);
    world.pass(1_200);
    let after = world.enqueue(json!({})).await;
    assert_eq!(order(&world, &mut worker, before, 2).await, [failed, after]);
}

#[tokio::test]
async fn worse_priorities_wait_as_long_as_there_are_better_ones() {
    let world = World::new().await;
    let mut worker = world.worker(1).await;
    let mut running = world.enqueue(json!({})).await;
    worker.next_id().await;
    let worse = world.enqueue(json!({"priority": 1})).await;
    for _ in 0..20 {
        let next = world.enqueue(json!({})).await;
        assert_eq!(order(&world, &mut worker, running, 1).await, std::slice::from_ref(&next));
        running = next;
    }
    assert_eq!(order(&world, &mut worker, running, 1).await, [worse]);
}

#[tokio::test]
async fn a_better_one_that_comes_later_is_next_and_nothing_is_interrupted() {
    let world = World::new().await;
    let mut worker = world.worker(1).await;
    let running = world.enqueue(json!({"priority": 3})).await;
    worker.next_id().await;
    world.enqueue(json!({"priority": 0})).await;
    let better = world.enqueue(json!({"priority": -9})).await;
    worker.is_left_alone().await;
    assert_eq!(world.status(&running).await, "running");
    assert_eq!(order(&world, &mut worker, running, 1).await, [better]);
}
