//! Two servers on one PostgreSQL, and one after another on the same store.

use super::{add, all_jobs, job, set_handler, until_code};
use crate::rigs::cluster::postgres_server::{Disk, PostgresServer};
use crate::rigs::process::{Place, need_strace};
use crate::server::{Server, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

fn start(folder: &Path, url: &str, more: &[&str]) -> Server {
    // These databases run without fsync.
    let args = ["--store", url, "--data", "data", "--durability", "relaxed"];
    let args: Vec<&str> = args.into_iter().chain(more.iter().copied()).collect();
    Server::start_in(folder, &args)
}

#[test]
fn a_job_of_a_killed_server_is_run_by_another_when_its_lock_has_ended_and_not_before() {
    let url = PostgresServer::shared().new_schema_url();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let lock = ["--set", "miniq.lock_s=8"];
    let mut one = start(folders[0].path(), &url, &lock);
    let other = start(folders[1].path(), &url, &lock);
    other.call("GET", "/stop", None);
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = target.local_addr().unwrap();
    set_handler(&one, "acme", "slow", json!({"lang": "http", "body": format!("http://{address}/")}));
    let id = add(one.http, "acme", "slow", "x\n").unwrap().remove(0);
    // The first run hangs in its handler.
    let (_held, _) = target.accept().unwrap();
    let locked = job(&other, "acme", "slow", &id);
    let sysid = id[8..15].to_owned();
    assert_eq!(locked["lock"], sysid.as_str(), "{locked}");
    one.kill();
    let native = || other.call("GET", &format!("/api/v1/aliases/{id}?tenant=acme"), None).1;
    let until = native()["lease"]["until"].as_i64().unwrap();
    other.call("GET", "/start", None);
    target.set_nonblocking(true).unwrap();
    let mut second = eventually("another server calls the handler", || Some(target.accept().ok()?.0));
    let begun = native()["started_at"].as_i64().unwrap();
    assert!(begun >= until, "not before the lock had ended: {begun} and {until}");
    assert_ne!(job(&other, "acme", "slow", &id)["lock"], sysid.as_str());
    second.set_nonblocking(false).unwrap();
    answer_ok(&mut second);
    until_code(&other, "acme", "slow", &id, "ok");
}

fn answer_ok(stream: &mut TcpStream) {
    use std::io::{Read, Write};
    let mut head = [0; 4096];
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let _ = stream.read(&mut head).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
}

/// Job whose first run hangs in its handler, and the listener for the next run.
fn hanging_job(server: &Server) -> (String, TcpListener, TcpStream) {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = target.local_addr().unwrap();
    set_handler(server, "acme", "slow", json!({"lang": "http", "body": format!("http://{address}/")}));
    let id = add(server.http, "acme", "slow", "x\n").unwrap().remove(0);
    let (held, _) = target.accept().unwrap();
    assert_eq!(job(server, "acme", "slow", &id)["lock"], id[8..15], "locked by the server that added it");
    target.set_nonblocking(true).unwrap();
    (id, target, held)
}

/// Asserts that the job runs again, long before its lease of five minutes expires, and succeeds.
fn runs_again(server: &Server, id: &str, target: &TcpListener) -> Value {
    let mut second = eventually("the handler is called again", || Some(target.accept().ok()?.0));
    second.set_nonblocking(false).unwrap();
    answer_ok(&mut second);
    until_code(server, "acme", "slow", id, "ok")
}

/// Names of servers reserved in the store.
fn names(server: &Server) -> Vec<String> {
    let (status, page) = server.call("GET", "/api/v1/jobs?tenant=queue.sysid", None);
    assert_eq!(status, 200, "{page}");
    let jobs = page["jobs"].as_array().unwrap();
    jobs.iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_server_that_is_stopped_gives_its_jobs_and_its_name_back_at_once() {
    let url = PostgresServer::shared().new_schema_url();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut one = start(folders[0].path(), &url, &["--set", "shutdown_s=1"]);
    let other = start(folders[1].path(), &url, &[]);
    other.call("GET", "/stop", None);
    let (id, target, _held) = hanging_job(&one);
    assert_eq!(names(&other), [&id[8..15]]);
    assert!(one.stop().success(), "{}", one.log());
    assert_eq!(names(&other), Vec::<String>::new());
    let given_back = job(&other, "acme", "slow", &id);
    assert_eq!((&given_back["lock"], &given_back["attempts"]), (&json!(""), &json!(0)), "as if never taken");
    other.call("GET", "/start", None);
    runs_again(&other, &id, &target);
}

#[test]
fn on_the_embedded_store_a_restart_runs_at_once_what_was_running() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Server::start_in(folder.path(), &["--set", "shutdown_s=1"]);
    let (id, target, _held) = hanging_job(&first);
    assert!(first.stop().success(), "{}", first.log());
    let mut second = Server::start_in(folder.path(), &[]);
    let (_held, _) = eventually("the handler is called after the stop", || target.accept().ok());
    let locked = job(&second, "acme", "slow", &id);
    assert_ne!(locked["lock"], id[8..15], "{locked}");
    second.kill();
    let third = Server::start_in(folder.path(), &[]);
    let done = runs_again(&third, &id, &target);
    assert_eq!(done["attempts"], 2, "a run that was cut off counts: {done}");
    assert_eq!(names(&third).len(), 1, "the names of those before are free");
    assert!(
        third.log().contains("1 jobs that were running when this server was killed run again"),
        "{}",
        third.log()
    );
}

/// Leases of workers stay: the server cannot know whether the workers are still alive.
#[test]
fn a_restart_leaves_the_leases_of_workers_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Server::start_in(folder.path(), &[]);
    let (id, _target, _held) = hanging_job(&first);
    // The worker claims it, not the server.
    first.call("GET", "/stop", None);
    let (_, answer) =
        first.call("POST", "/api/v1/jobs", Some(json!({"name": "t", "tenant": "acme", "queue": "miniq"})));
    let theirs = answer["id"].as_u64().unwrap();
    let claim =
        json!({"tenant": "acme", "queues": ["miniq"], "name": "t", "worker": "w1", "lease_ms": 300_000});
    assert_eq!(first.call("POST", "/api/v1/claim", Some(claim)).1["jobs"][0]["id"], theirs);
    first.kill();
    let second = Server::start_in(folder.path(), &["--set", "miniq.run=false"]);
    let free = job(&second, "acme", "slow", &id);
    assert_eq!(free["lock"], "", "{free}");
    assert_eq!(names(&second), Vec::<String>::new());
    let (_, held) = second.call("GET", &format!("/api/v1/jobs/{theirs}?tenant=acme"), None);
    assert_eq!((&held["state"], &held["lease"]["worker"]), (&json!("running"), &json!("w1")), "{held}");
}

