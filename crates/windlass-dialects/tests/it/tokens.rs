//! Tokens created, rotated and revoked while the server runs.

use crate::support::{Keys, Reply, TestServer, serve_port};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use windlass_core::Timestamp;
use windlass_dialects::auth::{Role, Tokens, keeper};
use windlass_dialects::{ServerOptions, auth};
use windlass_engine::{ManualClock, SystemClock};
use windlass_store::Store;
use windlass_store::memory::MemoryStore;

async fn as_admin(server: &TestServer, keys: &Keys, method: &str, path: &str, body: Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.call_as(Some(keys.of("a", Role::Admin)), method, path, &body).await
}

/// Creates a token: the secret and its public part.
async fn make(server: &TestServer, keys: &Keys, ask: Value) -> (String, String) {
    let reply = as_admin(server, keys, "POST", "/api/v1/tokens", ask).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let text = |key: &str| reply.json()[key].as_str().unwrap().to_owned();
    (text("token"), text("prefix"))
}

async fn status(server: &TestServer, token: &str) -> u16 {
    server.call_as(Some(token), "GET", "/api/v1/queues", "").await.status
}

async fn manual() -> (TestServer, Keys, Arc<ManualClock>) {
    let keys = Keys::for_tenants(&["a"]);
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)));
    (TestServer::start_at(keys.options(), clock.clone()).await, keys, clock)
}

#[tokio::test]
async fn a_token_is_made_shown_once_used_and_revoked() {
    let (server, keys, clock) = manual().await;
    let ask = json!({"role": "viewer", "tenant": "shop", "note": "the shop"});
    let (token, prefix) = make(&server, &keys, ask).await;
    clock.advance(500);
    let mut client = server.connect().await;
    let bearer = format!("Bearer {token}");
    let me = client.call("GET", "/api/v1/me", &[("authorization", &bearer)], b"").await.json();
    assert_eq!((&me["tenant"], &me["role"]), (&json!("shop"), &json!("viewer")));
    let list = as_admin(&server, &keys, "GET", "/api/v1/tokens", Value::Null).await;
    assert!(!list.text().contains(&token[12..]), "a list shows no secrets");
    let listed = list.json()["tokens"].as_array().unwrap().clone();
    assert_eq!(listed.len(), 5);
    let own = listed.iter().find(|listed| listed["prefix"] == *prefix).unwrap();
    let expected = json!({
        "prefix": prefix, "tenant": "shop", "role": "viewer", "note": "the shop", "source": "store",
        "created_at": 1_000_000, "last_used_at": 1_000_500,
    });
    assert_eq!(*own, expected);
    let revoked = as_admin(&server, &keys, "DELETE", &format!("/api/v1/tokens/{prefix}"), Value::Null).await;
    assert_eq!((revoked.status, revoked.json()), (200, json!({ "revoked": prefix })));
    let again = client.call("GET", "/api/v1/me", &[("authorization", &bearer)], b"").await;
    assert_eq!(again.status, 401, "also on the connection it was used on");
    let again = as_admin(&server, &keys, "DELETE", &format!("/api/v1/tokens/{prefix}"), Value::Null).await;
    assert_eq!((again.status, again.code().as_str()), (404, "no_such_token"));
}

#[tokio::test]
async fn a_token_ends_at_its_time_and_a_rotated_one_after_its_grace() {
    let (server, keys, clock) = manual().await;
    let (token, prefix) = make(&server, &keys, json!({"role": "viewer", "expires_in_ms": 10_000})).await;
    assert_eq!(status(&server, &token).await, 200);
    let path = format!("/api/v1/tokens/{prefix}/rotate");
    let rotated = as_admin(&server, &keys, "POST", &path, json!({"grace_ms": 2_000})).await;
    assert_eq!(rotated.status, 201, "{}", rotated.text());
    let rotated = rotated.json();
    assert_eq!(rotated["expires_at"], 1_010_000, "as long as the old one was for");
    let new = rotated["token"].as_str().unwrap();
    assert_eq!((status(&server, &token).await, status(&server, new).await), (200, 200));
    clock.advance(2_000);
    assert_eq!((status(&server, &token).await, status(&server, new).await), (401, 200));
    clock.advance(8_000);
    assert_eq!(status(&server, new).await, 401);
}

#[tokio::test]
async fn what_cannot_be_asked_of_tokens_is_refused_in_words() {
    let (server, keys, _) = manual().await;
    for (ask, words) in [
        (json!({"role": "boss"}), "viewer, worker, operator or admin"),
        (json!({"tenant": "a/b"}), "tenant"),
        (json!({"expires_at": 5}), "in the past"),
        (json!({"expires_at": 9_000_000, "expires_in_ms": 1}), "cannot be combined"),
        (json!({"note": "a\nb"}), "control characters"),
    ] {
        let reply = as_admin(&server, &keys, "POST", "/api/v1/tokens", ask).await;
        assert_eq!(reply.status, 400);
        assert!(reply.text().contains(words), "{}", reply.text());
    }
    let admin = keys.of("a", Role::Admin)[3..11].to_owned();
    let reply = as_admin(&server, &keys, "DELETE", &format!("/api/v1/tokens/{admin}"), Value::Null).await;
    assert_eq!((reply.status, reply.code().as_str()), (409, "last_admin_token"));
    let path = format!("/api/v1/tokens/{admin}/rotate");
    let reply = as_admin(&server, &keys, "POST", &path, Value::Null).await;
    assert_eq!((reply.status, reply.code().as_str()), (409, "token_in_configuration"));
}

