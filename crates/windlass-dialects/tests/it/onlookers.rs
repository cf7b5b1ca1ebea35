//! Calls of the web UI: searches, bulk actions, workers, schedules, history.

use crate::support::{Keys, TestServer};
use serde_json::{Value, json};
use windlass_dialects::ServerOptions;
use windlass_dialects::auth::Role;

async fn found(server: &TestServer, search: &str) -> Vec<u64> {
    let encoded: String = search.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let page = server.get(&format!("/api/v1/jobs?search={encoded}")).await.json();
    let ids: Vec<u64> =
        page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect();
    let count = server.get(&format!("/api/v1/jobs/count?search={encoded}")).await.json();
    assert_eq!(count, json!({"count": ids.len(), "at_least": false}), "{search}");
    ids
}

#[tokio::test]
async fn the_words_of_a_search_narrow_it_and_the_count_agrees() {
    let server = TestServer::open().await;
    let jobs = json!({"jobs": [
        {"name": "mail.out", "payload": {"user": {"id": 42}, "to": "ann"}, "tags": ["eu"]},
        {"name": "mail.in", "queue": "slow lane", "payload": {"user": {"id": 43}, "to": "ann and bob"}},
        {"name": "report", "delay_ms": 60_000},
        {"name": "mail.out", "payload": "text with 42", "format": "text"},
    ]});
    assert_eq!(server.post("/api/v1/jobs", &jobs.to_string()).await.status, 201);
    for (search, ids) in [
        ("", vec![4, 3, 2, 1]),
        ("name:mail*", vec![4, 2, 1]),
        ("queue:\"slow lane\"", vec![2]),
        ("tag:eu", vec![1]),
        ("args.user.id:42", vec![1]),
        ("ann", vec![2, 1]),
        ("bob ann", vec![2]),
        ("state:delayed", vec![3]),
        ("state:ready", vec![4, 2, 1]),
        ("state:ready,delayed", vec![4, 3, 2, 1]),
        ("state:failed", vec![]),
        ("origin:native name:report", vec![3]),
        ("age>1h", vec![]),
        ("age<1h", vec![4, 3, 2, 1]),
        ("tenant:other", vec![]),
    ] {
        assert_eq!(found(&server, search).await, ids, "{search}");
    }
    server.post("/api/v1/claim", r#"{"worker":"w 1","name":"mail.in"}"#).await;
    assert_eq!(found(&server, "worker:\"w 1\"").await, [2]);
    let wrong = server.get("/api/v1/jobs?search=state:lost").await;
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "bad_request"));
}

#[tokio::test]
async fn age_is_counted_from_the_push_and_pages_go_on_where_they_stopped() {
    let (server, clock) = TestServer::manual().await;
    let batch = |name: &str| json!({"jobs": vec![json!({"name": name}); 300]}).to_string();
    server.post("/api/v1/jobs", &batch("old")).await;
    clock.advance(7_200_000);
    server.post("/api/v1/jobs", &batch("new")).await;
    let count = server.get("/api/v1/jobs/count?search=age%3E1h").await.json();
    assert_eq!(count, json!({"count": 300, "at_least": false}));
    let (mut cursor, mut seen) = (String::new(), Vec::new());
    loop {
        let path = format!("/api/v1/jobs?search=age%3E1h&limit=130&cursor={cursor}");
        let page = server.get(&path).await.json();
        seen.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()));
        match page["next"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, (1..=300).rev().collect::<Vec<u64>>());
    let young = server.get("/api/v1/jobs?search=age%3C1h&limit=1000").await.json();
    assert_eq!(young["jobs"].as_array().unwrap().len(), 300);
}

