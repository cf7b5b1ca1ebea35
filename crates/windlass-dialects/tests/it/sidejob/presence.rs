//! Workers that hold a connection.

use super::{Run, START, World, fixture};
use crate::postgres_server::PostgresServer;
use crate::stores::{Chosen, Kind};
use crate::support::{Client, TestServer};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use windlass_core::Timestamp;
use windlass_dialects::ServerOptions;
use windlass_dialects::settings::DialectSettings;
use windlass_dialects::sidejob::Settings;
use windlass_engine::ManualClock;
use windlass_store::{Durability, OpenOptions, open};

const PATIENCE: Duration = Duration::from_secs(60);

async fn attend(server: &TestServer, worker: &str) -> Client<TcpStream> {
    let mut connection = server.connect().await;
    let body = json!({"worker": worker}).to_string();
    connection.send("POST", "/sidejob/presence", &[], body.as_bytes()).await;
    let head = String::from_utf8(connection.until(b"\r\n\r\n").await.unwrap()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(connection.until(b"}\n").await.is_some(), "it says how long the grace time is");
    connection
}

impl World {
    async fn with_grace(ms: i64) -> World {
        World::with(Settings { grace_ms: ms, ..Settings::default() }).await
    }

    async fn begun_by(&self, worker: &str, class: &str) -> Run {
        self.create(class).await;
        self.claimed_by(worker).await
    }

    async fn claimed_by(&self, worker: &str) -> Run {
        let all = self.post("/queues/q/claim", json!({"worker": worker})).await;
        Run { job: all["job"].as_u64().unwrap(), token: all["token"].as_str().unwrap().to_owned(), all }
    }

    /// Waits until a run of this job is pending.
    async fn comes_back(&self, job: u64) {
        let began = Instant::now();
        while self.status(job).await != "queued" {
            assert!(began.elapsed() < PATIENCE, "job {job} is {}", self.status(job).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
            self.server.engine.catch_up().await.unwrap();
        }
    }
}

#[tokio::test]
async fn runs_of_a_worker_whose_connection_ends_come_back_at_once() {
    let w = World::with_grace(50).await;
    let (here, there) = (attend(&w.server, "here").await, attend(&w.server, "there").await);
    let job = w.create("IO").await;
    w.write(&format!("{job}/inports/a"), json!(1)).await;
    let (lost, kept) = (w.claimed_by("here").await, w.begun_by("there", "W").await);
    let path = format!("/jobs/{}/for_inputs", lost.job);
    assert_eq!(w.post(&path, json!({"inports": ["a"], "token": lost.token})).await["values"], json!([1]));
    // Worker of another dialect with the same name.
    w.server.call("POST", "/api/v1/jobs", &json!({"name": "native"}).to_string()).await;
    let claim = json!({"name": "native", "worker": "here", "lease_ms": 60_000}).to_string();
    let native = w.server.call("POST", "/api/v1/claim", &claim).await.json()["jobs"][0]["id"].clone();
    drop(here);
    // The manual clock does not advance, so no lease expires by itself.
    w.comes_back(lost.job).await;
    let native = w.server.call("GET", &format!("/api/v1/jobs/{native}"), "").await.json();
    assert_eq!(native["state"], "running", "{native}");
    assert_eq!(w.status(kept.job).await, "running");
    let (status, _) =
        w.refused("POST", &format!("/jobs/{}/finish", lost.job), json!({"token": lost.token})).await;
    assert_eq!(status, 409, "what comes too late is refused");
    assert_eq!(
        w.port(&format!("{}/inports/a", lost.job)).await["size"],
        json!(1),
        "what it had in hand is back"
    );
    assert_eq!(w.claimed().await.job, lost.job);
    w.finish(&kept, "completed").await;
    drop(there);
}

#[tokio::test]
async fn a_worker_that_opens_another_connection_in_time_keeps_its_runs() {
    let w = World::with_grace(5_000).await;
    let (first, marker) = (attend(&w.server, "w").await, attend(&w.server, "marker").await);
    let (kept, marked) = (w.begun_by("w", "W").await, w.begun_by("marker", "W").await);
    drop(first);
    let second = attend(&w.server, "w").await;
    drop(marker);
    // Handled after the workers that disconnected before it.
    w.comes_back(marked.job).await;
    assert_eq!(w.status(kept.job).await, "running");
    w.finish(&kept, "completed").await;
    drop(second);
}

#[tokio::test]
async fn a_worker_is_there_while_one_of_its_connections_is() {
    let w = World::with_grace(50).await;
    let (one, two, marker) =
        (attend(&w.server, "w").await, attend(&w.server, "w").await, attend(&w.server, "marker").await);
    let (kept, marked) = (w.begun_by("w", "W").await, w.begun_by("marker", "W").await);
    drop(two);
    drop(marker);
    w.comes_back(marked.job).await;
    assert_eq!(w.status(kept.job).await, "running");
    drop(one);
    w.comes_back(kept.job).await;
}

#[tokio::test]
async fn a_server_that_stops_takes_nothing_from_its_workers() {
    let Chosen { store, folder } = Chosen::new().await;
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START)));
    let options = || ServerOptions {
        settings: DialectSettings::of(Settings { grace_ms: 0, ..Settings::default() }),
        ..ServerOptions::default()
    };
    let server = TestServer::start_on(Arc::clone(&store), options(), clock.clone()).await;
    let mut first = World { server, clock: clock.clone() };
    first.register("q", fixture()).await;
    let _attending = attend(&first.server, "w").await;
    let run = first.begun_by("w", "W").await;
    first.server.stop();
    (&mut first.server.serving).await.unwrap().unwrap();
    let second = World { server: TestServer::start_on(store, options(), clock.clone()).await, clock };
    assert_eq!(second.status(run.job).await, "running");
    assert_eq!(second.finish(&run, "completed").await["status"], json!("completed"));
    drop(folder);
}

