//! Durable steps on the command line: the table of a job's page, signals, and a retry from a step.

use crate::server::{Ran, Server, eventually};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

/// Pushes a job and claims it.
fn claimed(server: &Server, name: &str) -> Value {
    let (status, answer) = server.call("POST", "/api/v1/jobs", Some(json!({"name": name, "retry": 1})));
    assert_eq!(status, 201, "{answer}");
    claim(server)
}

pub fn claim(server: &Server) -> Value {
    let ask = json!({"worker": "w-1", "wait_ms": 10_000});
    let (status, mut answer) = server.call("POST", "/api/v1/claim", Some(ask));
    assert_eq!(status, 200, "{answer}");
    let job = answer["jobs"][0].take();
    assert!(job["id"].is_u64(), "a job is due: {answer}");
    job
}

pub fn keep(server: &Server, job: &Value, steps: Value) {
    let path = format!("/api/v1/jobs/{}/steps", job["id"]);
    let (status, answer) = server.call("POST", &path, Some(json!({"token": job["token"], "steps": steps})));
    assert_eq!(status, 200, "{answer}");
}

pub fn settle(server: &Server, job: &Value, fields: Value) {
    let mut entry = json!({"id": job["id"], "token": job["token"]});
    entry.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let (status, answer) = server.call("POST", "/api/v1/settle", Some(json!({"settle": [entry]})));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["settled"][0]["ok"], true, "{answer}");
}

/// Names of the kept steps.
pub fn names(server: &Server, id: u64) -> Vec<String> {
    let job = server.job(id);
    let steps = job["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    steps.iter().map(|step| step["name"].as_str().unwrap().to_owned()).collect()
}

/// Line of the page that begins with this word.
#[track_caller]
fn line<'a>(page: &'a str, word: &str) -> &'a str {
    let found = page.lines().find(|line| line.trim_start().starts_with(word));
    found.unwrap_or_else(|| panic!("no line {word} in\n{page}"))
}