#[tokio::test]
async fn an_action_reaches_all_that_a_search_finds_and_says_what_it_could_not_do() {
    let server = TestServer::open().await;
    server
        .post("/api/v1/jobs", &json!({"jobs": vec![json!({"name": "a", "retry": 1}); 3]}).to_string())
        .await;
    let claimed = server.post("/api/v1/claim", r#"{"limit":2}"#).await.json();
    let fail: Vec<Value> = claimed["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| json!({"id": job["id"], "token": job["token"], "outcome": "fail"}))
        .collect();
    server.post("/api/v1/settle", &json!({"settle": fail}).to_string()).await;
    let bulk = |body: Value| {
        let server = &server;
        async move { server.post("/api/v1/jobs/bulk", &body.to_string()).await }
    };
    let done = bulk(json!({"action": "retry", "search": "state:failed"})).await.json();
    assert_eq!(done, json!({"done": 2, "refused": 0, "errors": [], "next": null}));
    let done = bulk(json!({"action": "priority", "priority": -4, "search": "name:a"})).await.json();
    assert_eq!(
        (&done["done"], &server.get("/api/v1/jobs/2").await.json()["priority"]),
        (&json!(3), &json!(-4))
    );
    server.post("/api/v1/claim", "{}").await;
    let done = bulk(json!({"action": "delete", "ids": [1, 2, 3, 99]})).await.json();
    assert_eq!((&done["done"], &done["refused"]), (&json!(2), &json!(2)), "{done}");
    assert_eq!(done["errors"][0]["id"], 3);
    for wrong in [
        json!({"action": "retry"}),
        json!({"action": "retry", "search": "", "ids": [1]}),
        json!({"action": "priority", "ids": [1]}),
        json!({"action": "retry", "priority": 1, "ids": [1]}),
        json!({"action": "retry", "ids": vec![1; 1_001]}),
    ] {
        assert_eq!(bulk(wrong.clone()).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn a_bulk_action_stays_within_the_tenant_unless_an_admin_asks() {
    let keys = Keys::for_tenants(&["a", "b"]);
    let server = TestServer::start(keys.options()).await;
    for tenant in ["a", "b"] {
        let token = Some(keys.of(tenant, Role::Worker));
        assert_eq!(server.call_as(token, "POST", "/api/v1/jobs", r#"{"name":"x"}"#).await.status, 201);
    }
    let body = r#"{"action":"cancel","ids":[1,2]}"#;
    let worker = server.call_as(Some(keys.of("a", Role::Worker)), "POST", "/api/v1/jobs/bulk", body).await;
    assert_eq!(worker.status, 403);
    let operator =
        server.call_as(Some(keys.of("a", Role::Operator)), "POST", "/api/v1/jobs/bulk", body).await;
    assert_eq!(operator.json()["done"], 1);
    let all = r#"{"action":"delete","search":""}"#;
    let admin = server.call_as(Some(keys.of("a", Role::Admin)), "POST", "/api/v1/jobs/bulk", all).await;
    assert_eq!(admin.json()["done"], 2);
}

#[tokio::test]
async fn viewers_see_no_payloads_where_they_are_hidden_and_cannot_search_them() {
    let keys = Keys::for_tenants(&["a"]);
    let server = TestServer::start(ServerOptions { hide_payloads: true, ..keys.options() }).await;
    let (viewer, worker) = (Some(keys.of("a", Role::Viewer)), Some(keys.of("a", Role::Worker)));
    server
        .call_as(worker, "POST", "/api/v1/jobs", r#"{"name":"x","retry":1,"payload":{"pin":"xyzzy"}}"#)
        .await;
    let job = server.call_as(worker, "POST", "/api/v1/claim", "{}").await.json()["jobs"][0].clone();
    let settle = json!({"settle": [{"id": 1, "token": job["token"], "outcome": "fail", "error": "xyzzy", "result": "xyzzy"}]});
    server.call_as(worker, "POST", "/api/v1/settle", &settle.to_string()).await;
    for path in ["/api/v1/jobs", "/api/v1/jobs/1", "/api/v1/jobs/1/result", "/api/v1/schedules"] {
        let seen = server.call_as(viewer, "GET", path, "").await;
        assert_eq!(seen.status, 200, "{path}");
        assert!(!seen.text().contains("xyzzy"), "{path}: {}", seen.text());
    }
    assert!(server.call_as(worker, "GET", "/api/v1/jobs/1", "").await.text().contains("xyzzy"));
    for path in
        ["/api/v1/jobs?q=xyzzy", "/api/v1/jobs?search=xyzzy", "/api/v1/jobs/count?search=args.pin:xyzzy"]
    {
        assert_eq!(server.call_as(viewer, "GET", path, "").await.status, 403, "{path}");
    }
    // The counts of the whole server are hidden from a tenant.
    assert_eq!(server.call_as(viewer, "GET", "/api/v1/history", "").await.json()["pushed"], json!([]));
    // The history of a queue is for everybody who sees the queue.
    let of_queue = server.call_as(viewer, "GET", "/api/v1/history?span=15m&queue=q", "").await;
    assert_eq!((of_queue.status, &of_queue.json()["step_ms"]), (200, &json!(30_000)), "{}", of_queue.text());
    for path in ["/api/v1/history?queue=q", "/api/v1/history?span=30d&queue=q"] {
        assert_eq!(server.call_as(viewer, "GET", path, "").await.status, 400, "{path}");
    }
    assert_eq!(
        server.call_as(viewer, "GET", "/api/v1/history?span=15m&queue=q&tenant=other", "").await.status,
        403
    );
    let me = server.call_as(viewer, "GET", "/api/v1/me", "").await.json();
    assert_eq!((&me["role"], &me["payloads"], &me["open"]), (&json!("viewer"), &json!(false), &json!(false)));
}

#[tokio::test]
async fn workers_are_known_by_what_they_hold_and_schedules_by_their_next_runs() {
    let server = TestServer::open().await;
    let jobs = r#"{"jobs":[{"name":"a"},{"name":"a"},{"name":"r","repeat":"every 5m","delay_ms":60000}]}"#;
    server.post("/api/v1/jobs", jobs).await;
    server.post("/api/v1/claim", r#"{"limit":2,"worker":"w1"}"#).await;
    let workers = server.get("/api/v1/workers").await.json();
    let one = &workers["workers"][0];
    assert_eq!((&one["worker"], &one["holds"], &workers["more"]), (&json!("w1"), &json!(2), &json!(false)));
    assert!(one["last_sign"].as_i64() >= one["since"].as_i64());
    let page = server.get("/api/v1/schedules").await.json();
    let jobs = page["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 1);
    let runs: Vec<i64> =
        jobs[0]["next_runs"].as_array().unwrap().iter().map(|run| run.as_i64().unwrap()).collect();
    assert_eq!((runs.len(), runs[0]), (10, jobs[0]["run_at"].as_i64().unwrap()));
    assert!(runs.windows(2).all(|pair| pair[1] - pair[0] == 300_000), "{runs:?}");
    server.post("/api/v1/jobs/3/cancel", "").await;
    assert_eq!(server.get("/api/v1/schedules").await.json()["jobs"], json!([]));
}

#[tokio::test]
async fn the_history_survives_a_restart_of_the_server() {
    let mut server = TestServer::open().await;
    server.post("/api/v1/jobs", r#"{"jobs":[{"name":"a"},{"name":"a"}]}"#).await;
    let sum = |history: &Value| -> u64 {
        history["pushed"].as_array().unwrap().iter().filter_map(Value::as_u64).sum()
    };
    assert_eq!(sum(&server.get("/api/v1/history").await.json()), 2);
    server.stop();
    (&mut server.serving).await.unwrap().unwrap();
    // The history is in the store, one note per day.
    let notes = server.engine.notes("history/").await.unwrap();
    assert_eq!(notes.len(), 1);
    let hours: Vec<[u64; 4]> = serde_json::from_slice(&notes[0].1).unwrap();
    assert_eq!((hours.len(), hours.iter().map(|hour| hour[0]).sum::<u64>()), (24, 2));
    assert_eq!(server.engine.meters().pushed.get(), 2);
}

#[tokio::test]
async fn a_family_is_shown_from_its_first_parent_down_to_the_last_child() {
    let server = TestServer::open().await;
    // A running job gets children, which run after its end.
    let bear = async |id: u64, token: u64, children: Vec<Value>| {
        let jobs: Vec<Value> = children.into_iter().map(|name| json!({"name": name, "parent": id})).collect();
        let pushed = server.post("/api/v1/jobs", &json!({"jobs": jobs}).to_string()).await;
        assert_eq!(pushed.status, 201, "{}", pushed.text());
        let end = json!({"settle": [{"id": id, "token": token, "outcome": "finish"}]});
        assert_eq!(server.post("/api/v1/settle", &end.to_string()).await.status, 200);
    };
    let take = async |name: &str| {
        let claim = json!({"name": name}).to_string();
        let job = server.post("/api/v1/claim", &claim).await.json()["jobs"][0].clone();
        (job["id"].as_u64().unwrap(), job["token"].as_u64().unwrap())
    };
    let (root, token) = server.claimed(r#"{"name":"root"}"#).await;
    bear(root, token, vec!["left".into(), "right".into()]).await;
    let (left, token) = take("left").await;
    bear(left, token, vec!["leaf".into()]).await;
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    let root = server.get("/api/v1/jobs/1/family").await.json();
    assert_eq!(
        (names(&root["ancestors"]), names(&root["children"])),
        (vec![], vec!["left".into(), "right".into()])
    );
    assert_eq!(names(&root["children"][0]["children"]), ["leaf"]);
    let leaf = server.get("/api/v1/jobs/4/family").await.json();
    assert_eq!(
        (names(&leaf["ancestors"]), names(&leaf["children"])),
        (vec!["root".into(), "left".into()], vec![])
    );
    let (right, token) = take("right").await;
    bear(right, token, (0..60).map(|n| format!("n{n}").into()).collect()).await;
    let right = server.get("/api/v1/jobs/3/family").await.json();
    assert_eq!((right["children"].as_array().unwrap().len(), &right["more"]), (50, &json!(10)));
    assert_eq!(server.get("/api/v1/jobs/999/family").await.status, 404);
}

#[tokio::test]
async fn queues_tell_how_fast_they_fill_and_empty() {
    let server = TestServer::open().await;
    let jobs = json!({"jobs": vec![json!({"name": "a", "queue": "q"}); 60]});
    server.post("/api/v1/jobs", &jobs.to_string()).await;
    server.post("/api/v1/claim", r#"{"queue":"q","limit":20}"#).await;
    let queue = server.get("/api/v1/queues").await.json()["queues"][0].clone();
    let (pushed, claimed) =
        (queue["pushed_per_s"].as_f64().unwrap(), queue["claimed_per_s"].as_f64().unwrap());
    assert!(pushed > 0.0 && claimed > 0.0 && pushed > claimed, "{queue}");
    assert_eq!(queue.get("empty_in_ms"), None, "it grows: {queue}");
}

#[tokio::test]
async fn workers_that_wait_for_jobs_are_named() {
    let server = TestServer::open().await;
    let mut client = server.connect().await;
    let headers = [("content-type", "application/json")];
    client.send("POST", "/api/v1/claim", &headers, br#"{"wait_ms":60000,"worker":"w7"}"#).await;
    let waiting = loop {
        let answer = server.get("/api/v1/workers").await.json();
        if answer["waiting"] != json!([]) {
            break answer["waiting"].clone();
        }
    };
    assert_eq!(waiting, json!([{"worker": "w7", "tenant": "default", "claims": 1}]));
    let gone = server.post("/api/v1/workers/w7/dismiss", "{}").await;
    assert_eq!((gone.status, gone.code().as_str()), (404, "not_found"));
}
