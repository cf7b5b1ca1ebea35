//! Positions of the journal in the store: a line whose job is in the store is not put in again, also if the job is
//! finished and deleted by then.

use crate::stores::{Kind as StoreKind, Reopenable, repeat_on};
use std::path::Path;
use std::sync::Arc;
use windlass_core::job::{Format, Keep, KeepFor};
use windlass_core::{
    Event, Holder, Job, Name, NameMatch, Outcome, Payload, Policy, Queue, Tenant, Timestamp,
};
use windlass_dialects::ingest::Ingest;
use windlass_dialects::ingest::pushes::{self, PushReader};
use windlass_engine::journal::{Journal, Location, NewLine, Settings};
use windlass_engine::query::Filter;
use windlass_engine::{
    Claim, Clock, Engine, EngineError, JobEvent, ManualClock, Options, Push, Quota, RunAt, SeededRandom,
    SystemClock,
};
use windlass_store::Store;
use windlass_store::faulty::{Call, Faults, FaultyStore, Kind};

#[test]
fn all_of_this_holds_on_the_embedded_store() {
    repeat_on(StoreKind::Sqlite, "journal_positions::", "journal_positions::all_of_this_holds_on");
}

#[test]
fn all_of_this_holds_on_postgresql() {
    repeat_on(StoreKind::Postgres, "journal_positions::", "journal_positions::all_of_this_holds_on");
}

/// A server's engine, journal and ingest; the journal is on disk.
struct World {
    engine: Engine,
    faults: Faults,
    folder: tempfile::TempDir,
    journal: Journal,
    ingest: Ingest,
    _store: Reopenable,
}

impl World {
    async fn new() -> World {
        World::with(Arc::new(SystemClock), Options::default()).await
    }

    async fn with(clock: Arc<dyn Clock>, options: Options) -> World {
        let store = Reopenable::new().await;
        let (faulty, faults) = FaultyStore::new(Arc::clone(&store.store));
        let faulty: Arc<dyn Store> = faulty;
        let engine = Engine::start(faulty, clock, Arc::new(SeededRandom::new(1)), options).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let journal = open(folder.path());
        let ingest = Ingest::new(engine.clone(), journal.clone(), vec![Arc::new(PushReader)]);
        World { engine, faults, folder, journal, ingest, _store: store }
    }

    /// Writes a line for each payload.
    async fn write(&self, tenant: &str, payloads: &[&str]) {
        let tenant = Tenant::new(tenant).unwrap();
        let now = self.engine.now();
        let ids = self.journal.make_ids(payloads.len(), now);
        let line = |(id, payload): (&String, &&str)| pushes::encode_push(&tenant, &push(payload), id, now);
        let kept: Vec<Vec<u8>> = ids.iter().zip(payloads).map(line).collect();
        let line = |(id, payload)| NewLine { id, kind: pushes::KIND, payload };
        let lines: Vec<NewLine<'_>> =
            ids.iter().map(String::as_str).zip(kept.iter().map(Vec::as_slice)).map(line).collect();
        self.journal.wsync(self.journal.write(&lines).unwrap()).await.unwrap();
    }

    /// Payloads of the jobs that are in the store, in order.
    async fn payloads(&self) -> Vec<String> {
        let page = self.engine.list(Filter { limit: 1_000, ..Filter::default() }).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        page.jobs.iter().rev().map(|job| text(&job.spec.payload.bytes)).collect()
    }

    async fn claim_one(&self, tenant: &Tenant) -> Option<Arc<Job>> {
        let claim = Claim {
            tenant: tenant.clone(),
            queues: vec![],
            names: NameMatch::Any,
            priority: None,
            limit: 1,
            wait_ms: 0,
            lease_ms: Some(600_000),
            worker: None,
        };
        self.engine.claim(claim).await.unwrap().accept().pop()
    }

    /// Runs and finishes the jobs of these tenants, which deletes them. Returns their payloads, sorted.
    async fn run_all(&self, tenants: &[&str]) -> Vec<String> {
        let mut ran = Vec::new();
        for tenant in tenants {
            let tenant = Tenant::new(tenant).unwrap();
            while let Some(job) = self.claim_one(&tenant).await {
                ran.push(String::from_utf8_lossy(&job.spec.payload.bytes).into_owned());
                let token = job.state().lease().unwrap().token;
                let event = Event::finish(Holder::Token(token), Outcome::default());
                let settled =
                    self.engine.settle(&tenant, vec![JobEvent { id: job.id, event }]).await.unwrap();
                assert!(settled[0].is_ok());
            }
        }
        assert!(self.payloads().await.is_empty(), "a finished job is deleted at once");
        ran.sort_unstable();
        ran
    }

