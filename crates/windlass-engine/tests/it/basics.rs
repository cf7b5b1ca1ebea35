use crate::world::*;
use windlass_core::event::{CancelRunning, Patch, RetryWish};
use windlass_core::{Holder, JobId, Outcome, Payload, Refused, StateName, StateWord, Tenant, Token};
use windlass_engine::*;

#[tokio::test]
async fn a_job_is_pushed_claimed_and_finished() {
    let world = World::new().await;
    let id = world.push(job("mail")).await;
    world.shows(&world.picture().await, "1 ready default/mail p0 a0 at 0");
    let claimed = world.claim_one().await;
    assert_eq!(claimed.id, id);
    world.shows(&world.picture().await, "1 running default/mail p0 a1 until 30000");
    let settled = world.settle(&claimed, finish_with("42")).await.unwrap();
    assert_eq!(settled, Settled { state: Some(StateWord::Completed), run_at: None });
    world.shows(&world.picture().await, "1 completed default/mail p0 a1");
    let body = world.job(id).await.unwrap().body.clone().unwrap();
    assert_eq!(body.outcome.as_ref().unwrap().result, Some(Payload::json("42")));
    assert!(world.claim(10).await.is_empty());
    assert_eq!(world.engine.leases_held(), 0);
}

#[tokio::test]
async fn jobs_come_in_the_order_priority_time_id() {
    let world = World::new().await;
    let late = Push { run_at: RunAt::At(world.engine.now().plus_ms(-5)), ..job("older") };
    let urgent = Push { priority: -1, ..job("urgent") };
    let idle = Push { priority: 3, ..job("idle") };
    world.push_all(vec![idle, job("first"), job("second"), late, urgent]).await;
    assert_eq!(names(&world.claim(10).await), ["urgent", "older", "first", "second", "idle"]);
}

#[tokio::test]
async fn a_batch_is_answered_entry_by_entry() {
    let world = World::new().await;
    world.push_all(vec![job("a"), job("b"), job("c")]).await;
    let claimed = world.claim(3).await;
    let wrong = settle(claimed[1].id, Holder::Token(Token::from_number(1)), finish());
    let unknown = settle(JobId::new(99).unwrap(), Holder::Anyone, finish());
    let right = |index: usize| settle(claimed[index].id, holder(&claimed[index]), finish());
    let answers = world.engine.settle(&tenant(), vec![right(0), wrong, unknown, right(2)]).await.unwrap();
    assert_eq!(answers[1], Err(VerbError::Refused(Refused::LeaseLost)));
    assert_eq!(answers[2], Err(VerbError::NotFound));
    world.shows(
        &world.picture().await,
        "1 completed default/a p0 a1
         2 running default/b p0 a1 until 30000
         3 completed default/c p0 a1",
    );
}

#[tokio::test]
async fn entries_for_the_same_job_in_one_batch_happen_in_order() {
    let world = World::new().await;
    world.push(job("a")).await;
    let claimed = world.claim_one().await;
    let release = release(world.after(5));
    let answers = world.settle_all(vec![(&claimed, release), (&claimed, finish())]).await;
    assert_eq!(answers[0].unwrap().state, Some(StateWord::Retrying));
    assert_eq!(answers[1], Err(VerbError::Refused(Refused::LeaseLost)));
    world.shows(&world.picture().await, "1 ready default/a p0 a1 at 5");
}

#[tokio::test]
async fn an_old_token_is_refused_and_changes_nothing() {
    let world = World::new().await;
    world.push(job("a")).await;
    let first = world.claim_one().await;
    world.settle(&first, release(world.after(0))).await.unwrap();
    let second = world.claim_one().await;
    assert!(holder_number(&second) > holder_number(&first), "tokens grow");
    assert_eq!(world.settle(&first, finish()).await, Err(VerbError::Refused(Refused::LeaseLost)));
    world.shows(&world.picture().await, "1 running default/a p0 a2 until 30000");
    world.finish(&second).await;
}

fn holder_number(job: &windlass_core::Job) -> u64 {
    job.state().lease().unwrap().token.number()
}

