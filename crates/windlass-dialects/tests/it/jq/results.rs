use super::world::*;
use serde_json::{Value, json};
use windlass_dialects::jq::Settings;

/// Running job and its worker.
async fn running(world: &World, overrides: Value) -> (String, FakeWorker) {
    let mut worker = world.worker(1).await;
    let id = world.enqueue(overrides).await;
    assert_eq!(worker.next_id().await, id);
    (id, worker)
}

#[tokio::test]
async fn a_result_is_read_once() {
    let world = World::new().await;
    let (id, worker) = running(&world, json!({"keep_result": true})).await;
    let body =
        json!({"job_id": id, "type": "success", "finished_at": "2024-03-24T17:39:18+09:00", "result": 42});
    assert_eq!(world.done(&worker.id, body).await, 204);
    assert_eq!(world.job(&id).await["result"], 42, "a peek leaves it");
    let first = world.get(&format!("/job/{id}")).await.value();
    assert_eq!((&first["status"], &first["result"]), (&json!("done"), &json!(42)));
    assert_eq!(first["finished_at"], "2024-03-24T08:39:18Z");
    let second = world.get(&format!("/job/{id}")).await;
    assert_eq!((second.status(), &second.value()["result"]), (200, &Value::Null));
    assert_eq!(world.status(&id).await, "done");
}

#[tokio::test]
async fn a_result_that_is_too_large_is_refused_and_the_job_is_still_the_workers() {
    let world = World::new().await;
    let (id, worker) = running(&world, json!({"keep_result": true})).await;
    let body = json!({"job_id": id, "type": "success", "result": "x".repeat((16 << 20) + 1)});
    let answer = world.call_as(Some(&worker.id), "POST", "/done", &body).await;
    assert_eq!((answer.status(), answer.error().as_str()), (413, "payload_too_large"));
    assert_eq!(world.status(&id).await, "running");
    world.succeed(&worker.id, &id, json!("elsewhere")).await;
    assert_eq!(world.job(&id).await["result"], "elsewhere");
}

#[tokio::test]
async fn a_result_is_any_value_and_keeps_its_bytes() {
    let world = World::new().await;
    let values: [&[u8]; 9] = [
        b"\x93\x01\x02\x03",
        b"\xcb\x3f\xf0\0\0\0\0\0\0",
        b"\xa2ok",
        b"\xc0",
        b"\x81\xa1a\x80",
        b"\xc4\x03\0\x01\xff",
        b"\xd6\xff\0\0\0\0",
        b"\xd3\0\0\0\0\0\0\0\x07",
        b"\xdc\0\x01\xc2",
    ];
    for result in values {
        let (id, worker) = running(&world, json!({"keep_result": true})).await;
        let mut body = b"\x83\xa4type\xa7success\xa6job_id".to_vec();
        body.extend_from_slice(&packed(&json!(id)));
        body.extend_from_slice(b"\xa6result");
        body.extend_from_slice(result);
        let headers = [("content-type", MSGPACK), ("worker-id", worker.id.as_str())];
        assert_eq!(world.send("POST", "/done", &headers, &body).await.status(), 204);
        let shown = world.get(&format!("/job/{id}")).await;
        let mut expected = b"\xa6result".to_vec();
        expected.extend_from_slice(result);
        let bytes = &shown.0.body;
        assert!(
            bytes.windows(expected.len()).any(|window| window == expected),
            "{result:02x?} in {bytes:02x?}"
        );
        world.call_as(Some(&worker.id), "DELETE", "/worker", &Value::Null).await;
    }
}

