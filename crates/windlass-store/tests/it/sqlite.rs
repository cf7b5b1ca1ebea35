//! Embedded store: conformance, restarts, and damaged files.

use crate::seed;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;
use windlass_core::{JobSpec, Name, Payload, Policy, Queue, Tenant, Timestamp};
use windlass_store::conformance::random::Dump;
use windlass_store::conformance::{exercise, exercise_copies, restart_equivalence};
use windlass_store::sqlite::{self, SqliteStore};
use windlass_store::{Durability, NewJob, OpenOptions, Step, Store, StoreError, Verdict};

const NOW: i64 = 1_800_000_000_000;

fn open(database: &Path) -> Result<Arc<dyn Store>, StoreError> {
    // Tests of the rules do not wait for the disk; tests of the disk open with full durability.
    SqliteStore::open(database, OpenOptions { durability: Durability::Relaxed, ..OpenOptions::default() })
        .map(|store| Arc::new(store) as _)
}

/// Folder for any number of stores.
struct Stores {
    folder: TempDir,
    made: AtomicU32,
}

impl Stores {
    fn new() -> Stores {
        Stores { folder: TempDir::new().unwrap(), made: AtomicU32::new(0) }
    }

    async fn make(&self) -> Arc<dyn Store> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        open(&self.folder.path().join(format!("{number}/windlass.db"))).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_store_conforms() {
    let stores = Stores::new();
    Box::pin(exercise(|| stores.make(), seed())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_store_can_be_copied() {
    let stores = Stores::new();
    Box::pin(exercise_copies(|| stores.make(), seed())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("windlass.db");
    Box::pin(restart_equivalence(|| async { open(&database).unwrap() }, seed())).await;
}

fn new_job(number: usize) -> NewJob {
    let payload = if number.is_multiple_of(10) { "x".repeat(3_000) } else { format!("payload {number}") };
    let spec = JobSpec {
        tenant: Tenant::default(),
        queue: Queue::default(),
        name: Name::new("damage").unwrap(),
        payload: Payload::json(&format!("{payload:?}")),
        priority: 0,
        created_at: Timestamp::from_millis(NOW),
        policy: Arc::new(Policy::default()),
        extras: None,
    };
    NewJob { spec: Arc::new(spec), run_at: Timestamp::from_millis(NOW), body: None, held_by_parent: false }
}

async fn dump(store: &dyn Store) -> Dump {
    Dump::of(store, Timestamp::from_millis(NOW)).await
}

/// Closed database with some jobs and settings, and a dump of it.
async fn filled(folder: &Path) -> (PathBuf, Dump) {
    let database = folder.join("windlass.db");
    let store = open(&database).unwrap();
    let now = Timestamp::from_millis(NOW);
    store.commit(vec![Step::insert((0..200).map(new_job).collect())], now).await.unwrap();
    store.put_setting("limit/default/mail", Some(b"some words".to_vec())).await.unwrap();
    store.set_paused(&Tenant::default(), &Queue::new("held").unwrap(), true).await.unwrap();
    let before = dump(&*store).await;
    store.close().await.unwrap();
    (database, before)
}

/// Copies the files at `database` into another folder.
fn copy_to(folder: &TempDir, database: &Path) -> PathBuf {
    let from = database.parent().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder.path().join(database.file_name().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_is_refused_or_harmless_and_never_changes_a_job() {
    let folder = TempDir::new().unwrap();
    let (database, before) = filled(folder.path()).await;
    let bytes = std::fs::read(&database).unwrap();
    let flips = std::env::var("WINDLASS_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(120);
    let mut state = seed() | 1;
    let mut refused = 0;
    for _ in 0..flips {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (offset, bit) = ((state >> 16) as usize % bytes.len(), (state >> 60) % 8);
        let copy = TempDir::new().unwrap();
        let damaged = copy_to(&copy, &database);
        let mut flipped = bytes.clone();
        flipped[offset] ^= 1 << bit;
        std::fs::write(&damaged, &flipped).unwrap();
        match open(&damaged) {
            Err(_) => refused += 1,
            Ok(store) => {
                let after = dump(&*store).await;
                before.expect_same(&after, &format!("bit {bit} of byte {offset} flipped"));
                store.close().await.unwrap();
            }
        }
    }
    assert!(refused > flips / 4, "only {refused} of {flips} flipped bits were noticed");
}

/// The header of a page contains the number of its rows: a flipped bit hides some of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_in_the_head_of_a_page_hides_no_job() {
    let folder = TempDir::new().unwrap();
    let (database, before) = filled(folder.path()).await;
    let bytes = std::fs::read(&database).unwrap();
    for (page, bit) in (0..bytes.len() / 4_096).flat_map(|page| (0..8).map(move |bit| (page, bit))) {
        let copy = TempDir::new().unwrap();
        let damaged = copy_to(&copy, &database);
        let mut flipped = bytes.clone();
        // The first page begins with the file header.
        let offset = if page == 0 { 104 } else { page * 4_096 + 4 };
        flipped[offset] ^= 1 << bit;
        std::fs::write(&damaged, &flipped).unwrap();
        if let Ok(store) = open(&damaged) {
            let after = dump(&*store).await;
            before.expect_same(&after, &format!("bit {bit} of byte {offset} flipped"));
            store.close().await.unwrap();
        }
    }
}

/// The offsets of the rows follow the page header: after a flipped bit a row appears twice, in place of
/// another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_in_the_list_of_a_pages_rows_hides_no_job() {
    let folder = TempDir::new().unwrap();
    let (database, before) = filled(folder.path()).await;
    let bytes = std::fs::read(&database).unwrap();
    let mut refused = 0;
    for (page, bit) in (1..bytes.len() / 4_096).flat_map(|page| (0..16).map(move |bit| (page, bit))) {
        let copy = TempDir::new().unwrap();
        let damaged = copy_to(&copy, &database);
        let mut flipped = bytes.clone();
        // Offset of the third row of the page.
        let offset = page * 4_096 + 12 + bit / 8;
        flipped[offset] ^= 1 << (bit % 8);
        std::fs::write(&damaged, &flipped).unwrap();
        match open(&damaged) {
            Err(_) => refused += 1,
            Ok(store) => {
                let after = dump(&*store).await;
                before.expect_same(&after, &format!("bit {bit} of byte {offset} flipped"));
                store.close().await.unwrap();
            }
        }
    }
    assert!(refused > 0, "not one was noticed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_were_cut_emptied_or_removed_are_refused() {
    let folder = TempDir::new().unwrap();
    let (database, _) = filled(folder.path()).await;
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 4] = [
        ("cut in half", |file| {
            let length = std::fs::metadata(file).unwrap().len();
            std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(length / 2).unwrap();
        }),
        ("emptied", |file| std::fs::write(file, b"").unwrap()),
        ("zeroed", |file| {
            let length = std::fs::metadata(file).unwrap().len();
            std::fs::write(file, vec![0; length as usize]).unwrap();
        }),
        ("removed", |file| std::fs::remove_file(file).unwrap()),
    ];
    for (what, harm) in harms {
        let copy = TempDir::new().unwrap();
        let damaged = copy_to(&copy, &database);
        harm(&damaged);
        mark_as_fully_durable(&copy.path().join("windlass.db.commits"));
        let error =
            open(&damaged).err().unwrap_or_else(|| panic!("{what}: opened as if nothing had happened"));
        assert!(matches!(error, StoreError::Corrupt(_) | StoreError::Open(_)), "{what}: {error}");
    }
}

/// State left by a killed server: the write-ahead log is not checkpointed yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_log_is_noticed() {
    let folder = TempDir::new().unwrap();
    let (database, _) = filled(folder.path()).await;
    let store = open(&database).unwrap();
    store.commit(vec![Step::insert(vec![new_job(1)])], Timestamp::from_millis(NOW)).await.unwrap();
    for (what, lose) in [("removed", true), ("cut", false)] {
        let copy = TempDir::new().unwrap();
        let damaged = copy_to(&copy, &database);
        let log = copy.path().join("windlass.db-wal");
        assert!(std::fs::metadata(&log).unwrap().len() > 0);
        if lose {
            std::fs::remove_file(&log).unwrap();
        } else {
            std::fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(100).unwrap();
        }
        // A relaxed store may lose its last commits in a power failure; a fully durable store may not.
        mark_as_fully_durable(&copy.path().join("windlass.db.commits"));
        let error = open(&damaged).err().unwrap_or_else(|| panic!("{what}: not noticed"));
        assert!(error.to_string().contains("acknowledged commits are missing"), "{what}: {error}");
    }
    store.close().await.unwrap();
}

/// The files may be the only copy: a repair needs every byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_is_refused_leaves_every_file_as_it_was() {
    let folder = TempDir::new().unwrap();
    let (database, _) = filled(folder.path()).await;
    let store = open(&database).unwrap();
    for number in 0..5 {
        let step = Step::insert(vec![new_job(number)]);
        store.commit(vec![step], Timestamp::from_millis(NOW)).await.unwrap();
    }
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 3] = [
        ("a bit of the log flipped", |database| {
            let log = PathBuf::from(format!("{}-wal", database.display()));
            let mut bytes = std::fs::read(&log).unwrap();
            bytes[10_000] ^= 1;
            std::fs::write(&log, bytes).unwrap();
        }),
        ("the database emptied", |database| std::fs::write(database, b"").unwrap()),
        ("the database removed", |database| std::fs::remove_file(database).unwrap()),
    ];
    for (what, harm) in harms {
        let copy = TempDir::new().unwrap();
        let damaged = copy_to(&copy, &database);
        harm(&damaged);
        mark_as_fully_durable(&copy.path().join("windlass.db.commits"));
        let files =
            || ["", "-wal", ".commits"].map(|end| std::fs::read(format!("{}{end}", damaged.display())).ok());
        let before = files();
        let error = open(&damaged).err().unwrap_or_else(|| panic!("{what}: not noticed"));
        assert!(matches!(error, StoreError::Corrupt(_)), "{what}: {error}");
        assert!(before == files(), "{what}: the refused start changed the files");
    }
    store.close().await.unwrap();
}

fn mark_as_fully_durable(counter: &Path) {
    let mut bytes = std::fs::read(counter).unwrap();
    for slot in bytes.chunks_mut(16).filter(|slot| slot.len() == 16) {
        slot[8..12].fill(0);
        let crc = crc32fast::hash(&slot[..12]);
        slot[12..].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(counter, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_someone_else_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("windlass.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)").unwrap();
    drop(other);
    let error = open(&path).err().expect("not ours").to_string();
    assert!(error.contains("another program"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_whole_and_can_be_opened() {
    let folder = TempDir::new().unwrap();
    let (database, _) = filled(folder.path()).await;
    let store = open(&database).unwrap();
    let writing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for number in 0..200 {
                let step = Step::insert((0..20).map(|part| new_job(number * 20 + part)).collect());
                store.commit(vec![step], Timestamp::from_millis(NOW)).await.unwrap();
            }
        })
    };
    let copy = folder.path().join("copy.db");
    let (from, to) = (database.clone(), copy.clone());
    let copying = move || sqlite::backup_file(&from, &to, &|_, _| {});
    tokio::task::spawn_blocking(copying).await.unwrap().unwrap();
    writing.await.unwrap();
    store.close().await.unwrap();
    let report = sqlite::check(&copy, &|_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert!(report.jobs >= 200 && report.jobs <= 4_200);
    let restored = open(&copy).unwrap();
    assert_eq!(dump(&*restored).await.jobs.len() as u64, report.jobs);
    restored.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_names_what_is_wrong() {
    let folder = TempDir::new().unwrap();
    let (database, _) = filled(folder.path()).await;
    assert!(sqlite::check(&database, &|_, _| {}).unwrap().problems.is_empty());
    let harm = rusqlite::Connection::open(&database).unwrap();
    harm.execute("UPDATE jobs SET payload = x'00' WHERE id = 7", []).unwrap();
    drop(harm);
    let report = sqlite::check(&database, &|_, _| {}).unwrap();
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    assert!(report.problems[0].contains("job 7"), "{:?}", report.problems);
    assert!(open(&database).is_err());
}

/// This program reads every released format.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_databases_are_read() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures");
    let folder = TempDir::new().unwrap();
    // `WINDLASS_NEW_FIXTURE=format-2 cargo test old_databases` makes the files for a new format.
    if let Ok(format) = std::env::var("WINDLASS_NEW_FIXTURE") {
        let database = folder.path().join("new.db");
        Box::pin(windlass_store::conformance::random::compare(open(&database).unwrap(), 1, 400)).await;
        std::fs::copy(&database, fixtures.join(format!("{format}.db"))).unwrap();
        let text = picture(&*open(&database).unwrap()).await;
        std::fs::write(fixtures.join(format!("{format}.txt")), text).unwrap();
    }
    for format in ["format-1", "format-2"] {
        let database = folder.path().join(format).join("windlass.db");
        std::fs::create_dir(database.parent().unwrap()).unwrap();
        std::fs::copy(fixtures.join(format!("{format}.db")), &database).unwrap();
        let store = open(&database).unwrap();
        let expected = std::fs::read_to_string(fixtures.join(format!("{format}.txt"))).unwrap();
        assert_eq!(picture(&*store).await, expected, "{format}");
        store.close().await.unwrap();
    }
}

/// Prints one line per job.
async fn picture(store: &dyn Store) -> String {
    let found = dump(store).await;
    let lines: Vec<String> = found
        .jobs
        .iter()
        .map(|job| {
            let spec = &job.spec;
            let bytes = &spec.payload.bytes;
            format!(
                "{} v{} {} {}/{} priority {} attempts {} payload {} bytes {:08x}",
                job.id,
                job.version,
                job.state().name(),
                spec.queue,
                spec.name,
                spec.priority,
                job.progress.attempts,
                bytes.len(),
                crc32fast::hash(bytes)
            )
        })
        .collect();
    lines.join("\n") + "\n"
}

/// Commits. Returns true if the commit completed at the first poll.
async fn commit_of(store: &dyn Store, jobs: usize) -> bool {
    let step = Step::insert((0..jobs).map(new_job).collect());
    let mut commit = std::pin::pin!(store.commit(vec![step], Timestamp::from_millis(NOW)));
    let first = std::future::poll_fn(|cx| std::task::Poll::Ready(commit.as_mut().poll(cx))).await;
    let (at_once, verdicts) = match first {
        std::task::Poll::Ready(verdicts) => (true, verdicts),
        std::task::Poll::Pending => (false, commit.await),
    };
    assert!(matches!(&verdicts.unwrap()[..], [Verdict::Done(made)] if made.len() == jobs));
    at_once
}

#[tokio::test]
async fn whoever_writes_alone_needs_no_other_thread() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("windlass.db");
    let store = open(&database).unwrap();
    // On a slow machine some commits go to the writer thread, but not all.
    let mut tries = 0;
    while !commit_of(&*store, 1).await {
        tries += 1;
        assert!(tries < 10_000, "every commit went to the thread");
    }
    let jobs = dump(&*store).await;
    store.close().await.unwrap();
    assert!(matches!(store.next_id().await, Err(StoreError::Closed)));
    jobs.expect_same(&dump(&*open(&database).unwrap()).await, "closed after a commit of the caller's own");
}

/// Callers that write themselves, the writer thread, and checkpoints of the write-ahead log in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_and_the_thread_take_turns_and_nothing_is_lost() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("windlass.db");
    let store = open(&database).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..4 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            for round in 0..400 {
                // Large commits are in different rounds for each task, so that they compete with small ones.
                let jobs = if round % 50 == task * 10 { 100 } else { 1 };
                commit_of(&*store, jobs).await;
                if task > 0 && round % 100 == 99 {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let before = dump(&*store).await;
    let counts = store.counts(None, Timestamp::from_millis(NOW)).await.unwrap();
    let total: u64 = counts.iter().flat_map(|queue| queue.by_state).sum();
    assert_eq!(total, 4 * (400 + 8 * 99));
    store.close().await.unwrap();
    before.expect_same(&dump(&*open(&database).unwrap()).await, "after a restart");
}
