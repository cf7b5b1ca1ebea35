//! Blobs.

use crate::support::{Keys, Reply, TestServer};
use std::sync::Arc;
use windlass_dialects::ServerOptions;
use windlass_dialects::auth::Role;
use windlass_dialects::queuey::Settings;
use windlass_dialects::settings::DialectSettings;
use windlass_engine::blob::AddrForm;
use windlass_engine::{Options, SystemClock};

const SHA1: &str = "68d5b57378f76645bf12506c88fb06a81ddb3965";
const SHA256: &str = "979f59d88a9ea9a2ce524f679861133cdfb7318570302f3147f129a12f2e9698";
const SRI: &str = "sha256-l59Z2IqeqaLOUk9nmGETPN+3MYVwMC8xR/EpoS8ulpg=";

async fn put(server: &TestServer, bytes: &[u8]) -> Reply {
    server.connect().await.call("PUT", "/blob", &[], bytes).await
}

#[tokio::test]
async fn s65_the_first_put_answers_201_and_the_next_200_with_the_same_address() {
    let server = TestServer::open().await;
    for status in [201, 200, 200] {
        let reply = put(&server, b"WILSON!").await;
        assert_eq!((reply.status, reply.text().as_str()), (status, SHA1));
        assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
    }
}

#[tokio::test]
async fn s66_every_spelling_of_the_address_resolves() {
    let server = TestServer::open().await;
    put(&server, b"WILSON!").await;
    let encoded = SRI.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D");
    let upper = [SHA1.to_uppercase(), SHA256.to_uppercase()];
    for addr in [SHA1, SHA256, SRI, SRI.trim_end_matches('='), &encoded, &upper[0], &upper[1]] {
        let reply = server.get(&format!("/blob/{addr}")).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, "WILSON!"), "{addr}");
    }
}

#[tokio::test]
async fn the_address_in_the_answer_is_spelled_as_the_operator_says() {
    for (addresses, expected) in [(AddrForm::Sha256, SHA256), (AddrForm::Sri, SRI)] {
        let queuey = Settings { addresses, ..Settings::default() };
        let server = TestServer::start(ServerOptions {
            settings: DialectSettings::of(queuey),
            ..ServerOptions::default()
        })
        .await;
        assert_eq!(put(&server, b"WILSON!").await.text(), expected);
    }
}

#[tokio::test]
async fn s67_get_and_head_answer_with_the_same_codes() {
    let server = TestServer::open().await;
    let bytes: Vec<u8> = (0..=255).cycle().take(700_001).collect();
    let address = put(&server, &bytes).await.text();
    for method in ["GET", "HEAD"] {
        let found = server.call(method, &format!("/blob/{address}"), "").await;
        assert_eq!(found.status, 200, "{method}");
        assert_eq!(found.header("content-type"), Some("application/octet-stream"), "{method}");
        assert_eq!(found.header("content-length"), Some("700001"), "{method}");
        assert_eq!(found.body, if method == "GET" { bytes.clone() } else { vec![] });
        let unknown = server.call(method, &format!("/blob/{SHA1}"), "").await;
        assert_eq!(unknown.status, 404, "{method}");
        let wrong = [
            "",
            "x",
            "..",
            "../../etc/passwd",
            "..%2F..%2Fetc%2Fpasswd",
            "%2Fetc%2Fpasswd",
            "a/b",
            "%ff",
            "%00",
        ];
        let lengths = [&SHA1[1..], &SHA256[1..], "sha512-AAAA", "sha256-AAAA", "sha256-", &SHA256[..63]];
        let letters =
            ["zzd5b57378f76645bf12506c88fb06a81ddb3965", "./d5b57378f76645bf12506c88fb06a81ddb3965"];
        for addr in wrong.iter().chain(&lengths).chain(&letters) {
            let reply = server.call(method, &format!("/blob/{addr}"), "").await;
            assert_eq!(reply.status, 400, "{method} {addr:?}");
        }
    }
    let reply = server.get(&format!("/blob/{SHA1}")).await;
    assert_eq!(reply.text(), format!("Blob {SHA1} not found"));
}