#[tokio::test]
async fn a_result_nobody_asks_for_is_null_when_its_time_is_over() {
    let settings = Settings { result_ttl_ms: 1_000, record_ttl_ms: 60_000, ..Settings::default() };
    let world = World::with(settings).await;
    let (id, worker) = running(&world, json!({"keep_result": true})).await;
    world.succeed(&worker.id, &id, json!("x")).await;
    world.pass(999);
    assert_eq!(world.job(&id).await["result"], "x");
    world.pass(1);
    let answer = world.get(&format!("/job/{id}")).await;
    assert_eq!((answer.status(), &answer.value()["result"]), (200, &Value::Null));
    assert_eq!(answer.value()["status"], "done");
    world.pass(60_000);
    while world.get(&format!("/job/{id}")).await.status() != 404 {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_result_nobody_wanted_is_null() {
    let world = World::new().await;
    let (id, worker) = running(&world, json!({})).await;
    world.succeed(&worker.id, &id, json!([1, 2])).await;
    let job = world.get(&format!("/job/{id}")).await.value();
    assert_eq!((&job["status"], &job["result"]), (&json!("done"), &Value::Null));
}

#[tokio::test]
async fn an_answer_has_to_say_how_it_went() {
    let world = World::new().await;
    let (id, worker) = running(&world, json!({})).await;
    for (key, value) in [
        ("reason", json!("server_issue")),
        ("reason", Value::Null),
        ("type", json!("Failure")),
        ("type", Value::Null),
        ("should_retry", Value::Null),
        ("message", Value::Null),
    ] {
        let mut body = failure(&id, true);
        body[key] = value.clone();
        assert_eq!(world.done(&worker.id, body).await, 400, "{key} = {value}");
    }
    assert_eq!(world.status(&id).await, "running");
    assert_eq!(world.done(&worker.id, failure(&id, true)).await, 204);
    assert_eq!(world.status(&id).await, "retrying");
}

#[tokio::test]
async fn an_answer_is_about_a_job_and_from_a_worker() {
    let world = World::new().await;
    let (id, worker) = running(&world, json!({})).await;
    for unknown in ["999", "0", "x", "", "01"] {
        assert_eq!(
            world.done(&worker.id, json!({"job_id": unknown, "type": "success"})).await,
            404,
            "{unknown}"
        );
    }
    let success = json!({"job_id": id, "type": "success"});
    let answer = world.call("POST", "/done", &success).await;
    assert_eq!((answer.status(), answer.error().as_str()), (400, "bad_request"));
    assert_eq!(world.done("w-nobody", success.clone()).await, 404);
    let other = world.worker(1).await;
    assert_eq!(world.done(&other.id, success.clone()).await, 404, "it is not the other's to end");
    assert_eq!(world.status(&id).await, "running");
    assert_eq!(world.done(&worker.id, success).await, 204);
}

#[tokio::test]
async fn the_time_of_the_end_may_be_told() {
    let world = World::new().await;
    for (written, shown) in [
        (json!("2024-03-24T17:39:18+09:00"), "2024-03-24T08:39:18Z"),
        (json!("2024-03-24T08:39:18Z"), "2024-03-24T08:39:18Z"),
        (json!("2024-03-24T08:39:18.250Z"), "2024-03-24T08:39:18.25Z"),
        (Value::Null, "1970-01-01T00:16:40Z"),
    ] {
        let (id, worker) = running(&world, json!({})).await;
        let bad = json!({"job_id": id, "type": "success", "finished_at": "yesterday"});
        assert_eq!(world.done(&worker.id, bad).await, 400);
        assert_eq!(world.status(&id).await, "running");
        let body = json!({"job_id": id, "type": "success", "finished_at": written});
        assert_eq!(world.done(&worker.id, body).await, 204, "{written}");
        assert_eq!(world.job(&id).await["finished_at"], shown);
        world.call_as(Some(&worker.id), "DELETE", "/worker", &Value::Null).await;
    }
}

#[tokio::test]
async fn the_first_answer_stands() {
    let world = World::new().await;
    let (id, worker) = running(&world, json!({"keep_result": true})).await;
    world.succeed(&worker.id, &id, json!(1)).await;
    world.succeed(&worker.id, &id, json!(2)).await;
    assert_eq!(world.done(&worker.id, failure(&id, true)).await, 204);
    let job = world.job(&id).await;
    assert_eq!((&job["status"], &job["result"]), (&json!("done"), &json!(1)));
}

#[tokio::test]
async fn an_answer_that_comes_too_late_changes_nothing() {
    let world = World::new().await;
    let (id, late) = running(&world, json!({"timeout": 1, "keep_result": true})).await;
    world.until_written(&id, &late.id).await;
    world.pass(1_000);
    world.until(&id, "retrying").await;
    let success = json!({"job_id": id, "type": "success", "result": "late"});
    assert_eq!(world.done(&late.id, success.clone()).await, 404, "timed out and waiting");
    world.call_as(Some(&late.id), "DELETE", "/worker", &Value::Null).await;
    let mut other = world.worker(1).await;
    world.pass(1_100);
    assert_eq!(other.next_id().await, id);
    let mut again = world.worker(1).await;
    assert_eq!(world.done(&again.id, success.clone()).await, 404, "with another now");
    assert_eq!(world.status(&id).await, "running");
    let meant = json!({"job_id": id, "type": "success", "attempt": 1});
    assert_eq!(world.done(&other.id, meant).await, 404, "an answer that names another attempt");
    world.succeed(&other.id, &id, json!("in time")).await;
    assert_eq!(world.done(&again.id, success).await, 404);
    assert_eq!(world.job(&id).await["result"], "in time");
    again.is_left_alone().await;
}
