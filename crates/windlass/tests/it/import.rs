//! Import of a Bedrock database file.

use crate::server::Server;
use rusqlite::Connection;
use std::path::Path;

/// Database as Bedrock leaves it: a few jobs of every kind, and many of the common one.
fn bedrock_file(path: &Path) {
    let db = Connection::open(path).unwrap();
    db.execute_batch(windlass_dialects::bedrock::query::SCHEMA).unwrap();
    let insert = |id: i64, state: &str, name: &str, data: &str, repeat: &str, parent: i64| {
        db.execute(
            "INSERT INTO jobs VALUES ('2024-01-01 10:00:00', ?1, ?2, ?3, '2024-01-02 03:04:05', NULL, ?5, ?4, 1000, ?6, '')",
            (id, state, name, data, repeat, parent),
        )
        .unwrap();
    };
    insert(7_000_000_000_000_000_001, "PAUSED", "parent", "{}", "", 0);
    insert(7_000_000_000_000_000_002, "QUEUED", "child", r#"{"n":1}"#, "", 7_000_000_000_000_000_001);
    insert(7_000_000_000_000_000_003, "FINISHED", "child", "{}", "", 7_000_000_000_000_000_001);
    insert(7_000_000_000_000_000_004, "RUNNING", "stuck", "{}", "FINISHED, +1 DAY", 0);
    insert(7_000_000_000_000_000_005, "FAILED", "sad", r#"{"a":"ü"}"#, "", 0);
    insert(7_000_000_000_000_000_006, "QUEUED", "poison", r#"{"a":"#, "", 0);
    db.execute_batch("BEGIN").unwrap();
    for number in 1..=1_200 {
        insert(number, "QUEUED", "bulk", &format!(r#"{{"n":{number}}}"#), "", 0);
    }
    db.execute_batch("COMMIT").unwrap();
}

#[test]
fn a_bedrock_file_is_shown_first_and_imported_once_when_told_to() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bedrock.db");
    bedrock_file(&path);
    let file = path.to_str().unwrap();

    let shown = server.run(&["import", "bedrock", file]);
    let shown = shown.ok();
    for line in [
        "1206 jobs",
        "1201 QUEUED     become ready",
        "1 RUNNING    become ready",
        "1 PAUSED     become waiting",
        "1 its data is not a JSON object (jobID 7000000000000000006)",
        "nothing was changed; --apply would import 1205 jobs",
    ] {
        assert!(shown.contains(line), "{line} is not in\n{shown}");
    }
    assert_eq!(server.run(&["jobs", "--json"]).ok().matches("\"id\"").count(), 0);

    // All importable jobs are imported, and a rest that is not counts as a failure.
    let done = server.run(&["import", "bedrock", file, "--apply"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("1205 jobs imported, 0 already existed, 0 refused"), "{done:?}");
    let left = "1 of 1206 jobs were not imported (1: its data is not a JSON object)";
    assert!(done.stderr.contains(left), "{done:?}");
    let again = server.run(&["import", "bedrock", file, "--yes", "--json"]);
    assert!(again.code == 1 && again.stderr.contains(left), "{again:?}");
    let again: serde_json::Value = serde_json::from_str(&again.stdout).unwrap();
    Connection::open(&path).unwrap().execute("DELETE FROM jobs WHERE name = 'poison'", ()).unwrap();
    server.run(&["import", "bedrock", file, "--apply"]).ok();
    assert_eq!(
        (again["applied"]["new"].as_u64(), again["applied"]["existing"].as_u64()),
        (Some(0), Some(1205))
    );

    let job = |old: u64| server.call("GET", &format!("/api/v1/aliases/bedrock-{old}"), None).1;
    let parent = job(7_000_000_000_000_000_001);
    assert_eq!((parent["state"].as_str(), parent["pending_children"].as_u64()), (Some("waiting"), Some(1)));
    let child = job(7_000_000_000_000_000_002);
    assert_eq!((child["state"].as_str(), &child["parent"]), (Some("ready"), &parent["id"]));
    assert_eq!(child["payload"], serde_json::json!({"n": 1}));
    assert_eq!(job(7_000_000_000_000_000_003)["state"], "completed");
    assert_eq!(job(7_000_000_000_000_000_004)["repeat"], "FINISHED, +1 DAY");
    let failed = job(7_000_000_000_000_000_005);
    assert_eq!(
        (failed["state"].as_str(), failed["created_at"].as_i64()),
        (Some("failed"), Some(1_704_103_200_000))
    );
}

#[test]
fn a_file_that_cannot_be_imported_is_refused_before_a_server_is_asked() {
    let server = Server::start(&[]);
    let missing = server.run(&["import", "bedrock", "nowhere.db", "--apply"]);
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("file nowhere.db not found"), "{missing:?}");
}
