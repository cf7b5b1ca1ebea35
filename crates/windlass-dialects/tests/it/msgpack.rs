//! Calls in MessagePack.

use crate::support::{Reply, TestServer};
use serde_json::{Value, json};

const MSGPACK: &str = "application/msgpack";

async fn call(server: &TestServer, path: &str, body: &[u8]) -> Reply {
    let headers = [("content-type", MSGPACK), ("accept", MSGPACK)];
    let reply = server.connect().await.call("POST", path, &headers, body).await;
    assert_eq!(reply.header("content-type"), Some(MSGPACK));
    reply
}

fn read(reply: &Reply) -> Value {
    rmp_serde::from_slice(&reply.body).unwrap_or_else(|e| panic!("{e}: {:02x?}", reply.body))
}

/// `{"name":"a","payload":<bytes>}`
fn push_of(payload: &[u8]) -> Vec<u8> {
    let mut body = b"\x82\xa4name\xa1a\xa7payload".to_vec();
    body.extend_from_slice(payload);
    body
}

#[tokio::test]
async fn payloads_come_back_byte_for_byte() {
    let server = TestServer::open().await;
    for payload in [
        &[0x83, 0xa1, b'a', 0x01, 0xa1, b'b', 0xc4, 0x02, 0xff, 0x00, 0xa1, b'c', 0xc0][..],
        // An ext in a longer form than needed.
        &[0xc7, 0x02, 0x05, 0xaa, 0xbb],
        // Keys that JSON cannot represent.
        &[0x81, 0x01, 0x02],
        &[0xca, 0x40, 0x49, 0x0f, 0xdb],
        &[0xc3],
    ] {
        assert_eq!(call(&server, "/api/v1/jobs", &push_of(payload)).await.status, 201);
        let claimed = call(&server, "/api/v1/claim", &[0x80]).await;
        let mut field = b"\xa7payload".to_vec();
        field.extend_from_slice(payload);
        field.extend_from_slice(b"\xa6format\xa7msgpack");
        let found = claimed.body.windows(field.len()).any(|window| window == field);
        assert!(found, "{payload:02x?} in {:02x?}", claimed.body);
    }
}

#[tokio::test]
async fn bin_is_kept_as_binary_and_shown_as_base64_in_json() {
    let server = TestServer::open().await;
    call(&server, "/api/v1/jobs", &push_of(&[0xc4, 0x03, 1, 2, 3])).await;
    let view = server.get("/api/v1/jobs/1").await.json();
    assert_eq!((&view["payload_base64"], &view["format"]), (&json!("AQID"), &json!("binary")));
    let claimed = call(&server, "/api/v1/claim", &[0x80]).await;
    let field = b"\xa7payload\xc4\x03\x01\x02\x03";
    assert!(claimed.body.windows(field.len()).any(|window| window == field));
}

#[tokio::test]
async fn workers_of_either_encoding_read_each_others_jobs() {
    let server = TestServer::open().await;
    server.post("/api/v1/jobs", r#"{"name":"a","payload":{"n":[1,null,"x"]}}"#).await;
    let claimed = read(&call(&server, "/api/v1/claim", &[0x80]).await);
    let job = &claimed["jobs"][0];
    assert_eq!(job["payload"], json!({"n": [1, null, "x"]}));
    let settle = rmp_serde::to_vec_named(&json!({"settle": [
        {"id": job["id"], "token": job["token"], "outcome": "finish", "result": {"ok": true}},
    ]}))
    .unwrap();
    let settled = read(&call(&server, "/api/v1/settle", &settle).await);
    assert_eq!(settled["settled"][0]["state"], "completed");
    let view = server.get("/api/v1/jobs/1").await.json();
    assert_eq!((&view["result"], &view["result_format"]), (&json!({"ok": true}), &json!("msgpack")));
}

#[tokio::test]
async fn errors_come_in_the_encoding_that_is_read() {
    let server = TestServer::open().await;
    let reply = call(&server, "/api/v1/jobs", &[0x81, 0xa4]).await;
    assert_eq!((reply.status, read(&reply)["error"]["code"].clone()), (400, json!("malformed")));
    let headers = [("content-type", MSGPACK), ("accept", "application/json")];
    let reply = server.connect().await.call("POST", "/api/v1/jobs", &headers, &[0x81, 0xa4]).await;
    assert_eq!(reply.code(), "malformed");
    let deep = call(&server, "/api/v1/jobs", &push_of(&[0x91; 5_000])).await;
    assert_eq!(deep.status, 400);
}
