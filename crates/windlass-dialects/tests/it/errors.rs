//! Refused requests and their error messages.

use crate::support::TestServer;
use windlass_dialects::ServerOptions;
use windlass_dialects::listener::ListenerLimits;
use windlass_engine::{Options, SystemClock};

#[tokio::test]
async fn every_error_has_the_same_shape() {
    let server = TestServer::open().await;
    for (method, path, body, status, code) in [
        ("GET", "/nowhere", "", 404, "no_route"),
        ("GET", "/api/v1/nowhere", "", 404, "no_route"),
        ("PUT", "/api/v1/jobs", "{}", 405, "method_not_allowed"),
        ("POST", "/api/v1/jobs", "{", 400, "malformed"),
        ("POST", "/api/v1/jobs", "{}", 400, "bad_request"),
        ("POST", "/api/v1/jobs", r#"{"name":"a","queue":""}"#, 400, "bad_request"),
        ("POST", "/api/v1/settle", "{}", 400, "malformed"),
        ("POST", "/api/v1/extend", "[]", 400, "malformed"),
        ("POST", "/api/v1/claim", r#"{"lease_ms":1}"#, 400, "malformed"),
        ("GET", "/api/v1/jobs/7", "", 404, "not_found"),
        ("GET", "/api/v1/jobs/0", "", 404, "not_found"),
        ("GET", "/api/v1/jobs/abc", "", 404, "not_found"),
        ("GET", "/api/v1/jobs/18446744073709551615", "", 404, "not_found"),
        ("GET", "/api/v1/jobs/%ff", "", 400, "bad_path"),
        ("GET", "/api/v1/jobs/7/result", "", 404, "not_found"),
        ("GET", "/api/v1/jobs/7/children", "", 404, "not_found"),
        ("POST", "/api/v1/jobs/7/cancel", "", 404, "not_found"),
        ("POST", "/api/v1/jobs/7/retry", "", 404, "not_found"),
        ("POST", "/api/v1/jobs/7/run", "", 404, "not_found"),
        ("POST", "/api/v1/jobs/7/run", "{", 400, "malformed"),
        ("PATCH", "/api/v1/jobs/7", "{}", 404, "not_found"),
        ("DELETE", "/api/v1/jobs/7", "", 404, "not_found"),
        ("PUT", "/api/v1/limits/x", "{}", 400, "bad_request"),
        ("DELETE", "/api/v1/limits/x", "", 404, "not_found"),
        ("GET", "/api/v1/queues?x=1", "", 400, "bad_request"),
    ] {
        let reply = server.call(method, path, body).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{method} {path} {body}");
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(!message.is_empty(), "{method} {path}");
    }
}

#[tokio::test]
async fn a_wrong_method_hears_which_are_right() {
    let server = TestServer::open().await;
    let reply = server.call("PUT", "/api/v1/jobs", "{}").await;
    assert_eq!(reply.header("allow"), Some("POST, GET"));
}

#[tokio::test]
async fn the_head_of_an_answer_can_be_asked_for() {
    let server = TestServer::open().await;
    let reply = server.call("HEAD", "/healthz", "").await;
    assert_eq!((reply.status, reply.header("content-length")), (200, Some("3")));
}

#[tokio::test]
async fn a_malformed_body_hears_where() {
    let server = TestServer::open().await;
    let reply = server.post("/api/v1/jobs", "{\"name\":\n 5}").await;
    let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("line 2"), "{message}");
}

#[tokio::test]
async fn starting_a_job_over_while_another_has_its_key_is_a_conflict_that_names_it() {
    let server = TestServer::open().await;
    let job = r#"{"name":"a","unique":"k","keep":{"cancelled_ms":"ever"}}"#;
    assert_eq!(server.post("/api/v1/jobs", job).await.status, 201);
    assert_eq!(server.post("/api/v1/jobs/1/cancel", "").await.status, 200);
    assert_eq!(server.post("/api/v1/jobs", job).await.json()["id"], 2);
    let reply = server.post("/api/v1/jobs/1/retry", "").await;
    assert_eq!((reply.status, reply.code().as_str()), (409, "key_taken"));
    assert_eq!(reply.json()["error"]["id"], 2);
}

#[tokio::test]
async fn bodies_need_the_right_type_and_no_compression() {
    let server = TestServer::open().await;
    let job = br#"{"name":"a"}"#;
    for (header, value) in [
        ("content-type", "application/x-www-form-urlencoded"),
        ("content-type", "text/plain"),
        ("x-none", "1"),
    ] {
        let reply = server.connect().await.call("POST", "/api/v1/jobs", &[(header, value)], job).await;
        assert_eq!((reply.status, reply.code().as_str()), (415, "content_type"), "{header}: {value}");
    }
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let reply = server.connect().await.call("POST", "/api/v1/jobs", &headers, job).await;
    assert_eq!((reply.status, reply.code().as_str()), (415, "content_encoding"));
    let with_charset = [("content-type", "application/json; charset=utf-8")];
    assert_eq!(server.connect().await.call("POST", "/api/v1/jobs", &with_charset, job).await.status, 201);
}

#[tokio::test]
async fn a_body_is_accepted_up_to_its_limit() {
    let limits = ListenerLimits { body_bytes_max: 1_000, ..ListenerLimits::default() };
    let server = TestServer::start(ServerOptions { limits, ..ServerOptions::default() }).await;
    let frame = r#"{"name":"a","payload":""}"#.len();
    let body = |bytes: usize| format!(r#"{{"name":"a","payload":"{}"}}"#, "x".repeat(bytes - frame));
    assert_eq!(server.post("/api/v1/jobs", &body(1_000)).await.status, 201);
    let reply = server.post("/api/v1/jobs", &body(1_001)).await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "body_too_large"));
    // Without an announced length, too.
    let mut client = server.connect().await;
    let chunk = format!("{:x}\r\n{}\r\n", 600, "x".repeat(600));
    let head = "POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                transfer-encoding: chunked\r\n\r\n";
    use tokio::io::AsyncWriteExt;
    client.stream.write_all(format!("{head}{chunk}{chunk}0\r\n\r\n").as_bytes()).await.unwrap();
    assert_eq!(client.reply("POST").await.unwrap().status, 413);
}

