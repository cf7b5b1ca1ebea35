//! SideJob with the real command: the document's walkthrough with curl, kills at any moment, restarts.

use crate::rigs::cluster::postgres_server::{Disk, PostgresServer};
use crate::server::{Ran, Server, request};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// Data of a server across restarts.
struct Home {
    folder: TempDir,
    store: Vec<String>,
}

impl Home {
    fn embedded() -> Home {
        Home { folder: tempfile::tempdir().unwrap(), store: Vec::new() }
    }

    fn on_postgresql() -> Home {
        let mut home = Home::at(&PostgresServer::shared().new_schema_url());
        // That database runs without fsync.
        home.store.extend(["--durability", "relaxed"].map(str::to_owned));
        home
    }

    fn at(url: &str) -> Home {
        Home { store: vec!["--store".to_owned(), url.to_owned()], ..Home::embedded() }
    }

    fn start(&self, settings: &[&str]) -> Server {
        let store = self.store.iter().map(String::as_str);
        Server::start_in(self.folder.path(), &settings.iter().copied().chain(store).collect::<Vec<_>>())
    }
}

fn post(server: &Server, path: &str, body: Value) -> Value {
    let (status, answer) = server.call("POST", &format!("/sidejob{path}"), Some(body.clone()));
    assert_eq!(status, 200, "{path} {body}: {answer}");
    answer
}

fn get(server: &Server, path: &str) -> Value {
    let (status, answer) = server.call("GET", &format!("/sidejob{path}"), None);
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

fn register(server: &Server) {
    let classes = json!({
        "IO": {"inports": {"a": {}, "b": {}}, "outports": {"x": {}}},
        "Def": {"inports": {"a": {"default": 7}}},
    });
    assert_eq!(server.call("PUT", "/sidejob/workers/q", Some(classes)).0, 200);
}

fn create(server: &Server, class: &str) -> u64 {
    post(server, "/jobs", json!({"queue": "q", "class": class}))["job"].as_u64().unwrap()
}

fn claim(server: &Server) -> Value {
    post(server, "/queues/q/claim", json!({"wait": 20}))
}

/// Walkthrough of the dialect's page, run with curl: only times and tokens differ.
#[test]
fn the_documents_walkthrough_is_what_curl_shows() {
    let page = include_str!("../../../../docs/dialects/sidejob.md");
    let example = page.split("```console\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let server = Server::start(&[]);
    let mut token: Option<(String, String)> = None;
    let mut commands = 0;
    for step in example.split("$ ").filter(|step| !step.trim().is_empty()) {
        let (command, expected) = step.split_once('\n').unwrap();
        let mut command = command.replace("localhost:7373", &server.http.to_string());
        if let Some((shown, real)) = &token {
            command = command.replace(shown.as_str(), real);
        }
        let text = Ran::of(Command::new("sh").args(["-c", &command])).ok();
        let (expected, shown): (Value, Value) =
            (serde_json::from_str(expected).unwrap(), serde_json::from_str(&text).unwrap());
        if let (Some(written), Some(real)) = (expected["token"].as_str(), shown["token"].as_str()) {
            token = Some((written.to_owned(), real.to_owned()));
        }
        assert_eq!(without_chance(expected), without_chance(shown), "{command}");
        commands += 1;
    }
    assert_eq!(commands, 13);
}

/// Replaces times and tokens, of which only the presence can be checked.
fn without_chance(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(key, value)| match key.as_str() {
                    "token" | "timestamp" | "created_at" | "ran_at" => {
                        assert!(value.is_string(), "{key}: {value}");
                        (key, Value::Null)
                    }
                    _ => (key, without_chance(value)),
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_chance).collect()),
        other => other,
    }
}

#[test]
fn everything_survives_a_kill() {
    survive_a_kill(&Home::embedded());
}

#[test]
fn everything_survives_a_kill_on_postgresql() {
    survive_a_kill(&Home::on_postgresql());
}

