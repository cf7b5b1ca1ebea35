//! The SideJob dialect over real sockets, with a manual clock.

mod connecting;
mod crashes;
mod creating;
mod families;
mod locks;
mod logs;
mod ports;
mod presence;
mod racing;
mod registration;
mod runs;
mod state;
mod terminating;
mod web;

use crate::stores::{Kind, repeat_on};
use crate::support::{Reply, TestServer};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass_core::Timestamp;
use windlass_dialects::ServerOptions;
use windlass_dialects::settings::DialectSettings;
use windlass_dialects::sidejob::Settings;
use windlass_engine::ManualClock;

/// Start of the manual clock, on a full minute.
const START: i64 = 1_700_000_040_000;

pub struct World {
    pub server: TestServer,
    clock: Arc<ManualClock>,
}

/// Run as a worker receives it.
#[derive(Debug)]
pub struct Run {
    pub job: u64,
    pub token: String,
    pub all: Value,
}

impl Run {
    pub fn kind(&self) -> &str {
        self.all["kind"].as_str().unwrap()
    }
}

pub fn fixture() -> Value {
    json!({
        "W": {},
        "Add": {"inports": {"a": {}, "b": {"default": 10}}, "outports": {"sum": {}}},
        "Dyn": {"inports": {"*": {"default": 5}}, "outports": {"o": {"default": null}}},
        "IO": {"inports": {"a": {}, "b": {}}, "outports": {"x": {}, "y": {}}},
    })
}

impl World {
    /// Starts a server with the fixture registered in queue `q`.
    pub async fn new() -> World {
        World::with(Settings::default()).await
    }

    pub async fn with(sidejob: Settings) -> World {
        World::serving(ServerOptions { settings: DialectSettings::of(sidejob), ..ServerOptions::default() })
            .await
    }

    pub async fn serving(options: ServerOptions) -> World {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START)));
        let world = World { server: TestServer::start_at(options, clock.clone()).await, clock };
        world.register("q", fixture()).await;
        world
    }

    /// Advances the clock and runs the scheduler.
    pub async fn pass(&self, ms: i64) {
        self.clock.advance(ms);
        self.server.engine.catch_up().await.unwrap();
    }

    pub async fn call(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.server.call(method, &format!("/sidejob{path}"), &body.to_string()).await
    }

    /// Makes a call that must succeed.
    pub async fn post(&self, path: &str, body: Value) -> Value {
        let reply = self.call("POST", path, &body).await;
        assert_eq!(reply.status, 200, "POST {path} {body}: {}", reply.text());
        reply.json()
    }

    pub async fn get(&self, path: &str) -> Value {
        let reply = self.server.get(&format!("/sidejob{path}")).await;
        assert_eq!(reply.status, 200, "GET {path}: {}", reply.text());
        reply.json()
    }

    /// Makes a call that must be refused; returns status and message.
    pub async fn refused(&self, method: &str, path: &str, body: Value) -> (u16, String) {
        let reply = self.call(method, path, &body).await;
        assert!(
            (400..500).contains(&reply.status),
            "{method} {path} {body}: {} {}",
            reply.status,
            reply.text()
        );
        (reply.status, reply.json()["error"].as_str().unwrap().to_owned())
    }

    pub async fn register(&self, queue: &str, classes: Value) {
        let reply = self.call("PUT", &format!("/workers/{queue}"), &classes).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    pub async fn create(&self, class: &str) -> u64 {
        self.create_with(json!({"queue": "q", "class": class})).await
    }

    pub async fn create_with(&self, body: Value) -> u64 {
        self.post("/jobs", body).await["job"].as_u64().unwrap()
    }

    pub async fn child(&self, class: &str, parent: u64, name: &str) -> u64 {
        self.create_with(json!({"queue": "q", "class": class, "parent": parent, "name": name})).await
    }

    pub async fn claim(&self) -> Option<Run> {
        self.claim_from("q").await
    }

    pub async fn claim_from(&self, queue: &str) -> Option<Run> {
        let all = self.post(&format!("/queues/{queue}/claim"), json!({})).await;
        let job = all["job"].as_u64()?;
        Some(Run { job, token: all["token"].as_str().unwrap().to_owned(), all })
    }

    /// Claims the pending run.
    pub async fn claimed(&self) -> Run {
        self.claim().await.expect("a run waits")
    }

    pub async fn finish(&self, run: &Run, status: &str) -> Value {
        self.post(&format!("/jobs/{}/finish", run.job), json!({"token": run.token, "status": status})).await
    }

    pub async fn fail(&self, run: &Run, error: &str) -> Value {
        let body = json!({"token": run.token, "status": "failed", "error": error, "backtrace": "a\nb"});
        self.post(&format!("/jobs/{}/finish", run.job), body).await
    }

    /// Creates a job of this class without a pending run, in this status.
    pub async fn idle(&self, class: &str, status: &str) -> u64 {
        let job = self.create(class).await;
        let run = self.claimed().await;
        assert_eq!(run.job, job, "nothing else waits");
        match status {
            "failed" => self.fail(&run, "oops").await,
            "terminated" => {
                self.finish(&run, "completed").await;
                self.post(&format!("/jobs/{job}/status"), json!({"status": "terminated"})).await
            }
            other => self.finish(&run, other).await,
        };
        assert_eq!(self.status(job).await, status);
        job
    }

    pub async fn view(&self, job: u64) -> Value {
        self.get(&format!("/jobs/{job}")).await
    }

    pub async fn status(&self, job: u64) -> String {
        self.view(job).await["status"].as_str().unwrap().to_owned()
    }

    pub async fn run(&self, job: u64) -> Value {
        self.post(&format!("/jobs/{job}/run"), json!({})).await["run"].clone()
    }

    /// Claims and completes all pending runs; returns the jobs in order.
    pub async fn drain(&self) -> Vec<u64> {
        let mut ran = vec![];
        while let Some(run) = self.claim().await {
            self.finish(&run, "completed").await;
            ran.push(run.job);
        }
        ran
    }

    /// `at` has the form `1/inports/a`.
    pub async fn write(&self, at: &str, value: Value) -> Value {
        self.post(&format!("/jobs/{at}/write"), json!({"data": value})).await
    }

    pub async fn read(&self, at: &str) -> Value {
        self.post(&format!("/jobs/{at}/read"), json!({})).await
    }

    pub async fn entries(&self, at: &str) -> Value {
        self.post(&format!("/jobs/{at}/entries"), json!({})).await["entries"].clone()
    }

    pub async fn port(&self, at: &str) -> Value {
        self.get(&format!("/jobs/{at}")).await
    }

    /// Returns the log and clears it.
    pub async fn take_logs(&self) -> Vec<Value> {
        let reply = self.call("DELETE", "/logs", &Value::Null).await;
        reply.json().as_array().unwrap().clone()
    }
}

#[test]
fn all_of_this_holds_on_the_embedded_store() {
    repeat_on(Kind::Sqlite, "sidejob::", "sidejob::all_of_this_holds_on");
}

#[test]
fn all_of_this_holds_on_postgresql() {
    repeat_on(Kind::Postgres, "sidejob::", "sidejob::all_of_this_holds_on");
}
