//! Export to an OpenTelemetry collector: a small receiver stands for it, and other people's code reads its JSON.

pub mod receiver;

use crate::jq::python;
use crate::server::{Ran, Server, eventually, request_with, windlass};
use crate::tls::make_certificate;
use receiver::Receiver;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT_SPAN: &str = "b7ad6b7169203331";

/// Server that exports to this address, with more arguments.
pub fn exporting(to: &str, args: &[&str]) -> Server {
    let endpoint = format!("otel.endpoint={to}");
    Server::start(&[&["--set", &endpoint, "--set", "otel.interval_s=1"], args].concat())
}

/// Spans received so far.
pub fn spans(receiver: &Receiver) -> Vec<Value> {
    let bodies = receiver.bodies("/v1/traces");
    let of = |body: &Value| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
    bodies.iter().flat_map(of).collect()
}

/// The span with this name and attempt.
pub fn span(spans: &[Value], name: &str, attempt: Option<&str>) -> Value {
    let is_it = |span: &&Value| {
        let tried = attribute(span, "windlass.job.attempt")["intValue"].as_str().map(str::to_owned);
        span["name"] == name && tried.as_deref() == attempt
    };
    spans.iter().find(is_it).unwrap_or_else(|| panic!("no {name} of {attempt:?} in {spans:#?}")).clone()
}

pub fn attribute(span: &Value, key: &str) -> Value {
    let all = span["attributes"].as_array().unwrap();
    all.iter().find(|one| one["key"] == key).map_or(Value::Null, |one| one["value"].clone())
}

fn claim(server: &Server, name: &str) -> Value {
    let ask = json!({"name": name, "wait_ms": 20_000, "worker": "w1"});
    server.call("POST", "/api/v1/claim", Some(ask)).1["jobs"][0].clone()
}

fn settle(server: &Server, job: &Value, mut outcome: Value) {
    outcome["id"] = job["id"].clone();
    outcome["token"] = job["token"].clone();
    let (_, answer) = server.call("POST", "/api/v1/settle", Some(json!({"settle": [outcome]})));
    assert_eq!(answer["settled"][0]["ok"], true, "{answer}");
}

/// Numbers in a received body, as read by the classes that are generated from OpenTelemetry's own description.
fn read_by_protobuf(receiver: &Receiver) -> Value {
    let lines: Vec<String> =
        receiver.all().iter().map(|one| format!("{} {}\n", one.path, one.body)).collect();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/otlp.py");
    let mut parser = Command::new(python())
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    parser.stdin.take().unwrap().write_all(lines.concat().as_bytes()).unwrap();
    let read = parser.wait_with_output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    serde_json::from_slice(&read.stdout).unwrap()
}

#[test]
fn a_trace_leads_from_the_client_over_push_and_wait_to_run_and_settle() {
    let receiver = Receiver::start(|_| 200);
    let mut server = exporting(&receiver.url(), &["--set", "otel.service_name=shop"]);
    let job = json!({"name": "mail", "retry": {"max_attempts": 2, "backoff": "none"}, "tags": [format!("traceparent={PARENT}")]});
    server.call("POST", "/api/v1/jobs", Some(job));
    let first = claim(&server, "mail");
    settle(&server, &first, json!({"outcome": "fail", "message": "no route", "class": "IOError"}));
    let second = claim(&server, "mail");
    settle(&server, &second, json!({"outcome": "finish"}));
    assert!(server.stop().success(), "{}", server.log());
    let spans = spans(&receiver);
    let of = |name: &str, attempt: Option<&str>| span(&spans, name, attempt);
    let (push, run) = (of("push mail", None), of("run mail", Some("1")));
    assert!(spans.iter().all(|span| span["traceId"] == TRACE), "{spans:#?}");
    assert_eq!(push["parentSpanId"], CLIENT_SPAN);
    for attempt in ["1", "2"] {
        assert_eq!(of("wait mail", Some(attempt))["parentSpanId"], push["spanId"]);
        let run = of("run mail", Some(attempt));
        assert_eq!((&run["parentSpanId"], &run["kind"]), (&push["spanId"], &json!(5)));
        assert_eq!(of("settle mail", Some(attempt))["parentSpanId"], run["spanId"]);
    }
    assert_eq!(run["status"], json!({"code": 2, "message": "no route"}));
    assert_eq!(attribute(&run, "error.type")["stringValue"], "IOError");
    assert_eq!(attribute(&run, "windlass.outcome")["stringValue"], "retried");
    assert_eq!(attribute(&run, "messaging.client.id")["stringValue"], "w1");
    assert_eq!(of("run mail", Some("2"))["status"], Value::Null);
    let read = read_by_protobuf(&receiver);
    assert_eq!((&read["spans"], &read["traces"]), (&json!(spans.len()), &json!([TRACE])), "{read}");
    assert_eq!(read["services"], json!(["shop"]));
}

