//! Scenarios 10, 12, 40, 58 and 67: two servers on one PostgreSQL.

use super::{add, all_jobs, job, set_handler, until_code};
use crate::rigs::cluster::postgres_server::{Disk, PostgresServer};
use crate::server::{Server, eventually};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

fn start(folder: &Path, url: &str, more: &[&str]) -> Server {
    // These databases do not wait for their disks.
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
    let target = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
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

fn answer_ok(stream: &mut std::net::TcpStream) {
    use std::io::{Read, Write};
    let mut head = [0; 4096];
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let _ = stream.read(&mut head).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
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
        // By id: a job that ends while the list is read may be in it twice.
        let jobs: BTreeMap<String, String> = all_jobs(&servers[1], "acme").into_iter().collect();
        let distinct: BTreeSet<&String> = jobs.values().collect();
        (distinct.len() == 400 && jobs.len() >= 800).then_some(jobs)
    });
    // Each payload once as a job, and once as what its run printed.
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