#[test]
fn two_servers_share_jobs_and_run_each_once() {
    let url = PostgresServer::shared().new_schema_url();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let servers = [start(folders[0].path(), &url, &[]), start(folders[1].path(), &url, &[])];
    let body = "read -r line; echo \"J: seen|$line\"";
    set_handler(&servers[0], "acme", "t", json!({"lang": "sh", "body": body, "options": {"batchSize": 20}}));
    servers.iter().for_each(|server| drop(server.call("GET", "/stop", None)));
    let mut names = BTreeSet::new();
    for (n, server) in servers.iter().enumerate() {
        let payloads: Vec<String> = (0..200).map(|line| format!("{n}.{line}")).collect();
        let ids = add(server.http, "acme", "t", &payloads.join("\n")).unwrap();
        names.insert(ids[0][8..15].to_owned());
    }
    assert_eq!(names.len(), 2, "two servers have two names");
    servers.iter().for_each(|server| drop(server.call("GET", "/start", None)));
    let jobs = eventually("every job has been run", || {
        // By id: a job that ends while the list is read may be listed twice.
        let jobs: BTreeMap<String, String> = all_jobs(&servers[1], "acme").into_iter().collect();
        let distinct: BTreeSet<&String> = jobs.values().collect();
        (distinct.len() == 400 && jobs.len() >= 800).then_some(jobs)
    });
    // Each payload once as a job, and once as a job that its run created.
    let mut by_payload: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    jobs.iter().for_each(|(id, payload)| by_payload.entry(payload).or_default().push(id));
    by_payload.retain(|_, ids| ids.len() != 2);
    assert!(
        by_payload.is_empty(),
        "not run once: {by_payload:?}\n{}\n{}",
        servers[0].log(),
        servers[1].log()
    );
}

/// With the system's random source replaced by constants, all of these servers try the same names, which
/// earlier ones have reserved and, killed, leave reserved.
#[test]
fn a_server_for_which_no_name_is_free_does_not_start() {
    need_strace();
    let url = PostgresServer::shared().new_schema_url();
    // In pieces of a size that every caller of `getrandom` accepts.
    let strace = ["-o", "/dev/null", "-e", "trace=getrandom", "-e", "inject=getrandom:retval=8"];
    let start = |place: &Place| {
        place.start_flags_with(
            &strace,
            &["--store", &url, "--durability", "relaxed", "--set", "miniq.run=false"],
        )
    };
    let mut names = BTreeSet::new();
    let refusal = loop {
        let place = Place::new();
        let mut server = match start(&place) {
            Ok(server) => server,
            Err(refusal) => break refusal,
        };
        let id = add(server.http, "acme", "t", "x\n").expect("the job is added").remove(0);
        server.kill();
        assert!(names.insert(id[8..15].to_owned()), "{id} has a name that is reserved");
        // Twenty, or some more if the names depend on the scheduling of threads.
        assert!(names.len() < 100, "{names:?}");
    };
    assert!(names.len() >= 20, "it gave up too early: {names:?}");
    assert_eq!(refusal.status.code(), Some(1), "{}", refusal.log);
    assert!(refusal.log.contains("getSysid: too many tries"), "{}", refusal.log);
    assert!(refusal.log.contains("expire after 30 minutes"), "it says what to do: {}", refusal.log);
}