#[test]
fn a_push_with_the_header_joins_its_trace_and_others_begin_one() {
    let receiver = Receiver::start(|_| 200);
    let mut server = exporting(&receiver.url(), &[]);
    let header = format!("traceparent: {PARENT}\r\n");
    let body = json!({"name": "mail"}).to_string();
    request_with(server.http, "POST", "/api/v1/jobs", &header, &body).unwrap();
    let unsampled = format!("traceparent: {}\r\n", PARENT.replace("-01", "-00"));
    request_with(server.http, "POST", "/api/v1/jobs", &unsampled, &body.replace("mail", "quiet")).unwrap();
    server.call("POST", "/api/v1/jobs", Some(json!({"name": "own"})));
    assert_eq!(server.job(1)["tags"], json!([format!("traceparent={PARENT}")]));
    let tag = server.job(3)["tags"][0].as_str().unwrap().to_owned();
    assert!(server.stop().success(), "{}", server.log());
    let spans = spans(&receiver);
    assert_eq!(spans.len(), 2, "the one that is not sampled is left out: {spans:#?}");
    assert_eq!(span(&spans, "push mail", None)["parentSpanId"], CLIENT_SPAN);
    let own = span(&spans, "push own", None);
    let context =
        format!("traceparent=00-{}-{}-01", own["traceId"].as_str().unwrap(), own["spanId"].as_str().unwrap());
    assert_eq!((tag, &own["parentSpanId"]), (context, &Value::Null), "workers continue the trace");
}

#[test]
fn a_push_to_the_journal_keeps_the_context_of_its_request() {
    let server = Server::start(&["--set", "journal.native=true"]);
    let header = format!("traceparent: {PARENT}\r\n");
    let (status, _) =
        request_with(server.http, "POST", "/api/v1/jobs", &header, r#"{"name":"mail"}"#).unwrap();
    assert_eq!(status, 202);
    let held = claim(&server, "mail");
    assert_eq!(held["tags"], json!([format!("traceparent={PARENT}")]), "also without an exporter");
}

#[test]
fn a_share_of_nothing_begins_no_trace() {
    let receiver = Receiver::start(|_| 200);
    let mut server = exporting(&receiver.url(), &["--set", "otel.sample=0"]);
    server.call("POST", "/api/v1/jobs", Some(json!({"name": "own"})));
    assert_eq!(server.job(1)["tags"], Value::Null);
    assert!(server.stop().success());
    assert_eq!(spans(&receiver), [Value::Null; 0]);
}

#[test]
fn metrics_are_those_of_the_page() {
    let receiver = Receiver::start(|_| 200);
    let mut server = exporting(&receiver.url(), &["--set", "otel.headers=x-key=a%20secret"]);
    for _ in 0..3 {
        server.run(&["push", "mail", "--queue", "q"]).ok();
    }
    let held = claim(&server, "mail");
    settle(&server, &held, json!({"outcome": "finish"}));
    let page = crate::server::request(server.http, "GET", "/metrics", "").unwrap().1;
    assert!(server.stop().success(), "{}", server.log());
    assert!(!server.log().contains("secret"));
    let sent = receiver.all();
    assert!(sent.iter().all(|one| one.head.contains("x-key: a secret\r\n")), "{:?}", sent[0].head);
    assert!(sent.iter().all(|one| one.head.contains("content-type: application/json\r\n")));
    let read = read_by_protobuf(&receiver);
    let names: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        // Families without a series are not sent.
        let has_series = page.lines().any(|line| {
            line.starts_with(&format!("{name}{{"))
                || line.starts_with(&format!("{name} "))
                || line.starts_with(&format!("{name}_count"))
        });
        assert_eq!(!read["metrics"][name].is_null(), has_series, "{name}");
    }
    assert_eq!(read["metrics"]["windlass_pushed_total"], json!({"kind": "sum", "points": [[{}, 3.0]]}));
    let runs = &read["metrics"]["windlass_job_runs_total"]["points"];
    let labels = json!({"tenant": "default", "queue": "q", "name": "mail", "outcome": "completed"});
    assert!(runs.as_array().unwrap().contains(&json!([labels, 1.0])), "{runs}");
    let waits = &read["metrics"]["windlass_pickup_seconds"];
    assert_eq!((&waits["kind"], &waits["points"][0][1]), (&json!("histogram"), &json!(1.0)));
}

#[test]
fn a_dead_collector_affects_no_job_and_is_logged_once() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let mut server = exporting(&format!("http://{address}"), &[]);
    let run_some = |server: &Server| {
        for _ in 0..5 {
            server.call("POST", "/api/v1/jobs", Some(json!({"name": "mail"})));
            let held = claim(server, "mail");
            settle(server, &held, json!({"outcome": "finish"}));
        }
    };
    run_some(&server);
    let warnings = |server: &Server| server.log().matches("cannot export traces").count();
    eventually("the outage is logged", || (warnings(&server) > 0).then_some(()));
    run_some(&server);
    let receiver = Receiver::start_on(address, |_| 200);
    eventually("the export resumes", || server.log().contains("are exported again").then_some(()));
    eventually("no span is lost", || (spans(&receiver).len() == 40).then_some(()));
    assert_eq!(warnings(&server), 1, "{}", server.log());
    assert!(server.stop().success());
}