    /// The server starts anew, with these files of the journal removed.
    async fn restart_without(&mut self, files: &[&str]) {
        let memory = Journal::open(Settings::default()).unwrap();
        self.ingest = Ingest::new(self.engine.clone(), memory.clone(), vec![]);
        self.journal.close().await;
        self.journal = memory;
        for file in files {
            std::fs::remove_file(self.folder.path().join("journal").join(file)).unwrap();
        }
        self.journal = open(self.folder.path());
        self.ingest = Ingest::new(self.engine.clone(), self.journal.clone(), vec![Arc::new(PushReader)]);
    }

    /// Reserves quota for jobs.
    async fn admit(&self, tenant: &str, jobs: usize) -> Result<(), EngineError> {
        let pushes = vec![push("p"); jobs];
        let sizes = pushes.iter().map(|push| (&push.queue, &push.name, push.payload.bytes.len()));
        self.engine.admit_jobs(&Tenant::new(tenant).unwrap(), sizes).await
    }

    async fn positions(&self) -> usize {
        self.engine.notes("journal/").await.unwrap().len()
    }
}

/// A process that another test starts holds the lock on the folder, too, until its `exec`; the journal would then
/// take another folder.
fn open(folder: &Path) -> Journal {
    let home = folder.join("journal");
    let has_id = home.join("id").exists();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let home = Location::Folder(home.clone());
        let journal = Journal::open(Settings { home, ..Settings::default() }).unwrap();
        if !has_id || journal.id().is_some() {
            return journal;
        }
        assert!(std::time::Instant::now() < until, "the folder of the journal is in use");
        drop(journal);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A job that is deleted as soon as it is finished.
fn push(payload: &str) -> Push {
    let keep = Keep { completed: KeepFor::Drop, failed: KeepFor::Drop, cancelled: KeepFor::Drop };
    Push {
        queue: Queue::default(),
        name: Name::new("once").unwrap(),
        payload: Payload::new(Format::Text, payload.as_bytes().to_vec()),
        priority: 0,
        run_at: RunAt::Now,
        policy: Arc::new(Policy { keep, ..Policy::default() }),
        extras: None,
        body: None,
    }
}

#[tokio::test]
async fn a_job_that_is_finished_and_deleted_does_not_run_again_though_the_head_was_not_synced() {
    let mut world = World::new().await;
    world.write("acme", &["a1", "a2"]).await;
    world.write("other", &["o1"]).await;
    world.write("acme", &["a3"]).await;
    assert_eq!(world.ingest.step().await.unwrap(), 4);
    assert_eq!(world.run_all(&["acme", "other"]).await, ["a1", "a2", "a3", "o1"]);
    world.restart_without(&["head"]).await;
    world.write("acme", &["a4"]).await;
    world.write("new", &["n1"]).await;
    assert_eq!(world.ingest.step().await.unwrap(), 6, "the old lines are delivered again");
    assert_eq!(world.payloads().await, ["a4", "n1"]);
    assert_eq!(world.ingest.step().await.unwrap(), 0);
    assert_eq!(world.run_all(&["acme", "new"]).await, ["a4", "n1"]);
    // And a second time; the first file is gone by now.
    world.restart_without(&["head"]).await;
    assert_eq!(world.ingest.step().await.unwrap(), 2);
    assert!(world.payloads().await.is_empty());
}

#[tokio::test]
async fn a_line_whose_commit_was_in_doubt_is_looked_up_in_the_store_first() {
    let world = World::new().await;
    world.write("acme", &["a1", "a2"]).await;
    world.faults.fail_next_call(Call::Commit, 1, Kind::AfterDoing);
    assert!(world.ingest.step().await.is_err());
    assert_eq!(world.run_all(&["acme"]).await, ["a1", "a2"]);
    world.write("acme", &["a3"]).await;
    assert_eq!(world.ingest.step().await.unwrap(), 3);
    assert_eq!(world.payloads().await, ["a3"]);
}

#[tokio::test]
async fn a_line_whose_commit_was_in_doubt_gives_its_quota_free_once() {
    let world = World::with(Arc::new(SystemClock), Options { batch_max: 2, ..Options::default() }).await;
    let quota = Quota { jobs: 5, ..Quota::default() };
    world.engine.set_quota(&Tenant::new("acme").unwrap(), quota).await.unwrap();
    world.admit("acme", 4).await.unwrap();
    world.write("acme", &["a1", "a2", "a3", "a4"]).await;
    world.faults.fail_next_call(Call::Commit, 1, Kind::Delay(std::time::Duration::ZERO));
    world.faults.fail_next_call(Call::Commit, 1, Kind::AfterDoing);
    assert!(world.ingest.step().await.is_err());
    assert_eq!(world.faults.pending(), 0);
    assert_eq!(world.run_all(&["acme"]).await, ["a1", "a2", "a3", "a4"]);
    // A job whose line is not ingested yet.
    world.admit("acme", 1).await.unwrap();
    assert_eq!(world.ingest.step().await.unwrap(), 4);
    // The store is counted again after a while only.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(matches!(world.admit("acme", 5).await, Err(EngineError::Quota { .. })));
    world.admit("acme", 4).await.unwrap();
}

#[tokio::test]
async fn lines_behind_a_failed_commit_of_their_tenant_wait_for_it() {
    let mut world = World::with(Arc::new(SystemClock), Options { batch_max: 2, ..Options::default() }).await;
    world.write("acme", &["a1", "a2", "a3", "a4", "a5", "a6"]).await;
    world.faults.fail_next_call(Call::Commit, 1, Kind::Delay(std::time::Duration::ZERO));
    world.faults.fail_next_call(Call::Commit, 1, Kind::BeforeDoing);
    assert!(world.ingest.step().await.is_err());
    assert_eq!(world.faults.pending(), 0);
    assert_eq!(world.run_all(&["acme"]).await, ["a1", "a2"]);
    // A crash here: the position says how far the store has come.
    world.restart_without(&[]).await;
    assert_eq!(world.ingest.step().await.unwrap(), 6);
    assert_eq!(world.payloads().await, ["a3", "a4", "a5", "a6"]);
}

#[tokio::test]
async fn lines_of_a_step_that_was_dropped_are_put_in_before_later_ones() {
    let world = World::new().await;
    world.write("acme", &["a1"]).await;
    world.faults.fail_next_call(Call::Read, 1, Kind::Hold);
    tokio::select! {
        biased;
        _ = world.ingest.step() => panic!("its read of the positions is held"),
        () = world.faults.until_held(1) => {}
    }
    world.faults.clear();
    world.write("acme", &["a2"]).await;
    assert_eq!(world.ingest.step().await.unwrap(), 2);
    assert_eq!(world.payloads().await, ["a1", "a2"]);
}

#[tokio::test]
async fn a_journal_that_was_emptied_by_hand_loses_no_new_line() {
    let mut world = World::new().await;
    world.write("acme", &["a1", "a2", "a3"]).await;
    assert_eq!(world.ingest.step().await.unwrap(), 3);
    assert_eq!(world.positions().await, 1);
    world.run_all(&["acme"]).await;
    // The id stays, the places begin from the first again.
    world.restart_without(&["head", "00000001.log"]).await;
    world.write("acme", &["b1"]).await;
    assert_eq!(world.ingest.step().await.unwrap(), 1);
    assert_eq!(world.payloads().await, ["b1"]);
    world.run_all(&["acme"]).await;
    world.restart_without(&["head"]).await;
    assert_eq!(world.ingest.step().await.unwrap(), 1);
    assert!(world.payloads().await.is_empty());
}

#[tokio::test]
async fn positions_are_deleted_when_the_head_is_past_them() {
    let mut world = World::new().await;
    world.write("acme", &["a1"]).await;
    world.write("other", &["o1"]).await;
    assert_eq!(world.ingest.step().await.unwrap(), 2);
    assert_eq!(world.positions().await, 2);
    // After a crash: with the next lines.
    world.restart_without(&[]).await;
    world.write("new", &["n1"]).await;
    assert_eq!(world.ingest.step().await.unwrap(), 1);
    assert_eq!(world.positions().await, 1);
    // A clean stop.
    world.write("acme", &["a2"]).await;
    let (stop, stopping) = tokio::sync::watch::channel(true);
    world.ingest.run(stopping).await;
    drop(stop);
    assert_eq!(world.engine.notes("journal/").await.unwrap(), []);
    assert!(!world.journal.has_lines());
}

/// The reservation ends while the answer to the commit is on its way.
#[tokio::test]
async fn lines_that_were_late_after_their_commit_are_not_put_in_again() {
    if StoreKind::chosen() == StoreKind::Postgres {
        // Its clock is the database's.
        return;
    }
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000_000_000)));
    let world = World::with(clock.clone(), Options::default()).await;
    world.write("acme", &["a1", "a2"]).await;
    world.faults.fail_next_call(Call::Commit, 1, Kind::HoldAnswer);
    let late = async {
        world.faults.until_held(1).await;
        assert_eq!(world.run_all(&["acme"]).await, ["a1", "a2"]);
        clock.advance(61_000);
        world.faults.release();
    };
    let (ingested, ()) = tokio::join!(world.ingest.step(), late);
    assert_eq!(ingested.unwrap(), 2);
    assert!(world.journal.has_lines(), "the reservation was over");
    assert_eq!(world.ingest.step().await.unwrap(), 2, "they are delivered again");
    assert!(world.payloads().await.is_empty());
    assert!(!world.journal.has_lines());
}
