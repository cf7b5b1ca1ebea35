//! Limits on connections, and TLS.

use crate::support::{Client, TestServer};
use rustls::pki_types::ServerName;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use windlass_dialects::ServerOptions;
use windlass_dialects::budget::{Budget, Share};
use windlass_dialects::listener::ListenerLimits;
use windlass_dialects::tls::Tls;

async fn limited(limits: ListenerLimits) -> TestServer {
    TestServer::start(ServerOptions { limits, ..ServerOptions::default() }).await
}

#[tokio::test]
async fn a_client_that_dawdles_over_its_header_is_cut() {
    let server =
        limited(ListenerLimits { header_timeout: Duration::from_millis(200), ..ListenerLimits::default() })
            .await;
    let mut client = server.connect().await;
    let begun = Instant::now();
    client.stream.write_all(b"GET /healthz HTTP/1.1\r\nx-slow: ").await.unwrap();
    let ended = loop {
        // A byte now and then does not help.
        if client.stream.write_all(b"a").await.is_err() {
            break begun.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(begun.elapsed() < Duration::from_secs(10), "still open");
    };
    assert!(ended >= Duration::from_millis(200), "{ended:?}");
}

#[tokio::test]
async fn an_idle_connection_is_closed_but_a_waiting_claim_is_not_idle() {
    let limits = ListenerLimits {
        idle_timeout: Duration::from_millis(150),
        header_timeout: Duration::from_millis(150),
        ..ListenerLimits::default()
    };
    let server = limited(limits).await;
    let mut idle = server.connect().await;
    assert_eq!(idle.call("GET", "/healthz", &[], b"").await.status, 200);
    assert!(idle.until(b"x").await.is_none());
    let mut waiting = server.connect().await;
    let json = [("content-type", "application/json")];
    waiting.send("POST", "/api/v1/claim", &json, br#"{"wait_ms":600}"#).await;
    assert_eq!(waiting.reply("POST").await.unwrap().text(), r#"{"jobs":[]}"#);
    assert_eq!(waiting.call("GET", "/healthz", &[], b"").await.status, 200);
}

#[tokio::test]
async fn a_client_that_takes_none_of_its_answer_is_cut() {
    let server =
        limited(ListenerLimits { write_timeout: Duration::from_millis(200), ..ListenerLimits::default() })
            .await;
    // More than the socket buffers hold.
    let payload = "x".repeat(15 << 20);
    assert_eq!(
        server.post("/api/v1/jobs", &format!(r#"{{"name":"a","payload":"{payload}"}}"#)).await.status,
        201
    );
    let mut client = server.connect().await;
    client.send("GET", "/api/v1/jobs/1", &[], b"").await;
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    assert!(client.reply("GET").await.is_none(), "the answer came whole");
}

#[tokio::test]
async fn the_time_for_a_header_does_not_run_between_two_requests() {
    let time = Duration::from_millis(1_500);
    let server =
        limited(ListenerLimits { header_timeout: time, first_timeout: time, ..ListenerLimits::default() })
            .await;
    let mut client = server.connect().await;
    for _ in 0..2 {
        assert_eq!(client.call("GET", "/healthz", &[], b"").await.status, 200);
        tokio::time::sleep(time * 2).await;
    }
    assert_eq!(client.call("GET", "/healthz", &[], b"").await.status, 200);
}

#[tokio::test]
async fn a_connection_on_which_nothing_comes_is_cut() {
    let server =
        limited(ListenerLimits { first_timeout: Duration::from_millis(200), ..ListenerLimits::default() })
            .await;
    let mut silent = server.connect().await;
    assert!(silent.until(b"x").await.is_none());
}

#[tokio::test]
async fn a_head_that_can_be_read_in_two_ways_is_refused_and_nothing_after_it_is_read() {
    let server = TestServer::open().await;
    let (post, host) = ("POST /api/v1/jobs HTTP/1.1\r\n", "host: localhost\r\n");
    let json = "content-type: application/json\r\n";
    let (length, coding) = ("content-length: 4\r\n", "transfer-encoding: chunked\r\n");
    let body = "c\r\n{\"name\":\"a\"}\r\n0\r\n\r\n";
    for head in [
        format!("{post}{host}{json}{length}{coding}"),
        format!("{post}{host}{json}{coding}{length}"),
        format!("{post}{host}host: localhost:1\r\n{json}{coding}"),
        format!("{post}{host}x: y\n{json}{coding}"),
        format!("{}{host}{json}{coding}", post.replace('\r', "")),
    ] {
        let mut client = server.connect().await;
        // On a reused connection, too.
        assert_eq!(client.call("GET", "/healthz", &[], b"").await.status, 200);
        client.stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
        assert_eq!(client.reply("POST").await.unwrap().status, 400, "{head:?}");
        assert!(client.until(b"x").await.is_none(), "still open after {head:?}");
    }
    let mut client = server.connect().await;
    client.stream.write_all(format!("{post}{host}{json}{coding}\r\n{body}").as_bytes()).await.unwrap();
    assert_eq!(client.reply("POST").await.unwrap().status, 201);
}

#[tokio::test]
async fn one_address_cannot_take_all_connections() {
    let limits = ListenerLimits { connections_per_address: 2, ..ListenerLimits::default() };
    let server = limited(limits).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    assert_eq!(first.call("GET", "/healthz", &[], b"").await.status, 200);
    assert_eq!(second.call("GET", "/healthz", &[], b"").await.status, 200);
    assert_eq!(server.connect().await.reply("GET").await.unwrap().status, 503);
    assert_eq!(first.call("GET", "/api/v1/queues", &[], b"").await.status, 200);
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_large_body_waits_for_memory_and_is_then_refused() {
    let budget = Budget::with_wait(4 << 20, Duration::from_millis(100));
    let options = ServerOptions { budget: budget.clone(), ..ServerOptions::default() };
    let server = TestServer::start(options).await;
    let large = format!(r#"{{"name":"a","payload":"{}"}}"#, "x".repeat(1 << 20));
    let mut all = Share::default();
    budget.cover(&mut all, 4 << 20).await.unwrap();
    let reply = server.post("/api/v1/jobs", &large).await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "busy"));
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(server.post("/api/v1/jobs", r#"{"name":"a"}"#).await.status, 201);
    let ready = server.get("/readyz").await;
    assert_eq!((ready.status, ready.code().as_str()), (503, "memory"));
    drop(all);
    assert_eq!(server.post("/api/v1/jobs", &large).await.status, 201);
    assert_eq!(server.get("/readyz").await.status, 200);
}

/// Set in the process that a test of this program has started for itself.
const ALONE: &str = "WINDLASS_TEST_ALONE";

/// In a process of its own: file descriptors are counted per process, and other tests open and close theirs.
#[test]
fn readiness_ends_when_file_descriptors_run_short() {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(count_descriptors());
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["connections::readiness_ends_when_file_descriptors_run_short", "--exact"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

async fn count_descriptors() {
    let used = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    for (max, status) in [(used, 503), (u64::MAX, 200)] {
        let options = ServerOptions { descriptors_max: Some(max), ..ServerOptions::default() };
        let server = TestServer::start(options).await;
        let reply = server.get("/readyz").await;
        assert_eq!(reply.status, status, "{max}: {}", reply.text());
    }
    // Exactly at the threshold: the last twentieth is left free.
    let server =
        TestServer::start(ServerOptions { descriptors_max: Some(1_000), ..ServerOptions::default() }).await;
    let mut held = Vec::new();
    let ready = async |held: &mut Vec<std::fs::File>, count: u64| {
        let used = || std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        while used() < count {
            held.push(std::fs::File::open("/dev/null").unwrap());
        }
        server.get("/readyz").await.status
    };
    assert_eq!(ready(&mut held, 900).await, 200);
    assert_eq!(ready(&mut held, 960).await, 503);
    held.clear();
    assert_eq!(ready(&mut held, 0).await, 200);
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let server = limited(ListenerLimits { connections_max: 2, ..ListenerLimits::default() }).await;
    let mut held = vec![];
    for _ in 0..2 {
        let mut client = server.connect().await;
        assert_eq!(client.call("GET", "/healthz", &[], b"").await.status, 200);
        held.push(client);
    }
    let reply = server.connect().await.reply("GET").await.unwrap();
    assert_eq!((reply.status, reply.code().as_str()), (503, "too_many_connections"));
    held.clear();
    let mut again = None;
    for _ in 0..100 {
        let mut client = server.connect().await;
        client.send("GET", "/healthz", &[], b"").await;
        again = client.reply("GET").await.map(|reply| reply.status);
        if again == Some(200) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(again, Some(200));
}

#[tokio::test]
async fn a_body_that_nobody_reads_does_not_end_the_connection() {
    let server = TestServer::open().await;
    let mut client = server.connect().await;
    for (method, path, status) in
        [("DELETE", "/api/v1/jobs/7", 404), ("POST", "/nothing", 404), ("PUT", "/api/v1/claim", 405)]
    {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n");
        client.stream.write_all(head.as_bytes()).await.unwrap();
        // The body arrives late, when the call may have been answered already.
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.stream.write_all(b"{}").await.unwrap();
        assert_eq!(client.reply(method).await.unwrap().status, status, "{method} {path}");
        assert_eq!(client.call("GET", "/healthz", &[], b"").await.status, 200, "after {method} {path}");
    }
}

#[tokio::test]
async fn an_answer_that_leaves_a_body_unread_says_that_it_is_the_last() {
    let server = TestServer::open().await;
    for head in ["content-length: 1000000", "content-length: 2\r\nexpect: 100-continue"] {
        let mut client = server.connect().await;
        let request = format!("POST /nothing HTTP/1.1\r\nhost: localhost\r\n{head}\r\n\r\n");
        client.stream.write_all(request.as_bytes()).await.unwrap();
        let reply = client.reply("POST").await.unwrap();
        assert_eq!((reply.status, reply.header("connection")), (404, Some("close")), "{head}");
        assert!(client.until(b"x").await.is_none(), "{head}");
    }
}

#[tokio::test]
async fn a_header_that_is_too_large_is_refused() {
    let server = limited(ListenerLimits { header_bytes_max: 16 * 1024, ..ListenerLimits::default() }).await;
    let mut client = server.connect().await;
    let large = "x".repeat(64 * 1024);
    let request = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-large: {large}\r\n\r\n");
    let _ = client.stream.write_all(request.as_bytes()).await;
    assert!(client.reply("GET").await.is_none_or(|reply| reply.status == 431));
}

#[tokio::test]
async fn smuggled_requests_are_refused() {
    let server = TestServer::open().await;
    for request in [
        "POST /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "POST /api/v1/claim HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
        "POST /api/v1/claim HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked, x\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost : localhost\r\n\r\n",
    ] {
        let mut client = server.connect().await;
        client.stream.write_all(request.as_bytes()).await.unwrap();
        let status = client.reply("POST").await.map(|reply| reply.status);
        assert!(matches!(status, None | Some(400)), "{request:?}: {status:?}");
    }
}

/// Writes a new self-signed certificate for localhost; returns the certificate for clients to trust.
fn certificate_in(folder: &Path) -> rustls::pki_types::CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

async fn tls_client(
    server: &TestServer,
    trusted: rustls::pki_types::CertificateDer<'static>,
) -> std::io::Result<Client<tokio_rustls::client::TlsStream<TcpStream>>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.addr).await?;
    let name = ServerName::try_from("localhost").unwrap();
    Ok(Client::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
}

#[tokio::test]
async fn tls_serves_and_follows_a_changed_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let first = certificate_in(folder.path());
    let tls = Arc::new(Tls::open(&cert, &key).unwrap());
    let server =
        TestServer::start(ServerOptions { tls: Some(Arc::clone(&tls)), ..ServerOptions::default() }).await;
    let mut client = tls_client(&server, first.clone()).await.unwrap();
    assert_eq!(client.call("GET", "/healthz", &[], b"").await.text(), "OK\n");

    // The files are checked when a connection arrives, at most once a second.
    let second = certificate_in(folder.path());
    let changed = Instant::now();
    while tls_client(&server, second.clone()).await.is_err() {
        assert!(changed.elapsed() < Duration::from_secs(10), "the new certificate is not used");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(tls_client(&server, first).await.is_err());

    let third = certificate_in(folder.path());
    tls.reload().unwrap();
    let mut client = tls_client(&server, third.clone()).await.unwrap();
    assert_eq!(client.call("GET", "/healthz", &[], b"").await.status, 200);

    std::fs::write(&cert, "nonsense").unwrap();
    assert!(tls.reload().is_err());
    assert!(tls_client(&server, third).await.is_ok(), "the old certificate stays in use");
}

#[tokio::test]
async fn plain_http_to_a_tls_port_is_answered_with_a_sentence_and_a_stalled_handshake_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    certificate_in(folder.path());
    let tls = Tls::open(folder.path().join("cert.pem"), folder.path().join("key.pem")).unwrap();
    let limits =
        ListenerLimits { tls_handshake_timeout: Duration::from_millis(200), ..ListenerLimits::default() };
    let server =
        TestServer::start(ServerOptions { tls: Some(Arc::new(tls)), limits, ..ServerOptions::default() })
            .await;
    let mut plain = server.connect().await;
    plain.send("GET", "/healthz", &[], b"").await;
    let reply = plain.reply("GET").await.unwrap();
    assert_eq!((reply.status, reply.code().as_str()), (400, "tls_required"));
    assert!(reply.text().contains("this port speaks TLS; use https://"), "{}", reply.text());
    let mut silent = server.connect().await;
    assert!(silent.until(b"x").await.is_none());
}

#[test]
fn missing_or_mismatched_files_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    assert!(Tls::open(&cert, &key).unwrap_err().to_string().contains("cert.pem"));
    certificate_in(folder.path());
    let kept = std::fs::read(&cert).unwrap();
    certificate_in(folder.path());
    std::fs::write(&cert, kept).unwrap();
    assert!(Tls::open(&cert, &key).is_err(), "a key of another certificate");
}

/// CA of client certificates.
fn authority() -> (rcgen::Issuer<'static, rcgen::KeyPair>, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    (rcgen::Issuer::new(params, key), pem)
}

/// True if a client with a certificate of this CA, or with none, gets a response.
async fn is_answered(
    server: &TestServer,
    trusted: &rustls::pki_types::CertificateDer<'static>,
    signed_by: Option<&rcgen::Issuer<'static, rcgen::KeyPair>>,
) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match signed_by {
        None => config.with_no_client_auth(),
        Some(issuer) => {
            let key = rcgen::KeyPair::generate().unwrap();
            let params = rcgen::CertificateParams::new(vec!["a client".to_owned()]).unwrap();
            let certificate = params.signed_by(&key, issuer).unwrap().der().clone();
            let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let Ok(mut stream) = TlsConnector::from(Arc::new(config)).connect(name, stream).await else {
        return false;
    };
    // With TLS 1.3 a client learns of its refusal only when it reads.
    if stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.is_err() {
        return false;
    }
    Client::new(stream).reply("GET").await.is_some_and(|reply| reply.status == 200)
}

#[tokio::test]
async fn with_a_client_ca_only_clients_with_its_certificates_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let trusted = certificate_in(folder.path());
    let ((ours, pem), (others, _)) = (authority(), authority());
    let ca = folder.path().join("clients.pem");
    std::fs::write(&ca, pem).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let tls = Arc::new(Tls::mutual(&cert, &key, Some(ca.clone())).unwrap());
    let server = TestServer::start(ServerOptions { tls: Some(tls), ..ServerOptions::default() }).await;
    assert!(is_answered(&server, &trusted, Some(&ours)).await);
    assert!(!is_answered(&server, &trusted, None).await);
    assert!(!is_answered(&server, &trusted, Some(&others)).await);
    std::fs::write(&ca, "nonsense").unwrap();
    assert!(Tls::mutual(&cert, &key, Some(ca)).unwrap_err().to_string().contains("clients.pem"));
}