#[tokio::test]
async fn s68_an_empty_blob_is_storable_and_one_byte_too_many_is_413() {
    let options = Options { blob_bytes_max: 1_000, ..Options::default() };
    let server = TestServer::start_with(ServerOptions::default(), Arc::new(SystemClock), options).await;
    let empty = put(&server, b"").await;
    assert_eq!((empty.status, empty.text().as_str()), (201, "da39a3ee5e6b4b0d3255bfef95601890afd80709"));
    let reply = server.get(&format!("/blob/{}", empty.text())).await;
    assert_eq!((reply.status, reply.body.len(), reply.header("content-length")), (200, 0, Some("0")));
    assert_eq!(put(&server, &[7; 1_000]).await.status, 201);
    assert_eq!(put(&server, &[7; 1_001]).await.status, 413);
    // Without an announced length it is detected while it arrives.
    let mut client = server.connect().await;
    let chunk = format!("{:x}\r\n{}\r\n", 600, "x".repeat(600));
    let request = format!(
        "PUT /blob HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"
    );
    tokio::io::AsyncWriteExt::write_all(&mut client.stream, request.as_bytes()).await.unwrap();
    assert_eq!(client.reply("PUT").await.unwrap().status, 413);
    assert_eq!(server.engine.list_blobs(None).await.unwrap().len(), 2);
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing() {
    let server = TestServer::open().await;
    let mut client = server.connect().await;
    let request = b"PUT /blob HTTP/1.1\r\nhost: localhost\r\ncontent-length: 7\r\n\r\nWIL";
    tokio::io::AsyncWriteExt::write_all(&mut client.stream, request).await.unwrap();
    drop(client);
    assert_eq!(put(&server, b"another").await.status, 201);
    assert_eq!(server.engine.list_blobs(None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn other_methods_are_told_what_is_possible() {
    let server = TestServer::open().await;
    let reply = server.get("/blob").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("PUT")));
    let reply = server.post(&format!("/blob/{SHA1}"), "{}").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET")));
}

#[tokio::test]
async fn an_address_alone_says_nothing_about_blobs_of_another_tenant() {
    let keys = Keys::for_tenants(&["a", "b"]);
    let server = TestServer::start(keys.options()).await;
    let (a, b) = (keys.of("a", Role::Worker), keys.of("b", Role::Worker));
    assert_eq!(server.call_as(Some(a), "PUT", "/blob", "WILSON!").await.status, 201);
    let path = format!("/blob/{SHA1}");
    let theirs = server.call_as(Some(b), "GET", &path, "").await;
    let nobodys = server.call_as(Some(b), "GET", &path.replace("68d5", "0000"), "").await;
    assert_eq!((theirs.status, nobodys.status), (404, 404));
    // 201, not 200: it is new to this tenant.
    assert_eq!(server.call_as(Some(b), "PUT", "/blob", "WILSON!").await.status, 201);
    let foreign = server.call_as(Some(b), "GET", &format!("{path}?tenant=a"), "").await;
    assert_eq!(foreign.status, 403);
    let admin = keys.of("b", Role::Admin);
    assert_eq!(server.call_as(Some(admin), "GET", &format!("{path}?tenant=a"), "").await.status, 200);
}

#[tokio::test]
async fn a_viewer_may_read_and_a_worker_may_put() {
    let keys = Keys::for_tenants(&["a"]);
    let server = TestServer::start(keys.options()).await;
    assert_eq!(server.call("PUT", "/blob", "x").await.status, 401);
    assert_eq!(server.call_as(Some(keys.of("a", Role::Viewer)), "PUT", "/blob", "x").await.status, 403);
    let address = server.call_as(Some(keys.of("a", Role::Worker)), "PUT", "/blob", "x").await.text();
    let path = format!("/blob/{address}");
    assert_eq!(server.call_as(Some(keys.of("a", Role::Viewer)), "GET", &path, "").await.status, 200);
    assert_eq!(server.get(&path).await.status, 401);
}
