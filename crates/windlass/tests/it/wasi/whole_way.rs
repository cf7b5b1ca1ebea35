//! End to end: a blob and a job over HTTP, run by the real server or by the real `windlass run-wasi`, with
//! the output as a blob.

use super::samples;
use crate::otel::{self, receiver::Receiver};
use crate::server::{Server, eventually, windlass};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

/// Sends a request with bytes in and out.
fn exchange(to: SocketAddr, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(to).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
    (status, answer[end + 4..].to_vec())
}

fn put(server: &Server, bytes: &[u8]) -> String {
    let (status, address) = exchange(server.http, "PUT", "/blob", bytes);
    assert!(matches!(status, 200 | 201), "{status}");
    String::from_utf8(address).unwrap().trim().to_owned()
}

fn blob(server: &Server, job: &Value) -> String {
    let address = job["output_addr"].as_str().unwrap_or_else(|| panic!("no output: {job}"));
    let (status, bytes) = exchange(server.http, "GET", &format!("/blob/{address}"), b"");
    assert_eq!(status, 200, "{address}");
    String::from_utf8(bytes).unwrap()
}

fn create(server: &Server, binary: &str, input: Option<&str>) -> String {
    let ask = json!({"binary_addr": binary, "input_addr": input});
    let (status, job) = server.call("POST", "/jobs/create", Some(ask));
    assert_eq!(status, 200, "{job}");
    job["job_id"].as_str().unwrap().to_owned()
}

fn create_from(server: &Server, text: &str, input: Option<&[u8]>) -> String {
    let binary = put(server, &samples::compile(text));
    let input = input.map(|bytes| put(server, bytes));
    create(server, &binary, input.as_deref())
}

fn show(server: &Server, id: &str) -> Value {
    let (status, job) = server.call("GET", &format!("/jobs/{id}"), None);
    assert_eq!(status, 200, "{job}");
    job
}

fn ended(server: &Server, id: &str) -> Value {
    eventually("the job has ended", || {
        let job = show(server, id);
        matches!(job["status"].as_str(), Some("completed" | "failed")).then_some(job)
    })
}

fn is_active(server: &Server, id: &str) {
    eventually("the job runs", || (show(server, id)["status"] == "active").then_some(()));
}

/// Job in the native API, with its message.
fn native(server: &Server, id: &str) -> Value {
    let (status, page) = server.call("GET", "/api/v1/jobs?queue=queuey&limit=1000", None);
    assert_eq!(status, 200);
    let jobs = page["jobs"].as_array().unwrap();
    let job = jobs.iter().find(|job| job["alias"] == id).unwrap_or_else(|| panic!("{page}"));
    server.job(job["id"].as_u64().unwrap())
}

/// Runner process; killed on drop.
struct Runner(Child);

impl Runner {
    fn start(server: &Server, args: &[&str]) -> Runner {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        let url = server.url();
        command.args(["run-wasi", "--server", &url]).args(args).stdin(Stdio::null()).stderr(Stdio::null());
        Runner(command.spawn().unwrap())
    }

