//! JQ with the real server: a kill while a thousand jobs are in delivery, the worker of the documentation,
//! and the API compared with its OpenAPI document.

use crate::server::{PATIENCE, Server, eventually};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::SystemTime;

/// Sends a JSON request to JQ: status and response.
pub fn call(
    to: SocketAddr,
    method: &str,
    path: &str,
    worker: &str,
    body: &Value,
) -> std::io::Result<(u16, Value)> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{method} /jq{path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json\r\nworker-id: {worker}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

/// Worker that accepts every job and records it.
struct Taker {
    port: u16,
    /// Job, attempt, and time of arrival.
    given: Receiver<(String, u64, SystemTime)>,
}

impl Taker {
    fn listen() -> Taker {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, given) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let tell = tell.clone();
                thread::spawn(move || take(stream, &tell));
            }
        });
        Taker { port, given }
    }
}

/// Serves a connection until it ends.
fn take(stream: TcpStream, tell: &Sender<(String, u64, SystemTime)>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let job: Value = rmp_serde::from_slice(&body).ok()?;
        tell.send((job["job_id"].as_str()?.to_owned(), job["attempt"].as_u64()?, SystemTime::now())).ok()?;
        writer.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

/// Enqueues on several connections until the server is down; returns the acknowledged jobs.
fn enqueue_all(
    to: SocketAddr,
    count: usize,
    acknowledged: &Arc<Mutex<HashSet<String>>>,
) -> Vec<thread::JoinHandle<()>> {
    (0..8)
        .map(|lane| {
            let acknowledged = Arc::clone(acknowledged);
            thread::spawn(move || {
                for number in (lane..count).step_by(8) {
                    let job = json!({"name": "t", "argument": {"n": number}, "timeout": 10});
                    match call(to, "POST", "/job", "", &job) {
                        Ok((201, answer)) => {
                            acknowledged
                                .lock()
                                .unwrap()
                                .insert(answer["job_id"].as_str().unwrap().to_owned());
                        }
                        _ => return,
                    }
                }
            })
        })
        .collect()
}

#[test]
fn a_server_killed_while_a_thousand_jobs_are_on_their_way_loses_none_and_hears_every_answer() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ["--set", "jq.backoff_base_ms=10"];
    let mut server = Server::start_in(folder.path(), &settings);
    let worker = Taker::listen();
    let register = json!({"name": "taker", "max_jobs": 5_000, "port": worker.port});
    let (status, answer) = call(server.http, "POST", "/worker", "", &register).unwrap();
    assert_eq!(status, 201, "{answer}");
    let me = answer["worker_id"].as_str().unwrap().to_owned();

    let acknowledged = Arc::new(Mutex::new(HashSet::new()));
    let pushing = enqueue_all(server.http, 1_000, &acknowledged);
    let mut before: HashMap<String, u64> = HashMap::new();
    while before.len() < 500 {
        let (id, attempt, _) = worker.given.recv_timeout(PATIENCE).unwrap();
        before.insert(id, attempt);
    }
    server.kill();
    pushing.into_iter().for_each(|lane| lane.join().unwrap());
    let server = Server::start_in(folder.path(), &settings);

    let done = |id: &str| {
        let end = json!({"job_id": id, "type": "success"});
        call(server.http, "POST", "/done", &me, &end).unwrap().0
    };
    // Jobs delivered before the kill are reported now, except for twenty that time out.
    let mut silent: HashSet<String> = HashSet::new();
    for id in before.keys() {
        if silent.len() < 20 {
            silent.insert(id.clone());
        } else {
            assert_eq!(done(id), 204, "job {id}");
        }
    }
    let expected = acknowledged.lock().unwrap().clone();
    let is_done = |id: &String| {
        call(server.http, "GET", &format!("/job/{id}"), "", &Value::Null).unwrap().1["status"] == "done"
    };
    let mut left: Vec<String> = expected.iter().cloned().collect();
    let mut again = 0;
    eventually("every acknowledged job is done", || {
        while let Ok((id, attempt, _)) = worker.given.try_recv() {
            again += usize::from(attempt > 1);
            silent.remove(&id);
            done(&id);
        }
        left.retain(|id| !is_done(id));
        left.is_empty().then_some(())
    });
    assert!(silent.is_empty(), "these should have timed out: {silent:?}");
    assert!(again >= 20, "what timed out after the restart came again: {again}");
    assert!(expected.len() >= 500, "{} were acknowledged", expected.len());
}

fn register(server: &Server, worker: &Taker, max_jobs: u32) -> String {
    let body = json!({"name": "taker", "max_jobs": max_jobs, "port": worker.port});
    let (status, answer) = call(server.http, "POST", "/worker", "", &body).unwrap();
    assert_eq!(status, 201, "{answer}");
    answer["worker_id"].as_str().unwrap().to_owned()
}

