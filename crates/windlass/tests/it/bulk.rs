//! Actions of `windlass jobs` on all jobs of a search.

use crate::server::{Ran, Server};
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

/// Pushes jobs that fail at their only attempt.
fn failed_jobs(server: &Server, name: &str, count: usize) {
    let lines = (1..=count).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
    server.run(&["push", name, &lines, "--lines", "--retry", "1", "--queue", name]).ok();
    loop {
        let claimed = server.call("POST", "/api/v1/claim", Some(json!({"name": name, "limit": 500}))).1;
        let jobs = claimed["jobs"].as_array().unwrap();
        if jobs.is_empty() {
            break;
        }
        let fail = |job: &Value| json!({"id": job["id"], "token": job["token"], "outcome": "fail"});
        let settle = json!({"settle": jobs.iter().map(fail).collect::<Vec<_>>()});
        server.call("POST", "/api/v1/settle", Some(settle));
    }
}

fn count(server: &Server, search: &str) -> u64 {
    let (_, counted) = server.call("GET", &format!("/api/v1/jobs/count?search={search}"), None);
    counted["count"].as_u64().unwrap()
}

#[test]
fn many_jobs_are_retried_after_a_count_and_a_yes() {
    let server = Server::start(&[]);
    failed_jobs(&server, "mail", 1_500);
    failed_jobs(&server, "other", 1);
    let search = "state:failed queue:mail";
    let ran = server.run(&["jobs", search, "--retry"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for words in ["retry 1,500 jobs (state:failed queue:mail)?", "--yes", "nothing was changed"] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
    assert_eq!(count(&server, "state:failed"), 1_501);
    let said = server.run(&["jobs", search, "--retry", "--yes"]).ok();
    assert_eq!(said, "1,500 jobs retried");
    assert_eq!((count(&server, "state:ready"), count(&server, "state:failed")), (1_500, 1));
    let ran = server.run(&["jobs", search, "--retry", "--yes"]);
    assert_eq!((ran.code, ran.stderr.trim()), (0, "no jobs found"));
}

#[test]
fn every_action_changes_the_jobs_found_and_no_others() {
    let server = Server::start(&[]);
    server.run(&["push", "a", "1\n2\n3", "--lines", "--delay", "1h"]).ok();
    server.run(&["push", "b", "--delay", "1h"]).ok();
    let act = |flags: &[&str]| server.run(&[&["jobs", "name:a"], flags, &["--yes"]].concat()).ok();
    assert_eq!(act(&["--set-priority", "-7"]), "3 jobs changed");
    assert_eq!(act(&["--queue-to", "night"]), "3 jobs moved");
    assert_eq!(act(&["--run-at", "2040-01-01T00:00:00Z"]), "3 jobs changed");
    let job = server.job(2);
    assert_eq!((&job["priority"], &job["queue"]), (&json!(-7), &json!("night")));
    assert_eq!(job["run_at"], 2_208_988_800_000_i64);
    assert_eq!(act(&["--run"]), "3 jobs run now");
    assert_eq!(server.state_of(2), "ready");
    assert_eq!(act(&["--cancel"]), "3 jobs cancelled, or their workers asked to stop");
    assert_eq!(server.state_of(2), "cancelled");
    assert_eq!(act(&["--delete"]), "3 jobs deleted");
    let job = server.job(4);
    assert_eq!((&job["priority"], &job["queue"]), (&json!(0), &json!("default")));
    assert_eq!(server.run(&["jobs", "--all", "--json"]).ok().lines().count(), 1);
    assert_eq!(
        server.run(&["jobs", "--all", "--cancel", "--yes"]).ok(),
        "1 job cancelled, or their workers asked to stop"
    );
}

#[test]
fn what_could_not_be_changed_is_said() {
    let server = Server::start(&[]);
    server.run(&["push", "a", "1\n2\n3", "--lines"]).ok();
    server.call("POST", "/api/v1/claim", Some(json!({"name": "a"})));
    let ran = server.run(&["jobs", "name:a", "--set-priority", "5", "--yes"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let reason = "  1 job (1): `priority` does not fit a job that is running";
    assert_eq!(ran.stdout, format!("2 jobs changed\n1 job was not changed:\n{reason}\n"));
    assert!(ran.stderr.contains("1 of 3 jobs could not be changed"), "{ran:?}");
    let ran = server.run(&["jobs", "name:a", "--delete", "--yes", "--json"]);
    let sum: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&sum["found"], &sum["done"], &sum["refused"]), (&json!(3), &json!(2), &json!(1)));
    assert_eq!(sum["errors"][0]["id"], 1);
}

#[test]
fn failures_are_grouped_and_a_group_is_retried() {
    let server = Server::start(&[]);
    assert!(server.run(&["failures"]).stderr.contains("no failed or retrying jobs"));
    server.run(&["push", "mail", "1\n2\n3", "--lines", "--retry", "1"]).ok();
    server.run(&["push", "report"]).ok();
    let trace = "echo 'Traceback:' >&2; echo 'smtplib.SMTPServerDisconnected: closed' >&2; exit 1";
    server.run(&["work", "mail", "--drain", "--", "sh", "-c", trace]).ok();
    server
        .run(&[
            "work",
            "report",
            "--once",
            "--retry-delay",
            "1h",
            "--",
            "sh",
            "-c",
            "echo disk 7 is full >&2; exit 1",
        ])
        .ok();
    let table = server.run(&["failures"]).ok();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    for (line, words) in [
        (lines[1], ["3", "mail", "SMTPServerDisconnected", "closed"]),
        (lines[2], ["1", "report", "disk * is full", "disk 7 is full"]),
    ] {
        assert!(words.iter().all(|word| line.contains(word)), "{words:?}: {table}");
    }
    let groups = server.run(&["failures", "--json", "--state", "failed"]).json();
    let search = groups["groups"][0]["search"].as_str().unwrap();
    assert_eq!(server.run(&["jobs", search, "--retry", "--yes"]).ok(), "3 jobs retried");
    assert_eq!(count(&server, "state:ready"), 3);
    assert_eq!(server.run(&["jobs", "state:retrying error:DISK*", "--cancel", "--yes"]).code, 0);
    assert_eq!(server.state_of(4), "cancelled");
}

/// Runs a command on a terminal of its own and types an answer.
fn on_terminal(server: &Server, line: &str, answer: &str) -> Ran {
    let program = env!("CARGO_BIN_EXE_windlass");
    let mut script = Command::new("script");
    script.args(["-qec", &format!("{program} {line} --server {}", server.url()), "/dev/null"]);
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), stdout, stderr: String::new() }
}

#[test]
fn a_terminal_is_asked() {
    let server = Server::start(&[]);
    server.run(&["push", "a", "1\n2", "--lines"]).ok();
    let ran = on_terminal(&server, "jobs name:a --cancel", "n\n");
    assert!(ran.code == 1 && ran.stdout.contains("cancel 2 jobs (name:a)? [y/N]"), "{ran:?}");
    assert_eq!(server.state_of(1), "ready");
    let ran = on_terminal(&server, "jobs name:a --cancel", "y\n");
    assert!(ran.code == 0 && ran.stdout.contains("2 jobs cancelled"), "{ran:?}");
    let ran = on_terminal(&server, "queues pause nightly", "yes\n");
    assert!(ran.code == 0 && ran.stdout.contains("pause it before its first job? [y/N]"), "{ran:?}");
    assert!(ran.stdout.contains("queue nightly paused"), "{ran:?}");
}
