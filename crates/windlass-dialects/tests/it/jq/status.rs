use super::world::*;
use serde_json::{Value, json};
use std::sync::Arc;
use windlass_dialects::auth::Role;

#[tokio::test]
async fn a_job_tells_where_it_stands_and_with_whom() {
    let world = World::new().await;
    let id = world.enqueue(json!({"max_retry": 1})).await;
    let seen = async || {
        let job = world.job(&id).await;
        json!([job["status"], job["worker_id"], job["retry_count"]])
    };
    assert_eq!(seen().await, json!(["queued", null, 0]));
    let mut worker = world.worker(1).await;
    let me = worker.id.clone();
    worker.next_id().await;
    assert_eq!(seen().await, json!(["running", me, 0]));
    world.fail(&me, &id, true).await;
    assert_eq!(seen().await, json!(["retrying", me, 1]));
    world.pass(1_100);
    worker.next_id().await;
    assert_eq!(seen().await, json!(["running", me, 1]));
    world.fail(&me, &id, true).await;
    assert_eq!(seen().await, json!(["error", me, 1]));
    let id = world.enqueue(json!({})).await;
    worker.next_id().await;
    world.succeed(&me, &id, Value::Null).await;
    let job = world.job(&id).await;
    assert_eq!(json!([job["status"], job["worker_id"], job["retry_count"]]), json!(["done", me, 0]));
}

