use crate::world::*;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use tokio::task::JoinHandle;
use windlass_core::{Job, JobId, NameMatch};
use windlass_engine::*;
use windlass_store::faulty::{Call, FaultyStore, Kind};
use windlass_store::memory::MemoryStore;
use windlass_store::sqlite::SqliteStore;
use windlass_store::{OpenOptions, Store};

type Waiting = JoinHandle<Vec<Arc<Job>>>;

/// Starts a waiting claim; it is registered when this returns.
async fn waits(world: &World, claim: Claim) -> Waiting {
    let engine = world.engine.clone();
    let claim = Claim { wait_ms: claim.wait_ms.max(60_000), ..claim };
    let task = tokio::spawn(async move { engine.claim(claim).await.unwrap().accept() });
    rest().await;
    task
}

fn named(name: &str) -> Claim {
    Claim { names: NameMatch::glob(name), ..any() }
}

#[tokio::test]
async fn the_longest_waiting_match_is_woken_and_the_others_sleep_on() {
    let world = World::new().await;
    let first = waits(&world, any()).await;
    let second = waits(&world, any()).await;
    let picky = waits(&world, named("special")).await;
    assert_eq!(world.engine.waiters(), 3);
    world.push(job("a")).await;
    rest().await;
    assert_eq!(names(&first.await.unwrap()), ["a"]);
    assert!(!second.is_finished() && !picky.is_finished());
    world.push(job("special")).await;
    rest().await;
    assert_eq!(names(&second.await.unwrap()), ["special"], "it waited longer");
    world.push(job("special")).await;
    assert_eq!(names(&picky.await.unwrap()), ["special"]);
    assert_eq!(world.engine.waiters(), 0);
}

#[tokio::test]
async fn a_batch_wakes_as_many_as_it_can_feed() {
    let world = World::new().await;
    let mut workers = Vec::new();
    for _ in 0..5 {
        workers.push(waits(&world, any()).await);
    }
    world.push_all(vec![job("a"), job("a"), job("a")]).await;
    rest().await;
    let fed: Vec<bool> = workers.iter().map(|worker| worker.is_finished()).collect();
    assert_eq!(fed, [true, true, true, false, false]);
}

#[tokio::test]
async fn a_worker_that_takes_many_leaves_the_others_asleep() {
    let world = World::new().await;
    let greedy = waits(&world, Claim { limit: 10, ..any() }).await;
    let other = waits(&world, any()).await;
    world.push_all(vec![job("a"), job("a"), job("a")]).await;
    rest().await;
    assert_eq!(greedy.await.unwrap().len(), 3);
    assert!(!other.is_finished());
}

#[tokio::test]
async fn a_claim_that_waits_in_vain_comes_back_empty_in_time() {
    let world = World::new().await;
    let worker = waits(&world, any()).await;
    world.pass(59_999).await;
    assert!(!worker.is_finished());
    world.pass(1).await;
    assert!(worker.await.unwrap().is_empty());
    assert_eq!(world.engine.waiters(), 0);
}

#[tokio::test]
async fn patience_begins_with_the_question_and_not_with_the_answer_of_a_slow_store() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    let world = World::on(store).await;
    faults.fail_next_call(Call::Claim, 1, Kind::Hold);
    let worker = waits(&world, any()).await;
    faults.until_held(1).await;
    world.pass(60_000).await;
    faults.release();
    rest().await;
    assert!(worker.is_finished(), "its minute is over");
    assert!(worker.await.unwrap().is_empty());
}

#[tokio::test]
async fn a_waiter_that_leaves_after_it_was_woken_passes_the_job_on() {
    let world = World::new().await;
    // Polled by hand, so that it can be woken without querying the store.
    let mut first = Box::pin(world.engine.claim(Claim { wait_ms: 60_000, ..any() }));
    for _ in 0..3 {
        let polled = poll_fn(|context| Poll::Ready(first.as_mut().poll(context))).await;
        assert!(polled.is_pending());
        rest().await;
    }
    let second = waits(&world, any()).await;
    world.push(job("a")).await;
    rest().await;
    assert!(!second.is_finished(), "the first was woken, it waited longer");
    drop(first);
    rest().await;
    assert!(second.is_finished(), "the wake-up was lost");
    assert_eq!(names(&second.await.unwrap()), ["a"]);
}

