//! Transactions: decided by the current jobs, committed if those are unchanged.

use crate::world::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};
use windlass_core::event::{CancelRunning, Finish, Patch};
use windlass_core::limits::Limit;
use windlass_core::unique::{HeldUntil, OnConflict, Unique};
use windlass_core::{Job, JobId, Outcome, Payload, Refused, StateName, Tenant, apply};
use windlass_engine::*;
use windlass_store::faulty::{Call, Kind};
use windlass_store::memory::MemoryStore;
use windlass_store::{Step, Store, Verdict};

/// Refusal of a closure in these tests.
#[derive(Debug)]
enum No {
    Mine(&'static str),
    Verb(VerbError),
    Engine(EngineError),
}

impl From<VerbError> for No {
    fn from(error: VerbError) -> No {
        No::Verb(error)
    }
}

impl From<EngineError> for No {
    fn from(error: EngineError) -> No {
        No::Engine(error)
    }
}

type Decided<T> = Result<T, Stop<No>>;

fn own() -> &'static Tenant {
    static OWN: LazyLock<Tenant> = LazyLock::new(tenant);
    &OWN
}

fn id(number: u64) -> JobId {
    JobId::new(number).unwrap()
}

fn priority(priority: i32) -> Event {
    Event::Update(Box::new(Patch { priority: Some(priority), ..Patch::default() }))
}

fn payload(text: &str) -> Event {
    Event::Update(Box::new(Patch { payload: Some(Payload::json(text)), ..Patch::default() }))
}

fn finished(job: &Job) -> Event {
    let by = holder(job);
    Event::Finish(Finish { by, outcome: Outcome::default(), payload: None, ignore_repeat: false })
}

fn text(job: &Job) -> String {
    String::from_utf8(job.spec.payload.bytes.to_vec()).unwrap()
}

/// Polls a call of a memory store, which completes at once.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the store answers at once"),
    }
}

/// Changes the job between a read and the commit of a transaction.
fn interfere(store: &Arc<dyn Store>, id: JobId, event: Event) {
    let job = at_once(store.load(vec![id])).unwrap().pop().flatten().expect("it is there");
    let now = windlass_core::Timestamp::from_millis(START_MS);
    let after = apply(&job, event, now).unwrap().job;
    let written = at_once(store.commit(vec![Step::change(job, after)], now)).unwrap();
    assert!(matches!(written[..], [Verdict::Done(_)]));
}

#[tokio::test]
async fn what_is_applied_is_one_commit_and_the_answer_comes_after_it() {
    let world = World::new().await;
    world.push_all(vec![job("a"), job("b"), job("c")]).await;
    let seen = world.engine.transact(own(), vec![id(1)], |tx| -> Decided<i32> {
        tx.apply(id(1), priority(5))??;
        tx.apply(id(1), Event::Requeue { at: tx.now().plus_ms(50), even_running: false })??;
        // Loaded on demand.
        tx.apply(id(2), Event::Delete)??;
        tx.note("test/note", Some(b"written".to_vec()));
        Ok(tx.job(id(1))?.map_or(0, |job| job.spec.priority))
    });
    assert_eq!(seen.await.unwrap(), 5, "a transaction sees what it has done");
    world.shows(
        &world.picture().await,
        "1 ready default/a p5 a0 at 50
         3 ready default/c p0 a0 at 0",
    );
    assert_eq!(world.job(id(1)).await.unwrap().version, 2, "several events are one version");
    assert_eq!(world.engine.notes("test/").await.unwrap(), [("test/note".to_owned(), b"written".to_vec())]);
}