#[tokio::test]
async fn another_tenants_job_does_not_exist() {
    let world = World::new().await;
    let id = world.push(job("secret")).await;
    let other = Tenant::new("other").unwrap();
    assert!(world.engine.get(&other, vec![id]).await.unwrap()[0].is_none());
    let acted = world.engine.apply(&other, vec![id], Event::Delete).await.unwrap();
    assert_eq!(acted[0].as_ref().unwrap_err(), &VerbError::NotFound);
    let claimed = world.claim_one().await;
    let settled = world.engine.settle(&other, vec![settle(id, holder(&claimed), finish())]).await.unwrap();
    assert_eq!(settled[0], Err(VerbError::NotFound));
    let extended = Extend { id, by: holder(&claimed), lease_ms: None };
    assert_eq!(world.engine.extend(&other, vec![extended]).await.unwrap()[0], Err(VerbError::NotFound));
    assert!(matches!(world.engine.wait_settled(&other, id, 0).await.unwrap(), Waited::Unknown));
    let theirs = Claim { tenant: other.clone(), limit: 10, ..any() };
    assert!(world.engine.claim(theirs).await.unwrap().accept().is_empty());
    assert!(world.engine.children(&other, id).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_ready_job_is_cancelled_and_a_running_one_is_asked_to() {
    let world = World::new().await;
    let ready = world.push(job("ready")).await;
    let cancel = Event::Cancel { running: CancelRunning::Ask, failed_too: false };
    world.apply(ready, cancel.clone()).await.unwrap();
    let running = world.push(job("running")).await;
    let claimed = world.claim_one().await;
    let beat =
        || world.engine.extend(&TENANT, vec![Extend { id: running, by: holder(&claimed), lease_ms: None }]);
    assert!(!beat().await.unwrap()[0].unwrap().cancel_asked);
    world.apply(running, cancel).await.unwrap();
    assert!(beat().await.unwrap()[0].unwrap().cancel_asked, "the next heartbeat tells");
    let report = Report { id: running, by: holder(&claimed), percent: Some(50), note: None, payload: None };
    assert!(world.engine.report(&TENANT, vec![report]).await.unwrap()[0].unwrap().cancel_asked);
    world.settle(&claimed, fail("stopped")).await.unwrap();
    world.shows(
        &world.picture().await,
        "1 cancelled default/ready p0 a0
         2 cancelled default/running p0 a1",
    );
    let again = world.apply(ready, Event::Cancel { running: CancelRunning::Now, failed_too: true }).await;
    assert_eq!(again.unwrap_err(), VerbError::Refused(Refused::Settled(StateName::Cancelled)));
}

static TENANT: std::sync::LazyLock<Tenant> = std::sync::LazyLock::new(Tenant::default);

#[tokio::test]
async fn a_paused_queue_gives_nothing_until_it_is_resumed() {
    let world = World::new().await;
    let elsewhere = Push { queue: queue("other"), ..job("b") };
    world.push_all(vec![job("a"), elsewhere]).await;
    world.engine.set_paused(&tenant(), &queue("default"), true).await.unwrap();
    assert_eq!(names(&world.claim(10).await), ["b"]);
    let counts = world.engine.counts(Some(&tenant())).await.unwrap();
    assert!(counts[0].paused && counts[0].of(StateName::Ready) == 1);
    world.engine.set_paused(&tenant(), &queue("default"), false).await.unwrap();
    assert_eq!(names(&world.claim(10).await), ["a"]);
}

#[tokio::test]
async fn what_was_asked_can_be_changed_while_it_waits() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    let patch = Patch { priority: Some(-3), queue: Some(queue("fast")), ..Patch::default() };
    world.apply(id, update(patch)).await.unwrap();
    world.shows(&world.picture().await, "1 ready fast/a p-3 a0 at 0");
    world.apply(id, Event::Delete).await.unwrap();
    world.shows(&world.picture().await, "");
}

#[tokio::test]
async fn payloads_and_batches_are_bounded() {
    let store = std::sync::Arc::new(windlass_store::memory::MemoryStore::new());
    let options = Options { payload_bytes_max: 8, batch_max: 2, waiters_max: 1, ..Options::default() };
    let world = World::with(store, std::sync::Arc::default(), options).await;
    let large = Push { payload: Payload::json("123456789"), ..job("a") };
    let error = world.engine.push(&tenant(), vec![large]).await.unwrap_err();
    assert!(matches!(error, EngineError::TooLarge { bytes: 9, max: 8 }), "{error}");
    let error = world.engine.push(&tenant(), vec![job("a"), job("a"), job("a")]).await.unwrap_err();
    assert_eq!(error.code(), "batch_too_large");
    world.shows(&world.picture().await, "");
}

#[tokio::test]
async fn a_report_that_is_too_large_is_refused_by_itself_and_the_run_goes_on() {
    let store = std::sync::Arc::new(windlass_store::memory::MemoryStore::new());
    let options = Options { payload_bytes_max: 8, ..Options::default() };
    let world = World::with(store, std::sync::Arc::default(), options).await;
    world.push_all(vec![job("first"), job("second"), job("third")]).await;
    let jobs = world.claim(3).await;
    let error = Outcome { error: Some(Payload::json("1234567890")), ..Outcome::default() };
    let failing = Event::fail(holder(&jobs[2]), error, RetryWish::Never);
    let entries =
        vec![(&*jobs[0], finish_with("123456789")), (&*jobs[1], finish()), (&*jobs[2], failing.clone())];
    let answers = world.settle_all(entries).await;
    assert_eq!(answers[0], Err(VerbError::ReportTooLarge { bytes: 9, max: 8 }));
    assert_eq!(answers[0].unwrap_err().code(), "payload_too_large");
    assert!(answers[1].is_ok(), "it is not held up: {:?}", answers[1]);
    assert_eq!(answers[2], Err(VerbError::ReportTooLarge { bytes: 10, max: 8 }));
    // Also in a batch of actions and in a transaction.
    let refused = world.engine.apply(&tenant(), vec![jobs[2].id], failing.clone()).await;
    assert_eq!(refused.unwrap_err().code(), "payload_too_large");
    let (own, id) = (tenant(), jobs[2].id);
    let refused = world.engine.transact(&own, vec![id], |tx| {
        let _ = tx.apply(id, failing.clone())?;
        Ok::<_, Stop<EngineError>>(())
    });
    let refused = refused.await.unwrap_err();
    assert!(matches!(refused, EngineError::ReportTooLarge { bytes: 10, max: 8 }), "{refused}");
    // The leases are still valid.
    world.settle(&jobs[0], finish_with("12345678")).await.unwrap();
    world.settle(&jobs[2], finish()).await.unwrap();
}

#[tokio::test]
async fn the_feed_tells_the_story_of_a_job() {
    let world = World::new().await;
    world.push(job("unheard")).await;
    world.claim_one().await;
    let mut events = world.engine.events();
    world.push(tries(job("told"), 2)).await;
    let first = world.claim_one().await;
    world.settle(&first, fail("no")).await.unwrap();
    let second = world.claim_one().await;
    world.finish(&second).await;
    let mut story = Vec::new();
    while let Ok(event) = events.try_recv() {
        assert_eq!(event.id, first.id);
        story.push(format!("{} {} {}", event.seq, event.kind.as_str(), event.state));
    }
    let expected = [
        "1 pushed ready",
        "2 claimed running",
        "3 retrying ready",
        "4 claimed running",
        "5 completed completed",
    ];
    assert_eq!(story, expected);
    let meters = world.engine.meters();
    let counted =
        [&meters.pushed, &meters.claimed, &meters.finished, &meters.failed].map(|meter| meter.get());
    assert_eq!(counted, [2, 3, 1, 1]);
}

#[tokio::test]
async fn a_settle_of_many_is_one_commit() {
    let world = World::new().await;
    world.push_all((0..500).map(|_| job("a")).collect()).await;
    let claimed = world.claim(500).await;
    let commits = || world.engine.store_meters().commit_size.snapshot();
    let (_, before, sum_before) = commits();
    world.settle_all(claimed.iter().map(|job| (&**job, finish())).collect()).await;
    let (_, after, sum_after) = commits();
    assert_eq!((after - before, sum_after - sum_before), (1, 500));
}

#[tokio::test]
async fn events_in_turn_are_applied_all_or_not_at_all() {
    let world = World::new().await;
    let ids = [world.push(job("a")).await, world.push(job("b")).await];
    assert_eq!(world.claim_one().await.id, ids[0]);
    let moved = update(Patch { queue: Some(queue("slow")), ..Patch::default() });
    let again = windlass_core::Event::Requeue { at: world.after(0), even_running: false };
    let answers = world.engine.apply_in_turn(&tenant(), &ids, &[moved, again]).await.unwrap();
    assert_eq!(answers, [Err(VerbError::Refused(Refused::Running)), Ok(())]);
    world.shows(&world.picture().await, "1 running default/a p0 a1 until 30000\n2 ready slow/b p0 a0 at 0");
}
