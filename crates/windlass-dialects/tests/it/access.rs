//! Authorization: every route with every kind of caller.

use crate::support::{Keys, TestServer};
use std::sync::Arc;
use windlass_core::{Tenant, Timestamp};
use windlass_dialects::auth::{Role, TokenRecord, Tokens, generate_token};
use windlass_dialects::guard::Hosts;
use windlass_dialects::native::calls::CALLS;
use windlass_dialects::route::Access;
use windlass_dialects::{ServerOptions, route::Route};
use windlass_engine::ManualClock;

/// Sends a request that passes the guard if the caller is authorized, whatever its handler answers.
async fn attempt(server: &TestServer, route: &Route, token: Option<&str>) -> (u16, String) {
    let path = route.path.replace("{id}", "1").replace("{queue}", "q").replace("{alias}", "x");
    let path = path.replace("{tenant}", "a");
    let mut client = server.connect().await;
    let bearer = format!("Bearer {}", token.unwrap_or_default());
    let mut headers = vec![("content-type", "application/json")];
    if token.is_some() {
        headers.push(("authorization", &bearer));
    }
    client.send(route.method, &path, &headers, b"{}").await;
    // The event stream has no end: its header is enough.
    let head = String::from_utf8(client.until(b"\r\n\r\n").await.unwrap()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head)
}

#[tokio::test]
async fn every_route_lets_in_its_role_and_higher_ones_only() {
    let keys = Keys::for_tenants(&["a"]);
    let server = TestServer::start(keys.options()).await;
    let stranger = generate_token().unwrap();
    for route in CALLS {
        let what = format!("{} {}", route.method, route.path);
        let needed = match route.access {
            Access::Public => {
                let (status, _) = attempt(&server, route, None).await;
                assert!(status != 401 && status != 403, "{what} is public, but {status}");
                continue;
            }
            Access::From(role) => role,
        };
        for wrong in [None, Some(stranger.as_str()), Some("wl_"), Some("")] {
            let (status, head) = attempt(&server, route, wrong).await;
            assert_eq!(status, 401, "{what} with {wrong:?}");
            assert!(head.to_lowercase().contains("www-authenticate: bearer"), "{head}");
        }
        for role in Role::ALL {
            let (status, _) = attempt(&server, route, Some(keys.of("a", role))).await;
            let let_in = status != 401 && status != 403;
            assert_eq!(let_in, role >= needed, "{what} as {role}: {status}");
        }
    }
}

#[tokio::test]
async fn a_token_that_is_revoked_or_expired_is_refused_on_an_open_connection() {
    let (kept, expiring) = (generate_token().unwrap(), generate_token().unwrap());
    let record = |token: &str, expires_at| {
        TokenRecord::of(token, Tenant::default(), Role::Viewer, expires_at).unwrap()
    };
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(0)));
    let tokens = Tokens::new([record(&kept, None), record(&expiring, Some(Timestamp::from_millis(1_000)))]);
    let tokens = Arc::new(tokens.unwrap());
    let options = ServerOptions { tokens: Arc::clone(&tokens), ..ServerOptions::default() };
    let server = TestServer::start_at(options, clock.clone()).await;
    let mut client = server.connect().await;
    let mut status = async |token: &str| {
        let bearer = format!("Bearer {token}");
        client.call("GET", "/api/v1/queues", &[("authorization", &bearer)], b"").await.status
    };
    assert_eq!((status(&kept).await, status(&expiring).await), (200, 200));
    clock.advance(1_000);
    assert_eq!((status(&kept).await, status(&expiring).await), (200, 401));
    tokens.revoke(&kept[3..11]);
    assert_eq!(status(&kept).await, 401);
}