fn survive_a_kill(home: &Home) {
    let settings = ["--set", "sidejob.lease_s=1"];
    let mut server = home.start(&settings);
    register(&server);
    let (io, default, later) = (create(&server, "IO"), create(&server, "Def"), create(&server, "IO"));
    post(&server, &format!("/jobs/{io}/state"), json!({"n": {"z": 1, "a": 12}}));
    post(&server, &format!("/jobs/{io}/inports/a/write"), json!({"list": [1, {"k": null}]}));
    post(&server, &format!("/jobs/{later}/status"), json!({"status": "completed"}));
    post(&server, &format!("/jobs/{later}/run"), json!({"wait": 100_000}));
    post(&server, &format!("/jobs/{io}/adopt"), json!({"child": default, "name": "d"}));
    let run = claim(&server);
    assert_eq!(run["job"], json!(io));
    let logs = get(&server, "/logs");
    server.kill();

    let server = home.start(&settings);
    assert_eq!(get(&server, "/logs"), logs);
    let view = get(&server, &format!("/jobs/{io}"));
    assert_eq!(view["state"]["n"], json!({"z": 1, "a": 12}));
    assert_eq!(view["inports"]["a"], json!({"size": 2}));
    assert_eq!(view["children"], json!({"d": default}));
    assert_eq!(get(&server, &format!("/jobs/{default}/inports/a")), json!({"size": 0, "default": 7}));
    assert_eq!(get(&server, &format!("/jobs/{later}"))["status"], "queued");
    assert!(get(&server, "/workers/q")["IO"].is_object());
    // The other job waits, and the run of the lost worker is claimed again.
    let mut claimed = vec![claim(&server)["job"].clone(), claim(&server)["job"].clone()];
    claimed.sort_by_key(Value::as_u64);
    assert_eq!(claimed, [json!(io), json!(default)]);
    let entries = post(&server, &format!("/jobs/{io}/inports/a/entries"), json!({}));
    assert_eq!(entries["entries"], json!([1, {"k": null}]));
}

/// Moves values between two ports until the server is killed.
fn keep_connecting(address: SocketAddr) {
    for round in 0.. {
        let (from, to) = if round % 2 == 0 { (1, 2) } else { (2, 1) };
        let body = json!({"to": {"job": to, "inport": "a"}}).to_string();
        let path = format!("/sidejob/jobs/{from}/inports/a/connect");
        if request(address, "POST", &path, &body).is_err() {
            return;
        }
    }
}

#[test]
fn no_kill_loses_or_doubles_what_a_connection_moves() {
    kill_while_connecting(&Home::embedded());
}

#[test]
fn no_kill_loses_or_doubles_what_a_connection_moves_on_postgresql() {
    kill_while_connecting(&Home::on_postgresql());
}

/// Creates two jobs, with two hundred values at the first.
fn two_jobs(server: &Server) {
    register(server);
    for _ in 0..2 {
        create(server, "IO");
    }
    let values: Vec<u32> = (0..200).collect();
    post(server, "/jobs/1/inports/a/write", json!({"list": values}));
}

fn sizes(server: &Server) -> [u64; 2] {
    [1, 2].map(|job| get(server, &format!("/jobs/{job}/inports/a"))["size"].as_u64().unwrap())
}

/// Checks that every value is at one of the two jobs, once.
fn assert_all_there(server: &Server) {
    let mut left: Vec<u64> = vec![];
    for job in [1, 2] {
        let entries = post(server, &format!("/jobs/{job}/inports/a/entries"), json!({}));
        left.extend(entries["entries"].as_array().unwrap().iter().map(|value| value.as_u64().unwrap()));
    }
    left.sort_unstable();
    assert_eq!(left, (0..200).collect::<Vec<u64>>());
}

fn kill_while_connecting(home: &Home) {
    let mut server = home.start(&[]);
    two_jobs(&server);
    for round in 0..6 {
        let address = server.http;
        let movers: Vec<_> = (0..3).map(|_| thread::spawn(move || keep_connecting(address))).collect();
        thread::sleep(Duration::from_millis(60 + 37 * round));
        server.kill();
        movers.into_iter().for_each(|mover| mover.join().unwrap());
        server = home.start(&[]);
        let sizes = sizes(&server);
        assert_eq!(sizes.iter().sum::<u64>(), 200, "round {round}: {sizes:?}");
    }
    assert_all_there(&server);
}

/// Moves values until it is stopped, whatever the responses; counts the successes.
fn connect_all_the_time(address: SocketAddr, moved: &AtomicU64, is_over: &AtomicBool) {
    for round in 0.. {
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        let (from, to) = if round % 2 == 0 { (1, 2) } else { (2, 1) };
        let body = json!({"to": {"job": to, "inport": "a"}}).to_string();
        let path = format!("/sidejob/jobs/{from}/inports/a/connect");
        let (status, answer) = request(address, "POST", &path, &body).expect("the server is there");
        match status {
            200 => drop(moved.fetch_add(1, Ordering::SeqCst)),
            // Not done, or not known.
            500 | 503 => thread::sleep(Duration::from_millis(20)),
            other => panic!("{other}: {answer}"),
        }
    }
}

