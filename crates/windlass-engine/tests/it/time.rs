use crate::world::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use windlass_core::event::{Finish, RetryWish};
use windlass_core::lease::OnLapse;
use windlass_core::repeat::Repeat;
use windlass_core::retry::{Backoff, RetryPolicy};
use windlass_core::{Holder, Keep, KeepFor, Outcome, Refused, StateName, StateWord, Timestamp};
use windlass_engine::*;
use windlass_store::memory::MemoryStore;

#[tokio::test]
async fn a_delayed_job_runs_at_its_time_and_not_before() {
    let world = World::new().await;
    world.push(Push { run_at: RunAt::After(500), ..job("later") }).await;
    world.pass(499).await;
    assert!(world.claim(1).await.is_empty());
    world.pass(1).await;
    assert_eq!(names(&world.claim(1).await), ["later"]);
}

#[tokio::test]
async fn a_waiting_claim_gets_a_delayed_job_the_moment_it_is_due() {
    let world = World::new().await;
    let engine = world.engine.clone();
    let waiting = tokio::spawn(async move { engine.claim(Claim { wait_ms: 60_000, ..any() }).await });
    rest().await;
    world.push(Push { run_at: RunAt::After(500), ..job("later") }).await;
    world.push(Push { run_at: RunAt::After(100), ..job("sooner") }).await;
    world.pass(99).await;
    assert!(!waiting.is_finished());
    world.pass(1).await;
    assert_eq!(names(&waiting.await.unwrap().unwrap().accept()), ["sooner"]);
}

#[tokio::test]
async fn a_lapsed_lease_gives_the_job_to_the_next_worker_and_refuses_the_first() {
    let world = World::new().await;
    world.push(job("a")).await;
    let lost = world.claim_one().await;
    world.pass(29_999).await;
    world.shows(&world.picture().await, "1 running default/a p0 a1 until 30000");
    world.pass(1).await;
    world.shows(&world.picture().await, "1 ready default/a p0 a1 at 30000");
    assert_eq!(world.settle(&lost, finish()).await, Err(VerbError::Refused(Refused::LeaseLost)));
    let next = world.claim_one().await;
    world.finish(&next).await;
    world.shows(&world.picture().await, "1 completed default/a p0 a2");
    assert_eq!(world.engine.meters().lapsed.get(), 1);
}

#[tokio::test]
async fn a_lease_that_has_ended_is_lost_before_anyone_noticed() {
    let world = World::new().await;
    world.push(job("a")).await;
    let claimed = world.claim_one().await;
    world.clock.advance(30_000);
    assert_eq!(world.settle(&claimed, finish()).await, Err(VerbError::Refused(Refused::LeaseLost)));
}

#[tokio::test]
async fn whoever_catches_up_meets_no_job_past_its_deadline() {
    let world = World::new().await;
    for name in ["a", "b"] {
        world.push(with_policy(job(name), |policy| policy.lease.on_lapse = OnLapse::BackInLine)).await;
    }
    assert_eq!(world.claim_one().await.id.get(), 1);
    for _ in 0..9 {
        world.clock.advance(30_000);
        world.engine.catch_up().await.unwrap();
        let again = world.claim_one().await;
        assert_eq!(again.id.get(), 1, "the older one stands before the other again");
    }
}

#[tokio::test]
async fn heartbeats_keep_a_lease_alive_and_never_shorten_it() {
    let world = World::new().await;
    world.push(job("a")).await;
    let claimed = world.claim_one().await;
    let beat = async |lease_ms| {
        let entry = Extend { id: claimed.id, by: holder(&claimed), lease_ms };
        world.engine.extend(&tenant(), vec![entry]).await.unwrap().remove(0).unwrap().until.unwrap()
    };
    world.pass(20_000).await;
    assert_eq!(beat(None).await.as_millis(), START_MS + 50_000);
    assert_eq!(beat(Some(10)).await.as_millis(), START_MS + 50_000);
    world.pass(25_000).await;
    world.shows(&world.picture().await, "1 running default/a p0 a1 until 50000");
    world.pass(5_000).await;
    world.shows(&world.picture().await, "1 ready default/a p0 a1 at 50000");
}