#[tokio::test]
async fn a_refusal_leaves_nothing_behind() {
    let world = World::new().await;
    world.push_all(vec![job("a"), job("b")]).await;
    let before = world.picture().await;
    let refused = world.engine.transact(own(), vec![id(1)], |tx| -> Decided<()> {
        tx.apply(id(1), priority(5))??;
        tx.note("test/note", Some(Vec::new()));
        Err(Stop::Refuse(No::Mine("no")))
    });
    assert!(matches!(refused.await, Err(No::Mine("no"))));
    let by_the_rules = world.engine.transact(own(), vec![], |tx| -> Decided<()> {
        tx.apply(id(2), Event::Delete)??;
        tx.apply(id(2), priority(1))??;
        Ok(())
    });
    assert!(matches!(by_the_rules.await, Err(No::Verb(VerbError::NotFound))), "it is deleted by then");
    assert_eq!(world.picture().await, before);
    assert!(world.engine.notes("test/").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_job_that_somebody_else_changed_meanwhile_is_decided_on_again() {
    for holds in [false, true] {
        let world = World::new().await;
        world.push_all(vec![job("a"), job("b")]).await;
        let mut runs = 0;
        let decided = world.engine.transact(own(), vec![id(1), id(2)], |tx| -> Decided<i32> {
            runs += 1;
            let seen = tx.job(id(1))?.expect("it is there").spec.priority;
            match holds {
                true => tx.hold(id(1))??,
                false => tx.apply(id(1), payload("[1]"))??,
            }
            tx.apply(id(2), priority(seen + 1))??;
            if runs == 1 {
                interfere(&world.store, id(1), priority(7));
            }
            Ok(seen)
        });
        assert_eq!(decided.await.unwrap(), 7, "holds: {holds}");
        assert_eq!(runs, 2);
        assert_eq!(world.job(id(1)).await.unwrap().spec.priority, 7);
        assert_eq!(world.job(id(2)).await.unwrap().spec.priority, 8);
        assert_eq!(world.job(id(2)).await.unwrap().version, 2, "what was lost has left no trace");
    }
}

#[tokio::test]
async fn who_loses_every_time_is_told_so_in_the_end() {
    let world = World::new().await;
    world.push(job("a")).await;
    let mut runs = 0;
    let decided = world.engine.transact(own(), vec![id(1)], |tx| -> Decided<()> {
        runs += 1;
        interfere(&world.store, id(1), payload("[]"));
        tx.apply(id(1), priority(5))??;
        Ok(())
    });
    let Err(No::Engine(error)) = decided.await else { panic!("it is never written") };
    assert_eq!((error.code(), error.is_retryable()), ("contended", true));
    assert_eq!(runs, 100);
    assert_eq!(world.job(id(1)).await.unwrap().spec.priority, 0);
}

#[tokio::test]
async fn the_family_moves_along_and_is_loaded_for_it() {
    let world = World::new().await;
    let parent = world.push(job("parent")).await;
    let running = world.claim_one().await;
    world.push_all(vec![child_of(parent, "a", PARENT_WAITS), child_of(parent, "b", PARENT_WAITS)]).await;
    world.finish(&running).await;
    let children = world.claim(2).await;
    let done = world.engine.transact(own(), vec![], |tx| -> Decided<usize> {
        for child in &children {
            tx.apply(child.id, finished(child))??;
        }
        let parent = tx.job(parent)?.expect("it is there");
        assert_eq!(parent.state().name(), StateName::Ready, "it can be seen at once");
        Ok(tx.with_descendants(parent, 10)?.len())
    });
    assert_eq!(done.await.unwrap(), 3);
    world.shows(
        &world.picture().await,
        "1 ready default/parent p0 a0 at 0
         2 completed default/a p0 a1 parent 1
         3 completed default/b p0 a1 parent 1",
    );
}

#[tokio::test]
async fn children_and_then_their_parent_can_go_at_once() {
    let world = World::new().await;
    let parent = world.push(job("parent")).await;
    let running = world.claim_one().await;
    world.push_all(vec![child_of(parent, "a", PARENT_WAITS), child_of(parent, "b", PARENT_WAITS)]).await;
    world.finish(&running).await;
    let delete = async |order: [u64; 3]| {
        let all = |tx: &mut Transaction<'_>| -> Decided<()> {
            for number in order {
                tx.apply(id(number), Event::Delete)??;
            }
            Ok(())
        };
        world.engine.transact(own(), vec![parent], all).await
    };
    let refused = VerbError::from(Refused::HasChildren);
    assert!(matches!(delete([1, 2, 3]).await, Err(No::Verb(error)) if error == refused));
    assert!(matches!(delete([2, 1, 3]).await, Err(No::Verb(error)) if error == refused));
    delete([3, 2, 1]).await.unwrap();
    assert_eq!(world.picture().await, "");
}

#[tokio::test]
async fn limits_are_completed_and_freed() {
    let world = World::new().await;
    let limit = serde_json::json!({"matcher": {"name": "a"}, "max_running": 1});
    let limit = Limit::parse("one", &limit).unwrap();
    world.engine.set_limit(own(), limit).await.unwrap();
    world.push_all(vec![job("b"), job("a")]).await;
    let rename = Patch { name: Some(windlass_core::Name::new("a").unwrap()), ..Patch::default() };
    let renamed = world.engine.transact(own(), vec![id(1)], |tx| -> Decided<()> {
        Ok(tx.apply(id(1), Event::Update(Box::new(rename.clone())))??)
    });
    renamed.await.unwrap();
    assert_eq!(world.job(id(1)).await.unwrap().spec.limit_keys().len(), 1, "it is under the limit now");
    let running = world.claim(5).await;
    assert_eq!(running.len(), 1);
    let job = running[0].clone();
    let done = world
        .engine
        .transact(own(), vec![job.id], |tx| -> Decided<()> { Ok(tx.apply(job.id, finished(&job))??) });
    done.await.unwrap();
    assert_eq!(world.claim(5).await.len(), 1, "its place is free");
}

#[tokio::test]
async fn a_key_that_another_job_has_is_a_refusal_of_the_event_that_takes_it() {
    let world = World::new().await;
    let keyed = |name: &str| {
        let mut push = job(name);
        let unique =
            Unique { key: "k".into(), on_conflict: OnConflict::Return, held_until: HeldUntil::Settled };
        push.extras.get_or_insert_default().unique = Some(unique);
        push
    };
    let first = world.push(keyed("first")).await;
    let running = world.claim_one().await;
    world.finish(&running).await;
    let second = world.push(keyed("second")).await;
    let decided = world.engine.transact(own(), vec![first], |tx| -> Decided<Result<(), VerbError>> {
        let again = tx.apply(first, Event::Requeue { at: tx.now(), even_running: false })?;
        // The other changes are committed if the closure returns `Ok`.
        tx.apply(first, priority(3))??;
        Ok(again)
    });
    assert_eq!(decided.await.unwrap(), Err(Refused::KeyTaken(second).into()));
    let job = world.job(first).await.unwrap();
    assert_eq!((job.state().name(), job.spec.priority), (StateName::Completed, 3));
}

#[tokio::test]
async fn another_tenants_job_is_not_there() {
    let world = World::new().await;
    let own = world.push(job("a")).await;
    let stranger = windlass_core::Tenant::new("stranger").unwrap();
    let decided = world.engine.transact(&stranger, vec![own], |tx| -> Decided<()> {
        assert_eq!(tx.job(own)?, None);
        Ok(tx.apply(own, Event::Delete)??)
    });
    assert!(matches!(decided.await, Err(No::Verb(VerbError::NotFound))));
    assert!(world.job(own).await.is_some());
}

#[tokio::test]
async fn what_is_too_large_fails_and_nothing_is_written() {
    let options = Options { payload_bytes_max: 10, ..Options::default() };
    let world = World::with(Arc::new(MemoryStore::new()), Arc::default(), options).await;
    world.push(job("a")).await;
    let decided = world.engine.transact(own(), vec![id(1)], |tx| -> Decided<()> {
        tx.apply(id(1), priority(3))??;
        // Even if the closure ignores the error.
        let _ = tx.apply(id(1), payload("[1,2,3,4,5,6,7]"));
        Ok(())
    });
    let Err(No::Engine(error)) = decided.await else { panic!("it is too large") };
    assert_eq!(error.code(), "payload_too_large");
    assert_eq!(world.job(id(1)).await.unwrap().spec.priority, 0);
}

#[tokio::test]
async fn what_was_only_remembered_is_looked_up_before_it_decides() {
    let store = Arc::new(MemoryStore::shared());
    let clock = Arc::new(ManualClock::default());
    let one = World::with(store.clone(), clock.clone(), Options::default()).await;
    let other = World::with(store, clock, Options::default()).await;
    one.push_all(vec![job("a"), job("b")]).await;
    let running = one.claim_one().await;
    other.apply(running.id, cancel_now()).await.unwrap();
    let state = one.engine.transact(own(), vec![running.id], |tx| -> Decided<StateName> {
        Ok(tx.job(running.id)?.expect("it is there").state().name())
    });
    assert_eq!(state.await.unwrap(), StateName::Cancelled, "nothing is written");
    let running = one.claim_one().await;
    other.apply(running.id, cancel_now()).await.unwrap();
    let mut states = Vec::new();
    let written = one.engine.transact(own(), vec![running.id], |tx| -> Decided<()> {
        states.push(tx.job(running.id)?.expect("it is there").state().name());
        Ok(tx.apply(id(1), priority(1))??)
    });
    written.await.unwrap();
    assert_eq!(states.last(), Some(&StateName::Cancelled), "something else is written");
}

fn cancel_now() -> Event {
    Event::Cancel { running: CancelRunning::Now, failed_too: false }
}

// --- queued ----------------------------------------------------------------------------------------------------------

/// Appends a number to the list in the job's payload; odd numbers refuse after the append.
fn append(engine: &Engine, number: usize) -> tokio::task::JoinHandle<Result<String, No>> {
    let engine = engine.clone();
    tokio::spawn(async move {
        let queued = Queued { job: id(1), is_large: number.is_multiple_of(3) };
        let decide = move |tx: &mut Transaction<'_>| -> Decided<String> {
            let list = text(&tx.job(id(1))?.expect("it is there"));
            let longer = list.replace(']', &format!(" {number}]"));
            tx.apply(id(1), payload(&longer))??;
            let noted = tx.noted("test/").map(|(_, value)| value.to_vec()).unwrap_or_default();
            tx.note("test/note", Some([noted, number.to_string().into_bytes()].concat()));
            if number % 2 == 1 { Err(Stop::Refuse(No::Mine("odd"))) } else { Ok(longer) }
        };
        engine.transact_queued(own(), queued, vec![], decide).await
    })
}

