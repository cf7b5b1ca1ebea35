use super::world::*;
use serde_json::{Value, json};
use windlass_dialects::ServerOptions;
use windlass_dialects::listener::ListenerLimits;

#[tokio::test]
async fn every_job_gets_an_id_of_its_own() {
    let world = World::new().await;
    let (one, two) = (world.enqueue(json!({})).await, world.enqueue(json!({})).await);
    assert!(!one.is_empty() && one != two);
    assert_eq!((world.status(&one).await, world.status(&two).await), ("queued".into(), "queued".into()));
}

#[tokio::test]
async fn the_worker_gets_what_was_asked_for_byte_for_byte() {
    let world = World::new().await;
    let mut worker = world.worker(9).await;
    // bin, ext, float64, nil, a negative int, unicode, an int64 for a small number, an array, a nested map.
    let argument: &[u8] = b"\x88\xa1b\xc4\x02\x00\xff\xa1e\xd4\x05\x09\xa1f\xcb\x3f\xf8\0\0\0\0\0\0\xa1n\xc0\
        \xa1m\xe0\xa1u\xa3\xe2\x82\xac\xa1i\xd3\0\0\0\0\0\0\0\x01\xa1a\x92\x81\x01\x02\x90";
    let mut body = b"\x86\xa4name\xa4mail\xa8priority\xfd\xa9max_retry\x02\xabkeep_result\xc3\xa7timeout\x07\xa8argument".to_vec();
    body.extend_from_slice(argument);
    let answer = world.send("POST", "/job", &[("content-type", MSGPACK)], &body).await;
    assert_eq!(answer.status(), 201);
    let given = worker.next().await;
    assert!(
        given.bytes.windows(argument.len()).any(|window| window == argument),
        "the argument is the same bytes"
    );

    let id =
        world.enqueue(json!({"name": "mail", "argument": {"to": "you", "deep": {"a": [1, null]}}})).await;
    let given = worker.next().await.value;
    let expected = json!({
        "id": id, "job_id": id, "name": "mail", "argument": {"to": "you", "deep": {"a": [1, null]}},
        "timeout": 30, "attempt": 1,
    });
    assert_eq!(given, expected);
    let job = world.job("1").await;
    let asked = ["name", "priority", "max_retry", "keep_result", "timeout"].map(|key| job[key].clone());
    assert_eq!(json!(asked), json!(["mail", -3, 2, true, 7]));
}

#[tokio::test]
async fn what_is_left_out_has_its_default() {
    let world = World::new().await;
    let job = world.job(&world.enqueue(json!({})).await).await;
    let asked =
        ["priority", "max_retry", "keep_result", "timeout", "retry_count"].map(|key| job[key].clone());
    assert_eq!(json!(asked), json!([0, 10, false, 30, 0]));
}

#[tokio::test]
async fn a_job_that_is_no_job_is_refused() {
    let world = World::new().await;
    let without = |key: &str| {
        let mut job = job(json!({}));
        job.as_object_mut().unwrap().remove(key);
        job
    };
    let mut bad = vec![without("name"), without("argument"), json!([]), json!("x")];
    for (key, values) in [
        ("priority", vec![json!(2_147_483_648_i64), json!(-2_147_483_649_i64), json!(1.5), json!("1")]),
        ("argument", vec![json!([]), json!(1), json!("x"), Value::Null]),
        ("name", vec![json!(""), json!(1), Value::Null]),
        ("max_retry", vec![json!(-1), json!("1")]),
        ("timeout", vec![json!(0), json!(-1), json!(0.5)]),
        ("keep_result", vec![json!(1), json!("yes")]),
    ] {
        bad.extend(values.into_iter().map(|value| job(json!({key: value}))));
    }
    for body in bad {
        let answer = world.call("POST", "/job", &body).await;
        assert_eq!((answer.status(), answer.error().as_str()), (400, "bad_request"), "{body}");
        let answer = world
            .send("POST", "/job", &[("content-type", "application/json")], body.to_string().as_bytes())
            .await;
        assert_eq!(answer.status(), 400, "as JSON: {body}");
    }
    assert!(world.server.engine.list(Default::default()).await.unwrap().jobs.is_empty());
}

#[tokio::test]
async fn bytes_that_are_no_msgpack_are_refused_and_the_server_lives_on() {
    let world = World::new().await;
    for body in [&b""[..], b"\xc1", b"\x82\xa4name", b"\xdf\xff\xff\xff\xff", b"\x80\x80", &[0x81; 4_000]] {
        let answer = world.send("POST", "/job", &[("content-type", MSGPACK)], body).await;
        assert_eq!((answer.status(), answer.error().as_str()), (400, "bad_request"), "{body:02x?}");
    }
    world.enqueue(json!({})).await;
}

#[tokio::test]
async fn priorities_reach_from_end_to_end() {
    let world = World::new().await;
    let last = world.enqueue(json!({"priority": i32::MAX})).await;
    let first = world.enqueue(json!({"priority": i32::MIN})).await;
    let mut worker = world.worker(1).await;
    assert_eq!(worker.next_id().await, first);
    world.succeed(&worker.id, &first, Value::Null).await;
    assert_eq!(worker.next_id().await, last);
}

