//! The complete JQ worker in Python, `clients/python/examples/jq_worker.py`.

use super::gate::Gate;
use super::until_accepted;
use crate::jq::{Killed, call, python};
use crate::server::{PATIENCE, Server, ended, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/python/examples/jq_worker.py");
const QUICK: [&str; 2] = ["--set", "jq.backoff_base_ms=1"];

/// Starts a worker with its log in a file of the folder.
fn worker(folder: &Path, url: &str, args: &[&str]) -> Killed {
    let log = std::fs::File::create(folder.join("worker.log")).unwrap();
    let child = Command::new(python())
        .arg(PROGRAM)
        .args(args)
        .env("JQ", url)
        .stdin(Stdio::null())
        .stderr(log)
        .spawn();
    Killed(child.unwrap())
}

fn enqueue(server: &Server, name: &str, argument: Value) -> String {
    let job = json!({"name": name, "argument": argument, "keep_result": true, "max_retry": 3, "timeout": 60});
    call(server.http, "POST", "/job", "", &job).unwrap().1["job_id"].as_str().unwrap().to_owned()
}

fn end_of(server: &Server, id: &str) -> Value {
    let path = format!("/job/{id}/polling?timeout={}", PATIENCE.as_secs() - 1);
    let (status, job) = call(server.http, "GET", &path, "", &Value::Null).unwrap();
    assert_eq!(status, 200, "{job}");
    job
}

#[test]
fn the_complete_worker_runs_retries_and_gives_up() {
    let server = Server::start(&QUICK);
    let _worker = worker(server.folder(), &format!("{}/jq", server.url()), &["--max-jobs", "3"]);
    let run = |name: &str, argument: Value| end_of(&server, &enqueue(&server, name, argument));
    assert_eq!(run("add", json!({"a": 1, "b": 2.5}))["result"], 3.5);
    assert_eq!(run("divide", json!({"a": 7, "b": 2}))["result"], json!({"quotient": 3, "rest": 1}));
    let job = run("flaky", json!({"works_at": 3}));
    assert_eq!((&job["result"], &job["retry_count"]), (&json!(3), &json!(2)));
    let job = run("flaky", json!({"works_at": 99}));
    assert_eq!((&job["status"], &job["retry_count"]), (&json!("error"), &json!(3)));
    assert_eq!(job["message"], "ConnectionError: no luck with attempt 4");
    let job = run("divide", json!({"a": 7, "b": 0}));
    assert_eq!((&job["status"], &job["retry_count"]), (&json!("error"), &json!(0)));
    assert!(job["message"].as_str().unwrap().starts_with("ZeroDivisionError: "), "{job}");
    assert_eq!(job["error"], json!({"name": "divide", "argument": ["a", "b"]}));
    let job = run("add", json!({"a": "one"}));
    assert_eq!(job["message"], "GiveUp: the argument `a` must be a number, not 'one'");
    let unknown = enqueue(&server, "subtract", json!({}));
    let many: Vec<String> = (0..30).map(|n| enqueue(&server, "add", json!({"a": n, "b": n}))).collect();
    for (n, id) in many.iter().enumerate() {
        let job = end_of(&server, id);
        assert_eq!((&job["result"], &job["retry_count"]), (&json!(2 * n), &json!(0)), "{job}");
    }
    // In delivery until the worker has refused it.
    eventually("a kind of job it does not know waits for another worker", || {
        let (_, job) = call(server.http, "GET", &format!("/job/{unknown}"), "", &Value::Null).unwrap();
        (job["status"] == "queued").then_some(())
    });
}

#[test]
fn the_complete_worker_ends_what_it_has_when_it_is_told_to_stop() {
    let server = Server::start(&QUICK);
    let mut worker = worker(server.folder(), &format!("{}/jq", server.url()), &[]);
    // Long enough to still run when the signal arrives.
    let id = enqueue(&server, "sleep", json!({"s": 5}));
    until_accepted(&server, &id);
    kill_process(Pid::from_child(&worker.0), Signal::TERM).unwrap();
    assert!(ended(&mut worker.0).success());
    let (_, job) = call(server.http, "GET", &format!("/job/{id}"), "", &Value::Null).unwrap();
    assert_eq!(
        (&job["status"], &job["retry_count"], &job["result"]),
        (&json!("done"), &json!(0), &json!("slept"))
    );
    let log = std::fs::read_to_string(server.folder().join("worker.log")).unwrap();
    for line in [
        "registered as w-",
        "shutting down after SIGTERM",
        "waiting for 1 jobs",
        "job 1 done",
        "INFO stopped",
    ] {
        assert!(log.contains(line), "{line:?} is not in {log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_complete_worker_outlives_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &QUICK);
    let gate = Gate::open(server.http).await;
    let _worker = worker(folder.path(), &gate.url(), &[]);
    let id = enqueue(&server, "sleep", json!({"s": 1}));
    let me = until_accepted(&server, &id);
    gate.close();
    server.kill();
    let server = Server::start_in(folder.path(), &QUICK);
    gate.lead_to(server.http);
    let job = end_of(&server, &id);
    assert_eq!(
        (&job["result"], &job["retry_count"], &job["worker_id"]),
        (&json!("slept"), &json!(0), &json!(me))
    );
    // A server that does not know the worker.
    let other = Server::start(&QUICK);
    gate.lead_to(other.http);
    drop(server);
    let id = enqueue(&other, "add", json!({"a": 20, "b": 22}));
    assert_eq!(end_of(&other, &id)["result"], 42);
}
