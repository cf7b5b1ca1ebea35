//! No response of a tenant shows data of another.

use crate::support::{Keys, TestServer};
use serde_json::json;
use windlass_dialects::auth::Role;
use windlass_dialects::native::calls::CALLS;

/// Tenant b has a running job 1 with a secret, an alias, a limit and a paused queue; tenant a is the caller.
async fn two_tenants() -> (TestServer, Keys, u64) {
    let keys = Keys::for_tenants(&["a", "b"]);
    let server = TestServer::start(keys.options()).await;
    let b = Some(keys.of("b", Role::Operator));
    let job = r#"{"name":"bname","queue":"bqueue","payload":"bsecret","alias":"balias","tags":["btag"],"unique":"bkey"}"#;
    assert_eq!(server.call_as(b, "POST", "/api/v1/jobs", job).await.status, 201);
    let claimed = server.call_as(b, "POST", "/api/v1/claim", "{}").await.json();
    let limit = r#"{"matcher":{"name":"bname"},"max_running":5}"#;
    assert_eq!(server.call_as(b, "PUT", "/api/v1/limits/blimit", limit).await.status, 200);
    assert_eq!(server.call_as(b, "POST", "/api/v1/queues/bqueue/pause", "").await.status, 200);
    (server, keys, claimed["jobs"][0]["token"].as_u64().unwrap())
}

#[tokio::test]
async fn another_tenants_job_is_answered_like_one_that_never_was() {
    let (server, keys, _) = two_tenants().await;
    let a = Some(keys.of("a", Role::Operator));
    for route in CALLS.iter().filter(|route| route.path.contains("/jobs/{id}")) {
        let body = if route.method == "GET" { "" } else { "{}" };
        let theirs = server.call_as(a, route.method, &route.path.replace("{id}", "1"), body).await;
        let nobodys = server.call_as(a, route.method, &route.path.replace("{id}", "999"), body).await;
        let what = format!("{} {}", route.method, route.path);
        assert_eq!((theirs.status, theirs.text()), (nobodys.status, nobodys.text()), "{what}");
        assert_eq!(theirs.status, 404, "{what}");
    }
    for (method, path) in [("GET", "/api/v1/aliases/balias"), ("DELETE", "/api/v1/limits/blimit")] {
        assert_eq!(server.call_as(a, method, path, "").await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_stolen_token_of_a_job_is_worth_nothing_to_another_tenant() {
    let (server, keys, token) = two_tenants().await;
    let a = Some(keys.of("a", Role::Worker));
    let settle =
        json!({"settle":[{"id":1,"token":token,"outcome":"finish"},{"id":999,"token":1,"outcome":"finish"}]});
    let settled = server.call_as(a, "POST", "/api/v1/settle", &settle.to_string()).await.json();
    assert_eq!(settled["settled"][0]["error"], settled["settled"][1]["error"]);
    let extend = json!({"extend":[{"id":1,"token":token,"progress":5},{"id":999,"token":1,"progress":5}]});
    let extended = server.call_as(a, "POST", "/api/v1/extend", &extend.to_string()).await.json();
    assert_eq!(extended["extended"][0]["error"], extended["extended"][1]["error"]);
    let parent = server.call_as(a, "POST", "/api/v1/jobs", r#"{"name":"x","parent":1}"#).await;
    assert_eq!((parent.status, parent.code().as_str()), (404, "no_parent"));
    let b = Some(keys.of("b", Role::Viewer));
    assert_eq!(server.call_as(b, "GET", "/api/v1/jobs/1", "").await.json()["state"], "running");
}

#[tokio::test]
async fn lists_figures_and_searches_show_nothing_of_another_tenant() {
    let (server, keys, _) = two_tenants().await;
    let a = Some(keys.of("a", Role::Operator));
    for path in [
        "/api/v1/jobs",
        "/api/v1/jobs?q=bsecret",
        "/api/v1/jobs?tag=btag",
        "/api/v1/jobs?queue=bqueue",
        "/api/v1/queues",
        "/api/v1/limits",
        "/api/v1/stats",
        "/metrics",
    ] {
        let reply = server.call_as(a, "GET", path, "").await;
        assert_eq!(reply.status, 200, "{path}");
        let text = reply.text();
        for secret in ["bname", "bqueue", "bsecret", "balias", "btag", "blimit", "\"b\""] {
            assert!(!text.contains(secret), "{secret} in {path}: {text}");
        }
    }
    let stats = server.call_as(a, "GET", "/api/v1/stats", "").await.json();
    assert_eq!((&stats["totals"]["running"], stats.get("rates")), (&json!(0), None));
    // Keys and aliases of other tenants are free to use.
    let same = r#"{"name":"bname","alias":"balias","unique":{"key":"bkey","on_conflict":"refuse"}}"#;
    assert_eq!(server.call_as(a, "POST", "/api/v1/jobs", same).await.status, 201);
}

#[tokio::test]
async fn only_an_admin_may_name_another_tenant() {
    let (server, keys, _) = two_tenants().await;
    let admin = Some(keys.of("a", Role::Admin));
    for role in [Role::Viewer, Role::Worker, Role::Operator] {
        let a = Some(keys.of("a", role));
        for path in [
            "/api/v1/jobs?tenant=b",
            "/api/v1/jobs/1?tenant=b",
            "/api/v1/queues?tenant=b",
            "/metrics?tenant=b",
        ] {
            let reply = server.call_as(a, "GET", path, "").await;
            assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{path} as {role}");
        }
    }
    let worker = Some(keys.of("a", Role::Worker));
    for (path, body) in [
        ("/api/v1/jobs", r#"{"name":"x","tenant":"b"}"#),
        ("/api/v1/claim", r#"{"tenant":"b"}"#),
        ("/api/v1/settle", r#"{"settle":[],"tenant":"b"}"#),
        ("/api/v1/extend", r#"{"extend":[],"tenant":"b"}"#),
    ] {
        assert_eq!(server.call_as(worker, "POST", path, body).await.status, 403, "{path}");
        assert_ne!(server.call_as(admin, "POST", path, body).await.status, 403, "{path}");
    }
    assert_eq!(server.call_as(admin, "GET", "/api/v1/jobs/1", "").await.json()["tenant"], "b");
    assert_eq!(
        server.call_as(admin, "GET", "/api/v1/jobs?tenant=b", "").await.json()["jobs"][0]["tenant"],
        "b"
    );
    assert!(server.call_as(admin, "GET", "/metrics", "").await.text().contains("tenant=\"b\""));
}
