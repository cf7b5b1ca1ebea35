//! Test rig: a server, a pusher and fake workers.

use crate::stores::Reopenable;
use crate::support::{Reply, TestServer};
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use windlass_core::{Format, JobId, Payload, Tenant};
use windlass_dialects::ServerOptions;
use windlass_dialects::codec::{Encoding, Out};
use windlass_dialects::jq::Settings;
use windlass_dialects::settings::DialectSettings;
use windlass_engine::{Clock, ManualClock, SystemClock};
use windlass_store::Store;

/// Timeout of waits, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time without a request after which none is expected.
const QUIET: Duration = Duration::from_millis(80);

pub const MSGPACK: &str = "application/msgpack";

pub struct World {
    pub server: TestServer,
    pub clock: Arc<ManualClock>,
    /// Store of the server, unless the test provides one.
    chosen: Option<Reopenable>,
}

impl World {
    /// Server on a manual clock.
    pub async fn new() -> World {
        World::with(Settings::default()).await
    }

    pub async fn with(settings: Settings) -> World {
        World::of(Reopenable::new().await, settings, Arc::default()).await
    }

    pub async fn of(chosen: Reopenable, settings: Settings, clock: Arc<ManualClock>) -> World {
        let world = World::on(chosen.store.clone(), settings, clock).await;
        World { chosen: Some(chosen), ..world }
    }

    pub async fn on(store: Arc<dyn Store>, settings: Settings, clock: Arc<ManualClock>) -> World {
        let options = ServerOptions { settings: DialectSettings::of(settings), ..ServerOptions::default() };
        let server = TestServer::start_on(store, options, clock.clone()).await;
        World { server, clock, chosen: None }
    }

    /// Server on the system clock.
    pub async fn real(settings: Settings) -> World {
        let options = ServerOptions { settings: DialectSettings::of(settings), ..ServerOptions::default() };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let chosen = Reopenable::new().await;
        let server = TestServer::start_on(chosen.store.clone(), options, clock).await;
        World { server, clock: Arc::default(), chosen: Some(chosen) }
    }

    /// Two servers on one PostgreSQL with one clock, whatever store is chosen.
    pub async fn two(settings: Settings) -> (World, World) {
        let chosen = Reopenable::postgres().await;
        let second = chosen.second().await;
        let one = World::of(chosen, settings.clone(), Arc::default()).await;
        let other = World::of(second, settings, one.clock.clone()).await;
        (one, other)
    }

    /// Ends the server without a shutdown.
    pub async fn kill(self) -> (Reopenable, Arc<ManualClock>) {
        let World { server, clock, chosen } = self;
        server.serving.abort();
        let _ = server.serving.await;
        drop(server.engine);
        (chosen.expect("a store of its own"), clock)
    }

    /// Ends the server without a shutdown, and starts another on the same store. On a shared store, waits
    /// until the first counts as dead.
    pub async fn crash(self) -> World {
        let (chosen, clock) = self.kill().await;
        let chosen = chosen.again().await;
        for (key, _) in chosen.store.settings("note/jq/server/").await.unwrap() {
            chosen.store.put_setting(&key, None).await.unwrap();
        }
        World::of(chosen, Settings::default(), clock).await
    }

    pub async fn call(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.call_as(None, method, path, body).await
    }

