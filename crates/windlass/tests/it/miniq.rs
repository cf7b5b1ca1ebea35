//! miniq dialect of the real server: kills, real handlers, several servers on one database.

mod daemons;
mod fairness;
mod handlers;
mod kills;
mod sandbox;

use crate::server::{Ran, Server, eventually, request, windlass};
use serde_json::Value;
use std::net::SocketAddr;

/// Adds jobs and returns their ids.
fn add(to: SocketAddr, client: &str, jobtype: &str, body: &str) -> Option<Vec<String>> {
    let (status, answer) = request(to, "POST", &format!("/{client}/job/{jobtype}/add"), body).ok()?;
    if status != 200 {
        return None;
    }
    let answer: Value = serde_json::from_str(&answer).ok()?;
    let ids = answer["ids"].as_array()?;
    Some(ids.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect())
}

fn job(server: &Server, client: &str, jobtype: &str, id: &str) -> Value {
    server.call("GET", &format!("/{client}/job/{jobtype}/{id}"), None).1
}

/// Waits until the job shows this code.
#[track_caller]
fn until_code(server: &Server, client: &str, jobtype: &str, id: &str, code: &str) -> Value {
    let mut last = Value::Null;
    for _ in 0..6_000 {
        last = job(server, client, jobtype, id);
        if last["code"] == code {
            return last;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{id} has no code {code}: {last}\n{}", server.log());
}

#[track_caller]
fn set_handler(server: &Server, client: &str, jobtype: &str, handler: Value) -> Value {
    let (status, answer) =
        server.call("POST", &format!("/{client}/handler/add/{jobtype}/add"), Some(handler));
    assert_eq!(status, 200, "{answer}");
    answer
}

/// Alias and payload of every job of the client, oldest first.
fn all_jobs(server: &Server, client: &str) -> Vec<(String, String)> {
    let (mut jobs, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/v1/jobs?tenant={client}&queue=miniq&limit=1000{cursor}");
        let (status, page) = server.call("GET", &path, None);
        assert_eq!(status, 200, "{page}");
        for job in page["jobs"].as_array().unwrap() {
            let text = |key: &str| job[key].as_str().unwrap_or_default().to_owned();
            jobs.push((text("alias"), text("payload")));
        }
        match page["next"].as_u64().or_else(|| page["next"].as_str()?.parse().ok()) {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    jobs.reverse();
    jobs
}

#[test]
fn quit_ends_the_server_and_report_reads_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    set_handler(&server, "acme", "up", serde_json::json!({"lang": "sh", "body": "read -r line; exit $line"}));
    let ids = add(server.http, "acme", "up", "0\n0\n44\n").unwrap();
    for (id, code) in ids.iter().zip(["ok", "ok", "failed"]) {
        until_code(&server, "acme", "up", id, code);
    }
    assert_eq!(request(server.http, "GET", "/quit", "").unwrap(), (200, "Quit.\n".to_owned()));
    assert!(server.wait().success(), "{}", server.log());
    let report = server.run(&["report", "windlass-data/jobs.log", "--json"]).json();
    let one = &report["types"][0];
    assert_eq!(
        (&one["type"], &one["added"], &one["ok"], &one["failed"]),
        (&"acme-up".into(), &3.into(), &2.into(), &1.into())
    );
    let table = server.run(&["report", "windlass-data/jobs.log"]).ok();
    assert!(table.contains("acme-up") && table.contains("PER SECOND"), "{table}");
    assert_ne!(server.run(&["report", "nowhere.log"]).code, 0);
}

#[test]
fn report_says_so_where_a_file_is_no_log() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |args: &[&str]| Ran::of(windlass().args(args).current_dir(folder.path()));
    let line = r#"{"time":"2026-11-15T16:00:00.000Z","type":"INFO","message":"job added","info":{"id":"1","type":"acme-t"}}"#;
    std::fs::write(folder.path().join("jobs.log"), format!("{line}\nhalf a li")).unwrap();
    std::fs::write(folder.path().join("text.log"), "hello\nworld\n").unwrap();
    std::fs::write(folder.path().join("binary"), vec![0xff; 3 << 20]).unwrap();
    std::fs::write(folder.path().join("empty.log"), "").unwrap();
    for (files, wrong) in [
        (&["text.log"][..], "text.log"),
        (&["binary"], "binary"),
        (&["binary", "--json"], "binary"),
        (&["jobs.log", "text.log"], "text.log"),
    ] {
        let ran = in_folder(&[&["report"], files].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{files:?}: {ran:?}");
        assert!(ran.stderr.contains(&format!("{wrong} is not a job log")), "{files:?}: {ran:?}");
    }
    let table = in_folder(&["report", "jobs.log"]);
    assert!(table.stderr.contains("1 lines are not job log entries"), "{table:?}");
    assert!(table.ok().contains("acme-t"));
    let nothing = in_folder(&["report", "empty.log"]);
    assert!(nothing.code == 0 && nothing.stderr.contains("the log contains no jobs"), "{nothing:?}");
}

#[test]
fn journaled_native_pushes_are_found_by_their_alias() {
    let server = Server::start(&["--set", "journal.native=true"]);
    let (status, answer) =
        server.call("POST", "/api/v1/jobs", Some(serde_json::json!({"name": "a", "payload": 1})));
    assert_eq!(status, 202, "{answer}");
    let alias = answer["aliases"][0].as_str().unwrap();
    let job = eventually("the job is in the store", || {
        let (status, job) = server.call("GET", &format!("/api/v1/aliases/{alias}"), None);
        (status == 200).then_some(job)
    });
    assert_eq!((&job["name"], &job["payload"]), (&"a".into(), &1.into()));
}

#[test]
fn lines_of_the_journal_that_are_no_jobs_are_reported_and_the_rest_is_taken_in() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("windlass-data/journal");
    std::fs::create_dir_all(&journal).unwrap();
    let lines = "i1|acme-t|one\nno bars\n|acme-t|no id\ni2||no type\ni3|nodash|no client\ni4|acme-t|four\n";
    std::fs::write(journal.join("00000001.log"), lines).unwrap();
    let server = Server::start_in(folder.path(), &["--set", "miniq.run=false"]);
    let jobs = eventually("both jobs are there", || {
        let jobs = all_jobs(&server, "acme");
        (jobs.len() == 2).then_some(jobs)
    });
    assert_eq!(jobs, [("i1".to_owned(), "one".to_owned()), ("i4".to_owned(), "four".to_owned())]);
    let log = eventually("all four are in the log", || {
        let log = server.log();
        let is_told =
            log.contains("3 damaged lines are skipped") && log.contains("journal line i3 is skipped");
        is_told.then_some(log)
    });
    assert!(!log.contains("panicked"), "{log}");
}
