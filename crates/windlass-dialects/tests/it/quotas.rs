//! Quotas of a tenant.

use crate::support::{Client, Keys, Reply, TestServer, serve_port};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use windlass_core::{Tenant, Timestamp};
use windlass_dialects::ServerOptions;
use windlass_dialects::auth::Role;
use windlass_dialects::queuey::{self, in_process_runner::InProcessRunner};
use windlass_engine::{ManualClock, SystemClock};
use windlass_store::Store;
use windlass_store::memory::MemoryStore;

struct World {
    server: TestServer,
    keys: Keys,
    clock: Arc<ManualClock>,
}

impl World {
    async fn new(quota: Value) -> World {
        let keys = Keys::for_tenants(&["acme", "other"]);
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)));
        let world = World { server: TestServer::start_at(keys.options(), clock.clone()).await, keys, clock };
        let set =
            world.call("other", Role::Admin, "PUT", "/api/v1/tenants/acme/quota", &quota.to_string()).await;
        assert_eq!(set.status, 200, "{}", set.text());
        world
    }

    async fn call(&self, tenant: &str, role: Role, method: &str, path: &str, body: &str) -> Reply {
        self.server.call_as(Some(self.keys.of(tenant, role)), method, path, body).await
    }

    async fn acme(&self, method: &str, path: &str, body: &str) -> Reply {
        self.call("acme", Role::Operator, method, path, body).await
    }

    /// Headers of acme's requests, where a connection is kept.
    fn headers(&self) -> [(&'static str, String); 2] {
        let bearer = format!("Bearer {}", self.keys.of("acme", Role::Operator));
        [("authorization", bearer), ("content-type", "application/json".to_owned())]
    }

    /// A port for Bedrock.
    async fn bedrock(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let options = ServerOptions { tokens: Arc::clone(&self.keys.tokens), ..ServerOptions::default() };
        let engine = self.server.engine.clone();
        tokio::spawn(serve_port("bedrock", listener, engine, options, std::future::pending()));
        at
    }

    /// Waits until so many connections count as acme's.
    async fn until_connections(&self, count: u64) {
        let acme = Tenant::new("acme").unwrap();
        while self.server.engine.in_use(&acme).await.unwrap().connections != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Bedrock's reply to a command of this tenant, up to the end of its head.
async fn query_job(text: &mut TcpStream, token: &str) -> String {
    text.write_all(format!("QueryJob\r\njobID: 1\r\ntoken: {token}\r\n\r\n").as_bytes()).await.unwrap();
    let mut reply = String::new();
    while !reply.contains("\r\n\r\n") {
        let mut piece = [0; 1_000];
        let read = text.read(&mut piece).await.unwrap();
        assert!(read > 0, "{reply}");
        reply.push_str(std::str::from_utf8(&piece[..read]).unwrap());
    }
    reply
}

#[track_caller]
fn refused(reply: &Reply, words: &str) {
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{text}");
    assert!(text.contains("quota") && text.contains(words), "{text}");
}

#[tokio::test]
async fn a_tenant_with_its_quota_of_jobs_makes_no_more_by_any_dialect_until_one_ends() {
    let world = World::new(json!({"jobs": 2})).await;
    let push = r#"{"name":"a"}"#;
    for _ in 0..2 {
        assert_eq!(world.acme("POST", "/api/v1/jobs", push).await.status, 201);
    }
    let reply = world.acme("POST", "/api/v1/jobs", push).await;
    refused(&reply, "2 unfinished jobs");
    assert_eq!(reply.code(), "quota_exceeded");
    assert_eq!(world.acme("PUT", "/sidejob/workers/q", r#"{"C":{}}"#).await.status, 200);
    for (path, body) in [
        ("/jq/job", r#"{"name":"a","argument":{}}"#),
        ("/jobs/create", r#"{"binary_addr":"0123456789abcdef0123456789abcdef01234567"}"#),
        ("/acme/job/t/add", "x"),
        ("/sidejob/jobs", r#"{"queue":"q","class":"C"}"#),
    ] {
        refused(&world.acme("POST", path, body).await, "2 unfinished jobs");
    }
    let mut text = TcpStream::connect(world.bedrock().await).await.unwrap();
    let token = world.keys.of("acme", Role::Worker);
    let ask = format!("CreateJob\r\nname: x\r\nconnection: close\r\ntoken: {token}\r\n\r\n");
    text.write_all(ask.as_bytes()).await.unwrap();
    let mut reply = String::new();
    text.read_to_string(&mut reply).await.unwrap();
    assert!(
        reply.starts_with("429 Too many: this tenant has reached its quota of 2 unfinished jobs"),
        "{reply}"
    );
    assert_eq!(world.call("other", Role::Worker, "POST", "/api/v1/jobs", push).await.status, 201);
    let claimed = world.acme("POST", "/api/v1/claim", r#"{"limit":1}"#).await.json();
    let (id, job) = (&claimed["jobs"][0]["id"], &claimed["jobs"][0]["token"]);
    let settle = json!({"settle": [{"id": id, "token": job, "outcome": "finish"}]}).to_string();
    assert_eq!(world.acme("POST", "/api/v1/settle", &settle).await.status, 200);
    world.clock.advance(1_000);
    assert_eq!(world.acme("POST", "/api/v1/jobs", push).await.status, 201);
    refused(&world.acme("POST", "/api/v1/jobs", push).await, "2 unfinished jobs");
}

#[tokio::test]
async fn a_deleted_job_comes_back_only_within_the_quota() {
    let world = World::new(json!({"jobs": 2})).await;
    let push = r#"{"name":"a"}"#;
    for _ in 0..2 {
        assert_eq!(world.acme("POST", "/api/v1/jobs", push).await.status, 201);
    }
    assert_eq!(world.acme("DELETE", "/api/v1/jobs/1", "").await.status, 200);
    world.clock.advance(1_000);
    assert_eq!(world.acme("POST", "/api/v1/jobs", push).await.status, 201);
    refused(&world.acme("POST", "/api/v1/jobs/1/undelete", "").await, "2 unfinished jobs");
    assert_eq!(world.acme("DELETE", "/api/v1/jobs/2", "").await.status, 200);
    world.clock.advance(1_000);
    assert_eq!(world.acme("POST", "/api/v1/jobs/1/undelete", "").await.status, 200);
    refused(&world.acme("POST", "/api/v1/jobs", push).await, "2 unfinished jobs");
}

#[tokio::test]
async fn payload_bytes_are_bounded_for_as_long_as_their_jobs_are_kept() {
    let world = World::new(json!({"payload_bytes": 100})).await;
    let large =
        json!({"name": "a", "payload": "x".repeat(58), "keep": {"cancelled_ms": 86_400_000}}).to_string();
    let push = async || world.acme("POST", "/api/v1/jobs", &large).await;
    let first = push().await;
    assert_eq!(first.status, 201, "{}", first.text());
    refused(&push().await, "100 payload bytes");
    refused(&world.acme("POST", "/acme/job/t/add", &"x".repeat(41)).await, "100 payload bytes");
    let seen = world.acme("GET", "/api/v1/tenants/acme/quota", "").await.json();
    assert_eq!(
        (&seen["quota"]["payload_bytes"], &seen["in_use"]["payload_bytes"]),
        (&json!(100), &json!(60))
    );
    assert_eq!(world.call("other", Role::Worker, "POST", "/api/v1/jobs", &large).await.status, 201);
    let id = first.json()["id"].clone();
    assert_eq!(world.acme("POST", &format!("/api/v1/jobs/{id}/cancel"), "").await.status, 200);
    world.clock.advance(1_000);
    refused(&push().await, "100 payload bytes");
    assert_eq!(world.acme("DELETE", &format!("/api/v1/jobs/{id}"), "").await.status, 200);
    world.clock.advance(1_000);
    assert_eq!(push().await.status, 201);
}

#[tokio::test]
async fn payload_bytes_are_counted_anew_after_a_restart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let keys = Keys::for_tenants(&["acme"]);
    let first = TestServer::start_on(Arc::clone(&store), keys.options(), Arc::new(SystemClock)).await;
    let path = "/api/v1/tenants/acme/quota";
    let admin = Some(keys.of("acme", Role::Admin));
    assert_eq!(first.call_as(admin, "PUT", path, r#"{"payload_bytes":100}"#).await.status, 200);
    let large = json!({"name": "a", "payload": "x".repeat(58)}).to_string();
    assert_eq!(first.call_as(admin, "POST", "/api/v1/jobs", &large).await.status, 201);
    let second = TestServer::start_on(store, keys.options(), Arc::new(SystemClock)).await;
    refused(&second.call_as(admin, "POST", "/api/v1/jobs", &large).await, "100 payload bytes");
}

#[tokio::test]
async fn uploads_at_the_same_time_share_the_quota_of_blobs() {
    let world = World::new(json!({"blob_bytes": 1_000})).await;
    let (engine, acme) = (&world.server.engine, Tenant::new("acme").unwrap());
    let mut uploads = Vec::new();
    let mut refused = 0;
    for number in 0..8_u8 {
        let mut upload = engine.put_blob(&acme).await.unwrap();
        match upload.write(&[number; 200]).await {
            Ok(()) => uploads.push(upload),
            Err(error) => {
                assert_eq!(error.code(), "quota_exceeded");
                refused += 1;
            }
        }
    }
    assert_eq!((uploads.len(), refused), (5, 3), "none of them has ended yet");
    assert!(uploads[0].write(b"x").await.is_err());
    drop(uploads.pop());
    let mut last = engine.put_blob(&acme).await.unwrap();
    last.write(&[9; 100]).await.unwrap();
    last.write(&[9; 100]).await.unwrap();
    uploads.push(last);
    for upload in uploads {
        upload.finish().await.unwrap();
    }
    assert_eq!(engine.in_use(&acme).await.unwrap().blob_bytes, 1_000);
}

#[tokio::test]
async fn blobs_and_handlers_are_bounded() {
    let world = World::new(json!({"blob_bytes": 10, "handlers": 1})).await;
    assert_eq!(world.acme("PUT", "/blob", "12345678").await.status, 201);
    refused(&world.acme("PUT", "/blob", "1234").await, "10 blob bytes");
    assert_eq!(world.call("other", Role::Worker, "PUT", "/blob", "12345678901").await.status, 201);
    let handler = r#"{"lang":"sh","body":"true"}"#;
    for _ in 0..2 {
        assert_eq!(world.acme("POST", "/acme/handler/add/one/add", handler).await.status, 200);
    }
    refused(&world.acme("POST", "/acme/handler/add/two/add", handler).await, "1 handlers");
}

#[tokio::test]
async fn requests_are_bounded_per_second_and_at_a_time() {
    let world = World::new(json!({"requests_per_second": 3})).await;
    let look = async || world.acme("GET", "/api/v1/queues", "").await;
    for _ in 0..3 {
        assert_eq!(look().await.status, 200);
    }
    refused(&look().await, "3 requests per second");
    assert_eq!(world.acme("GET", "/healthz", "").await.status, 200);
    world.clock.advance(1_000);
    assert_eq!(look().await.status, 200);

    let world = World::new(json!({"requests_in_flight": 1})).await;
    let bearer = format!("Bearer {}", world.keys.of("acme", Role::Worker));
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let mut waiting = world.server.connect().await;
    waiting.send("POST", "/api/v1/claim", &headers, br#"{"wait_ms":60000}"#).await;
    while world.server.engine.waiters() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    refused(&world.acme("GET", "/api/v1/queues", "").await, "1 concurrent requests");
    assert_eq!(world.call("other", Role::Viewer, "GET", "/api/v1/queues", "").await.status, 200);
    drop(waiting);
    while world.acme("GET", "/api/v1/queues", "").await.status != 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn waiting_claims_are_bounded_and_those_that_do_not_wait_are_not() {
    let world = World::new(json!({"waiting_claims": 1})).await;
    let bearer = format!("Bearer {}", world.keys.of("acme", Role::Worker));
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let mut waiting = world.server.connect().await;
    waiting.send("POST", "/api/v1/claim", &headers, br#"{"wait_ms":60000}"#).await;
    while world.server.engine.waiters() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    refused(&world.acme("POST", "/api/v1/claim", r#"{"wait_ms":1000}"#).await, "1 waiting claims");
    assert_eq!(world.acme("POST", "/api/v1/claim", "{}").await.status, 200);
    let shown = world.acme("GET", "/api/v1/tenants/acme/quota", "").await.json();
    assert_eq!(
        (&shown["quota"]["waiting_claims"], &shown["in_use"]["waiting_claims"]),
        (&json!(1), &json!(1))
    );
}

#[tokio::test]
async fn connections_are_bounded_over_every_protocol_together() {
    let world = World::new(json!({"connections": 2})).await;
    let own = world.headers();
    let headers = [(own[0].0, own[0].1.as_str()), (own[1].0, own[1].1.as_str())];
    // A worker that holds a connection, and a client of the text protocol.
    let mut present = world.server.connect().await;
    present.send("POST", "/sidejob/presence", &headers, br#"{"worker":"w"}"#).await;
    world.until_connections(1).await;
    let at = world.bedrock().await;
    let token = world.keys.of("acme", Role::Operator);
    let mut text = TcpStream::connect(at).await.unwrap();
    assert!(query_job(&mut text, token).await.starts_with("404 No job"));
    let shown = async || {
        let path = "/api/v1/tenants/acme/quota";
        let shown = world.call("other", Role::Admin, "GET", path, "").await.json();
        (shown["quota"]["connections"].clone(), shown["in_use"]["connections"].clone())
    };
    assert_eq!(shown().await, (json!(2), json!(2)));
    let page = world.call("other", Role::Admin, "GET", "/metrics", "").await;
    let page = String::from_utf8(page.body).unwrap();
    assert!(page.contains("windlass_tenant_connections{tenant=\"acme\"} 2\n"), "{page}");

    // A third is told so in the words of its dialect, and closed.
    for path in ["/api/v1/queues", "/jq/constraint", "/jobs/1", "/acme/job/waiting", "/sidejob/logs"] {
        let mut third = world.server.connect().await;
        let reply = third.call("GET", path, &headers, b"").await;
        refused(&reply, "2 connections");
        assert_eq!(reply.header("connection"), Some("close"), "{path}");
        assert_eq!(third.stream.read(&mut [0]).await.unwrap(), 0, "{path} is closed");
    }
    let mut third = TcpStream::connect(at).await.unwrap();
    let reply = query_job(&mut third, token).await;
    assert!(
        reply.starts_with("429 Too many: this tenant has reached its quota of 2 connections\r\n"),
        "{reply}"
    );
    assert!(reply.contains("Connection: close\r\n"), "{reply}");
    assert_eq!(third.read(&mut [0]).await.unwrap(), 0, "it is closed");
    // A command that needs no role does not keep a connection open outside the quota.
    let mut third = TcpStream::connect(at).await.unwrap();
    third.write_all(format!("Ping\r\ntoken: {token}\r\n\r\n").as_bytes()).await.unwrap();
    let mut reply = String::new();
    third.read_to_string(&mut reply).await.unwrap();
    assert!(reply.contains("Connection: close\r\n"), "{reply}");

    // Those that are there go on; probes, others and admins are not kept out.
    assert!(query_job(&mut text, token).await.starts_with("404 No job"));
    assert_eq!(world.acme("GET", "/healthz", "").await.status, 200);
    assert_eq!(world.call("other", Role::Viewer, "GET", "/api/v1/queues", "").await.status, 200);
    assert_eq!(world.call("acme", Role::Admin, "GET", "/api/v1/tokens", "").await.status, 200);
    world.until_connections(2).await;
    drop(present);
    world.until_connections(1).await;
    assert_eq!(world.acme("GET", "/api/v1/queues", "").await.status, 200);
}

#[tokio::test]
async fn a_connection_is_the_tenants_whose_request_came_last() {
    let world = World::new(json!({"connections": 1})).await;
    let own = world.headers();
    let headers = [(own[0].0, own[0].1.as_str())];
    let theirs = format!("Bearer {}", world.keys.of("other", Role::Viewer));
    let mut first = world.server.connect().await;
    let mut second = world.server.connect().await;
    let ask = async |client: &mut Client<TcpStream>, bearer: &str| {
        client.call("GET", "/api/v1/queues", &[("authorization", bearer)], b"").await
    };
    for _ in 0..2 {
        assert_eq!(ask(&mut first, headers[0].1).await.status, 200);
        world.until_connections(1).await;
    }
    assert_eq!(ask(&mut first, &theirs).await.status, 200);
    world.until_connections(0).await;
    assert_eq!(ask(&mut second, &theirs).await.status, 200);
    assert_eq!(ask(&mut second, headers[0].1).await.status, 200);
    refused(&ask(&mut first, headers[0].1).await, "1 connections");
    drop(second);
    world.until_connections(0).await;
}

#[tokio::test]
async fn without_tokens_connections_are_counted_and_not_refused() {
    let server = TestServer::open().await;
    let path = "/api/v1/tenants/default/quota";
    assert_eq!(server.call("PUT", path, r#"{"connections":1}"#).await.status, 200);
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut client = server.connect().await;
        assert_eq!(client.call("GET", "/api/v1/queues", &[], b"").await.status, 200);
        held.push(client);
    }
    let connections = server.get(path).await.json()["in_use"]["connections"].as_u64().unwrap();
    assert!(connections >= 3, "{connections}");
}

async fn is_pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await
}

#[tokio::test]
async fn a_guest_in_the_server_gets_jobs_while_its_tenant_has_run_time() {
    let world = World::new(json!({"handler_seconds_per_minute": 6})).await;
    let acme = Tenant::new("acme").unwrap();
    let runner = InProcessRunner::new(world.server.engine.clone(), acme.clone(), queuey::Settings::default());
    for _ in 0..2 {
        let body = r#"{"binary_addr":"0123456789abcdef0123456789abcdef01234567"}"#;
        assert_eq!(world.acme("POST", "/jobs/create", body).await.status, 200);
    }
    let held = runner.claim(1, 0).await.unwrap();
    assert_eq!(held.len(), 1);
    world.clock.advance(10_000);
    // Nine seconds of ten are not paid back; three have to be.
    let in_use = async || world.server.engine.in_use(&acme).await.unwrap().handler_seconds_per_minute;
    assert_eq!(in_use().await, 9);
    let mut next = std::pin::pin!(runner.claim(1, 0));
    assert!(is_pending(&mut next).await, "it waits for run time");
    drop(held);
    world.clock.advance(5_000);
    assert!(is_pending(&mut next).await);
    world.clock.advance(25_000);
    assert_eq!(in_use().await, 6);
    assert!(is_pending(&mut next).await, "less than the quota is to be used up");
    world.clock.advance(1);
    assert_eq!(next.await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_quota_is_an_admins_to_set_the_tenants_to_see_and_outlives_the_server() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let keys = Keys::for_tenants(&["acme", "other"]);
    let first = TestServer::start_on(Arc::clone(&store), keys.options(), Arc::new(SystemClock)).await;
    let path = "/api/v1/tenants/acme/quota";
    let as_role = |tenant: &'static str, role: Role| Some(keys.of(tenant, role));
    let put = first.call_as(as_role("acme", Role::Operator), "PUT", path, r#"{"jobs":7}"#).await;
    assert_eq!(put.status, 403);
    assert_eq!(first.call_as(as_role("other", Role::Operator), "GET", path, "").await.status, 403);
    let none =
        first.call_as(as_role("other", Role::Admin), "PUT", path, r#"{"requests_per_second":0}"#).await;
    assert_eq!(none.status, 400, "{}", none.text());
    let none = first.call_as(as_role("other", Role::Admin), "PUT", path, r#"{"connections":0}"#).await;
    assert_eq!(none.status, 400, "{}", none.text());
    let put = first.call_as(as_role("other", Role::Admin), "PUT", path, r#"{"jobs":7}"#).await;
    assert_eq!(put.json()["quota"]["jobs"], 7);
    let second = TestServer::start_on(store, keys.options(), Arc::new(SystemClock)).await;
    let seen = second.call_as(as_role("acme", Role::Viewer), "GET", path, "").await.json();
    assert_eq!((&seen["quota"]["jobs"], &seen["quota"]["handlers"]), (&json!(7), &json!(10_000)));
}