    fn stop(&mut self) -> i32 {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        crate::server::ended(&mut self.0).code().unwrap_or(-1)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_server_runs_modules_and_their_output_is_a_blob() {
    let server = Server::start(&["--set", "wasi.workers=1"]);
    let upper = create_from(&server, samples::UPPER, Some(b"hello"));
    let silent = create_from(&server, samples::UPPER, None);
    let sum = create_from(&server, &samples::serval_add(40, 2), None);
    let job = ended(&server, &upper);
    assert_eq!((job["status"].as_str(), job["run_attempts"].as_u64()), (Some("completed"), Some(1)));
    assert!(job["runner_id"].is_string() && job["completed_at"].is_i64(), "{job}");
    assert_eq!(blob(&server, &job), "HELLO");
    let job = ended(&server, &silent);
    assert_eq!((job["status"].as_str(), blob(&server, &job).as_str()), (Some("completed"), ""));
    assert_eq!(ended(&server, &sum)["status"], "failed", "exit code 42");
    assert_eq!(native(&server, &sum)["message"], "exit code 42");
    assert!(server.log().contains("running WASI jobs in 1 processes"), "{}", server.log());
}

#[test]
fn the_run_of_a_module_is_a_span_in_the_trace_of_its_push() {
    let receiver = Receiver::start(|_| 200);
    let mut server = otel::exporting(&receiver.url(), &["--set", "wasi.workers=1"]);
    let id = create_from(&server, &samples::exit(3), None);
    assert_eq!(ended(&server, &id)["status"], "failed");
    let name = native(&server, &id)["name"].as_str().unwrap().to_owned();
    assert!(server.stop().success());
    let spans = otel::spans(&receiver);
    let (push, run) = (
        otel::span(&spans, &format!("push {name}"), None),
        otel::span(&spans, &format!("run {name}"), Some("1")),
    );
    assert_eq!((&run["traceId"], &run["parentSpanId"]), (&push["traceId"], &push["spanId"]));
    assert_eq!(run["status"]["message"], "exit code 3", "{run}");
}

#[test]
fn failures_are_told_in_the_blob_and_in_the_job() {
    let server = Server::start(&["--set", "wasi.workers=2", "--set", "wasi.time_limit_s=3"]);
    let stranger = r#"(module (import "env" "launch" (func)) (func (export "_start")))"#;
    let junk = put(&server, b"this is no module");
    let nowhere = "68d5b57378f76645bf12506c88fb06a81ddb3965";
    let upper = put(&server, &samples::compile(samples::UPPER));
    let cases = [
        (create_from(&server, &samples::exit(3), None), "err", "exit code 3"),
        (
            create_from(&server, samples::TRAP, None),
            "err\nwindlass: wasm trap",
            "wasm trap: wasm `unreachable`",
        ),
        (
            create_from(&server, samples::LOOP, None),
            "windlass: the module exceeded its time limit of 3 s",
            "exceeded its time limit",
        ),
        (create_from(&server, stranger, None), "`env::launch`", "`env::launch`"),
        (create(&server, &junk, None), "cannot be loaded", "the module cannot be loaded"),
        (create(&server, nowhere, None), "blob 68d5", "the binary is not available: blob 68d5"),
        (create(&server, &upper, Some(nowhere)), "blob 68d5", "the input is not available: blob 68d5"),
        (create(&server, "../../etc/passwd", None), "is not a blob address", "the binary is not available"),
    ];
    for (id, in_blob, in_message) in cases {
        let job = ended(&server, &id);
        assert_eq!(
            (job["status"].as_str(), job["run_attempts"].as_u64()),
            (Some("failed"), Some(1)),
            "{job}"
        );
        let text = blob(&server, &job);
        assert!(text.contains(in_blob), "{text:?} lacks {in_blob:?}");
        let message = native(&server, &id)["message"].clone();
        assert!(message.as_str().unwrap_or_default().contains(in_message), "{message} lacks {in_message:?}");
    }
    let fine = create(&server, &upper, None);
    assert_eq!(ended(&server, &fine)["status"], "completed", "nothing of that harms the next");
}

#[test]
fn a_run_longer_than_the_abandoned_age_is_not_abandoned() {
    let server = Server::start(&["--set", "wasi.workers=1", "--set", "queuey.abandoned_age_s=2"]);
    let id = create_from(&server, &samples::sleep(5_000), None);
    let job = ended(&server, &id);
    assert_eq!((job["status"].as_str(), job["run_attempts"].as_u64()), (Some("completed"), Some(1)), "{job}");
}

#[test]
fn a_cancelled_job_is_stopped_at_once() {
    let server = Server::start(&["--set", "wasi.workers=1"]);
    let id = create_from(&server, samples::LOOP, None);
    is_active(&server, &id);
    let number = native(&server, &id)["id"].as_u64().unwrap();
    let (status, answer) = server.call("POST", &format!("/api/v1/jobs/{number}/cancel"), Some(json!({})));
    assert_eq!(status, 200, "{answer}");
    let next = create_from(&server, samples::UPPER, None);
    assert_eq!(
        ended(&server, &next)["status"],
        "completed",
        "its place is free, long before its time is over"
    );
    assert_eq!(server.state_of(number), "cancelled");
}

#[test]
fn a_server_that_stops_gives_running_jobs_back() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--set", "wasi.workers=1", "--set", "shutdown_s=1"];
    let mut server = Server::start_in(folder.path(), &args);
    let id = create_from(&server, samples::LOOP, None);
    is_active(&server, &id);
    assert!(server.stop().success(), "{}", server.log());
    let server = Server::start_in(folder.path(), &[]);
    let job = show(&server, &id);
    assert_eq!((job["status"].as_str(), job["run_attempts"].as_u64()), (Some("pending"), Some(0)), "{job}");
}

#[test]
fn a_job_whose_server_was_killed_in_mid_run_is_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let age = ["--set", "queuey.abandoned_age_s=2", "--set", "wasi.workers=1"];
    let mut server = Server::start_in(folder.path(), &age);
    let id = create_from(&server, &samples::sleep(2_500), None);
    is_active(&server, &id);
    server.kill();
    let server = Server::start_in(folder.path(), &age);
    let job = ended(&server, &id);
    let attempts = job["run_attempts"].as_u64();
    assert_eq!((job["status"].as_str(), attempts), (Some("completed"), Some(3)), "claim, abandonment, claim");
}

