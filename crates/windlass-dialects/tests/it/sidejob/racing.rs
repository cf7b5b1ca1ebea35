//! Concurrent calls.

use super::World;
use crate::support::{Client, TestServer};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::TcpStream;
use windlass_dialects::ServerOptions;
use windlass_dialects::settings::DialectSettings;
use windlass_dialects::sidejob::Settings;
use windlass_engine::SystemClock;

const WRITERS: u64 = 8;
const WRITES: u64 = 10_000;
const JOBS: u64 = 4;

async fn call(connection: &mut Client<TcpStream>, path: &str, body: &Value) -> Value {
    let headers = [("content-type", "application/json")];
    let path = format!("/sidejob{path}");
    let reply = connection.call("POST", &path, &headers, body.to_string().as_bytes()).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply.json()
}

/// Server with the fixture, without a limit on runs and with a long lease.
async fn unlimited() -> TestServer {
    let sidejob = Settings { runs_per_minute: u32::MAX, lease_ms: 3_600_000, ..Settings::default() };
    let options = ServerOptions { settings: DialectSettings::of(sidejob), ..ServerOptions::default() };
    let server = TestServer::start_at(options, Arc::new(SystemClock)).await;
    let reply = server.call("PUT", "/sidejob/workers/q", &super::fixture().to_string()).await;
    assert_eq!(reply.status, 200);
    server
}

/// Reads the pending values, then completes the run at once, so that a write may fall between.
async fn work(server: &TestServer, read: &AtomicU64) {
    let mut connection = server.connect().await;
    while read.load(Ordering::SeqCst) < WRITES {
        let run = call(&mut connection, "/queues/q/claim", &json!({"wait": 0.2})).await;
        let Some(job) = run["job"].as_u64() else { continue };
        let entries = call(&mut connection, &format!("/jobs/{job}/inports/a/entries"), &json!({})).await;
        read.fetch_add(entries["entries"].as_array().unwrap().len() as u64, Ordering::SeqCst);
        call(&mut connection, &format!("/jobs/{job}/finish"), &json!({"token": run["token"]})).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_is_left_unread_however_it_falls_together_with_the_end_of_a_run() {
    let server = Arc::new(unlimited().await);
    for _ in 0..JOBS {
        assert_eq!(server.post("/sidejob/jobs", r#"{"queue":"q","class":"IO"}"#).await.status, 200);
    }
    let read = Arc::new(AtomicU64::new(0));
    let writers = (0..WRITERS).map(|writer| {
        let server = server.clone();
        tokio::spawn(async move {
            let mut connection = server.connect().await;
            for number in 0..WRITES / WRITERS {
                let job = 1 + (writer + number) % JOBS;
                let path = format!("/jobs/{job}/inports/a/write");
                call(&mut connection, &path, &json!({"data": number})).await;
            }
        })
    });
    let workers = (0..3).map(|_| {
        let (server, read) = (server.clone(), read.clone());
        tokio::spawn(async move { work(&server, &read).await })
    });
    let tasks: Vec<_> = writers.chain(workers).collect();
    for task in tasks {
        tokio::time::timeout(std::time::Duration::from_secs(300), task).await.expect("all is read").unwrap();
    }
    assert_eq!(read.load(Ordering::SeqCst), WRITES, "each value once");
    for job in 1..=JOBS {
        let view = server.get(&format!("/sidejob/jobs/{job}")).await.json();
        assert_eq!(view["inports"]["a"], json!({"size": 0}), "nothing unread");
    }
}

/// Same for outputs, which the parent reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_output_is_left_unread_by_the_parent_however_it_falls_together_with_its_run() {
    const OUTPUTS: u64 = 2_000;
    let server = Arc::new(unlimited().await);
    for body in [r#"{"queue":"q","class":"IO"}"#, r#"{"queue":"q","class":"IO","parent":1,"name":"c"}"#] {
        assert_eq!(server.post("/sidejob/jobs", body).await.status, 200);
    }
    let read = Arc::new(AtomicU64::new(0));
    let writers = (0..4).map(|_| {
        let server = server.clone();
        tokio::spawn(async move {
            let mut connection = server.connect().await;
            for number in 0..OUTPUTS / 4 {
                call(&mut connection, "/jobs/2/outports/x/write", &json!({"data": number})).await;
            }
        })
    });
    let worker = {
        let (server, read) = (server.clone(), read.clone());
        tokio::spawn(async move {
            let mut connection = server.connect().await;
            while read.load(Ordering::SeqCst) < OUTPUTS {
                let run = call(&mut connection, "/queues/q/claim", &json!({"wait": 0.2})).await;
                let Some(job) = run["job"].as_u64() else { continue };
                if job == 1 {
                    let entries = call(&mut connection, "/jobs/2/outports/x/entries", &json!({})).await;
                    read.fetch_add(entries["entries"].as_array().unwrap().len() as u64, Ordering::SeqCst);
                }
                call(&mut connection, &format!("/jobs/{job}/finish"), &json!({"token": run["token"]})).await;
            }
        })
    };
    let tasks: Vec<_> = writers.chain([worker]).collect();
    for task in tasks {
        tokio::time::timeout(std::time::Duration::from_secs(300), task).await.expect("all is read").unwrap();
    }
    assert_eq!(read.load(Ordering::SeqCst), OUTPUTS);
}

#[tokio::test]
async fn writes_that_come_together_are_all_kept_in_the_order_of_their_connections() {
    let w = World::new().await;
    let job = w.create("IO").await;
    let path = format!("/jobs/{job}/inports/a/write");
    let mut connections = vec![];
    for _ in 0..16 {
        connections.push(w.server.connect().await);
    }
    for round in 0..20 {
        let calls = connections.iter_mut().enumerate().map(|(number, connection)| {
            let path = path.clone();
            async move { call(connection, &path, &json!({"data": [number, round]})).await }
        });
        futures_joined(calls).await;
    }
    let entries = w.entries(&format!("{job}/inports/a")).await;
    let entries = entries.as_array().unwrap();
    assert_eq!(entries.len(), 320);
    for number in 0..16 {
        let own: Vec<u64> = entries
            .iter()
            .filter(|entry| entry[0] == json!(number))
            .map(|entry| entry[1].as_u64().unwrap())
            .collect();
        assert_eq!(own, (0..20).collect::<Vec<_>>());
    }
    assert_eq!(w.drain().await, [job], "and one run");
}

async fn futures_joined(calls: impl Iterator<Item = impl Future<Output = Value>>) {
    let mut calls: Vec<_> = calls.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        calls.retain_mut(|call| call.as_mut().poll(context).is_pending());
        if calls.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
