//! A client with a large backlog does not delay another client's single job: with real handlers, on the real
//! server.

use super::{add, set_handler, until_code};
use crate::server::{Server, eventually};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Server that responds to each request after `wait` returns; the number of requests, and the most at once.
fn slow_site(wait: impl Fn() + Send + Sync + 'static) -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (wait, under_way) = (Arc::new(wait), Arc::<AtomicUsize>::default());
    let (count, peak) = (seen.clone(), most.clone());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (wait, under_way) = (wait.clone(), under_way.clone());
            let (count, peak) = (count.clone(), peak.clone());
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head);
                count.fetch_add(1, Ordering::SeqCst);
                peak.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                wait();
                under_way.fetch_sub(1, Ordering::SeqCst);
                let _ = stream.write_all(b"HTTP/1.1 200 X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            });
        }
    });
    (address, seen, most)
}

/// Line of the job log.
struct Line {
    what: String,
    jobtype: String,
    /// For an ended job: time in its handler, and time from the add to the end.
    run_ms: i64,
    total_ms: i64,
}

impl Line {
    fn is_end_of(&self, client: &str) -> bool {
        self.what == "job ended" && self.jobtype.starts_with(client)
    }
}

/// Lines of the job log, in order.
fn log_of(server: &Server) -> Vec<Line> {
    let text = std::fs::read_to_string(server.folder().join("windlass-data/jobs.log")).unwrap_or_default();
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let info = &line["info"];
        let number = |key: &str| info[key].as_i64().unwrap_or_default();
        Some(Line {
            what: text(&line["message"]),
            jobtype: text(&info["type"]),
            run_ms: number("runMs"),
            total_ms: number("totalMs"),
        })
    };
    text.lines().filter_map(line).collect()
}

fn ended(log: &[Line], client: &str) -> usize {
    log.iter().filter(|line| line.is_end_of(client)).count()
}

/// Longest time of one job of the client in its handler.
fn longest_ms(log: &[Line], client: &str) -> i64 {
    log.iter().filter(|line| line.is_end_of(client)).map(|line| line.run_ms).max().unwrap_or_default()
}

/// Adds one job and waits for its end; returns the time from the add to the start of its handler, by the
/// server's clock. Includes starting an interpreter and committing the end.
fn start_of_one_ms(server: &Server, client: &str, jobtype: &str) -> i64 {
    let before = ended(&log_of(server), client);
    let id = add(server.http, client, jobtype, "mine\n").unwrap().remove(0);
    until_code(server, client, jobtype, &id, "ok");
    let log = eventually("its end is in the log", || {
        Some(log_of(server)).filter(|log| ended(log, client) > before)
    });
    let line = log.iter().rfind(|line| line.is_end_of(client)).unwrap();
    line.total_ms - line.run_ms
}

/// Start time without other load on the server: the slowest of several.
fn start_at_rest_ms(server: &Server, handler: &Value) -> i64 {
    let start = |n: usize| {
        let jobtype = format!("t{n}");
        set_handler(server, "rest", &jobtype, handler.clone());
        start_of_one_ms(server, "rest", &jobtype)
    };
    (0..3).map(start).max().unwrap()
}

/// Guarantee of docs/dialects/miniq.md: within a second plus the longest single job of another client.
#[track_caller]
#[expect(clippy::print_stdout, reason = "this is how tests speak")]
fn expect_prompt(waited_ms: i64, longest_ms: i64, at_rest_ms: i64) {
    println!(
        "started after {waited_ms} ms; longest job of the other {longest_ms} ms, start at rest {at_rest_ms} ms"
    );
    assert!(
        waited_ms <= 1_000 + longest_ms + at_rest_ms,
        "started after {waited_ms} ms; the longest job of the other took {longest_ms} ms, a start at rest {at_rest_ms} ms"
    );
}