#[tokio::test]
async fn those_that_wait_for_one_job_go_in_order_and_in_one_commit() {
    let (world, faults) = faulty_world().await;
    world.push(Push { payload: Payload::json("[]"), ..job("a") }).await;
    faults.fail_next_call(Call::Commit, 1, Kind::Hold);
    let mut waiting = vec![append(&world.engine, 0)];
    faults.until_held(1).await;
    for number in 1..8 {
        waiting.push(append(&world.engine, number));
        rest().await;
    }
    faults.release();
    for (number, answer) in waiting.into_iter().enumerate() {
        let answer = answer.await.unwrap();
        match number % 2 {
            0 => assert!(answer.unwrap().ends_with(&format!(" {number}]"))),
            _ => assert!(matches!(answer, Err(No::Mine("odd")))),
        }
    }
    let job = world.job(id(1)).await.unwrap();
    assert_eq!(text(&job), "[ 0 2 4 6]");
    assert_eq!(job.version, 3, "one commit for the first, one for all that waited for it");
    assert_eq!(world.engine.notes("test/").await.unwrap()[0].1, b"246", "as far as they were written");
}

#[tokio::test]
async fn a_caller_that_goes_away_is_served_and_serves_the_others() {
    let (world, faults) = faulty_world().await;
    world.push(Push { payload: Payload::json("[]"), ..job("a") }).await;
    faults.fail_next_call(Call::Commit, 1, Kind::Hold);
    let waiting: Vec<_> = [0, 2, 4].into_iter().map(|number| append(&world.engine, number)).collect();
    faults.until_held(1).await;
    rest().await;
    waiting[0].abort();
    waiting[1].abort();
    rest().await;
    faults.release();
    let last = waiting.into_iter().last().unwrap().await.unwrap();
    assert_eq!(last.unwrap(), "[ 0 2 4]");
}