#[tokio::test]
async fn the_first_token_closes_an_open_server_at_once() {
    let server = TestServer::open().await;
    let made = server.post("/api/v1/tokens", r#"{"role":"admin"}"#).await.json();
    assert_eq!(server.get("/api/v1/queues").await.status, 401);
    assert_eq!(status(&server, made["token"].as_str().unwrap()).await, 200);
}

#[tokio::test]
async fn what_waits_for_the_holder_of_a_token_ends_with_it() {
    let keys = Keys::for_tenants(&["a"]);
    let server = TestServer::start(keys.options()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let options = ServerOptions { tokens: Arc::clone(&keys.tokens), ..ServerOptions::default() };
    tokio::spawn(serve_port("bedrock", listener, server.engine.clone(), options, std::future::pending()));
    let (token, prefix) = make(&server, &keys, json!({"role": "worker", "tenant": "a"})).await;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let (mut claims, mut events, mut runs) =
        (server.connect().await, server.connect().await, server.connect().await);
    claims.send("POST", "/api/v1/claim", &headers, br#"{"wait_ms":60000}"#).await;
    runs.send("POST", "/sidejob/queues/q/claim", &headers, br#"{"wait":60}"#).await;
    events.send("GET", "/api/v1/events", &headers, b"").await;
    events.until(b"listening").await.unwrap();
    let mut text = TcpStream::connect(at).await.unwrap();
    let ask = format!("GetJob\r\nname: x\r\nconnection: wait\r\ntimeout: 60000\r\ntoken: {token}\r\n\r\n");
    text.write_all(ask.as_bytes()).await.unwrap();
    while server.engine.waiters() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let revoked = as_admin(&server, &keys, "DELETE", &format!("/api/v1/tokens/{prefix}"), Value::Null).await;
    assert_eq!(revoked.status, 200);
    assert_eq!(claims.reply("POST").await.unwrap().json(), json!({"jobs": []}));
    assert_eq!(runs.reply("POST").await.unwrap().json(), json!({}));
    events.until(b"\r\n0\r\n\r\n").await.expect("the end of the stream");
    let mut reply = vec![0; 12];
    text.read_exact(&mut reply).await.unwrap();
    assert_eq!(String::from_utf8(reply).unwrap(), "401 Unauthor");
    assert_eq!(server.engine.waiters(), 0);
}

#[tokio::test]
async fn servers_on_one_store_hear_of_each_others_tokens_within_seconds() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::shared());
    let keys = Keys::for_tenants(&["a"]);
    let here = TestServer::start_on(Arc::clone(&store), keys.options(), Arc::new(SystemClock)).await;
    let theirs = Arc::new(Tokens::new([]).unwrap());
    let options = ServerOptions { tokens: Arc::clone(&theirs), ..ServerOptions::default() };
    let there = TestServer::start_on(store, options, Arc::new(SystemClock)).await;
    tokio::spawn(keeper::follow(there.engine.clone(), theirs));
    let (token, prefix) = make(&here, &keys, json!({"role": "viewer"})).await;
    let until = async |expected: u16| {
        while status(&there, &token).await != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    until(200).await;
    let revoked = as_admin(&here, &keys, "DELETE", &format!("/api/v1/tokens/{prefix}"), Value::Null).await;
    assert_eq!(revoked.status, 200);
    until(401).await;
}

#[tokio::test]
async fn a_configured_token_that_was_revoked_stays_so_after_a_restart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let keys = Keys::for_tenants(&["a"]);
    let records: Vec<auth::TokenRecord> =
        keys.tokens.list().into_iter().map(|listed| listed.record).collect();
    let viewer = keys.of("a", Role::Viewer);
    let server = TestServer::start_on(Arc::clone(&store), keys.options(), Arc::new(SystemClock)).await;
    let path = format!("/api/v1/tokens/{}", &viewer[3..11]);
    assert_eq!(as_admin(&server, &keys, "DELETE", &path, Value::Null).await.status, 200);
    assert_eq!(status(&server, viewer).await, 401);
    // As at the start of a server.
    let after = Tokens::new(records).unwrap();
    assert!(after.check(viewer, server.engine.now()).is_some());
    keeper::load(&server.engine, &after).await.unwrap();
    assert!(after.check(viewer, server.engine.now()).is_none());
    assert!(after.check(keys.of("a", Role::Worker), server.engine.now()).is_some());
}
