//! Resource limits of a connection, and admission: web pages, clients without a token, isolation of tenants.

use super::{Bedrock, Conn, eventually};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::Tenant;
use windlass_dialects::ServerOptions;
use windlass_dialects::budget::{Budget, Share};
use windlass_dialects::listener::ListenerLimits;
use windlass_dialects::{Role, TokenRecord, Tokens, generate_token};

/// Server with a token of the role operator for each of two tenants.
struct Guarded {
    server: Bedrock,
    a: String,
    b: String,
}

async fn guarded(options: ServerOptions) -> Guarded {
    let [a, b] = [(); 2].map(|()| generate_token().unwrap());
    let record = |token: &str, tenant| {
        TokenRecord::of(token, Tenant::new(tenant).unwrap(), Role::Operator, None).unwrap()
    };
    let tokens = Arc::new(Tokens::new([record(&a, "a"), record(&b, "b")]).unwrap());
    let server = Bedrock::with(ServerOptions { tokens, ..options }).await;
    Guarded { server, a, b }
}

fn first_timeout(ms: u64) -> ServerOptions {
    let limits = ListenerLimits { first_timeout: Duration::from_millis(ms), ..ListenerLimits::default() };
    ServerOptions { limits, ..ServerOptions::default() }
}

async fn status_and_end(c: &mut Conn) -> String {
    let status = c.reply().await.expect("a reply").status;
    assert!(c.reply().await.is_none(), "closed after {status}");
    status
}

#[tokio::test]
async fn what_a_web_page_makes_a_browser_send_changes_nothing_and_ends_the_connection() {
    let server = Bedrock::seed().await;
    let id = server.connect().await.create("kept", &[]).await;
    let query = "query: DELETE FROM jobs;\r\nnowhere: true\r\n";
    let next = "DeleteJob\r\njobID: 1\r\n\r\n";
    for (head, expected) in [
        ("Query / HTTP/1.1\r\nHost: evil.example:8888\r\n", "421"),
        ("Query / HTTP/1.1\r\nHost: localhost:8888\r\nOrigin: http://evil.example\r\n", "403"),
        ("POST / HTTP/1.1\r\nHost: localhost:8888\r\n", "430"),
        ("GET / HTTP/1.1\r\nHost: localhost:8888\r\n", "430"),
    ] {
        let mut c = server.connect().await;
        c.send(&format!("{head}{query}\r\n{next}")).await;
        let status = status_and_end(&mut c).await;
        assert!(status.starts_with(expected), "{head}: {status}");
    }
    let mut c = server.connect().await;
    assert_eq!(c.state(id).await, "QUEUED");
    c.send("GET /status/handlingCommands HTTP/1.1\r\nHost: balancer\r\n\r\n").await;
    assert_eq!(c.reply().await.unwrap().status, "HTTP/1.1 200 LEADING");
    assert_eq!(c.status("Ping / HTTP/1.1", &[("Host", "127.0.0.1:8888")]).await, "200 OK");
}

#[tokio::test]
async fn a_stranger_cannot_make_the_server_keep_a_large_request() {
    let Guarded { server, a, .. } = guarded(ServerOptions::default()).await;
    let data = format!("{{\"a\":\"{}\"}}", "x".repeat(200_000));
    let mut stranger = server.connect().await;
    stranger.send(&format!("CreateJob\nname: a\ndata: {}", &data[..100_000])).await;
    let status = status_and_end(&mut stranger).await;
    assert!(status.starts_with("413 Request too large: a request of more than 64 KiB"), "{status}");
    let mut wrong = server.connect().await;
    wrong.send(&format!("CreateJob\ntoken: wl_wrong\nname: a\ndata: {}", &data[..100_000])).await;
    assert!(status_and_end(&mut wrong).await.starts_with("413"));
    // The token precedes the data, and later requests come from an admitted client.
    let mut known = server.connect().await;
    assert_eq!(known.status("CreateJob", &[("token", &a), ("name", "a"), ("data", &data)]).await, "200 OK");
    assert_eq!(known.status("CreateJob", &[("name", "a"), ("data", &data), ("token", &a)]).await, "200 OK");
}

