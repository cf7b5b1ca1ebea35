//! Journal in front of the store: acknowledged pushes are kept while the store is out of reach.

use crate::miniq::world::Setup;
use crate::support::TestServer;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use windlass_dialects::ServerOptions;
use windlass_dialects::ingest::Ingest;
use windlass_dialects::ingest::pushes::PushReader;
use windlass_dialects::miniq::{self, commands};
use windlass_dialects::native;
use windlass_dialects::settings::DialectSettings;
use windlass_engine::journal::{Journal, NewLine, Settings};
use windlass_engine::query::Filter;
use windlass_engine::{Engine, Options, SeededRandom, SystemClock};
use windlass_store::Store;
use windlass_store::faulty::{Call, FaultyStore, Kind};
use windlass_store::memory::MemoryStore;

#[tokio::test]
async fn adding_works_while_the_store_is_away_and_the_jobs_reach_it_when_it_is_back() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    let world = Setup { store: Some(store), ..Setup::default() }.start().await;
    world.handler("acme", "t", "{}").await;
    faults.fail_next_call(Call::Commit, 1_000_000, Kind::BeforeDoing);
    let ids = world.add("acme", "t", "a\nb\n").await;
    assert_eq!(ids.len(), 2);
    assert!(world.fake.payloads().is_empty());
    faults.clear();
    let mut started = world.until_started(2).await;
    started.sort_unstable();
    assert_eq!(started, ["a", "b"]);
    world.until_code("acme", "t", &ids[1], "ok").await;
}

async fn engine(store: Arc<dyn Store>) -> Engine {
    Engine::start(store, Arc::new(SystemClock), Arc::new(SeededRandom::new(1)), Options::default())
        .await
        .unwrap()
}

fn ingest(engine: &Engine, journal: &Journal) -> Ingest {
    let policy = Arc::new(commands::policy(&miniq::Settings::default()));
    let readers: Vec<Arc<dyn windlass_dialects::ingest::Reader>> =
        vec![Arc::new(commands::Lines { policy }), Arc::new(PushReader)];
    Ingest::new(engine.clone(), journal.clone(), readers)
}

async fn write(journal: &Journal, lines: &[(&str, &str, &str)]) {
    let lines: Vec<NewLine<'_>> =
        lines.iter().map(|(id, kind, payload)| NewLine { id, kind, payload: payload.as_bytes() }).collect();
    journal.wsync(journal.write(&lines).unwrap()).await.unwrap();
}

async fn payloads(engine: &Engine) -> Vec<String> {
    let page = engine.list(Filter { limit: 1_000, ..Filter::default() }).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    page.jobs.iter().rev().map(|job| text(&job.spec.payload.bytes)).collect()
}

#[tokio::test]
async fn a_line_whose_commit_was_in_doubt_is_put_in_again_and_makes_one_job() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    let engine = engine(store).await;
    let journal = Journal::open(Settings::default()).unwrap();
    let ingest = ingest(&engine, &journal);
    write(&journal, &[("1234567-vm-0000-000", "acme-t", "one"), ("1234567-vm-0000-001", "acme-t", "two")])
        .await;
    faults.fail_next_call(Call::Commit, 1, Kind::AfterDoing);
    assert!(ingest.step().await.is_err());
    assert_eq!(ingest.step().await.unwrap(), 2, "they come again");
    assert_eq!(ingest.step().await.unwrap(), 0);
    assert_eq!(payloads(&engine).await, ["one", "two"]);
}