#[tokio::test]
async fn trouble_of_the_store_is_everyones_answer_and_nothing_is_tried_twice() {
    let (world, faults) = faulty_world().await;
    world.push(Push { payload: Payload::json("[]"), ..job("a") }).await;
    faults.fail_next_call(Call::Commit, 1, Kind::Hold);
    faults.fail_next_call(Call::Commit, 1, Kind::AfterDoing);
    let first = append(&world.engine, 0);
    faults.until_held(1).await;
    let second = append(&world.engine, 2);
    let third = append(&world.engine, 4);
    rest().await;
    faults.release();
    first.await.unwrap().unwrap();
    for answer in [second, third] {
        let Err(No::Engine(error)) = answer.await.unwrap() else { panic!("nobody can know") };
        assert_eq!(error.code(), "outcome_unknown");
    }
    assert_eq!(text(&world.job(id(1)).await.unwrap()), "[ 0 2 4]");
}

#[tokio::test]
async fn a_closure_that_breaks_off_does_not_close_its_job_to_others() {
    let world = World::new().await;
    world.push(Push { payload: Payload::json("[]"), ..job("a") }).await;
    let engine = world.engine.clone();
    let broken = tokio::spawn(async move {
        let queued = Queued { job: id(1), is_large: false };
        let decide = |_: &mut Transaction<'_>| -> Decided<()> { panic!("it breaks off") };
        engine.transact_queued(own(), queued, vec![], decide).await
    });
    assert!(broken.await.is_err());
    assert_eq!(append(&world.engine, 2).await.unwrap().unwrap(), "[ 2]");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_lose_nothing_on_either_store() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let sqlite = windlass_store::open(&url, windlass_store::OpenOptions::default()).await.unwrap();
    for store in [Arc::new(MemoryStore::new()) as Arc<dyn Store>, sqlite] {
        let world = World::on(store).await;
        world.push_all((0..4).map(|_| Push { payload: Payload::json("0"), ..job("a") }).collect()).await;
        let runs = Arc::new(AtomicUsize::new(0));
        let mut under_way = Vec::new();
        for number in 0..200u64 {
            let (engine, runs) = (world.engine.clone(), runs.clone());
            under_way.push(tokio::spawn(async move {
                let (from, to) = (id(number % 4 + 1), id((number + 1) % 4 + 1));
                let decide = move |tx: &mut Transaction<'_>| -> Decided<()> {
                    runs.fetch_add(1, Ordering::Relaxed);
                    for (job, change) in [(from, -1), (to, 1)] {
                        let value: i64 = text(&tx.job(job)?.expect("it is there")).parse().unwrap();
                        tx.apply(job, payload(&(value + change).to_string()))??;
                    }
                    Ok(())
                };
                match number % 2 {
                    0 => engine.transact(own(), vec![from, to], decide).await,
                    _ => {
                        let queued = Queued { job: from, is_large: false };
                        engine.transact_queued(own(), queued, vec![to], decide).await
                    }
                }
            }));
        }
        let mut done = 0;
        for one in under_way {
            match one.await.unwrap() {
                Ok(()) => done += 1,
                Err(No::Engine(EngineError::Contended)) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(done > 0 && runs.load(Ordering::Relaxed) >= done);
        let mut sum = 0;
        let mut versions = 0;
        for number in 1..=4 {
            let job = world.job(id(number)).await.unwrap();
            sum += text(&job).parse::<i64>().unwrap();
            versions += job.version - 1;
        }
        assert_eq!(sum, 0, "each took one here and put one there");
        assert!(versions <= 2 * done as u64, "each job once per commit, or less often");
        world.engine.shutdown().await;
    }
}