#[tokio::test]
async fn retries_back_off_and_end_in_failed() {
    let world = World::new().await;
    let retry = RetryPolicy {
        max_attempts: Some(3),
        backoff: Backoff::Exponential { base_ms: 100, cap_ms: 10_000, jitter_percent: 0 },
        give_up_after_ms: None,
    };
    let id = world.push(with_policy(job("a"), |policy| policy.retry = retry)).await;
    let mut waits = Vec::new();
    for attempt in 1..=3 {
        let claimed = world.claim_one().await;
        let settled = world.settle(&claimed, fail(&format!("attempt {attempt}"))).await.unwrap();
        match settled.run_at {
            Some(run_at) => {
                let wait = run_at.since_ms(world.engine.now());
                waits.push(wait);
                world.pass(wait).await;
            }
            None => assert_eq!(settled.state, Some(StateWord::Failed)),
        }
    }
    assert_eq!(waits, [100, 200]);
    world.shows(&world.picture().await, "1 failed default/a p0 a3");
    let body = world.job(id).await.unwrap().body.clone().unwrap();
    let messages: Vec<&str> = body.errors.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(messages, ["attempt 1", "attempt 2", "attempt 3"]);
    world.apply(id, Event::Requeue { at: world.after(0), even_running: false }).await.unwrap();
    world.shows(&world.picture().await, "1 ready default/a p0 a0 at 300");
}

#[tokio::test]
async fn a_poisonous_job_that_kills_its_workers_ends_in_failed() {
    let world = World::new().await;
    world.push(tries(job("poison"), 3)).await;
    for _ in 0..3 {
        assert_eq!(world.claim(1).await.len(), 1);
        world.pass(30_000).await;
    }
    world.shows(&world.picture().await, "1 failed default/poison p0 a3");
    let gives_up = with_policy(job("fragile"), |policy| policy.lease.on_lapse = OnLapse::GiveUp);
    world.push(gives_up).await;
    world.claim_one().await;
    world.pass(30_000).await;
    assert!(world.picture().await.contains("2 failed default/fragile p0 a1"));
}

#[tokio::test]
async fn a_repeating_job_runs_once_per_turn() {
    let world = World::new().await;
    let every = Repeat::parse("every 10s").unwrap();
    let id = world.push(with_policy(job("tick"), |policy| policy.repeat = Some(every))).await;
    for turn in 1..=3 {
        let claimed = world.claim_one().await;
        world.pass(3_000).await;
        world.finish(&claimed).await;
        assert!(world.claim(1).await.is_empty(), "one run per turn");
        world.shows(&world.picture().await, &format!("1 ready default/tick p0 a0 at {}", turn * 10_000));
        world.pass(7_000).await;
    }
    let claimed = world.claim_one().await;
    let last = Event::Finish(Finish {
        by: Holder::Anyone,
        outcome: Outcome::default(),
        payload: None,
        ignore_repeat: true,
    });
    world.settle(&claimed, last).await.unwrap();
    assert_eq!(world.job(id).await.unwrap().state().name(), StateName::Completed);
}

#[tokio::test]
async fn settled_jobs_go_when_their_keep_time_is_over() {
    let world = World::new().await;
    let keep = Keep { completed: KeepFor::Ms(5_000), failed: KeepFor::Ever, cancelled: KeepFor::Drop };
    let kept = |name| tries(with_policy(job(name), |policy| policy.keep = keep), 1);
    world.push_all(vec![kept("done"), kept("failed"), kept("again")]).await;
    let claimed = world.claim(3).await;
    world.finish(&claimed[0]).await;
    world.settle(&claimed[1], fail("no")).await.unwrap();
    world.finish(&claimed[2]).await;
    world.pass(4_000).await;
    world.apply(claimed[2].id, Event::Run { at: world.after(60_000), force: false }).await.unwrap();
    world.pass(999).await;
    assert!(world.picture().await.contains("1 completed"));
    world.pass(1).await;
    world.shows(
        &world.picture().await,
        "2 failed default/failed p0 a1
         3 ready default/again p0 a0 at 64000",
    );
    assert_eq!(world.engine.meters().expired.get(), 1);
}

