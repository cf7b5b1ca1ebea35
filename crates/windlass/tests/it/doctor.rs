//! `windlass doctor`, against real servers, stores and the machine of the tests.

use crate::rigs::cluster::postgres_server::PostgresServer;
use crate::server::{Ran, Server, windlass};
use crate::tls;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

/// Findings of a run. The exit code must fit them.
fn findings(ran: &Ran) -> Vec<Value> {
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let found = answer["findings"].as_array().unwrap().clone();
    let fails = found.iter().any(|finding| finding["level"] == "fail");
    assert_eq!((ran.code == 1, answer["ok"] == false), (fails, fails), "{ran:?}");
    found
}

/// Level and whole text of the finding about something.
#[track_caller]
fn about(found: &[Value], about: &str) -> (String, String) {
    let finding = found.iter().find(|finding| finding["about"] == about);
    let finding = finding.unwrap_or_else(|| panic!("nothing about {about}: {found:?}"));
    let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    (text("level"), format!("{} {}", text("text"), text("advice")))
}

#[track_caller]
fn check(found: &[Value], what: &str, level: &str, words: &str) {
    let (found_level, text) = about(found, what);
    assert!(
        found_level == level && text.contains(words),
        "{what} should be {level} {words}: {found_level} {text}"
    );
}

fn names(folder: &Path) -> BTreeSet<OsString> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn a_running_server_and_its_machine_are_looked_at() {
    let server = Server::start(&[]);
    let data = server.folder().join("windlass-data");
    let before = names(&data);
    let found = findings(&server.run(&["doctor", "--json"]));
    check(&found, "server", "ok", "is ready");
    check(&found, "version", "ok", env!("CARGO_PKG_VERSION"));
    check(&found, "clock", "ok", "agrees");
    check(&found, "access", "ok", "no token needed");
    check(&found, "backlog", "ok", "0ms");
    check(&found, "paused", "ok", "no queue");
    check(&found, "schedules", "ok", "0 repeating jobs");
    check(&found, "durability", "ok", "full");
    check(&found, "store", "ok", "SQLite; format");
    check(&found, "exposure", "ok", "this machine only");
    check(&found, "connections", "ok", "files and connections open");
    for (what, words) in [
        ("fsync", "median"),
        ("disk space", "are free"),
        ("file system", "windlass-data"),
        ("open files", "open files allowed"),
        ("memory", "in use by the server"),
        ("clock sync", ""),
        ("isolation", "handlers are"),
    ] {
        let (_, text) = about(&found, what);
        assert!(text.contains(words), "{what}: {text}");
    }
    assert_eq!(names(&data), before, "no file is left");
    let ran = server.run(&["doctor"]);
    let is_finding = |line: &str| ["ok    ", "warn  ", "fail  "].iter().any(|word| line.starts_with(word));
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines.len() > 15 && lines[..lines.len() - 1].iter().all(|line| is_finding(line)), "{ran:?}");
}

#[test]
fn queues_that_are_paused_are_named() {
    let server = Server::start(&[]);
    server.run(&["push", "mail", "--queue", "out"]).ok();
    server.run(&["queues", "pause", "out"]).ok();
    let found = findings(&server.run(&["doctor", "--json"]));
    check(&found, "paused", "warn", "out (1 ready)");
    check(&found, "paused", "warn", "windlass queues resume");
}

#[test]
fn schedules_whose_turns_fail_are_named() {
    let server = Server::start(&[]);
    server.run(&["push", "digest", "--repeat", "every 1h", "--retry", "1"]).ok();
    server.run(&["work", "digest", "--once", "--", "false"]);
    let found = findings(&server.run(&["doctor", "--json"]));
    check(&found, "schedules", "warn", "1 digest (1 turns failed in a row)");
}

#[test]
fn a_server_with_tokens_shows_more_to_their_holder() {
    let server = Server::start(&[]);
    let token = server.run(&["token", "create", "--role", "admin", "--json"]).json()["token"].clone();
    let found = findings(&server.run(&["doctor", "--json"]));
    check(&found, "access", "warn", "--token");
    let found = findings(&server.run(&["doctor", "--json", "--token", token.as_str().unwrap()]));
    check(&found, "access", "ok", "role admin");
}

