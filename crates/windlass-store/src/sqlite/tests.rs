use super::load::load_with;
use super::readers::read_only;
use super::*;
use crate::calendar::{CLOCK, Kept};
use crate::change::NewJob;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tempfile::TempDir;
use windlass_core::event::Finish;
use windlass_core::{
    Event, Extras, Holder, JobSpec, NameMatch, Outcome, Payload, Policy, Scope, StateName, apply,
};

const NOW_MS: i64 = 1_800_000_000_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(NOW_MS + ms)
}

fn job(name: &str, run_at: Timestamp, tags: &[&str]) -> NewJob {
    let tags: Vec<Arc<str>> = tags.iter().map(|tag| Arc::from(*tag)).collect();
    let spec = JobSpec {
        tenant: Tenant::default(),
        queue: Queue::default(),
        name: Name::new(name).unwrap(),
        payload: Payload::json(&"x".repeat(200)),
        priority: 0,
        created_at: at(0),
        policy: Arc::new(Policy::default()),
        extras: (!tags.is_empty()).then(|| Box::new(Extras { tags, ..Extras::default() })),
    };
    NewJob { spec: Arc::new(spec), run_at, body: None, held_by_parent: false }
}

fn open(database: &Path) -> Result<SqliteStore> {
    SqliteStore::open(database, OpenOptions { durability: Durability::Relaxed, ..OpenOptions::default() })
}

async fn push(store: &SqliteStore, jobs: Vec<NewJob>) {
    store.commit(vec![Step::insert(jobs)], at(0)).await.unwrap();
}

async fn names(store: &SqliteStore, mut filter: Filter) -> (Vec<String>, usize) {
    let (mut names, mut pages) = (Vec::new(), 0);
    loop {
        let page = store.list(filter.clone()).await.unwrap();
        names.extend(page.jobs.iter().map(|job| job.spec.name.as_str().to_owned()));
        pages += 1;
        match page.next {
            Some(next) => filter.before = Some(next),
            None => return (names, pages),
        }
    }
}

async fn claim(store: &SqliteStore, names: NameMatch, limit: usize) -> Vec<Arc<Job>> {
    let ask = ClaimAsk {
        tenant: Tenant::default(),
        queues: Vec::new(),
        names,
        scope: Scope::default(),
        priority: None,
        limit,
        worker: None,
        lease_ms: Some(60_000),
        seed: 1,
        gate: None,
    };
    store.claim(ask, at(0)).await.unwrap()
}

/// Finishes these jobs, which are kept.
async fn finish(store: &SqliteStore, jobs: Vec<Arc<Job>>) {
    let step = |job: Arc<Job>| {
        let by = Holder::Token(job.state().lease().unwrap().token);
        let finish = Finish { by, outcome: Outcome::default(), payload: None, ignore_repeat: false };
        let after = apply(&job, Event::Finish(finish), at(1)).unwrap().job;
        Step::change(job, after)
    };
    let verdicts = store.commit(jobs.into_iter().map(step).collect(), at(1)).await.unwrap();
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Done(_))));
}

/// Store of a hundred jobs that is closed.
async fn closed_store() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("windlass.db");
    let store = open(&database).unwrap();
    push(&store, (0..100).map(|_| job("a", at(0), &[])).collect()).await;
    store.close().await.unwrap();
    (folder, database)
}