#[tokio::test]
async fn an_integer_may_be_wider_than_it_need_be() {
    let world = World::new().await;
    let body = b"\x83\xa4name\xa1t\xa8argument\x80\xa8priority\xd3\0\0\0\0\0\0\0\x05";
    let answer = world.send("POST", "/job", &[("content-type", MSGPACK)], body).await;
    assert_eq!(answer.status(), 201);
    assert_eq!(world.job("1").await["priority"], 5);
}

#[tokio::test]
async fn keys_nobody_knows_are_skipped() {
    let world = World::new().await;
    world.enqueue(json!({"colour": "green", "more": {"deep": [1, 2, {"x": null}]}})).await;
}

#[tokio::test]
async fn msgpack_has_several_names_and_text_is_none_of_them() {
    let world = World::new().await;
    let body = packed(&job(json!({})));
    for kind in [
        "application/msgpack",
        "application/x-msgpack",
        "application/vnd.msgpack",
        "Application/MsgPack; v=5",
    ] {
        let answer = world.send("POST", "/job", &[("content-type", kind)], &body).await;
        assert_eq!(answer.status(), 201, "{kind}");
    }
    assert_eq!(world.send("POST", "/job", &[], &body).await.status(), 201);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "x"] {
        let answer = world.send("POST", "/job", &[("content-type", kind)], &body).await;
        assert_eq!((answer.status(), answer.error().as_str()), (415, "content_type"), "{kind}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_whole() {
    let limits = ListenerLimits { body_bytes_max: 2_000, ..ListenerLimits::default() };
    let server =
        crate::support::TestServer::start(ServerOptions { limits, ..ServerOptions::default() }).await;
    let body = packed(&job(json!({"argument": {"x": "y".repeat(3_000)}})));
    let headers = [("content-type", MSGPACK), ("accept", "application/json")];
    let reply = server.connect().await.call("POST", "/jq/job", &headers, &body).await;
    assert_eq!((reply.status, reply.json()["error"].as_str()), (413, Some("too_large")));
    assert!(server.engine.list(Default::default()).await.unwrap().jobs.is_empty());
}

#[tokio::test]
async fn people_may_speak_json() {
    let world = World::new().await;
    let json_type = [("content-type", "application/json")];
    let body = br#"{"name": "t", "argument": {"a": [1, "x"]}, "keep_result": true}"#;
    let answer = world.send("POST", "/job", &json_type, body).await;
    assert_eq!(answer.0.header("content-type"), Some("application/json"), "answered as it was asked");
    let id = answer.value()["job_id"].as_str().unwrap().to_owned();
    let mut worker = world.worker(1).await;
    assert_eq!(worker.next().await.value["argument"], json!({"a": [1, "x"]}));
    // {job_id, type: "success", result: [bin, ext]}
    let mut done = b"\x83\xa6job_id\xa11\xa4type\xa7success\xa6result\x92\xc4\x01\x07\xd4\x01\x02".to_vec();
    let headers = [("content-type", MSGPACK), ("worker-id", worker.id.as_str())];
    assert_eq!(world.send("POST", "/done", &headers, &done).await.status(), 204);
    let shown = world.send("GET", &format!("/job/{id}"), &[("accept", "application/json")], b"").await;
    assert_eq!(shown.value()["result"], json!(["Bw==", {"ext": 1, "data": "Ag=="}]));
    done.clear();
    let gone = world.send("GET", "/job/999", &[("accept", "application/json")], b"").await;
    assert_eq!((gone.status(), gone.error().as_str()), (404, "not_found"));
}

#[tokio::test]
async fn a_jq_job_is_a_job_like_every_other() {
    let world = World::new().await;
    let id = world.enqueue(json!({"name": "mail", "argument": {"to": "you"}, "priority": 4})).await;
    let shown = world.server.get(&format!("/api/v1/jobs/{id}")).await.json();
    let seen = ["name", "queue", "origin", "priority", "state"].map(|key| shown[key].clone());
    assert_eq!(json!(seen), json!(["mail", "jq", "jq", 4, "ready"]));
    assert_eq!(shown["payload"], json!({"to": "you"}));
    let claimed = world.server.post("/api/v1/claim", r#"{"queues":["jq"]}"#).await.json()["jobs"][0].clone();
    assert_eq!((claimed["id"].to_string(), &claimed["payload"]["to"]), (id.clone(), &json!("you")));
    assert_eq!(world.status(&id).await, "running");
    let settle = json!({"settle": [{"id": claimed["id"], "token": claimed["token"], "outcome": "finish"}]});
    world.server.post("/api/v1/settle", &settle.to_string()).await;
    assert_eq!(world.status(&id).await, "done");

    let pushed =
        world.server.post("/api/v1/jobs", r#"{"name":"n","queue":"jq","payload":{"a":1}}"#).await.json();
    let mut worker = world.worker(1).await;
    let given = worker.next().await;
    assert_eq!((given.id(), &given.value["argument"]), (pushed["id"].to_string().as_str(), &json!({"a": 1})));
}