fn enqueue(to: SocketAddr, job: &Value) -> String {
    let (status, answer) = call(to, "POST", "/job", "", job).unwrap();
    assert_eq!(status, 201, "{answer}");
    answer["job_id"].as_str().unwrap().to_owned()
}

/// Killed as soon as the worker has the jobs: they count against its slots, and nothing is sent to it before
/// the server can be reached.
#[test]
fn a_worker_gets_no_more_than_it_takes_from_a_server_that_was_killed_and_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    let worker = Taker::listen();
    let me = register(&server, &worker, 2);
    let job = json!({"name": "t", "argument": {}, "timeout": 600, "max_retry": 0});
    let ids: Vec<String> = (0..8).map(|_| enqueue(server.http, &job)).collect();
    let mut has: Vec<String> = (0..2).map(|_| worker.given.recv_timeout(PATIENCE).unwrap().0).collect();
    for round in 0..3 {
        server.kill();
        server = Server::start_in(folder.path(), &[]);
        if let Ok((id, ..)) = worker.given.recv_timeout(std::time::Duration::from_millis(300)) {
            panic!("round {round}: the worker has {has:?}, and was given {id}");
        }
        for id in std::mem::take(&mut has) {
            let end = json!({"job_id": id, "type": "success"});
            assert_eq!(call(server.http, "POST", "/done", &me, &end).unwrap().0, 204, "round {round}: {id}");
        }
        has.extend((0..2).map(|_| worker.given.recv_timeout(PATIENCE).unwrap().0));
    }
    has.sort_unstable();
    assert_eq!(has, ids[6..], "each of them was given once");
}

/// A worker that reports at once finds the server listening.
#[test]
fn nothing_is_handed_out_before_the_server_can_be_reached() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    let job = json!({"name": "t", "argument": {}, "timeout": 600});
    let ids: Vec<String> = (0..4).map(|_| enqueue(server.http, &job)).collect();
    let worker = Taker::listen();
    for (round, id) in ids.iter().enumerate() {
        server.kill();
        // `max_jobs` exceeds the running jobs by one: the next job is sent as soon as claims are released.
        let workers = format!("jq.workers=taker http://127.0.0.1:{} {}", worker.port, round + 1);
        server = Server::start_in(folder.path(), &["--set", &workers]);
        let given = worker.given.recv_timeout(PATIENCE).unwrap();
        assert_eq!(given.0, *id);
        let ready = std::fs::metadata(folder.path().join("ready.json")).unwrap().modified().unwrap();
        assert!(given.2 >= ready, "round {round}: {:?} too early", ready.duration_since(given.2));
    }
}

/// Python of `./test`, with the packages that the tests need.
pub fn python() -> PathBuf {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/venv");
    let folder = std::env::var_os("WINDLASS_VENV").map_or(default, PathBuf::from);
    let python = folder.join("bin/python");
    assert!(
        python.exists(),
        "{} is missing: run ./test, or python3 -m venv target/venv && target/venv/bin/pip install msgpack schemathesis \
         openapi-spec-validator",
        python.display()
    );
    python
}

pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_worker_in_the_documentation_works() {
    let server = Server::start(&[]);
    let text = include_str!("../../../../docs/dialects/jq.md");
    let (_, rest) = text.split_once("```python\n").unwrap();
    let (program, _) = rest.split_once("```").unwrap();
    assert!(program.lines().filter(|line| !line.trim().is_empty()).count() <= 22, "it stays small");
    let worker = Command::new(python())
        .args(["-c", program])
        .env("JQ", format!("{}/jq", server.url()))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _worker = Killed(worker);
    let enqueue = |name: &str, a: u64, b: u64| {
        let job = json!({"name": name, "argument": {"a": a, "b": b}, "keep_result": true});
        call(server.http, "POST", "/job", "", &job).unwrap().1["job_id"].as_str().unwrap().to_owned()
    };
    let ids: Vec<String> = (0..20).map(|number| enqueue("add", number, 2)).collect();
    let unknown = enqueue("subtract", 1, 1);
    for (number, id) in ids.iter().enumerate() {
        let (status, job) =
            call(server.http, "GET", &format!("/job/{id}/polling?timeout=30"), "", &Value::Null).unwrap();
        assert_eq!((status, &job["result"]), (200, &json!(number + 2)), "{job}");
    }
    // In delivery until the worker has refused it.
    crate::server::eventually("a kind of job it does not know waits for another worker", || {
        let (_, job) = call(server.http, "GET", &format!("/job/{unknown}"), "", &Value::Null).unwrap();
        (job["status"] == "queued").then_some(())
    });
}

#[test]
fn the_api_is_as_it_describes_itself() {
    let server = Server::start(&[]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/jq_description.py");
    let output = Command::new(python()).arg(script).arg(format!("{}/jq", server.url())).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(call(server.http, "GET", "/constraint", "", &Value::Null).unwrap().0, 200, "it lives on");
}