/// Waits until the store has answered all calls so far, and the callers have reacted.
async fn answered(world: &World) {
    world.engine.put_note("test", None).await.unwrap();
    rest().await;
}

/// Pushes `jobs` jobs while `claims` claims sleep; counts the queries that follow.
async fn wake_ups(store: Arc<dyn Store>, claims: usize, jobs: usize) {
    let (store, calls) = FaultyStore::new(store);
    let world = World::on(store).await;
    let mut workers = Vec::new();
    for number in 0..claims {
        workers.push(waits(&world, any()).await);
        while calls.claims() <= number {
            rest().await;
        }
    }
    answered(&world).await;
    world.push_all(vec![job("a"); jobs]).await;
    let fed = |workers: &[Waiting]| workers.iter().filter(|worker| worker.is_finished()).count();
    let all_fed = async {
        while fed(&workers) < jobs {
            rest().await;
        }
    };
    let in_time = tokio::time::timeout(std::time::Duration::from_secs(20), all_fed).await;
    assert!(in_time.is_ok(), "{} of {jobs} jobs found a waiting claim", fed(&workers));
    answered(&world).await;
    assert_eq!(calls.claims(), claims + jobs, "each woken claim has queried once, the others slept on");
    assert!(workers[..jobs].iter().all(|worker| worker.is_finished()), "the longest-waiting");
    assert_eq!(fed(&workers), jobs);
    world.engine.shutdown().await;
}

#[tokio::test]
async fn a_push_wakes_one_waiting_claim_for_each_job() {
    for (claims, jobs) in [(1, 1), (4, 1), (5, 5), (9, 5)] {
        wake_ups(Arc::new(MemoryStore::new()), claims, jobs).await;
        let folder = tempfile::tempdir().unwrap();
        let sqlite = SqliteStore::open(&folder.path().join("jobs.db"), OpenOptions::default()).unwrap();
        wake_ups(Arc::new(sqlite), claims, jobs).await;
    }
}

#[tokio::test]
async fn resumed_jobs_wake_as_many_as_they_can_feed() {
    let world = World::new().await;
    world.engine.set_paused(&tenant(), &queue("default"), true).await.unwrap();
    world.push_all(vec![job("a"), job("a"), job("a")]).await;
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(waits(&world, any()).await);
    }
    world.engine.set_paused(&tenant(), &queue("default"), false).await.unwrap();
    rest().await;
    let fed: Vec<bool> = workers.iter().map(|worker| worker.is_finished()).collect();
    assert_eq!(fed, [true, true, true]);
}

#[tokio::test]
async fn a_priority_that_nobody_else_asks_for_does_not_hide_a_job_from_the_others() {
    let world = World::new().await;
    let picky = waits(&world, Claim { priority: Some(5), ..any() }).await;
    let other = waits(&world, any()).await;
    world.push(job("a")).await;
    rest().await;
    assert_eq!(names(&other.await.unwrap()), ["a"]);
    assert!(!picky.is_finished());
    world.push(Push { priority: 5, ..job("b") }).await;
    assert_eq!(names(&picky.await.unwrap()), ["b"]);
}

#[tokio::test]
async fn a_job_given_back_or_released_by_time_wakes_a_waiter() {
    let world = World::new().await;
    world.push(job("a")).await;
    let claimed = world.claim_one().await;
    let worker = waits(&world, any()).await;
    world.settle(&claimed, release(world.after(250))).await.unwrap();
    world.pass(249).await;
    assert!(!worker.is_finished());
    world.pass(1).await;
    assert_eq!(names(&worker.await.unwrap()), ["a"]);
}

#[tokio::test]
async fn resuming_a_queue_wakes_its_waiters() {
    let world = World::new().await;
    world.engine.set_paused(&tenant(), &queue("default"), true).await.unwrap();
    world.push_all(vec![job("a"), job("b")]).await;
    let first = waits(&world, any()).await;
    let second = waits(&world, any()).await;
    assert!(!first.is_finished());
    world.engine.set_paused(&tenant(), &queue("default"), false).await.unwrap();
    assert_eq!(names(&first.await.unwrap()), ["a"]);
    assert_eq!(names(&second.await.unwrap()), ["b"]);
}