#[tokio::test]
async fn a_job_that_is_not_there_is_not_found() {
    let world = World::new().await;
    world.server.post("/api/v1/jobs", r#"{"name":"of another queue"}"#).await;
    for path in ["/job/999", "/job/x", "/job/1", "/job/999/polling", "/job/1/polling"] {
        let answer = world.get(path).await;
        assert_eq!((answer.status(), answer.error().as_str()), (404, "not_found"), "{path}");
    }
}

#[tokio::test]
async fn what_does_not_run_can_be_removed() {
    let world = World::new().await;
    let delete = async |id: &str| world.call("DELETE", &format!("/job/{id}"), &Value::Null).await.status();
    assert_eq!(delete("999").await, 404);
    let queued = world.enqueue(json!({})).await;
    assert_eq!(delete(&queued).await, 204);
    assert_eq!(world.get(&format!("/job/{queued}")).await.status(), 404);
    assert_eq!(delete(&queued).await, 404);
    let mut worker = world.worker(1).await;
    worker.is_left_alone().await;
    let running = world.enqueue(json!({})).await;
    worker.next_id().await;
    assert_eq!(delete(&running).await, 409);
    world.fail(&worker.id, &running, true).await;
    assert_eq!(world.status(&running).await, "retrying");
    assert_eq!(delete(&running).await, 204);
    assert_eq!(world.get(&format!("/job/{running}")).await.status(), 404);
    for should_retry in [None, Some(false)] {
        let ended = world.enqueue(json!({})).await;
        worker.next_id().await;
        match should_retry {
            None => world.succeed(&worker.id, &ended, Value::Null).await,
            Some(should_retry) => world.fail(&worker.id, &ended, should_retry).await,
        }
        assert_eq!(delete(&ended).await, 409);
        assert_eq!(world.get(&format!("/job/{ended}")).await.status(), 200);
    }
}

#[tokio::test]
async fn a_poll_ends_with_the_job() {
    let world = Arc::new(World::new().await);
    let mut worker = world.worker(1).await;
    let id = world.enqueue(json!({"keep_result": true, "max_retry": 1})).await;
    worker.next_id().await;
    let (asking, path) = (world.clone(), format!("/job/{id}/polling"));
    let poll = tokio::spawn(async move { asking.get(&path).await });
    world.fail(&worker.id, &id, true).await;
    world.pass(1_100);
    worker.next_id().await;
    assert!(!poll.is_finished(), "a failure with a retry to come is no end");
    world.succeed(&worker.id, &id, json!("done")).await;
    let answer = poll.await.unwrap();
    assert_eq!((answer.status(), &answer.value()["result"]), (200, &json!("done")));
    let again = world.get(&format!("/job/{id}/polling")).await;
    assert_eq!((again.status(), &again.value()["result"]), (200, &Value::Null), "at once, and read before");

    let id = world.enqueue(json!({"max_retry": 0})).await;
    worker.next_id().await;
    world.fail(&worker.id, &id, true).await;
    let answer = world.get(&format!("/job/{id}/polling")).await;
    assert_eq!((answer.status(), &answer.value()["status"]), (200, &json!("error")));
}

#[tokio::test]
async fn a_poll_gives_up_when_its_time_is_over() {
    let world = Arc::new(World::new().await);
    let id = world.enqueue(json!({})).await;
    for (query, wait_ms) in [("", 5_000), ("?timeout=2", 2_000)] {
        let (asking, path) = (world.clone(), format!("/job/{id}/polling{query}"));
        let poll = tokio::spawn(async move { asking.get(&path).await });
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        world.pass(wait_ms - 1);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert!(!poll.is_finished());
        world.pass(1);
        let answer = poll.await.unwrap();
        assert_eq!((answer.status(), answer.error().as_str()), (408, "not_ended"));
    }
    assert_eq!(world.get(&format!("/job/{id}/polling?timeout=0")).await.status(), 408);
    assert_eq!(world.get(&format!("/job/{id}/polling?timeout=soon")).await.status(), 400);
}

#[tokio::test]
async fn of_two_who_poll_both_hear_the_end_and_one_gets_the_result() {
    let world = Arc::new(World::new().await);
    let mut worker = world.worker(1).await;
    let id = world.enqueue(json!({"keep_result": true})).await;
    worker.next_id().await;
    let polls: Vec<_> = (0..2)
        .map(|_| {
            let (asking, path) = (world.clone(), format!("/job/{id}/polling"));
            tokio::spawn(async move { asking.get(&path).await })
        })
        .collect();
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    world.succeed(&worker.id, &id, json!(1)).await;
    let mut got = 0;
    for poll in polls {
        let answer = poll.await.unwrap();
        assert_eq!(answer.status(), 200);
        got += usize::from(answer.value()["result"] == 1);
    }
    assert_eq!(got, 1);
}

#[tokio::test]
async fn a_viewer_looks_and_takes_nothing() {
    let keys = crate::support::Keys::for_tenants(&["a", "b"]);
    let options = keys.options();
    let server = crate::support::TestServer::start(options).await;
    let call = async |role: Role, tenant: &str, method: &str, path: &str, body: Value| {
        let bearer = format!("Bearer {}", keys.of(tenant, role));
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        server.connect().await.call(method, path, &headers, &body).await
    };
    let ask = json!({"name": "t", "argument": {}, "keep_result": true});
    assert_eq!(call(Role::Viewer, "a", "POST", "/jq/job", ask.clone()).await.status, 403);
    assert_eq!(server.call("POST", "/jq/job", &ask.to_string()).await.status, 401);
    assert_eq!(call(Role::Worker, "a", "POST", "/jq/job", ask).await.status, 201);
    let claim = call(Role::Worker, "a", "POST", "/api/v1/claim", json!({"queues": ["jq"]})).await.json();
    let job = &claim["jobs"][0];
    let settle =
        json!({"settle": [{"id": job["id"], "token": job["token"], "outcome": "finish", "result": 5}]});
    assert_eq!(call(Role::Worker, "a", "POST", "/api/v1/settle", settle).await.status, 200);
    for role in [Role::Viewer, Role::Viewer, Role::Worker] {
        assert_eq!(call(role, "a", "GET", "/jq/job/1", Value::Null).await.json()["result"], 5);
    }
    assert_eq!(call(Role::Worker, "a", "GET", "/jq/job/1", Value::Null).await.json()["result"], Value::Null);
    assert_eq!(call(Role::Admin, "b", "GET", "/jq/job/1", Value::Null).await.status, 404, "another tenant's");
    let limit = json!({"matcher": {"all": []}, "max_running": 1});
    assert_eq!(call(Role::Worker, "a", "PUT", "/jq/constraint/x", limit.clone()).await.status, 403);
    assert_eq!(call(Role::Operator, "a", "PUT", "/jq/constraint/x", limit).await.status, 200);
}