#[test]
fn a_job_whose_runner_was_killed_in_mid_run_is_run_by_another() {
    let server = Server::start(&["--set", "queuey.abandoned_age_s=2"]);
    let id = create_from(&server, &samples::sleep(2_500), None);
    let first = Runner::start(&server, &["--abandoned-age", "2s"]);
    is_active(&server, &id);
    let runner = show(&server, &id)["runner_id"].clone();
    drop(first);
    let mut second = Runner::start(&server, &["--abandoned-age", "2s"]);
    let job = ended(&server, &id);
    assert_eq!(job["status"], "completed", "{job}");
    assert_eq!(job["run_attempts"], 3, "claim, abandonment, claim");
    assert_ne!(job["runner_id"], runner);
    assert_eq!(second.stop(), 0);
}

#[test]
fn two_runners_share_fifty_jobs_and_run_each_once() {
    let server = Server::start(&[]);
    let ids: Vec<String> =
        (0..50).map(|n| create_from(&server, samples::UPPER, Some(format!("job {n}").as_bytes()))).collect();
    let mut runners =
        [Runner::start(&server, &["--workers", "2"]), Runner::start(&server, &["--workers", "2"])];
    let mut names = std::collections::BTreeSet::new();
    for (n, id) in ids.iter().enumerate() {
        let job = ended(&server, id);
        assert_eq!(
            (job["status"].as_str(), job["run_attempts"].as_u64()),
            (Some("completed"), Some(1)),
            "{job}"
        );
        assert_eq!(blob(&server, &job), format!("JOB {n}"));
        names.insert(job["runner_id"].as_str().unwrap().to_owned());
    }
    assert!((1..=2).contains(&names.len()), "{names:?}");
    for runner in &mut runners {
        assert_eq!(runner.stop(), 0);
    }
}

#[test]
fn blobs_may_be_at_another_server() {
    let storage = Server::start(&[]);
    let url = storage.url();
    let setting = format!("wasi.storage_url={url}");
    let inside = Server::start(&["--set", "wasi.workers=1", "--set", &setting]);
    let outside = Server::start(&[]);
    let _runner = Runner::start(&outside, &["--storage", &url]);
    let binary = put(&storage, &samples::compile(samples::UPPER));
    let input = put(&storage, b"far away");
    for server in [&inside, &outside] {
        let id = create(server, &binary, Some(&input));
        let job = ended(server, &id);
        assert_eq!(job["status"], "completed", "{job}");
        assert_eq!(blob(&storage, &job), "FAR AWAY", "outputs go there, too");
    }
}

#[test]
fn a_runner_says_what_it_does_and_refuses_nonsense() {
    let output = windlass().args(["run-wasi", "--workers", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = windlass().args(["run-wasi", "--server", "ftp://x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("unsupported scheme ftp://"));
}
