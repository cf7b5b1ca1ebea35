//! Copying a whole store, as an operator would.

use crate::rigs::cluster::postgres_server::PostgresServer;
use crate::server::{Ran, Server, windlass};
use serde_json::{Value, json};
use std::path::Path;

fn copy(folder: &Path, from: &str, to: &str) -> Ran {
    Ran::of(windlass().current_dir(folder).args(["copy", "--json", "--from", from, "--to", to]))
}

/// Creates jobs in several states, deleted jobs, a limit and a paused queue.
fn fill(server: &Server) {
    let lines = (0..700).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
    server.run(&["push", "row", &lines, "--lines"]).ok();
    server
        .run(&["push", "mail", r#"{"to":"ann"}"#, "--queue", "out", "--unique", "ann", "--tag", "vip"])
        .ok();
    server.run(&["push", "later", "--delay", "1h", "--repeat", "every 5m"]).ok();
    let claim = json!({ "name": "row", "limit": 3, "lease_ms": 3_600_000, "worker": "w" });
    let claimed = server.call("POST", "/api/v1/claim", Some(claim)).1;
    let settle = json!({ "settle": [
        { "id": claimed["jobs"][0]["id"], "token": claimed["jobs"][0]["token"], "outcome": "finish", "result": { "n": 1 } },
        { "id": claimed["jobs"][1]["id"], "token": claimed["jobs"][1]["token"], "outcome": "fail", "error": "no luck",
          // Not due while the test runs: a due job is counted differently.
          "delay_ms": 3_600_000 },
    ]});
    server.call("POST", "/api/v1/settle", Some(settle));
    server.run(&["queues", "pause", "out"]).ok();
    let limit = json!({ "matcher": { "name": "mail" }, "max_running": 1 });
    let (status, answer) = server.call("PUT", "/api/v1/limits/one-mail", Some(limit));
    assert!(status < 300, "{status} {answer}");
    server.run(&["push", "gone"]).ok();
    server.run(&["job", "703", "delete"]).ok();
}

fn everything(server: &Server) -> Vec<Value> {
    let text = server.run(&["jobs", "--all", "--json"]).ok();
    let mut found: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for path in ["/api/v1/queues", "/api/v1/limits"] {
        let (status, mut answer) = server.call("GET", path, None);
        assert_eq!(status, 200, "{answer}");
        without_moving_parts(&mut answer);
        found.push(answer);
    }
    found
}

/// Removes values that depend on the time of the request: a job that becomes due is ready and no longer
/// delayed.
fn without_moving_parts(answer: &mut Value) {
    for queue in answer["queues"].as_array_mut().into_iter().flatten() {
        let waiting = queue["ready"].as_u64().unwrap_or(0) + queue["delayed"].as_u64().unwrap_or(0);
        let fields = queue.as_object_mut().unwrap();
        let moves =
            |name: &str| name.starts_with("oldest") || name.starts_with("empty_in") || name.contains("per_");
        fields.retain(|name, _| !moves(name) && name != "delayed");
        fields.insert("ready".to_owned(), waiting.into());
    }
    for limit in answer["limits"].as_array_mut().into_iter().flatten() {
        limit.as_object_mut().unwrap().retain(|name, _| name != "waiting" && name != "held");
    }
}

#[test]
fn a_copied_store_serves_the_same_jobs_and_goes_on_with_the_ids() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &["--store", "sqlite:one.db"]);
    fill(&server);
    let before = everything(&server);
    let busy = copy(folder.path(), "sqlite:one.db", "sqlite:two.db");
    assert!(busy.code == 1 && busy.stderr.contains("--from"), "a store that is being served: {busy:?}");
    server.stop();

    let copied = copy(folder.path(), "sqlite:one.db", "sqlite:two.db").json();
    assert_eq!((copied["jobs"].as_u64(), copied["next_id"].as_u64()), (Some(702), Some(704)), "{copied}");
    let again = copy(folder.path(), "sqlite:one.db", "sqlite:two.db");
    assert!(again.code == 1 && again.stderr.contains("not empty: 702 jobs"), "{again:?}");
    let report =
        Ran::of(windlass().current_dir(folder.path()).args(["check", "--store", "sqlite:two.db"])).ok();
    assert!(report.contains("no problems found"), "{report}");

    let server = Server::start_in(folder.path(), &["--store", "sqlite:two.db"]);
    assert_eq!(everything(&server), before);
    assert_eq!(server.run(&["push", "next", "--json"]).json()["id"], 704);
}

#[test]
fn a_store_moves_to_postgresql_and_back_and_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &["--store", "sqlite:one.db"]);
    fill(&server);
    let before = everything(&server);
    server.stop();
    let database = PostgresServer::shared().new_schema_url();
    for (from, to) in [("sqlite:one.db", database.as_str()), (&database, "sqlite:two.db")] {
        let copied = copy(folder.path(), from, to).json();
        assert_eq!((copied["jobs"].as_u64(), copied["next_id"].as_u64()), (Some(702), Some(704)), "{copied}");
        let again = copy(folder.path(), from, to);
        assert!(again.code == 1 && again.stderr.contains("not empty: 702 jobs"), "{again:?}");
        let mut server = Server::start_in(folder.path(), &["--store", to, "--durability", "relaxed"]);
        assert_eq!(everything(&server), before, "{to}");
        server.stop();
    }
    let server = Server::start_in(folder.path(), &["--store", "sqlite:two.db"]);
    assert_eq!(server.run(&["push", "next", "--json"]).json()["id"], 704);
}

#[test]
fn no_server_starts_on_an_unfinished_copy_and_copying_again_mends_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &["--store", "sqlite:one.db"]);
    fill(&server);
    server.stop();
    copy(folder.path(), "sqlite:one.db", "sqlite:two.db").ok();
    mark_unfinished(&folder.path().join("two.db"));
    let refused = Ran::of(windlass().current_dir(folder.path()).args([
        "serve",
        "--store",
        "sqlite:two.db",
        "--http",
        "127.0.0.1:0",
    ]));
    assert!(refused.code == 1 && refused.stderr.contains("windlass copy"), "{refused:?}");
    let copied = copy(folder.path(), "sqlite:one.db", "sqlite:two.db").json();
    assert_eq!(copied["jobs"], 702);
    let server = Server::start_in(folder.path(), &["--store", "sqlite:two.db"]);
    assert_eq!(server.run(&["push", "next", "--json"]).json()["id"], 704);
}

/// Marks the target as an interrupted copy leaves it.
fn mark_unfinished(database: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let url = format!("sqlite:{}", database.display());
        let store = windlass_store::open(&url, windlass_store::OpenOptions::default()).await.unwrap();
        store.put_setting("copy/unfinished", Some(b"yesterday".to_vec())).await.unwrap();
        store.close().await.unwrap();
    });
}

#[test]
fn a_copy_from_or_to_nowhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to, words) in [
        ("sqlite:none.db", "sqlite:two.db", "no store at none.db"),
        ("memory:", "sqlite:two.db", "memory: cannot be copied"),
        ("sqlite:one.db", "sqlite:one.db", "the same store"),
        ("sqlite:one.db", "nonsense:", "no store at one.db"),
    ] {
        let ran = copy(folder.path(), from, to);
        assert!(ran.code != 0 && ran.stderr.contains(words), "{from} {to}: {ran:?}");
    }
    assert!(!folder.path().join("two.db").exists() && !folder.path().join("none.db").exists());
}