/// On PostgreSQL only, where two servers can share a store.
#[tokio::test]
async fn a_worker_may_come_back_at_another_server() {
    if Kind::chosen() != Kind::Postgres {
        return;
    }
    let url = PostgresServer::shared().new_schema_url();
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START)));
    let world = async || {
        let durable = OpenOptions { durability: Durability::Relaxed, ..OpenOptions::default() };
        let store = open(&url, durable).await.unwrap();
        let sidejob = Settings { grace_ms: 5_000, ..Settings::default() };
        let options = ServerOptions { settings: DialectSettings::of(sidejob), ..ServerOptions::default() };
        World { server: TestServer::start_on(store, options, clock.clone()).await, clock: clock.clone() }
    };
    let (a, b) = (world().await, world().await);
    // Both random generators start with the same seed, unlike those of real servers.
    let _ = b.server.engine.random_u64();
    a.register("q", fixture()).await;
    let (first, marker) = (attend(&a.server, "w").await, attend(&a.server, "marker").await);
    let (kept, marked) = (a.begun_by("w", "W").await, a.begun_by("marker", "W").await);
    drop(first);
    let second = attend(&b.server, "w").await;
    drop(marker);
    a.comes_back(marked.job).await;
    assert_eq!(a.status(kept.job).await, "running");
    drop(second);
    b.comes_back(kept.job).await;
}

#[tokio::test]
async fn a_worker_has_a_name() {
    let w = World::new().await;
    for (body, message) in [
        (json!({}), "Missing worker"),
        (json!({"worker": ""}), "worker must be a string of 1 to 255 bytes"),
        (json!({"worker": "x".repeat(256)}), "worker must be a string of 1 to 255 bytes"),
        (json!({"worker": 5}), "worker must be a string"),
    ] {
        assert_eq!(w.refused("POST", "/presence", body).await, (422, message.to_owned()));
    }
}