#[tokio::test]
async fn a_clock_that_is_set_back_does_not_take_time_back() {
    let world = World::new().await;
    let before = world.engine.now();
    world.clock.set(before.plus_ms(-3_600_000));
    assert_eq!(world.engine.now(), before);
    world.push(job("a")).await;
    let claimed = world.claim_one().await;
    assert_eq!(claimed.state().lease().unwrap().granted_at, before);
    world.finish(&claimed).await;
}

const HOUR_MS: i64 = 3_600_000;

/// A delay, a lease, a backoff and a date, with the clock set in between.
#[tokio::test]
async fn setting_the_clock_moves_dates_and_nothing_else() {
    for step_ms in [-HOUR_MS, HOUR_MS, -24 * HOUR_MS] {
        let world = World::new().await;
        world.push(with_policy(job("leased"), |policy| policy.lease.length_ms = Some(3_000))).await;
        world.claim_one().await;
        world.push(Push { run_at: RunAt::After(2_000), ..job("delayed") }).await;
        let date = world.engine.now().plus_ms(48 * HOUR_MS);
        let dated = world.push(Push { run_at: RunAt::At(date), ..job("dated") }).await;
        world.clock.step_wall(step_ms);
        world.pass(600).await;
        assert_eq!(names(&world.claim(9).await), [""; 0], "{step_ms}");
        world.pass(1_400).await;
        assert_eq!(names(&world.claim(9).await), ["delayed"], "{step_ms}");
        world.pass(1_000).await;
        assert_eq!(names(&world.claim(9).await), ["leased"], "{step_ms}");
        let waits_for = world.job(dated).await.unwrap().state().claimable_at().unwrap();
        assert_eq!(waits_for, date.plus_ms(-step_ms), "{step_ms}");
        // Set back again: everything is as before.
        world.clock.step_wall(-step_ms);
        world.pass(600).await;
        assert_eq!(world.job(dated).await.unwrap().state().claimable_at(), Some(date), "{step_ms}");
    }
}

#[tokio::test]
async fn a_date_that_a_step_jumped_over_has_come() {
    let world = World::new().await;
    world.push(Push { run_at: RunAt::At(world.engine.now().plus_ms(HOUR_MS / 2)), ..job("dated") }).await;
    world.push(Push { run_at: RunAt::After(HOUR_MS / 2), ..job("delayed") }).await;
    world.clock.step_wall(HOUR_MS);
    world.pass(600).await;
    assert_eq!(names(&world.claim(9).await), ["dated"]);
}

/// The clock was an hour ahead, or is an hour behind: jobs written before must not wait for it to catch up.
#[tokio::test]
async fn a_store_that_is_opened_with_the_clock_behind_goes_on_where_it_was() {
    let world = World::new().await;
    world.push(with_policy(job("leased"), |policy| policy.lease.length_ms = Some(3_000))).await;
    world.claim_one().await;
    world.push(Push { run_at: RunAt::After(2_000), ..job("delayed") }).await;
    let date = world.engine.now().plus_ms(HOUR_MS);
    let dated = world.push(Push { run_at: RunAt::At(date), ..job("dated") }).await;
    let (store, written_at) = (world.store.clone(), world.engine.now());
    drop(world);
    let clock = Arc::new(ManualClock::at(written_at.plus_ms(-HOUR_MS)));
    let world = World::with(store, clock, Options::default()).await;
    rest().await;
    assert!(world.engine.now() >= written_at, "the timeline went back");
    world.pass(2_000).await;
    assert_eq!(names(&world.claim(9).await), ["delayed"]);
    world.pass(1_000).await;
    assert_eq!(names(&world.claim(9).await), ["leased"]);
    let waits_for = world.job(dated).await.unwrap().state().claimable_at().unwrap();
    let behind_ms = world.engine.now().since_ms(world.clock.wall());
    assert!(behind_ms >= HOUR_MS, "{behind_ms}");
    assert_eq!(
        waits_for,
        date.plus_ms(behind_ms),
        "by the clock that shows an hour less, it is an hour later"
    );
    // The next server finds no further step.
    let world = world.crash().await;
    world.pass(600).await;
    assert_eq!(world.job(dated).await.unwrap().state().claimable_at(), Some(waits_for));
}

