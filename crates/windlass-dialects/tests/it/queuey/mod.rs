//! The queuey-queue dialect over real sockets, on a manual clock.

mod abandonment;
mod access;
mod blobs;
mod claims;
mod completion;
mod creation;

use crate::stores::{Kind, repeat_on};
use crate::support::{Reply, TestServer};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass_core::Timestamp;
use windlass_dialects::ServerOptions;
use windlass_dialects::queuey::Settings;
use windlass_dialects::settings::DialectSettings;
use windlass_engine::ManualClock;

const R1: &str = "0b7c1c5e-6d4f-4a51-9d5b-1f0e5a7c9e01";
const R2: &str = "1c8d2d6f-7e50-4b62-8e6c-2f1f6b8daf02";
const BINARY: &str = "68d5b57378f76645bf12506c88fb06a81ddb3965";
const INPUT: &str = "DA39A3EE5E6B4B0D3255BFEF95601890AFD80709";
/// Default age in milliseconds.
const AGE: i64 = 300_000;
/// Start time of the clock.
const START: i64 = 1_700_000_000_000;

struct Queue {
    server: TestServer,
    clock: Arc<ManualClock>,
}

impl Queue {
    async fn open() -> Queue {
        Queue::with(Settings::default()).await
    }

    async fn with(queuey: Settings) -> Queue {
        Queue::serving(ServerOptions { settings: DialectSettings::of(queuey), ..ServerOptions::default() })
            .await
    }

    async fn serving(options: ServerOptions) -> Queue {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START)));
        Queue { server: TestServer::start_at(options, clock.clone()).await, clock }
    }

    fn now(&self) -> i64 {
        self.server.engine.now().as_millis()
    }

    /// Advances the clock. The scheduler may act on it or not: clients must not see a difference.
    fn pass(&self, ms: i64) {
        self.clock.advance(ms);
    }

    /// Advances the clock and lets the scheduler act, without a call that detects abandonments.
    async fn pass_unseen(&self, ms: i64) {
        self.clock.advance(ms);
        self.server.engine.catch_up().await.unwrap();
    }

    /// Creates a job and returns its id.
    async fn create(&self) -> String {
        let reply = self.server.post("/jobs/create", &json!({"binary_addr": BINARY}).to_string()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["job_id"].as_str().unwrap().to_owned()
    }

    async fn get(&self, id: &str) -> Value {
        let reply = self.server.get(&format!("/jobs/{id}")).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    async fn claim(&self, runner: &str) -> Reply {
        self.server.post("/jobs/claim", &json!({ "runner_id": runner }).to_string()).await
    }

    /// Claims, and returns the job's id, if any.
    async fn claimed(&self, runner: &str) -> Option<String> {
        let reply = self.claim(runner).await;
        match reply.status {
            204 => None,
            200 => Some(reply.json()["job_id"].as_str().unwrap().to_owned()),
            other => panic!("{other}: {}", reply.text()),
        }
    }

    /// Creates a job claimed by R1.
    async fn active(&self) -> String {
        let id = self.create().await;
        assert_eq!(self.claimed(R1).await.as_ref(), Some(&id));
        id
    }

    async fn tickle(&self, id: &str) -> Reply {
        self.server.call("POST", &format!("/jobs/{id}/tickle"), "").await
    }

    async fn complete(&self, id: &str, body: Value) -> Reply {
        self.server.post(&format!("/jobs/{id}/complete"), &body.to_string()).await
    }

    async fn completed(&self, id: &str) -> Reply {
        self.complete(id, json!({"status": "completed", "output_addr": "out"})).await
    }
}

/// Some fields of a job, as a list.
fn fields(job: &Value, names: [&str; 4]) -> [Value; 4] {
    names.map(|name| job[name].clone())
}

#[test]
fn all_of_this_holds_on_the_embedded_store() {
    repeat_on(Kind::Sqlite, "queuey::", "queuey::all_of_this_holds_on");
}

#[test]
fn all_of_this_holds_on_postgresql() {
    repeat_on(Kind::Postgres, "queuey::", "queuey::all_of_this_holds_on");
}