    pub async fn call_as(&self, worker: Option<&str>, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { Vec::new() } else { packed(body) };
        let mut headers = vec![("content-type", MSGPACK)];
        headers.extend(worker.map(|worker| ("worker-id", worker)));
        self.send(method, path, &headers, &body).await
    }

    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut client = self.server.connect().await;
        Answer(client.call(method, &format!("/jq{path}"), headers, body).await)
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &Value::Null).await
    }

    /// Enqueues a job named `t` with an empty argument, with overrides.
    pub async fn enqueue(&self, overrides: Value) -> String {
        let answer = self.call("POST", "/job", &job(overrides)).await;
        assert_eq!(answer.status(), 201, "{:?}", answer.value());
        answer.value()["job_id"].as_str().expect("an id").to_owned()
    }

    pub async fn job(&self, id: &str) -> Value {
        let answer = self.get(&format!("/job/{id}?peek=true")).await;
        assert_eq!(answer.status(), 200, "{:?}", answer.value());
        answer.value()
    }

    pub async fn status(&self, id: &str) -> String {
        self.job(id).await["status"].as_str().unwrap().to_owned()
    }

    /// Waits until the job has this status.
    pub async fn until(&self, id: &str, status: &str) -> Value {
        let began = Instant::now();
        loop {
            let job = self.job(id).await;
            if job["status"] == status {
                return job;
            }
            assert!(began.elapsed() < PATIENCE, "job {id} never became {status}: {job:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until the worker's acceptance is committed: one commit puts its name into the lease before the
    /// job is sent, another restarts the timeout after its answer.
    pub async fn until_written(&self, id: &str, worker: &str) {
        let began = Instant::now();
        let number = JobId::new(id.parse().unwrap()).unwrap();
        let is_written = async || {
            let found = self.server.engine.get(&Tenant::default(), vec![number]).await.unwrap().pop();
            let job = found.flatten().unwrap();
            let Some(lease) = job.state().lease() else { return false };
            // A lease token begins with the version of the claim.
            let claimed = lease.token.number() >> 16;
            lease.worker.as_deref() == Some(worker) && job.version >= claimed + 2
        };
        while !is_written().await {
            assert!(began.elapsed() < PATIENCE, "nobody wrote down that {worker} has job {id}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until this server sends jobs to some worker: it may have to take one over first.
    pub async fn until_served(&self) {
        let began = Instant::now();
        while self.server.get("/api/v1/workers").await.json()["registered"] == json!([]) {
            assert!(began.elapsed() < PATIENCE, "no worker is served");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub async fn done(&self, worker: &str, body: Value) -> u16 {
        self.call_as(Some(worker), "POST", "/done", &body).await.status()
    }

    pub async fn succeed(&self, worker: &str, id: &str, result: Value) {
        let body = json!({"job_id": id, "type": "success", "result": result});
        assert_eq!(self.done(worker, body).await, 204);
    }

    pub async fn fail(&self, worker: &str, id: &str, should_retry: bool) {
        assert_eq!(self.done(worker, failure(id, should_retry)).await, 204);
    }

    /// Registered worker.
    pub async fn worker(&self, max_jobs: u32) -> FakeWorker {
        let mut worker = FakeWorker::listen().await;
        worker.register(self, max_jobs).await;
        worker
    }

    pub fn pass(&self, ms: i64) {
        self.clock.advance(ms);
    }
}

pub fn job(overrides: Value) -> Value {
    let mut job = json!({"name": "t", "argument": {}});
    for (key, value) in overrides.as_object().unwrap() {
        job[key] = value.clone();
    }
    job
}

pub fn failure(id: &str, should_retry: bool) -> Value {
    json!({
        "job_id": id, "type": "failure", "reason": "other", "should_retry": should_retry, "message": "no luck",
        "error": {"code": 7},
    })
}

pub fn packed(value: &Value) -> Vec<u8> {
    rmp_serde::to_vec_named(value).unwrap()
}

#[derive(Debug)]
pub struct Answer(pub Reply);

impl Answer {
    pub fn status(&self) -> u16 {
        self.0.status
    }

    pub fn value(&self) -> Value {
        match self.0.header("content-type") {
            Some("application/json") => self.0.json(),
            _ if self.0.body.is_empty() => Value::Null,
            _ => rmp_serde::from_slice(&self.0.body).unwrap(),
        }
    }

    pub fn error(&self) -> String {
        let value = self.value();
        assert!(value["message"].as_str().is_some_and(|message| !message.is_empty()), "{value}");
        value["error"].as_str().expect("a word").to_owned()
    }
}

/// Job as received by a worker.
#[derive(Clone, Debug)]
pub struct Given {
    /// Worker id in the request.
    pub worker: Option<String>,
    pub bytes: Vec<u8>,
    pub value: Value,
}

impl Given {
    pub fn id(&self) -> &str {
        self.value["job_id"].as_str().unwrap()
    }
}

type Reaction = Box<dyn Fn(&Given) -> u16 + Send>;

/// HTTP server that records its requests.
pub struct FakeWorker {
    pub id: String,
    pub addr: SocketAddr,
    given: UnboundedReceiver<Given>,
    react: Arc<Mutex<Reaction>>,
    serving: JoinHandle<()>,
}

impl Drop for FakeWorker {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl FakeWorker {
    pub async fn listen() -> FakeWorker {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let react: Arc<Mutex<Reaction>> = Arc::new(Mutex::new(Box::new(|_| 202)));
        let (tell, given) = unbounded_channel();
        let app = Router::new().route("/worker-job", post(handler(tell, react.clone())));
        let serving = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let service = hyper_util::service::TowerToHyperService::new(app.clone());
                let io = hyper_util::rt::TokioIo::new(stream);
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
            }
        });
        FakeWorker { id: String::new(), addr, given, react, serving }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub async fn register(&mut self, world: &World, max_jobs: u32) {
        let body = json!({"name": "fake", "max_jobs": max_jobs, "url": self.url()});
        let answer = world.call("POST", "/worker", &body).await;
        assert_eq!(answer.status(), 201, "{:?}", answer.value());
        self.id = answer.value()["worker_id"].as_str().unwrap().to_owned();
    }

    /// Sets its answers from now on.
    pub fn answers(&self, react: impl Fn(&Given) -> u16 + Send + 'static) {
        *self.react.lock().unwrap() = Box::new(react);
    }

    pub async fn next(&mut self) -> Given {
        let next = tokio::time::timeout(PATIENCE, self.given.recv()).await;
        next.expect("a job within a minute").expect("the worker listens")
    }

    pub async fn next_id(&mut self) -> String {
        self.next().await.id().to_owned()
    }

    pub async fn next_ids(&mut self, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.next_id().await);
        }
        ids
    }

    /// Asserts that no further job arrives.
    pub async fn is_left_alone(&mut self) {
        if let Ok(given) = tokio::time::timeout(QUIET, self.given.recv()).await {
            panic!("the worker was given {given:?}");
        }
    }

    /// Stops listening: connections are refused.
    pub fn hang_up(&self) {
        self.serving.abort();
    }
}

fn handler(
    tell: UnboundedSender<Given>,
    react: Arc<Mutex<Reaction>>,
) -> impl Fn(HeaderMap, Bytes) -> std::future::Ready<StatusCode> + Clone {
    move |headers: HeaderMap, body: Bytes| {
        let value = shown(&body);
        let worker = headers.get("worker-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        let given = Given { worker, bytes: body.to_vec(), value };
        let status = (react.lock().unwrap())(&given);
        if status < 300 {
            tell.send(given).unwrap();
        }
        std::future::ready(StatusCode::from_u16(status).unwrap())
    }
}

/// MessagePack as a tree, including values that JSON cannot represent.
fn shown(msgpack: &[u8]) -> Value {
    let mut out = Out::new(Encoding::Json, msgpack.len());
    out.content(&Payload::new(Format::Msgpack, msgpack));
    serde_json::from_slice(&out.into_bytes()).unwrap()
}