#[tokio::test]
async fn a_batch_or_payload_that_is_too_large_is_refused_whole() {
    let server = TestServer::open().await;
    let entries = vec![r#"{"id":1,"token":1,"outcome":"finish"}"#; 10_001].join(",");
    let reply = server.post("/api/v1/settle", &format!(r#"{{"settle":[{entries}]}}"#)).await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "batch_too_large"));
    let payload = "x".repeat((16 << 20) + 1);
    let reply = server.post("/api/v1/jobs", &format!(r#"{{"name":"a","payload":"{payload}"}}"#)).await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "payload_too_large"));
    assert_eq!(server.get("/api/v1/jobs").await.json()["jobs"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn a_result_that_is_too_large_is_refused_and_the_worker_may_report_a_smaller_one() {
    let bounds = Options { payload_bytes_max: 100, ..Options::default() };
    let server =
        TestServer::start_with(ServerOptions::default(), std::sync::Arc::new(SystemClock), bounds).await;
    let (id, token) = server.claimed(r#"{"name":"a"}"#).await;
    let (other, others) = server.claimed(r#"{"name":"b"}"#).await;
    let settle = async |outcome: &str, what: &str, bytes: usize| {
        let text = "x".repeat(bytes);
        let entry =
            format!(r#"{{"id":{id},"token":{token},"outcome":"{outcome}","{what}":{{"x":"{text}"}}}}"#);
        let second = format!(r#"{{"id":{other},"token":{others},"outcome":"finish"}}"#);
        server.post("/api/v1/settle", &format!(r#"{{"settle":[{entry},{second}]}}"#)).await
    };
    let answer = settle("finish", "result", 100).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    let error = &answer["settled"][0]["error"];
    assert_eq!((&answer["settled"][0]["ok"], &error["code"]), (&false.into(), &"payload_too_large".into()));
    assert!(error["message"].as_str().unwrap().contains("the maximum is 100"), "{error}");
    assert_eq!(answer["settled"][1]["ok"], true, "it is not held up: {answer}");
    let answer = settle("fail", "error", 100).await.json();
    assert_eq!(answer["settled"][0]["error"]["code"], "payload_too_large", "{answer}");
    assert_eq!(server.get(&format!("/api/v1/jobs/{id}")).await.json()["state"], "running");
    assert_eq!(settle("finish", "result", 10).await.json()["settled"][0]["ok"], true);
}

#[tokio::test]
async fn answers_are_not_to_be_guessed_at_or_kept() {
    let server = TestServer::open().await;
    for path in ["/api/v1/jobs", "/nowhere", "/healthz", "/metrics"] {
        let reply = server.get(path).await;
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{path}");
    }
}
