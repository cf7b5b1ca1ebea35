//! Server-sent events.

use crate::support::{Client, Keys, TestServer};
use tokio::net::TcpStream;
use windlass_dialects::auth::Role;

async fn listen(server: &TestServer, token: Option<&str>) -> Client<TcpStream> {
    listen_to(server, token, "").await
}

async fn listen_to(server: &TestServer, token: Option<&str>, query: &str) -> Client<TcpStream> {
    let mut client = server.connect().await;
    let bearer = format!("Bearer {}", token.unwrap_or_default());
    let mut headers = vec![("last-event-id", "17")];
    if token.is_some() {
        headers.push(("authorization", &bearer));
    }
    client.send("GET", &format!("/api/v1/events{query}"), &headers, b"").await;
    let head = String::from_utf8(client.until(b"\r\n\r\n").await.unwrap()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
    client.until(b": listening\n\n").await.unwrap();
    client
}

/// Text of the next event, without the chunk framing.
async fn next(client: &mut Client<TcpStream>) -> String {
    client.until(b"event: ").await.unwrap();
    let text = client.until(b"\n\n").await.unwrap();
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_listener_sees_a_job_from_push_to_completion() {
    let (server, _) = TestServer::manual().await;
    let mut listener = listen(&server, None).await;
    let (id, token) = server.claimed(r#"{"name":"mail\n","queue":"q"}"#).await;
    let settle = format!(r#"{{"settle":[{{"id":{id},"token":{token},"outcome":"finish"}}]}}"#);
    server.post("/api/v1/settle", &settle).await;
    let data = |state: &str| {
        format!(r#"{{"id":1,"tenant":"default","queue":"q","name":"mail\n","state":"{state}","at":1000000}}"#)
    };
    assert_eq!(next(&mut listener).await, format!("pushed\nid: 1\ndata: {}\n\n", data("ready")));
    assert_eq!(next(&mut listener).await, format!("claimed\nid: 2\ndata: {}\n\n", data("running")));
    assert_eq!(next(&mut listener).await, format!("completed\nid: 3\ndata: {}\n\n", data("completed")));
}

#[tokio::test]
async fn a_listener_hears_of_its_own_tenant_only() {
    let keys = Keys::for_tenants(&["a", "b"]);
    let server = TestServer::start(keys.options()).await;
    let mut a = listen(&server, Some(keys.of("a", Role::Viewer))).await;
    let mut admin = listen(&server, Some(keys.of("a", Role::Admin))).await;
    for tenant in ["b", "a"] {
        let job = format!(r#"{{"name":"of-{tenant}"}}"#);
        server.call_as(Some(keys.of(tenant, Role::Worker)), "POST", "/api/v1/jobs", &job).await;
    }
    assert!(next(&mut a).await.contains("of-a"));
    assert!(next(&mut admin).await.contains("of-b"));
    assert!(next(&mut admin).await.contains("of-a"));
}

#[tokio::test]
async fn a_listener_that_cannot_keep_up_is_told_what_it_missed() {
    let server = TestServer::open().await;
    let mut listener = listen(&server, None).await;
    // More events at once than the feed keeps: a batch is published in one step, faster than it can be
    // forwarded.
    let jobs = vec![r#"{"name":"a"}"#; 9_000].join(",");
    assert_eq!(server.post("/api/v1/jobs", &format!(r#"{{"jobs":[{jobs}]}}"#)).await.status, 201);
    let mut seen = 0;
    let mut missed = 0;
    while seen + missed < 9_000 {
        let event = next(&mut listener).await;
        match event.strip_prefix("lagged\ndata: {\"missed\":") {
            Some(rest) => missed += rest.trim_end().trim_end_matches('}').parse::<usize>().unwrap(),
            None => seen += 1,
        }
    }
    assert_eq!(seen + missed, 9_000);
}

#[tokio::test]
async fn listeners_do_not_hold_up_the_end_of_the_server() {
    let mut server = TestServer::open().await;
    let mut listener = listen(&server, None).await;
    server.stop();
    (&mut server.serving).await.unwrap().unwrap();
    assert!(listener.until(b"never").await.is_none());
}

#[tokio::test]
async fn a_listener_may_want_one_job_or_a_summary() {
    let server = TestServer::open().await;
    server.post("/api/v1/jobs", r#"{"jobs":[{"name":"a"},{"name":"a"}]}"#).await;
    let mut one = listen_to(&server, None, "?job=2").await;
    let mut all = listen_to(&server, None, "?summary_ms=100").await;
    server.post("/api/v1/jobs/1/cancel", "").await;
    server.post("/api/v1/jobs/2/cancel", "").await;
    let heard = next(&mut one).await;
    assert!(heard.starts_with("cancelled\n") && heard.contains("\"id\":2"), "{heard}");
    let mut cancelled = 0;
    while cancelled < 2 {
        let heard = next(&mut all).await;
        let data = heard.strip_prefix("summary\ndata: ").unwrap();
        cancelled += serde_json::from_str::<serde_json::Value>(data).unwrap()["cancelled"].as_u64().unwrap();
    }
    assert_eq!(cancelled, 2);
}

#[tokio::test]
async fn a_listener_cannot_tell_how_busy_other_tenants_are() {
    let keys = Keys::for_tenants(&["a", "b"]);
    let server = TestServer::start(keys.options()).await;
    let mut a = listen(&server, Some(keys.of("a", Role::Viewer))).await;
    let push = async |tenant: &str, jobs: usize| {
        let jobs = vec![r#"{"name":"x"}"#; jobs].join(",");
        let body = format!(r#"{{"jobs":[{jobs}]}}"#);
        let reply = server.call_as(Some(keys.of(tenant, Role::Worker)), "POST", "/api/v1/jobs", &body).await;
        assert_eq!(reply.status, 201);
    };
    push("b", 100).await;
    push("a", 1).await;
    push("b", 100).await;
    push("a", 1).await;
    for number in [1, 2] {
        let event = next(&mut a).await;
        assert!(event.starts_with(&format!("pushed\nid: {number}\n")), "{event}");
    }
    // More events at once than the feed keeps: some were missed, and the number of other tenants' events is
    // not revealed.
    push("b", 9_000).await;
    push("a", 1).await;
    let told = next(&mut a).await;
    let is_quiet = told.starts_with("lagged\ndata: {\"missed\":1}") || told.starts_with("pushed\nid: 3\n");
    assert!(is_quiet, "{told}");
}
