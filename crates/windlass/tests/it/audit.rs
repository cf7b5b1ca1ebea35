//! Audit log: who did what, and when.

use crate::server::{Ran, Server, eventually, windlass};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

/// Server with tokens, those of `ann` (operator) and `root` (admin).
fn with_tokens(args: &[&str]) -> (Server, String, String) {
    let made = |role: &str, note: &str| {
        let made = Ran::of(windlass().args(["token", "--role", role, "--note", note, "--json"])).json();
        (made["token"].as_str().unwrap().to_owned(), made["config"].as_str().unwrap().to_owned())
    };
    let ((ann, ann_line), (root, root_line)) = (made("operator", "ann"), made("admin", "root"));
    let set = format!("auth.tokens=[\"{ann_line}\", \"{root_line}\"]");
    (Server::start(&[&["--set", &set], args].concat()), ann, root)
}

fn as_user(server: &Server, token: &str, args: &[&str]) -> Ran {
    Ran::of(server.command(args).env("WINDLASS_TOKEN", token))
}

fn entries(server: &Server, token: &str, args: &[&str]) -> Vec<Value> {
    let text = as_user(server, token, &[&["audit", "--json"], args].concat()).ok();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn told(entries: &[Value]) -> Vec<String> {
    let word = |entry: &Value, key: &str| entry[key].as_str().unwrap().to_owned();
    entries
        .iter()
        .map(|entry| format!("{} {} {}", word(entry, "who"), word(entry, "action"), word(entry, "target")))
        .collect()
}

#[test]
fn actions_of_operators_and_admins_are_recorded_with_who_and_when() {
    let (server, ann, root) = with_tokens(&["--set", "audit.file=audit.jsonl"]);
    for name in ["a", "b", "c"] {
        as_user(&server, &ann, &["push", name]).ok();
    }
    as_user(&server, &ann, &["work", "a", "--once", "--", "true"]).ok();
    as_user(&server, &ann, &["job", "2", "cancel"]).ok();
    as_user(&server, &ann, &["queues", "pause", "default"]).ok();
    as_user(&server, &root, &["queues", "resume", "default"]).ok();
    as_user(&server, &root, &["token", "create", "--role", "worker", "--note", "temp"]).ok();
    assert_ne!(as_user(&server, &ann, &["job", "99", "cancel"]).code, 0);
    let all = entries(&server, &root, &[]);
    let made = all[0]["target"].as_str().unwrap().to_owned();
    let expected = [
        &format!("root token.create {made}"),
        "root queue.resume default",
        "ann queue.pause default",
        "ann job.cancel 2",
    ];
    assert_eq!(told(&all), expected, "neither workers' calls nor refused ones");
    assert!(all[0]["detail"].as_str().unwrap().contains("worker of default, note \"temp\""), "{all:?}");
    assert!(all.iter().all(|entry| entry["at"].as_i64().unwrap() > 1_600_000_000_000), "{all:?}");
    assert_eq!((&all[3]["role"], &all[3]["tenant"]), (&json!("operator"), &json!("default")));
    assert_eq!(told(&entries(&server, &ann, &["--job", "2"])), ["ann job.cancel 2"]);
    assert_eq!(
        told(&entries(&server, &ann, &["--who", "ann", "--action", "queue"])),
        ["ann queue.pause default"]
    );
    let file = server.folder().join("audit.jsonl");
    let lines = std::fs::read_to_string(&file).unwrap();
    let actions: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["action"].clone()).collect();
    assert_eq!(actions, ["job.cancel", "queue.pause", "queue.resume", "token.create"]);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let table = as_user(&server, &ann, &["audit"]).ok();
    assert!(table.lines().next().unwrap().contains("ACTION") && table.contains("queue.pause"), "{table}");
    assert!(!lines.contains(&ann) && !lines.contains(&root));
}

#[test]
fn the_log_is_bounded_paged_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--set", "audit.entries_max=4"];
    let mut server = Server::start_in(folder.path(), &args);
    for _ in 0..4 {
        server.call("POST", "/api/v1/queues/default/pause", None);
        server.call("POST", "/api/v1/queues/default/resume", None);
    }
    let page = server.call("GET", "/api/v1/audit?limit=3", None).1;
    let ids: Vec<u64> =
        page["entries"].as_array().unwrap().iter().map(|entry| entry["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [8, 7, 6]);
    let next = page["next"].as_str().unwrap();
    let rest = server.call("GET", &format!("/api/v1/audit?limit=3&cursor={next}"), None).1;
    assert_eq!((rest["entries"].as_array().unwrap().len(), &rest["next"]), (1, &Value::Null), "{rest}");
    server.stop();
    let server = Server::start_in(folder.path(), &args);
    assert_eq!(server.run(&["audit", "--json"]).ok().lines().count(), 4);
    assert_eq!(server.call("GET", "/api/v1/audit?nonsense=1", None).0, 400);
    let off = Server::start(&["--set", "audit.entries_max=0"]);
    off.call("POST", "/api/v1/queues/default/pause", None);
    assert_eq!(off.run(&["audit", "--json"]).ok(), "");
}

#[test]
fn new_entries_are_followed() {
    let server = Server::start(&[]);
    server.call("POST", "/api/v1/queues/default/pause", None);
    let said = server.folder().join("followed");
    let mut follow = server
        .command(&["audit", "--follow", "--json"])
        .stdout(std::fs::File::create(&said).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = || std::fs::read_to_string(&said).unwrap_or_default();
    eventually("the first entry is shown", || lines().contains("queue.pause").then_some(()));
    server.call("POST", "/api/v1/queues/default/resume", None);
    eventually("the next entry is shown", || lines().contains("queue.resume").then_some(()));
    let _ = follow.kill();
    let _ = follow.wait();
    assert_eq!(lines().lines().count(), 2, "{}", lines());
}