/// Waits for enough successes that most likely every thread has contributed.
fn until_more(moved: &AtomicU64) {
    let (began, before) = (Instant::now(), moved.load(Ordering::SeqCst));
    while moved.load(Ordering::SeqCst) < before + 20 {
        assert!(began.elapsed() < PATIENCE * 3, "nothing is moved any more");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn no_kill_of_postgresql_loses_or_doubles_what_a_connection_moves_at_two_servers() {
    let database = PostgresServer::start(Disk::Safe, &[]);
    let homes = [Home::at(&database.url()), Home::at(&database.url())];
    let servers = homes.each_ref().map(|home| home.start(&[]));
    two_jobs(&servers[0]);
    let (moved, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let movers: Vec<_> = servers
        .iter()
        .cycle()
        .take(4)
        .map(|server| {
            let (address, moved, is_over) = (server.http, moved.clone(), is_over.clone());
            thread::spawn(move || connect_all_the_time(address, &moved, &is_over))
        })
        .collect();
    for round in 0..4 {
        until_more(&moved);
        match round % 2 {
            0 => drop(database.sql(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
            )),
            _ => {
                database.kill();
                database.resume();
            }
        }
    }
    until_more(&moved);
    is_over.store(true, Ordering::SeqCst);
    movers.into_iter().for_each(|mover| mover.join().unwrap());
    assert_all_there(&servers[1]);
}

/// Runs job 1 until the server is killed, or no input is left: each pair of inputs becomes one output.
fn keep_summing(address: SocketAddr) {
    let call = |path: &str, body: Value| -> Option<Value> {
        let (status, text) = request(address, "POST", &format!("/sidejob{path}"), &body.to_string()).ok()?;
        if status == 200 { serde_json::from_str(&text).ok() } else { None }
    };
    loop {
        let Some(run) = call("/queues/q/claim", json!({"wait": 5})) else { return };
        let Some(token) = run["token"].as_str() else { return };
        let mut writes = json!([]);
        loop {
            let ask = json!({"inports": ["a", "b"], "token": token, "writes": writes});
            let Some(step) = call("/jobs/1/for_inputs", ask) else { return };
            if step["next"] != "call" {
                break;
            }
            writes = json!([{"outport": "x", "data": step["values"]}]);
        }
        if call("/jobs/1/finish", json!({"token": token, "status": "suspended"})).is_none() {
            return;
        }
    }
}

#[test]
fn no_kill_loses_or_doubles_what_for_inputs_hands_out() {
    kill_during_for_inputs(&Home::embedded());
}

#[test]
fn no_kill_loses_or_doubles_what_for_inputs_hands_out_on_postgresql() {
    kill_during_for_inputs(&Home::on_postgresql());
}

fn kill_during_for_inputs(home: &Home) {
    const PAIRS: u64 = 400;
    let settings = ["--set", "sidejob.lease_s=1"];
    let mut server = home.start(&settings);
    register(&server);
    create(&server, "IO");
    let values: Vec<u64> = (0..PAIRS).collect();
    for port in ["a", "b"] {
        post(&server, &format!("/jobs/1/inports/{port}/write"), json!({"list": values}));
    }
    let began = Instant::now();
    let mut round = 0;
    loop {
        let address = server.http;
        let worker = thread::spawn(move || keep_summing(address));
        thread::sleep(Duration::from_millis(50 + 41 * (round % 7)));
        if round < 5 {
            server.kill();
            worker.join().unwrap();
            server = home.start(&settings);
        } else {
            worker.join().unwrap();
            if get(&server, "/jobs/1/outports/x")["size"].as_u64() >= Some(PAIRS) {
                break;
            }
        }
        assert!(began.elapsed() < PATIENCE * 3, "{}", get(&server, "/jobs/1"));
        round += 1;
    }
    let sums = post(&server, "/jobs/1/outports/x/entries", json!({}));
    let expected: Vec<Value> = (0..PAIRS).map(|number| json!([number, number])).collect();
    assert_eq!(sums["entries"], json!(expected), "each pair once, in order");
}

#[test]
fn a_finish_from_before_the_restart_counts_while_its_lease_lives_and_not_after() {
    finish_across_a_restart(&Home::embedded());
}

#[test]
fn a_finish_from_before_the_restart_counts_on_postgresql_too() {
    finish_across_a_restart(&Home::on_postgresql());
}

fn finish_across_a_restart(home: &Home) {
    let mut server = home.start(&["--set", "sidejob.lease_s=30"]);
    register(&server);
    create(&server, "IO");
    let run = claim(&server);
    server.kill();
    let mut server = home.start(&["--set", "sidejob.lease_s=1"]);
    let end = json!({"token": run["token"], "status": "completed"});
    assert_eq!(post(&server, "/jobs/1/finish", end.clone())["status"], "completed");
    post(&server, "/jobs/1/run", json!({}));
    let (status, refusal) = server.call("POST", "/sidejob/jobs/1/finish", Some(end));
    assert_eq!(status, 409, "{refusal}");
    server.kill();
}