#[test]
fn without_a_server_the_machine_and_the_store_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let doctor = |args: &[&str]| {
        let mut command = windlass();
        command.current_dir(folder.path()).args(["doctor", "--json", "--set", "miniq.run=false"]).args(args);
        findings(&Ran::of(&mut command))
    };
    let found = doctor(&["--set", "http=127.0.0.1:1", "--set", "durability=relaxed"]);
    check(&found, "server", "ok", "none runs at http://127.0.0.1:1");
    check(&found, "store", "ok", "none yet");
    check(&found, "fsync", "ok", "there is no data folder yet");
    check(&found, "durability", "warn", "power failure");
    assert_eq!(names(folder.path()), BTreeSet::new(), "no folder is made");
    let found = doctor(&["--set", "http=0.0.0.0:0", "--set", "insecure=true"]);
    check(&found, "exposure", "fail", "windlass token");
    let found = doctor(&["--server", "http://127.0.0.1:1"]);
    check(&found, "server", "fail", "no server at http://127.0.0.1:1");
    let found = doctor(&["--store", "memory:", "--set", "http=127.0.0.1:0"]);
    check(&found, "durability", "warn", "in memory");
    assert!(found.iter().all(|finding| finding["about"] != "fsync"), "{found:?}");
    for url in ["bogus:x", "sqlite:"] {
        let found = doctor(&["--store", url, "--set", "http=127.0.0.1:0"]);
        check(&found, "store", "fail", "is not a store URL");
    }
    let data = folder.path().join("windlass-data");
    std::fs::create_dir(&data).unwrap();
    let fixture = "../windlass-store/tests/it/fixtures/format-2.db";
    let database = data.join("windlass.db");
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture), &database).unwrap();
    check(&doctor(&["--set", "http=127.0.0.1:0"]), "store", "warn", "format 2 of 3");
    rusqlite::Connection::open(&database).unwrap().pragma_update(None, "user_version", 99).unwrap();
    check(&doctor(&["--set", "http=127.0.0.1:0"]), "store", "fail", "the database has format 99");
}

#[test]
fn the_name_of_a_certificate_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    tls::make_certificate(folder.path(), &["-addext", "subjectAltName=DNS:localhost"]);
    let server = tls::start(folder.path());
    let port = server.http.port();
    let address = format!("http=127.0.0.1:{port}");
    let doctor = |more: &[&str]| {
        let mut command = windlass();
        command.current_dir(folder.path()).args(["doctor", "--json", "--ca", "cert.pem", "--set", &address]);
        command.args(["--set", "tls.cert=cert.pem", "--set", "tls.key=key.pem"]).args(more);
        findings(&Ran::of(&mut command))
    };
    check(&doctor(&[]), "server", "warn", "give --server https://NAME");
    let wrong = format!("https://127.0.0.1:{port}");
    check(&doctor(&["--server", &wrong]), "server", "fail", "it is for localhost");
    check(&doctor(&["--server", &format!("https://localhost:{port}")]), "server", "ok", "is ready");
}

#[test]
fn the_settings_of_postgresql_are_looked_at() {
    let url = PostgresServer::shared().new_schema_url();
    let folder = tempfile::tempdir().unwrap();
    let doctor = |durability: &str| {
        let mut command = windlass();
        command.current_dir(folder.path()).args(["doctor", "--json", "--store", &url]);
        command.args(["--set", "http=127.0.0.1:0", "--set", "miniq.run=false", "--set", durability]);
        findings(&Ran::of(&mut command))
    };
    // The database of the tests does not sync.
    let found = doctor("durability=full");
    check(&found, "database", "ok", "PostgreSQL 1");
    check(&found, "commits", "fail", "fsync = off");
    check(&found, "db connections", "ok", "a server takes 10");
    check(&doctor("durability=relaxed"), "commits", "warn", "may be lost");
}