#[tokio::test]
async fn lines_nobody_understands_are_left_out_and_the_rest_is_taken_in() {
    let engine = engine(Arc::new(MemoryStore::new())).await;
    let journal = Journal::open(Settings::default()).unwrap();
    let ingest = ingest(&engine, &journal);
    write(
        &journal,
        &[
            ("i1", "acme-t", "by hand"),
            ("i2", "nodash", "no client"),
            ("i3", "api-t", "no client either"),
            ("i4", "acme-t,base64", "bm90IGluIGJhc2U2NA=="),
            ("i5", "acme-t,base64", "!"),
            ("i6", "windlass.push", "{}"),
            ("i1", "acme-t", "the same id"),
        ],
    )
    .await;
    assert_eq!(ingest.step().await.unwrap(), 7);
    assert_eq!(payloads(&engine).await, ["by hand", "not in base64"]);
}

#[tokio::test]
async fn a_batch_larger_than_the_engine_takes_is_put_in_piece_by_piece() {
    let bounds = Options { batch_max: 7, payload_bytes_max: 100, ..Options::default() };
    let store = Arc::new(MemoryStore::new());
    let engine =
        Engine::start(store, Arc::new(SystemClock), Arc::new(SeededRandom::new(1)), bounds).await.unwrap();
    let journal = Journal::open(Settings::default()).unwrap();
    let long = "x".repeat(101);
    let texts: Vec<(String, String)> = (0..50).map(|n| (format!("i{n}"), format!("{n}"))).collect();
    let mut lines: Vec<(&str, &str, &str)> =
        texts.iter().map(|(id, payload)| (id.as_str(), "acme-t", payload.as_str())).collect();
    lines.insert(20, ("long", "acme-t", &long));
    write(&journal, &lines).await;
    assert_eq!(ingest(&engine, &journal).step().await.unwrap(), 51);
    let expected: Vec<&str> = texts.iter().map(|(_, payload)| payload.as_str()).collect();
    assert_eq!(payloads(&engine).await, expected, "in order, without the one that is too long");
}

#[tokio::test]
async fn a_native_push_can_be_kept_in_the_journal_and_looked_up_by_its_alias() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    let options = ServerOptions {
        settings: DialectSettings::of(native::Settings { journals_pushes: true, ..Default::default() }),
        ..ServerOptions::default()
    };
    let server = TestServer::start_on(store, options, Arc::new(SystemClock)).await;
    faults.fail_next_call(Call::Commit, 1_000_000, Kind::BeforeDoing);
    let push =
        json!({"jobs": [{"name": "a", "payload": {"n": 1}}, {"name": "b", "alias": "mine", "priority": -2}]});
    let reply = server.post("/api/v1/jobs", &push.to_string()).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    let aliases = reply.json()["aliases"].clone();
    assert_eq!(aliases[1], "mine");
    faults.clear();
    for (alias, name) in [(aliases[0].as_str().unwrap(), "a"), ("mine", "b")] {
        let path = format!("/api/v1/aliases/{alias}");
        let mut job = server.get(&path).await;
        for _ in 0..3_000 {
            if job.status == 200 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            job = server.get(&path).await;
        }
        assert_eq!(job.json()["name"], name);
    }
    // Pushes that need an answer of the store bypass the journal.
    let unique = json!({"name": "c", "unique": {"key": "k"}});
    assert_eq!(server.post("/api/v1/jobs", &unique.to_string()).await.status, 201);
    let long = json!({"name": "c", "payload": "x".repeat(17 << 20)});
    assert_eq!(server.post("/api/v1/jobs", &long.to_string()).await.status, 413);
}

#[tokio::test]
async fn what_is_in_the_journal_when_the_server_stops_is_in_the_store() {
    let store = Arc::new(MemoryStore::new());
    let world = Setup { store: Some(store.clone()), rooms: 0, ..Setup::default() }.start().await;
    world.handler("acme", "t", "{}").await;
    world.add("acme", "t", &"x\n".repeat(2_000)).await;
    let mut server = world.server;
    server.stop();
    server.serving.await.unwrap().unwrap();
    let waiting = server.engine.waiting(&commands::queue()).await.unwrap();
    assert_eq!(waiting.iter().map(|one| one.ready).sum::<u64>(), 2_000);
}