#[tokio::test]
async fn what_was_due_while_nobody_was_there_is_handled_at_the_start() {
    let world = World::new().await;
    world.push(job("orphaned")).await;
    world.push(Push { run_at: RunAt::After(1_000), ..job("delayed") }).await;
    world.claim_one().await;
    let (store, clock) = (world.store.clone(), world.clock.clone());
    drop(world);
    clock.advance(100_000);
    let world = World::with(store, clock, Options::default()).await;
    rest().await;
    world.shows(
        &world.picture().await,
        "1 ready default/orphaned p0 a1 at 100000
         2 ready default/delayed p0 a0 at 1000",
    );
}

#[tokio::test]
async fn the_scheduler_is_not_woken_by_pushes_that_change_nothing_for_it() {
    let world = World::new().await;
    world.push(Push { run_at: RunAt::After(1_000), ..job("first") }).await;
    rest().await;
    let stepped = world.engine.step().await.unwrap();
    assert_eq!(stepped.next.map(|at| at.as_millis()), Some(START_MS + 1_000));
    world.push(Push { run_at: RunAt::After(5_000), ..job("second") }).await;
    rest().await;
    world.pass(1_000).await;
    assert_eq!(names(&world.claim(9).await), ["first"]);
    world.pass(4_000).await;
    assert_eq!(names(&world.claim(9).await), ["second"]);
}

#[tokio::test]
async fn a_late_finish_counts_where_the_policy_says_so() {
    let world = World::new().await;
    let lenient = with_policy(job("a"), |policy| policy.lease.accept_late = true);
    world.push(lenient).await;
    let claimed: Arc<_> = world.claim_one().await;
    world.pass(31_000).await;
    world.finish(&claimed).await;
    world.shows(&world.picture().await, "1 completed default/a p0 a1");
}

/// Clock that advances with every reading, as time does during a commit.
struct Hurrying(AtomicI64);

#[async_trait::async_trait]
impl Clock for Hurrying {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(START_MS + self.0.fetch_add(1, Ordering::SeqCst))
    }

    async fn sleep_until(&self, at: Timestamp) {
        while self.now() < at {
            SystemClock.sleep_ms(1).await;
        }
    }
}

#[tokio::test]
async fn a_moment_that_comes_while_it_is_written_down_is_not_missed() {
    let (store, random) = (Arc::new(MemoryStore::new()), Arc::new(SeededRandom::new(7)));
    let clock = Arc::new(Hurrying(AtomicI64::new(0)));
    let engine = Engine::start(store, clock, random, Options::default()).await.unwrap();
    // At least one of these delays ends between the commit and its effects.
    for delay_ms in 1..=12 {
        engine.push(&tenant(), vec![tries(job("again"), 2)]).await.unwrap();
        let first = engine.claim(any()).await.unwrap().accept().remove(0);
        let waiter = engine.clone();
        let patience = Claim { wait_ms: 1_000_000_000, ..any() };
        let waiting = tokio::spawn(async move { waiter.claim(patience).await });
        rest().await;
        let how =
            Event::fail(Holder::Anyone, Outcome::default(), RetryWish::At(engine.now().plus_ms(delay_ms)));
        let entry = settle(first.id, holder(&first), how);
        engine.settle(&tenant(), vec![entry]).await.unwrap().remove(0).unwrap();
        let again = tokio::time::timeout(std::time::Duration::from_secs(30), waiting).await;
        let again = again.unwrap_or_else(|_| panic!("a job due in {delay_ms} ms woke nobody"));
        let again = again.unwrap().unwrap().accept().remove(0);
        let entry = settle(again.id, holder(&again), finish());
        engine.settle(&tenant(), vec![entry]).await.unwrap().remove(0).unwrap();
    }
}
