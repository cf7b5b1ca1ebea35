//! Schedules and their turns, through the real server and command.

use crate::server::{Server, eventually};
use serde_json::{Value, json};

/// Claims the next job and ends its run; `false`: none is due.
fn work(server: &Server, end: &Value) -> bool {
    let (_, claimed) = server.call("POST", "/api/v1/claim", Some(json!({"worker": "w1"})));
    let Some(job) = claimed["jobs"].get(0) else { return false };
    let mut entry = json!({"id": job["id"], "token": job["token"]});
    entry.as_object_mut().unwrap().extend(end.as_object().unwrap().clone());
    server.call("POST", "/api/v1/settle", Some(json!({"settle": [entry]})));
    true
}

fn turns(server: &Server) -> Vec<Value> {
    server.run(&["schedules", "turns", "1", "--json"]).json()["turns"].as_array().unwrap().clone()
}

#[test]
fn a_failed_turn_is_seen_in_list_turns_and_metrics_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    server.run(&["push", "report", "--repeat", "every 1h", "--retry", "1"]).ok();
    assert!(work(&server, &json!({"outcome": "fail", "message": "disk full"})));
    let metrics = crate::server::request(server.http, "GET", "/metrics", "").unwrap().1;
    assert!(metrics.contains("windlass_turns_total{outcome=\"failed\"} 1"), "{metrics}");
    server.stop();
    let server = Server::start_in(folder.path(), &[]);
    let table = server.run(&["schedules"]).ok();
    assert!(table.contains("report") && table.contains("every 1h") && table.contains("failed"), "{table}");
    let table = server.run(&["schedules", "turns", "1"]).ok();
    assert!(table.contains("failed") && table.contains("disk full") && table.contains("w1"), "{table}");
    assert_eq!(server.job(1)["schedule"]["failed_in_a_row"], 1);
}

#[test]
fn a_schedule_is_run_paused_edited_and_resumed_by_command() {
    let server = Server::start(&[]);
    server.run(&["push", "report", "--repeat", "every 1h"]).ok();
    assert!(work(&server, &json!({"outcome": "finish"})));
    let next_run = server.job(1)["run_at"].clone();
    assert_eq!(server.run(&["schedules", "run", "1"]).ok(), "schedule 1 runs now");
    assert!(work(&server, &json!({"outcome": "finish"})));
    assert_eq!(server.job(1)["run_at"], next_run, "the next run has not moved");
    assert_eq!(turns(&server)[0]["requested"], true);

    assert_eq!(server.run(&["schedules", "pause", "1"]).ok(), "schedule 1 paused");
    assert!(server.run(&["schedules"]).ok().contains("paused"));
    let ran = server.run(&["schedules", "run", "1"]);
    assert!(ran.code == 1 && ran.stderr.contains("resume"), "{ran:?}");
    let edit = ["schedules", "edit", "1", "--repeat", "every 2s", "--payload", "{\"n\":1}", "--queue", "q"];
    assert_eq!(server.run(&edit).ok(), "schedule 1 changed");
    let resumed = server.run(&["schedules", "resume", "1"]).ok();
    assert!(resumed.starts_with("schedule 1 resumed; next run "), "{resumed}");
    let job = server.job(1);
    assert_eq!((&job["payload"], &job["queue"]), (&json!({"n": 1}), &json!("q")));
    eventually("the next turn", || work(&server, &json!({"outcome": "finish"})).then_some(()));
    assert_eq!(turns(&server).len(), 3);

    server.run(&["push", "once"]).ok();
    for args in [["schedules", "pause", "2"], ["schedules", "edit", "1"]] {
        let ran = server.run(&args);
        assert!(ran.code != 0 && !ran.stderr.is_empty(), "{ran:?}");
    }
}

#[test]
fn turns_that_a_stopped_server_missed_are_made_up_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    for (name, catch_up) in [("one", "one"), ("none", "none")] {
        let job = json!({"name": name, "repeat": "every 200ms", "catch_up": catch_up});
        assert_eq!(server.call("POST", "/api/v1/jobs", Some(job)).0, 201);
    }
    server.stop();
    let stopped = std::time::Instant::now();
    eventually("several turns were due", || (stopped.elapsed().as_millis() > 700).then_some(()));
    let server = Server::start_in(folder.path(), &[]);
    let (_, listed) = server.call("GET", "/api/v1/schedules", None);
    for job in listed["jobs"].as_array().unwrap() {
        let overdue = &job["schedule"]["overdue"];
        assert!(overdue["server_was_down"] == true && overdue["missed"].as_u64() >= Some(3), "{job}");
    }
    let table = server.run(&["schedules"]).ok();
    assert!(table.contains("server was down"), "{table}");
    let (_, claimed) = server.call("POST", "/api/v1/claim", Some(json!({"limit": 2})));
    let names: Vec<&Value> = claimed["jobs"].as_array().unwrap().iter().map(|job| &job["name"]).collect();
    assert_eq!(names, ["one"], "it is made up late, the other is not");
    let missed = &server.job(2)["schedule"]["last_turn"];
    assert!(missed["outcome"] == "missed" && missed["missed"].as_u64() >= Some(3), "{missed}");
}
