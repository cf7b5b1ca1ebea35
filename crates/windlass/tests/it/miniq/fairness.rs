//! A client with all the jobs there are does not hold up another's single one: with real handlers, on the real server.

use super::{add, set_handler, until_code};
use crate::server::{Server, eventually};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Answers each request on a connection of its own after `wait` returns; how many there were, and how many at once at most.
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

/// Lines of the log of jobs, in their order: what happened, and to a job of which type.
fn log_of(server: &Server) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(server.folder().join("windlass-data/jobs.log")).unwrap_or_default();
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some((text(&line["message"]), text(&line["info"]["type"])))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn a_single_job_starts_when_one_of_the_flood_has_ended() {
    let server = Server::start(&["--set", "miniq.contexts=2"]);
    for jobtype in ["a", "b", "c", "d"] {
        let handler = json!({"lang": "sh", "body": "sleep 1", "options": {"batchSize": 10_000}});
        set_handler(&server, "big", jobtype, handler);
        add(server.http, "big", jobtype, &"x\n".repeat(100)).unwrap();
    }
    set_handler(&server, "small", "t", json!({"lang": "sh", "body": "true"}));
    let ended = |log: &[(String, String)]| {
        log.iter().filter(|(what, of)| what == "job ended" && of.starts_with("big-")).count()
    };
    eventually("the flood runs", || (ended(&log_of(&server)) >= 2).then_some(()));
    let id = add(server.http, "small", "t", "mine\n").unwrap().remove(0);
    until_code(&server, "small", "t", &id, "ok");
    let find = |log: &[(String, String)], what: &str| {
        log.iter().position(|(found, of)| found == what && of == "small-t")
    };
    let log = eventually("its lines are written", || {
        let log = log_of(&server);
        find(&log, "job started").map(|_| log)
    });
    let between = &log[find(&log, "job added").unwrap()..find(&log, "job started").unwrap()];
    // A second, and the job that runs, in each of two contexts; and what a busy machine adds to it.
    assert!(ended(between) <= 8, "{} jobs of another client ended before it was started", ended(between));
    // What was given back goes on.
    let before = ended(&log);
    eventually("the flood goes on", || (ended(&log_of(&server)) > before + 2).then_some(()));
}

#[test]
fn a_client_with_slow_urls_leaves_calls_for_others() {
    let server = Server::start(&["--set", "miniq.http_batches=8"]);
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    // Until the test is over.
    let (slow, seen, _) = slow_site(move || {
        let _ = wait.lock().unwrap().recv();
    });
    let (healthy, ..) = slow_site(|| ());
    for n in 0..10 {
        let url = format!("http://{slow}/{n}");
        set_handler(&server, "big", &format!("t{n}"), json!({"lang": "http", "body": url}));
        add(server.http, "big", &format!("t{n}"), &"x\n".repeat(30)).unwrap();
    }
    eventually("big has all the calls it may have", || (seen.load(Ordering::SeqCst) >= 70).then_some(()));
    let handler = json!({"lang": "http", "body": format!("http://{healthy}/")});
    set_handler(&server, "small", "t", handler);
    let id = add(server.http, "small", "t", "mine\n").unwrap().remove(0);
    until_code(&server, "small", "t", &id, "ok");
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