#[test]
fn adding_works_while_the_database_is_stopped_and_the_jobs_are_run_when_it_is_back() {
    let database = PostgresServer::start(Disk::Fast, &[]);
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(folder.path(), &database.url(), &["--set", "miniq.retry_delay_s=1"]);
    set_handler(&server, "acme", "t", json!({"lang": "sh", "body": "exit 0"}));
    let first = add(server.http, "acme", "t", "before\n").unwrap();
    until_code(&server, "acme", "t", &first[0], "ok");
    database.stop();
    let ids = add(server.http, "acme", "t", "a\nb\nc\n").expect("acknowledged from the journal");
    // Also if the server dies before the database is back.
    server.kill();
    database.resume();
    let server = start(folder.path(), &database.url(), &["--set", "miniq.retry_delay_s=1"]);
    for id in &ids {
        until_code(&server, "acme", "t", id, "ok");
    }
}

#[test]
fn a_server_whose_database_is_away_starts_keeps_jobs_and_goes_on_when_it_comes() {
    let database = PostgresServer::start(Disk::Fast, &[]);
    database.stop();
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(folder.path(), &database.url(), &[]);
    let ids = add(server.http, "acme", "t", "a\nb\n").expect("acknowledged from the journal");
    assert_eq!(server.call("GET", "/healthz", None).0, 200);
    assert_eq!(server.call("GET", "/readyz", None).0, 503);
    let (status, answer) = server.call("POST", "/api/v1/jobs", Some(json!({"name": "x"})));
    assert_eq!(status, 503, "{answer}");
    assert_eq!(server.call("GET", "/acme/handler/get/t", None).0, 503, "not that there is none");
    // Acknowledged jobs survive the end of the server, too.
    server.kill();
    let server = start(folder.path(), &database.url(), &[]);
    let more = add(server.http, "acme", "t", "c\n").expect("acknowledged from the journal");
    database.resume();
    eventually("the database is used", || (server.call("GET", "/readyz", None).0 == 200).then_some(()));
    set_handler(&server, "acme", "t", json!({"lang": "sh", "body": "cat > \"$WINDLASS_RESULT\""}));
    for id in ids.iter().chain(&more) {
        until_code(&server, "acme", "t", id, "ok");
    }
    assert_eq!(all_jobs(&server, "acme").len(), 3, "each once");
}

#[test]
fn a_server_whose_database_is_away_ends_as_any_other() {
    let database = PostgresServer::start(Disk::Fast, &[]);
    database.stop();
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready.json");
    let mut server = start(folder.path(), &database.url(), &[]);
    assert!(ready.exists());
    assert!(server.stop().success(), "{}", server.log());
    assert!(!ready.exists(), "the ready file is left behind");
    // A stop waits for an incomplete request; a second signal ends the wait.
    let mut server = start(folder.path(), &database.url(), &["--set", "shutdown_s=300"]);
    let mut half = TcpStream::connect(server.http).unwrap();
    let head = "POST /acme/job/t/add HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n";
    half.write_all(head.as_bytes()).unwrap();
    // Sent when the server waits for the body.
    let mut answer = [0; 12];
    half.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100");
    server.signal(Signal::TERM);
    eventually("it stops", || server.log().contains("send a second signal to exit at once").then_some(()));
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(1), "{}", server.log());
    assert!(server.log().contains("exited at once after a second signal"), "{}", server.log());
    assert!(!ready.exists(), "the ready file is left behind");
    drop(half);
}

#[test]
fn a_database_that_refuses_the_server_is_no_reason_to_wait() {
    let url = PostgresServer::shared().new_schema_url();
    let (before, after) = url.rsplit_once('@').unwrap();
    let scheme = before.split("//").next().unwrap();
    let place = Place::new();
    let wrong = format!("{scheme}//nobody-of-that-name@{after}");
    let refusal = place.start_flags_with(&[], &["--store", &wrong]);
    assert!(refusal.is_err_and(|refusal| refusal.log.contains("nobody-of-that-name")));
}