#[tokio::test]
async fn silent_and_trickling_strangers_are_cut_off_and_those_that_are_known_are_not() {
    let Guarded { server, a, .. } = guarded(first_timeout(300)).await;
    let mut known = server.connect().await;
    assert_eq!(
        known.status("QueryJob", &[("token", &a), ("jobID", "1")]).await,
        "404 No job with this jobID"
    );
    let began = Instant::now();
    let mut silent = server.connect().await;
    assert!(silent.reply().await.is_none());
    let mut trickling = server.connect().await;
    loop {
        use tokio::io::AsyncWriteExt;
        if trickling.stream.write_all(b"a").await.is_err() {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "still open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(known.status("Ping", &[]).await, "200 OK");
}

#[tokio::test]
async fn where_no_token_is_needed_the_first_request_makes_a_client_known() {
    let server = Bedrock::with(first_timeout(50)).await;
    let mut known = server.connect().await;
    assert_eq!(known.status("Ping", &[]).await, "200 OK");
    let mut silent = server.connect().await;
    assert!(silent.reply().await.is_none());
    assert_eq!(known.status("Ping", &[]).await, "200 OK");
}

#[tokio::test]
async fn one_address_cannot_take_all_connections() {
    let limits = ListenerLimits { connections_per_address: 2, ..ListenerLimits::default() };
    let options = ServerOptions { limits, ..ServerOptions::default() };
    let Guarded { server, a, .. } = guarded(options).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    assert_eq!(first.status("Ping", &[]).await, "200 OK");
    assert_eq!(second.status("Ping", &[]).await, "200 OK");
    let mut third = server.connect().await;
    assert_eq!(status_and_end(&mut third).await, "503 Too many connections");
    assert_eq!(
        first.status("QueryJob", &[("token", &a), ("jobID", "1")]).await,
        "404 No job with this jobID"
    );
    let mut third = server.connect().await;
    assert_eq!(third.status("Ping", &[]).await, "200 OK");
}

#[tokio::test]
async fn jobs_that_crash_their_workers_are_a_tenants_own() {
    let Guarded { server, a, b } = guarded(ServerOptions::default()).await;
    let mut c = server.connect().await;
    for token in [&a, &b] {
        assert_eq!(c.status("CreateJob", &[("token", token), ("name", "payroll")]).await, "200 OK");
    }
    assert_eq!(c.status("CrashBedrockJob", &[("token", &a), ("names", "*pay*")]).await, "200 OK");
    for (token, id, state) in [(&a, "1", "FAILED"), (&b, "2", "RUNNING")] {
        assert_eq!(c.status("GetJob", &[("token", token), ("name", "payroll")]).await, "200 OK");
        let job = c.ask("QueryJob", &[("token", token), ("jobID", id)]).await.ok();
        assert_eq!(job.json()["state"], state);
    }
    let of_b = c.ask("Status", &[("token", &b)]).await.ok();
    assert!(!of_b.body.contains("*pay*"), "{}", of_b.body);
    assert_eq!(c.status("ClearCrashedBedrockJobs", &[("token", &b)]).await, "200 OK");
    let of_a = c.ask("Status", &[("token", &a)]).await.ok();
    assert!(of_a.body.contains("*pay*"), "{}", of_a.body);
}

#[tokio::test]
async fn commands_that_are_put_off_are_bounded_in_bytes_in_time_and_for_each_tenant() {
    let Guarded { server, a, b } = guarded(ServerOptions::default()).await;
    let mut c = server.connect().await;
    let now = super::START_MS * 1_000;
    let hour = (now + 3_600_000_000).to_string();
    let year = (now + 366 * 86_400_000_000).to_string();
    let far = [("token", a.as_str()), ("name", "x"), ("commandExecuteTime", &year)];
    assert_eq!(c.status("CreateJob", &far).await, "402 commandExecuteTime is more than 7 days ahead");
    let data = format!("{{\"a\":\"{}\"}}", "x".repeat(4 << 20));
    let put_off = |token| [("token", token), ("name", "x"), ("commandExecuteTime", &hour), ("data", &data)];
    let mut taken = 0;
    while c.status("CreateJob", &put_off(a.as_str())).await == "202 Successfully queued" {
        taken += 1;
        assert!(taken < 20, "tenant a has put off {taken} commands of 4 MiB");
    }
    assert_eq!(c.status("CreateJob", &put_off(a.as_str())).await, "503 Too many queued commands");
    assert_eq!(c.status("CreateJob", &put_off(b.as_str())).await, "202 Successfully queued");
}

#[tokio::test]
async fn a_large_request_waits_for_memory_and_is_then_refused() {
    let budget = Budget::with_wait(4 << 20, Duration::from_millis(100));
    let options = ServerOptions { budget: budget.clone(), ..ServerOptions::default() };
    let server = Bedrock::with(options).await;
    let data = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    let mut all = Share::default();
    budget.cover(&mut all, 4 << 20).await.unwrap();
    let mut c = server.connect().await;
    c.send_request("CreateJob", &[("name", "large"), ("data", &data)]).await;
    assert_eq!(status_and_end(&mut c).await, "503 Busy with other large requests; retry later");
    let mut c = server.connect().await;
    assert_eq!(c.status("CreateJob", &[("name", "small")]).await, "200 OK");
    drop(all);
    assert_eq!(c.status("CreateJob", &[("name", "large"), ("data", &data)]).await, "200 OK");
    assert_eq!(c.status("Ping", &[]).await, "200 OK");
    eventually(async || !budget.is_short()).await;
}
