//! History of a job: log lines of its runs, and the authors of changes.

use crate::world::*;
use std::sync::Arc;
use windlass_core::event::{CancelRunning, Patch};
use windlass_core::history::{LOG_LINES_MAX, MARKS_KEPT};
use windlass_core::{Job, JobId, Refused};
use windlass_engine::*;

fn words(job: &Job, lines: &[&str]) -> LogEntry {
    let lines = lines.iter().map(|line| (*line).to_owned()).collect();
    LogEntry { id: job.id, by: Some(holder(job)), source: Some("stderr".into()), lines }
}

async fn kept(world: &World, id: JobId) -> Vec<(u32, String)> {
    let body = world.job(id).await.unwrap().body.clone().unwrap();
    let log = body.log.clone().unwrap();
    log.lines.into_iter().map(|line| (line.attempt, line.text)).collect()
}

async fn marks(world: &World, id: JobId) -> Vec<(String, String)> {
    let body = world.job(id).await.unwrap().body.clone().unwrap_or_default();
    body.marks.iter().map(|mark| (mark.what.as_str().to_owned(), mark.who.to_string())).collect()
}

#[tokio::test]
async fn words_of_all_attempts_are_kept_with_the_job() {
    let world = World::new().await;
    let id = world.push(tries(job("a"), 3)).await;
    let first = world.claim_one().await;
    world.engine.log(&tenant(), vec![words(&first, &["one", "two"])]).await.unwrap()[0].unwrap();
    world.settle(&first, fail("no")).await.unwrap();
    world.pass(600_000).await;
    let second = world.claim_one().await;
    world.engine.log(&tenant(), vec![words(&second, &["three"])]).await.unwrap()[0].unwrap();
    world.finish(&second).await;
    let expected = [(1, "one"), (1, "two"), (2, "three")].map(|(n, text)| (n, text.to_owned()));
    assert_eq!(kept(&world, id).await, expected);
}

#[tokio::test]
async fn only_the_holder_of_a_job_speaks_for_its_run() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    let held = world.claim_one().await;
    world.settle(&held, RETURN).await.unwrap();
    let answers = world.engine.log(&tenant(), vec![words(&held, &["late"])]).await.unwrap();
    assert_eq!(answers[0], Err(VerbError::Refused(Refused::LeaseLost)));
    assert_eq!(world.job(id).await.unwrap().body, None);
    let outside = LogEntry { by: None, ..words(&held, &["from outside"]) };
    world.engine.log(&tenant(), vec![outside]).await.unwrap()[0].unwrap();
    assert_eq!(kept(&world, id).await, [(0, "from outside".to_owned())]);
}

#[tokio::test]
async fn a_worker_hears_of_a_cancellation_when_it_logs() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    let held = world.claim_one().await;
    let answers = world.engine.log(&tenant(), vec![words(&held, &["at it"])]).await.unwrap();
    assert!(!answers[0].unwrap().cancel_asked);
    world.apply(id, Event::Cancel { running: CancelRunning::Ask, failed_too: false }).await.unwrap();
    let answers = world.engine.log(&tenant(), vec![words(&held, &["still at it"])]).await.unwrap();
    assert!(answers[0].unwrap().cancel_asked);
}

#[tokio::test]
async fn a_log_keeps_its_last_lines_and_counts_the_others() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    let held = world.claim_one().await;
    let lines: Vec<String> = (0..LOG_LINES_MAX + 5).map(|number| number.to_string()).collect();
    let entry = LogEntry { lines, ..words(&held, &[]) };
    world.engine.log(&tenant(), vec![entry]).await.unwrap()[0].unwrap();
    assert_eq!(kept(&world, id).await.first().unwrap().1, "5");
    assert_eq!(world.job(id).await.unwrap().body.clone().unwrap().log.clone().unwrap().dropped, 5);
}

#[tokio::test]
async fn who_did_what_is_remembered_where_they_say_who_they_are() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    let ann = world.engine.on_behalf_of("ann");
    let priority = Patch { priority: Some(-3), ..Patch::default() };
    let cancel = Event::Cancel { running: CancelRunning::Ask, failed_too: false };
    ann.apply(&tenant(), vec![id], update(priority)).await.unwrap()[0].as_ref().unwrap();
    world.claim_one().await;
    ann.apply(&tenant(), vec![id], cancel.clone()).await.unwrap()[0].as_ref().unwrap();
    let take = Event::Requeue { at: world.after(0), even_running: true };
    world.engine.on_behalf_of("bob").apply(&tenant(), vec![id], take).await.unwrap()[0].as_ref().unwrap();
    world.apply(id, cancel).await.unwrap();
    let expected = [("changed", "ann"), ("cancel_asked", "ann"), ("retried", "bob")];
    assert_eq!(marks(&world, id).await, expected.map(|(what, who)| (what.to_owned(), who.to_owned())));
}

#[tokio::test]
async fn marks_are_bounded() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    for round in 0..MARKS_KEPT + 4 {
        let engine = world.engine.on_behalf_of(&format!("r{round}"));
        let run = Event::Run { at: world.after(0), force: false };
        engine.apply(&tenant(), vec![id], run).await.unwrap()[0].as_ref().unwrap();
    }
    let marks = marks(&world, id).await;
    assert_eq!((marks.len(), marks[0].1.as_str()), (MARKS_KEPT, "r4"));
}

/// The common path must not become more expensive.
#[tokio::test]
async fn a_job_that_says_nothing_and_is_left_alone_has_no_body() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    let held: Arc<Job> = world.claim_one().await;
    world
        .engine
        .on_behalf_of("w1")
        .settle(&tenant(), vec![settle(id, holder(&held), finish())])
        .await
        .unwrap()[0]
        .as_ref()
        .unwrap();
    assert_eq!(world.job(id).await.unwrap().body, None);
}