#[tokio::test]
async fn jobs_that_are_not_accepted_are_given_back_at_once() {
    let world = World::new().await;
    world.push_all(vec![job("a"), job("b")]).await;
    let delivery = world.engine.claim(Claim { limit: 2, ..any() }).await.unwrap();
    assert_eq!(delivery.jobs.len(), 2);
    world.pass(10).await;
    drop(delivery);
    rest().await;
    world.shows(
        &world.picture().await,
        "1 ready default/a p0 a0 at 0
         2 ready default/b p0 a0 at 0",
    );
    assert_eq!(names(&world.claim(5).await), ["a", "b"], "in their old places");
}

#[tokio::test]
async fn waiters_are_bounded() {
    let options = Options { waiters_max: 1, ..Options::default() };
    let store = Arc::new(windlass_store::memory::MemoryStore::new());
    let world = World::with(store, Arc::default(), options).await;
    let _first = waits(&world, any()).await;
    let error = world.engine.claim(Claim { wait_ms: 5, ..any() }).await.unwrap_err();
    assert!(matches!(error, EngineError::TooManyWaiters) && error.is_retryable());
}

/// Workers come and go, some drop their claim while waiting, jobs arrive in bursts: every job is handed out
/// exactly once, and no worker sleeps while a matching job is ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_and_nothing_is_handed_out_twice() {
    const JOBS: usize = 3_000;
    let world = Arc::new(World::new().await);
    let done = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..64)
        .map(|number: usize| {
            let (engine, done) = (world.engine.clone(), done.clone());
            let limit = 1 + number % 3;
            let names = if number.is_multiple_of(4) { NameMatch::glob("a*") } else { NameMatch::Any };
            tokio::spawn(async move {
                let mut mine: Vec<JobId> = Vec::new();
                while done.load(Ordering::SeqCst) < JOBS {
                    let claim = Claim { limit, wait_ms: 3_600_000, names: names.clone(), ..any() };
                    let claiming = engine.claim(claim);
                    let delivery = if number.is_multiple_of(5) {
                        // Drops its claim from time to time, at any point.
                        tokio::select! {
                            delivery = claiming => delivery,
                            () = yields(1 + mine.len() % 17) => continue,
                        }
                    } else {
                        claiming.await
                    };
                    let Ok(delivery) = delivery else { break };
                    for job in delivery.accept() {
                        let entry = settle(job.id, holder(&job), finish());
                        engine.settle(&tenant(), vec![entry]).await.unwrap().remove(0).unwrap();
                        mine.push(job.id);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                }
                mine
            })
        })
        .collect();
    let drop_done = |name| with_policy(job(name), |policy| policy.keep = keep_nothing());
    let mut pushed = 0;
    while pushed < JOBS {
        let burst = (1 + pushed % 7).min(JOBS - pushed);
        let jobs = (0..burst).map(|n| drop_done(if (pushed + n) % 2 == 0 { "ax" } else { "b" })).collect();
        world.push_all(jobs).await;
        pushed += burst;
        yields(pushed % 5).await;
    }
    // The clock stands still: after a lost wake-up this would never end.
    let patience = std::time::Duration::from_secs(60);
    let finished = async {
        while done.load(Ordering::SeqCst) < JOBS {
            tokio::task::yield_now().await;
        }
    };
    let outcome = tokio::time::timeout(patience, finished).await;
    assert!(outcome.is_ok(), "stuck after {} of {JOBS}", done.load(Ordering::SeqCst));
    world.engine.shutdown().await;
    let mut seen = BTreeSet::new();
    for worker in workers {
        for id in worker.await.unwrap() {
            assert!(seen.insert(id), "job {id} was handed out twice");
        }
    }
    assert_eq!(seen.len(), JOBS);
}

async fn yields(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_waits_is_known_by_name_until_they_leave() {
    let world = World::new().await;
    let claim = Claim { worker: Some("w1".into()), wait_ms: 60_000, ..any() };
    let engine = world.engine.clone();
    let waiting = tokio::spawn(async move { engine.claim(claim).await.unwrap().accept() });
    while world.engine.waiters() == 0 {
        rest().await;
    }
    let names =
        || world.engine.waiting_workers().into_keys().map(|(_, name)| name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(), ["w1"]);
    world.push(job("a")).await;
    waiting.await.unwrap();
    assert_eq!(names(), Vec::<String>::new());
}