#[test]
fn a_collector_that_refuses_is_counted_and_one_that_is_busy_is_asked_again() {
    let receiver = Receiver::start(|count| if count == 0 { 503 } else { 200 });
    let mut server = exporting(&receiver.url(), &["--set", "otel.interval_s=86400"]);
    server.run(&["push", "mail"]).ok();
    eventually("the batch is sent again", || (receiver.bodies("/v1/traces").len() == 2).then_some(()));
    assert!(server.stop().success());
    let sent = receiver.bodies("/v1/traces");
    assert_eq!(sent[0], sent[1]);
    let refusing = Receiver::start(|_| 401);
    let server = exporting(&refusing.url(), &[]);
    server.run(&["push", "mail"]).ok();
    eventually("the span is counted", || {
        let page = crate::server::request(server.http, "GET", "/metrics", "").unwrap().1;
        page.contains("windlass_otel_dropped_total 1\n").then_some(())
    });
    assert!(server.log().contains("status 401"), "{}", server.log());
}

#[test]
fn a_handler_at_a_url_is_called_within_the_span_of_its_run() {
    let (receiver, handler) = (Receiver::start(|_| 200), Receiver::start(|_| 200));
    let mut server = exporting(&receiver.url(), &[]);
    let text = json!({"lang": "http", "body": handler.url()});
    assert_eq!(server.call("POST", "/acme/handler/add/web/add", Some(text)).0, 200);
    assert_eq!(server.call("POST", "/acme/job/web/add", Some(json!("a line"))).0, 200);
    let call = eventually("the handler is called", || handler.all().into_iter().next());
    eventually("its run is settled", || {
        let page = crate::server::request(server.http, "GET", "/metrics", "").unwrap().1;
        page.contains("windlass_finished_total 1\n").then_some(())
    });
    assert!(server.stop().success());
    let run = span(&spans(&receiver), "run web", Some("1"));
    let context = format!("00-{}-{}-01", run["traceId"].as_str().unwrap(), run["spanId"].as_str().unwrap());
    assert!(call.head.contains(&format!("traceparent: {context}\r\n")), "{} in {}", context, call.head);
    assert_eq!(attribute(&run, "windlass.tenant")["stringValue"], "acme");
}

#[test]
fn a_worker_of_jq_is_called_within_the_span_of_its_run() {
    let (receiver, worker) = (Receiver::start(|_| 200), Receiver::start(|_| 200));
    let mut server = exporting(&receiver.url(), &[]);
    let ask = json!({"name": "w", "url": worker.url(), "max_jobs": 1});
    assert_eq!(server.call("POST", "/jq/worker", Some(ask)).0, 201);
    server.call("POST", "/jq/job", Some(json!({"name": "j", "argument": {"a": 1}})));
    let call = eventually("the worker is called", || {
        worker.all().into_iter().find(|call| call.path.ends_with("/worker-job"))
    });
    assert!(server.stop().success());
    let wait = span(&spans(&receiver), "wait j", Some("1"));
    assert!(
        call.head.contains(&format!("traceparent: 00-{}-", wait["traceId"].as_str().unwrap())),
        "{}",
        call.head
    );
}

#[test]
fn a_collector_behind_tls_is_reached_with_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    make_certificate(folder.path(), &["-addext", "subjectAltName=DNS:localhost"]);
    let collector = crate::tls::start(folder.path());
    let ca = format!("otel.ca={}", folder.path().join("cert.pem").display());
    let to = format!("https://localhost:{}", collector.http.port());
    let server = exporting(&to, &["--set", &ca]);
    // A Windlass server has no such path; its answer shows that TLS worked.
    eventually("the answer is logged", || server.log().contains("status 404").then_some(()));
    let ran =
        Ran::of(
            windlass()
                .args(["serve", "--store", "memory:", "--http", "127.0.0.1:0", "--bedrock", "off"])
                .args(["--set", "otel.ca=/nonexistent.pem", "--set", "otel.endpoint=https://localhost:1"]),
        );
    assert!(ran.code != 0 && ran.stderr.contains("otel.ca"), "{ran:?}");
}

#[test]
fn a_wrong_setting_is_refused_in_words() {
    for (set, words) in [
        ("otel.endpoint=localhost:4318", "does not start with http:// or https://"),
        ("otel.endpoint=http://ann:word@localhost", "must not contain a user name or password"),
        ("otel.sample=1.5", "a number from 0 to 1"),
        ("otel.headers=novalue", "NAME=VALUE"),
        ("otel.interval_s=0", "from 1 to"),
    ] {
        let on = "otel.endpoint=http://localhost:4318";
        let ran = Ran::of(windlass().args(["config", "--set", on, "--set", set]));
        assert!(ran.code != 0 && ran.stderr.contains(words), "{set}: {ran:?}");
        assert!(!ran.stderr.contains("word@"), "{ran:?}");
    }
}