#[tokio::test]
async fn an_open_server_answers_to_its_own_names_only() {
    let hosts = Hosts { allowed: vec!["jobs.example.org".into()], ..Hosts::default() };
    let server = TestServer::start(ServerOptions { hosts, ..ServerOptions::default() }).await;
    for (host, status) in
        [("localhost", 200), ("127.0.0.1:7373", 200), ("jobs.example.org", 200), ("evil.example", 421)]
    {
        let reply = server.connect().await.call("GET", "/api/v1/queues", &[("host", host)], b"").await;
        assert_eq!(reply.status, status, "{host}");
        let text = reply.text();
        assert_eq!(text.contains("add the name to `hosts`"), status == 421, "{text}");
    }
    // With tokens the host name proves nothing and is not checked.
    let keys = Keys::for_tenants(&["a"]);
    let server = TestServer::start(keys.options()).await;
    let bearer = format!("Bearer {}", keys.of("a", Role::Viewer));
    let headers = [("host", "any.example"), ("authorization", bearer.as_str())];
    assert_eq!(server.connect().await.call("GET", "/api/v1/queues", &headers, b"").await.status, 200);
}

#[tokio::test]
async fn no_other_web_site_can_change_anything() {
    let server = TestServer::open().await;
    for foreign in [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        for route in CALLS.iter().filter(|route| route.method != "GET") {
            let path = route.path.replace("{id}", "1").replace("{queue}", "q");
            let headers = [foreign, ("content-type", "application/json")];
            let reply = server.connect().await.call(route.method, &path, &headers, b"{}").await;
            assert_eq!(
                (reply.status, reply.code().as_str()),
                (403, "foreign_origin"),
                "{} {path}",
                route.method
            );
        }
    }
    let own = [("origin", "http://localhost"), ("content-type", "application/json")];
    let reply = server.connect().await.call("POST", "/api/v1/jobs", &own, br#"{"name":"a"}"#).await;
    assert_eq!(reply.status, 201);
}

#[tokio::test]
async fn a_get_that_changes_something_is_guarded_like_everything_that_does() {
    let server = TestServer::open().await;
    let changing = || {
        windlass_dialects::ALL.iter().flat_map(|dialect| dialect.routes()).filter(|route| route.changes_state)
    };
    let paths: Vec<&str> = changing().map(|route| route.path).collect();
    assert_eq!(paths, ["/jq/job/{id}", "/jq/job/{id}/polling", "/start", "/stop", "/quit"]);
    for foreign in
        [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site")]
    {
        for path in &paths {
            for method in ["GET", "HEAD"] {
                let reply =
                    server.connect().await.call(method, &path.replace("{id}", "1"), &[foreign], b"").await;
                assert_eq!(reply.status, 403, "{method} {path} {foreign:?}");
            }
        }
    }
    for fine in [("sec-fetch-site", "none"), ("user-agent", "curl/8")] {
        assert_eq!(server.connect().await.call("GET", "/start", &[fine], b"").await.status, 200, "{fine:?}");
    }
}

#[tokio::test]
async fn other_pages_may_embed_nothing_of_it() {
    let server = TestServer::open().await;
    for path in ["/healthz", "/api/v1/queues", "/nothing", "/jq/job/1"] {
        let policy = server.get(path).await.header("cross-origin-resource-policy").map(str::to_owned);
        assert_eq!(policy.as_deref(), Some("same-origin"), "{path}");
    }
}

#[test]
fn nothing_changes_by_a_get() {
    for route in
        CALLS.iter().filter(|route| matches!(route.access, Access::From(Role::Operator | Role::Worker)))
    {
        let is_for_few = ["/api/v1/signing_key", "/api/v1/audit"].contains(&route.path);
        assert!(route.method != "GET" || is_for_few, "{}", route.path);
    }
    for route in CALLS.iter().filter(|route| route.method == "GET") {
        let is_for_few = ["/api/v1/tokens", "/api/v1/signing_key", "/api/v1/audit"].contains(&route.path);
        assert!(
            is_for_few || matches!(route.access, Access::Public | Access::From(Role::Viewer)),
            "{}",
            route.path
        );
    }
}