/// Answers of an index to all kinds of queries.
fn picture(mut index: Index) -> String {
    let tenant = Tenant::default();
    let filter = |name: &str| Filter { names: NameMatch::Exact(name.into()), ..Filter::default() };
    let fitting = ["n0", "n1", "n2", "nobody"].map(|name| index.ids_fitting(&filter(name), 1_000, 500));
    let failed = Filter { states: vec![StateName::Completed, StateName::Running], ..Filter::default() };
    let first = format!(
        "{:?}\n{:?}\n{:?}\n{fitting:?}\n{:?}\n{:?}\n{}\n{:?}",
        index.counts(None, at(0)),
        index.overdue(at(i64::MAX >> 1), 1_000),
        index.next_deadline(at(0)),
        index.ids_fitting(&failed, 1_000, 500),
        (0..300).map(|n| index.find_alias(&tenant, &format!("a{n}"))).collect::<Vec<_>>(),
        index.payload_bytes(&tenant),
        index.waiting(&Queue::default(), at(0)),
    );
    let ask = ClaimAsk {
        tenant,
        queues: Vec::new(),
        names: NameMatch::Any,
        scope: Scope::default(),
        priority: None,
        limit: 1_000,
        worker: None,
        lease_ms: None,
        seed: 1,
        gate: None,
    };
    let news = index.take_news();
    format!("{first}\n{news:?}\n{:?}\n{:?}", index.pick(&ask, at(0)), index.pick(&ask, at(1_000_000)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_several_threads_read_is_the_same_as_that_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("windlass.db");
    let store = open(&database).unwrap();
    let various = |n: i64| {
        let mut new = job(&format!("n{}", n % 3), at((n * 7_919) % 100 - 90), &[]);
        let spec = Arc::make_mut(&mut new.spec);
        spec.priority = (n % 4) as i32;
        spec.queue = Queue::new(["default", "paused", "other"][(n % 5).min(2) as usize]).unwrap();
        let alias = (n % 2 == 0).then(|| format!("a{n}").into());
        spec.extras = alias.map(|alias| Box::new(Extras { alias: Some(alias), ..Extras::default() }));
        new
    };
    push(&store, (0..300).map(various).collect()).await;
    store.set_paused(&Tenant::default(), &Queue::new("paused").unwrap(), true).await.unwrap();
    finish(&store, claim(&store, NameMatch::Exact("n1".into()), 30).await).await;
    let gone = claim(&store, NameMatch::Exact("n0".into()), 20).await;
    store.commit(gone.into_iter().map(|job| Step::change(job, None)).collect(), at(1)).await.unwrap();
    claim(&store, NameMatch::Any, 10).await;
    let kept = Kept { ahead_ms: 0, seen_ms: at(0).as_millis(), steps: Vec::new() };
    store.put_setting(CLOCK, Some(kept.bytes())).await.unwrap();
    store.close().await.unwrap();
    let connection = read_only(&database).unwrap();
    let one = load_with(&connection, 1, 1).unwrap();
    let expected = picture(one.index);
    for (threads, ids_at_once) in [(2, 1), (3, 7), (4, 1_000)] {
        let several = load_with(&connection, threads, ids_at_once).unwrap();
        assert_eq!((several.rows, several.next_id), (one.rows, one.next_id));
        assert_eq!(picture(several.index), expected, "{threads} threads, {ids_at_once} ids at a time");
    }
    assert_eq!(one.rows.jobs, 280);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_given_connection_reads_if_no_other_can_be_opened() {
    let (folder, database) = closed_store().await;
    let connection = read_only(&database).unwrap();
    let expected = picture(load_with(&connection, 1, 1).unwrap().index);
    // The open connection keeps its file; another one does not find it.
    std::fs::rename(&database, folder.path().join("elsewhere.db")).unwrap();
    assert!(read_only(&database).is_err());
    let loaded = load_with(&connection, 3, 7).unwrap();
    assert_eq!(loaded.rows.jobs, 100);
    assert_eq!(picture(loaded.index), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_threads_refuse_rows_that_are_damaged_or_missing() {
    let (_folder, database) = closed_store().await;
    let connection = Connection::open(&database).unwrap();
    for (sql, why) in [
        ("UPDATE jobs SET priority = 7 WHERE id = 50", "checksum"),
        ("DELETE FROM jobs WHERE id = 50", "expected 100 jobs"),
    ] {
        connection.execute(sql, []).unwrap();
        let refused = load_with(&connection, 3, 7).err().unwrap().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_are_due_are_where_claims_look_for_them_as_soon_as_the_store_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("windlass.db");
    let store = open(&database).unwrap();
    push(&store, vec![job("a", at(0), &[]), job("b", at(-5), &[]), job("later", at(9_000), &[])]).await;
    let kept = Kept { ahead_ms: 0, seen_ms: at(0).as_millis(), steps: Vec::new() };
    store.put_setting(CLOCK, Some(kept.bytes())).await.unwrap();
    store.close().await.unwrap();
    let store = open(&database).unwrap();
    assert_eq!(store.shared.index().delayed_count(), 1, "the first claim would have to move them");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_among_many_is_found_by_its_name_without_looking_at_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("windlass.db")).unwrap();
    push(&store, vec![job("old", at(0), &["rare"])]).await;
    // More jobs than the index lists by id, so that listing all of them scans rows.
    for _ in 0..3 {
        push(&store, (0..10_000).map(|_| job("many", at(0), &[])).collect()).await;
    }
    let old = NameMatch::Exact("old".into());
    let by_name = Filter { names: old.clone(), limit: 10, ..Filter::default() };
    assert_eq!(names(&store, by_name.clone()).await, (vec!["old".to_owned()], 1));
    let nobody = Filter { names: NameMatch::Exact("nobody".into()), ..by_name.clone() };
    assert_eq!(names(&store, nobody).await, (Vec::new(), 1));
    let wrong_state = Filter { states: vec![StateName::Failed], ..by_name.clone() };
    assert_eq!(names(&store, wrong_state).await, (Vec::new(), 1));
    // Also if it and thousands of others are finished.
    finish(&store, claim(&store, NameMatch::Any, 5_000).await).await;
    assert!(store.shared.index().ids_fitting(&by_name, u64::MAX >> 1, 10).is_some(), "no scan is needed");
    assert_eq!(names(&store, by_name).await, (vec!["old".to_owned()], 1));
    let many = Filter { names: NameMatch::Exact("many".into()), limit: 10, ..Filter::default() };
    assert!(store.shared.index().ids_fitting(&many, u64::MAX >> 1, 10).is_none(), "they are too many");
    // By a scan, with a tag that only the decoded row contains.
    let by_tag = Filter { tag: Some("rare".into()), limit: 10, ..Filter::default() };
    assert_eq!(names(&store, by_tag).await.0, ["old"]);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_running_jobs_are_found_without_looking_at_the_finished_ones_of_many_names() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("windlass.db")).unwrap();
    push(&store, (0..500).map(|n| job(&format!("n{}", n % 100), at(0), &[])).collect()).await;
    finish(&store, claim(&store, NameMatch::Any, 500).await).await;
    push(&store, (0..10).map(|_| job("now", at(0), &[])).collect()).await;
    assert_eq!(claim(&store, NameMatch::Any, 10).await.len(), 10);
    let candidates = |filter: &Filter| store.shared.index().ids_fitting(filter, u64::MAX >> 1, 1_000);
    let in_queue = Filter { queue: Some(Queue::default()), limit: 100, ..Filter::default() };
    let running = Filter { states: vec![StateName::Running], ..in_queue.clone() };
    assert_eq!(candidates(&running).unwrap().len(), 10);
    assert_eq!(names(&store, running).await, (vec!["now".to_owned(); 10], 1));
    // The other way round: five jobs of a name among many that are finished.
    let finished = Filter { states: vec![StateName::Completed], ..in_queue.clone() };
    assert_eq!(candidates(&finished).unwrap().len(), 500);
    let one_name = Filter { names: NameMatch::Exact("n7".into()), ..finished };
    assert_eq!(candidates(&one_name).unwrap().len(), 5);
    assert_eq!(candidates(&in_queue).unwrap().len(), 510);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_does_not_walk_through_ids_that_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("windlass.db")).unwrap();
    push(&store, vec![job("old", at(0), &["t"])]).await;
    let old = store.load(vec![JobId::new(1).unwrap()]).await.unwrap().remove(0).unwrap();
    let far = JobId::new(i64::MAX as u64 / 2).unwrap();
    let mut new = Job::clone(&old);
    new.id = far;
    let new = Arc::new(new);
    store.restore(vec![new], JobId::new(far.get() + 1).unwrap(), KeyRule::Yield).await.unwrap();
    let by_tag = Filter { tag: Some("t".into()), limit: 10, ..Filter::default() };
    assert_eq!(names(&store, by_tag).await.0.len(), 2);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_store_is_small_and_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("windlass.db");
    let store = open(&database).unwrap();
    push(&store, (0..5_000).map(|_| job("gone", at(0), &[])).collect()).await;
    push(&store, vec![job("kept", at(0), &[])]).await;
    let ids: Vec<JobId> = (1..=5_000).filter_map(JobId::new).collect();
    let gone = store.load(ids).await.unwrap();
    let steps = gone.into_iter().flatten().map(|job| Step::change(job, None)).collect();
    store.commit(steps, at(1)).await.unwrap();
    let refused = compact(&database, &|_, _| {}).unwrap_err().to_string();
    assert!(refused.contains("another server"), "{refused}");
    store.close().await.unwrap();
    drop(store);
    // Remains of an earlier run that crashed.
    std::fs::write(files::beside(&database, ".compacting"), b"half of a file").unwrap();
    let sizes = compact(&database, &|done, all| assert!(done <= all)).unwrap();
    assert!(sizes.after_bytes * 5 < sizes.before_bytes, "{sizes:?}");
    assert!(!files::beside(&database, ".compacting").exists());
    let mode = std::fs::metadata(&database).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(check(&database, &|_, _| {}).unwrap().problems.is_empty());
    let store = open(&database).unwrap();
    assert_eq!(names(&store, Filter::default()).await.0, ["kept"]);
    push(&store, vec![job("new", at(0), &[])]).await;
    assert_eq!(store.next_id().await.unwrap().get(), 5_003, "ids are not given out twice");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_store_is_not_compacted() {
    let (_folder, database) = closed_store().await;
    let mut bytes = std::fs::read(&database).unwrap();
    // Flips a bit of each payload: some of the matches are remains of another page.
    let mut from = 0;
    while let Some(found) = bytes[from..].windows(50).position(|window| window == [b'x'; 50]) {
        bytes[from + found + 7] ^= 1;
        from += found + 50;
    }
    std::fs::write(&database, &bytes).unwrap();
    compact(&database, &|_, _| {}).unwrap_err();
    assert_eq!(std::fs::read(&database).unwrap(), bytes, "nothing was changed");
}