#[test]
fn a_job_shows_its_steps_its_wait_and_its_early_signals() {
    let server = Server::start(&[]);
    let job = claimed(&server, "order");
    let began = server.job(1)["created_at"].as_i64().unwrap() - 90_000;
    keep(
        &server,
        &job,
        json!([
            {"name": "charge", "result": {"charge_id": "ch_1"}, "started_at": began},
            {"name": "evil\u{1b}[2J", "result": "x".repeat(500)},
        ]),
    );
    settle(
        &server,
        &job,
        json!({"outcome": "suspend", "signal": "stock", "delay_ms": 1, "step": "wait:stock"}),
    );
    let job = claim(&server);
    let wait =
        json!({"outcome": "suspend", "signal": "approval", "delay_ms": 259_200_000, "step": "wait:approval"});
    settle(&server, &job, wait);
    server.run(&["job", "1", "signal", "address"]).ok();

    let page = server.run(&["job", "1"]).ok();
    assert_eq!(line(&page, "steps").trim(), "steps       3 kept");
    assert_eq!(
        line(&page, "NAME").split_whitespace().collect::<Vec<_>>(),
        ["NAME", "KIND", "WHEN", "DURATION", "RESULT"]
    );
    let charge = line(&page, "charge");
    assert!(charge.contains(" run ") && charge.contains(" 1m3"), "{charge}");
    assert!(charge.ends_with(r#"  {"charge_id":"ch_1"}"#), "{charge}");
    let evil = line(&page, "evil");
    assert!(evil.ends_with("xx…") && !page.contains('\u{1b}'), "{evil:?}");
    assert!(line(&page, "wait:stock").contains(" signal ") && page.contains("timed out"), "{page}");
    let wait = line(&page, "waits for");
    assert!(wait.trim_start().starts_with("waits for   signal approval, until "), "{wait}");
    assert!(wait.contains(" (in 2d23h), since ") && wait.ends_with(", step wait:approval"), "{wait}");
    assert!(line(&page, "signals").trim_start().starts_with("signals     address "), "{page}");
    assert!(!page.contains("waiting for"), "told once: {page}");
    let told = server.run(&["job", "1", "--json"]).json();
    assert_eq!((told["steps"].as_array().unwrap().len(), &told["wait"]["signal"]), (3, &json!("approval")));

    let job = claimed(&server, "nap");
    settle(&server, &job, json!({"outcome": "suspend", "delay_ms": 60_000, "step": "sleep"}));
    let page = server.run(&["job", "2"]).ok();
    assert!(line(&page, "sleeps").trim_start().starts_with("sleeps      until "), "{page}");
}

#[test]
fn a_signal_wakes_the_job_that_waits_for_it_or_is_kept() {
    let server = Server::start(&[]);
    let job = claimed(&server, "order");
    let signal = |args: &[&str]| server.run(&[&["job", "1", "signal"], args].concat());
    let said = signal(&["go ahead/now", r#"{"by":"ann"}"#]).ok();
    assert_eq!(said, "job 1 does not wait for signal go ahead/now, which is kept until it does");
    settle(&server, &job, json!({"outcome": "suspend", "signal": "approval", "step": "ok"}));
    assert_eq!(server.state_of(1), "suspended");

    let broken = signal(&["approval", "{\"by\":\"ann"]);
    assert_eq!(broken.code, 2, "{broken:?}");
    assert!(broken.stderr.contains("begins like JSON, but is not") && broken.stderr.contains("--text"));
    assert_eq!(signal(&[""]).code, 2);
    assert_eq!(server.state_of(1), "suspended", "nothing was sent");

    let said = signal(&["approval", "{\"by\":\"ann", "--text"]).ok();
    assert_eq!(said, "job 1 runs again: it waited for signal approval");
    let steps = &server.job(1)["steps"];
    assert_eq!((&steps[0]["name"], &steps[0]["result"]), (&json!("ok"), &json!("{\"by\":\"ann")));

    // The early signal ends the wait at once, with its payload.
    let job = claim(&server);
    settle(&server, &job, json!({"outcome": "suspend", "signal": "go ahead/now", "step": "go"}));
    eventually("the job is ready", || (server.state_of(1) == "ready").then_some(()));
    assert_eq!(server.job(1)["steps"][1]["result"], json!({"by": "ann"}));

    let job = claim(&server);
    settle(&server, &job, json!({"outcome": "suspend", "signal": "file", "step": "file"}));
    let mut command = server.command(&["job", "1", "signal", "file", "-", "--json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"[1,\n 2]\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer, json!({"id": 1, "woken": true}));
    assert_eq!(server.job(1)["steps"][2]["result"], json!([1, 2]));

    let job = claim(&server);
    settle(&server, &job, json!({"outcome": "finish"}));
    let late = signal(&["approval"]);
    assert!(late.code == 1 && late.stderr.starts_with("error: "), "{late:?}");
    assert_eq!(server.run(&["job", "77", "signal", "approval"]).code, 1);
}

#[test]
fn a_retry_begins_at_the_step_it_names() {
    let server = Server::start(&[]);
    let job = claimed(&server, "order");
    keep(&server, &job, json!([{"name": "a", "result": 1}, {"name": "b", "result": 2}, {"name": "c"}]));
    let retry = |args: &[&str]| server.run(&[&["job", "1", "retry"], args].concat());
    let running = retry(&["--from", "b"]);
    assert!(running.code == 1 && running.stderr.contains("running"), "{running:?}");
    settle(&server, &job, json!({"outcome": "fail", "message": "no", "retry": false}));
    let none = retry(&["--from", "d"]);
    assert!(none.code == 1 && none.stderr.contains("no step of this name"), "{none:?}");
    assert_eq!(names(&server, 1), ["a", "b", "c"], "nothing was dropped");

    assert_eq!(retry(&["--from", "b"]).ok(), "job 1 is ready; it runs again from step b");
    assert_eq!(names(&server, 1), ["a"]);
    let job = claim(&server);
    assert_eq!((&job["steps"][0]["result"], &job["steps"][1]), (&json!(1), &Value::Null));
    settle(&server, &job, json!({"outcome": "fail", "message": "no", "retry": false}));
    assert_eq!(retry(&["--json"]).json()["state"], "ready");
    assert_eq!(names(&server, 1), ["a"], "a failed job keeps its steps");
}

#[test]
fn of_a_thousand_steps_the_last_are_shown() {
    let server = Server::start(&[]);
    let job = claimed(&server, "long");
    let steps: Vec<Value> = (0..1000).map(|n| json!({"name": format!("step-{n}"), "result": n})).collect();
    for part in steps.chunks(500) {
        keep(&server, &job, json!(part));
    }
    let page = server.run(&["job", "1"]).ok();
    assert!(page.contains("1000 kept; the last 100 are shown, --json has all"), "{page}");
    let rows: Vec<&str> = page.lines().filter(|line| line.trim_start().starts_with("step-")).collect();
    assert_eq!(rows.len(), 100);
    assert!(rows[0].contains("step-900 ") && rows[99].contains("step-999 "), "{page}");
    let told = server.run(&["job", "1", "--json"]).json();
    assert_eq!(told["steps"].as_array().unwrap().len(), 1000);
}

#[test]
fn completions_and_help_know_signals_and_steps() {
    let script = Ran::of(crate::server::windlass().args(["completions", "bash"])).ok();
    assert!(script.contains("signal") && script.contains("--from"));
    let help = Ran::of(crate::server::windlass().args(["job", "1", "signal", "--help"])).ok();
    assert!(help.contains("windlass job 42 signal approval") && help.contains("--text"), "{help}");
    let help = Ran::of(crate::server::windlass().args(["job", "1", "retry", "--help"])).ok();
    assert!(help.contains("windlass job 42 retry --from charge"), "{help}");
}