#[test]
fn a_single_job_starts_when_one_of_the_flood_has_ended() {
    let server = Server::start(&["--set", "miniq.contexts=2"]);
    let small = json!({"lang": "sh", "body": "true"});
    let at_rest_ms = start_at_rest_ms(&server, &small);
    for jobtype in ["a", "b", "c", "d"] {
        let handler = json!({"lang": "sh", "body": "sleep 1", "options": {"batchSize": 10_000}});
        set_handler(&server, "big", jobtype, handler);
        add(server.http, "big", jobtype, &"x\n".repeat(100)).unwrap();
    }
    set_handler(&server, "small", "t", small);
    eventually("the flood runs", || (ended(&log_of(&server), "big") >= 2).then_some(()));
    let waited_ms = start_of_one_ms(&server, "small", "t");
    // The job it waited for has ended, and is in the log.
    let log = log_of(&server);
    expect_prompt(waited_ms, longest_ms(&log, "big"), at_rest_ms);
    // Returned jobs continue.
    let before = ended(&log, "big");
    eventually("the flood goes on", || (ended(&log_of(&server), "big") > before + 2).then_some(()));
}

#[test]
fn a_single_job_starts_beside_five_types_of_slow_ones() {
    let server = Server::start(&["--set", "miniq.contexts=8"]);
    let small = json!({"lang": "sh", "body": "true"});
    let at_rest_ms = start_at_rest_ms(&server, &small);
    for jobtype in ["a", "b", "c", "d", "e"] {
        set_handler(&server, "big", jobtype, json!({"lang": "sh", "body": "sleep 3"}));
        add(server.http, "big", jobtype, &"x\n".repeat(120)).unwrap();
    }
    for client in ["small", "other"] {
        set_handler(&server, client, "t", small.clone());
    }
    eventually("the flood runs", || (ended(&log_of(&server), "big") >= 7).then_some(()));
    for client in ["small", "other"] {
        let waited_ms = start_of_one_ms(&server, client, "t");
        expect_prompt(waited_ms, longest_ms(&log_of(&server), "big"), at_rest_ms);
    }
}

#[test]
fn a_client_with_slow_urls_leaves_calls_for_others() {
    let server = Server::start(&["--set", "miniq.http_batches=8"]);
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    // Blocks until the end of the test.
    let (slow, seen, _) = slow_site(move || {
        let _ = wait.lock().unwrap().recv();
    });
    let (healthy, ..) = slow_site(|| ());
    let handler = json!({"lang": "http", "body": format!("http://{healthy}/")});
    let at_rest_ms = start_at_rest_ms(&server, &handler);
    for n in 0..10 {
        let url = format!("http://{slow}/{n}");
        set_handler(&server, "big", &format!("t{n}"), json!({"lang": "http", "body": url}));
        add(server.http, "big", &format!("t{n}"), &"x\n".repeat(30)).unwrap();
    }
    eventually("big has all the calls it may have", || (seen.load(Ordering::SeqCst) >= 70).then_some(()));
    set_handler(&server, "small", "t", handler);
    // No job of `big` ends, so there is none to wait for.
    expect_prompt(start_of_one_ms(&server, "small", "t"), 0, at_rest_ms);
    assert_eq!(seen.load(Ordering::SeqCst), 70, "nothing of big has ended");
    drop(release);
}

#[test]
fn jobs_for_a_url_that_is_busy_wait_in_the_store_and_not_in_their_own_time() {
    let server = Server::start(&[]);
    let (slow, seen, most) = slow_site(|| std::thread::sleep(Duration::from_secs(1)));
    let handler = json!({"lang": "http", "body": format!("http://{slow}/"), "options": {"timeout": 4}});
    set_handler(&server, "acme", "t", handler);
    // Seven seconds for all of them.
    let ids = add(server.http, "acme", "t", &"x\n".repeat(70)).unwrap();
    eventually("the first are sent", || (seen.load(Ordering::SeqCst) >= 10).then_some(()));
    let waiting = server.call("GET", "/acme/job/waiting", None).1;
    assert!(waiting["t"].as_u64().is_some_and(|waiting| waiting >= 30), "{waiting}");
    for id in &ids {
        let job = until_code(&server, "acme", "t", id, "ok");
        assert_eq!(job["attempts"], 1, "{job}");
    }
    assert!(most.load(Ordering::SeqCst) <= 10, "{most:?} at once");
}
