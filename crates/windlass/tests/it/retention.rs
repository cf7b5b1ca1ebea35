//! Keep times of settled jobs, through the real server and command.

use crate::server::Server;
use serde_json::json;
use std::path::Path;

fn kept_ms(server: &Server, queue: &str) -> Option<i64> {
    let id: u64 = server.run(&["push", "a", "--queue", queue]).ok().parse().unwrap();
    server.run(&["job", &id.to_string(), "cancel"]).ok();
    let job = server.job(id);
    Some(job["expires_at"].as_i64()? - job["finished_at"].as_i64()?)
}

fn start(folder: &Path) -> Server {
    Server::start_in(folder, &["--set", "keep.cancelled=90m"])
}

#[test]
fn keep_times_are_set_for_the_server_and_for_a_queue() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(folder.path());
    assert_eq!(kept_ms(&server, "mail"), Some(90 * 60_000));
    let table = server.run(&["queues", "keep", "mail", "--cancelled", "7d", "--completed", "0"]).ok();
    assert!(
        table.contains("7d") && table.contains("deleted at once") && table.contains("default"),
        "{table}"
    );
    assert_eq!(kept_ms(&server, "mail"), Some(7 * 86_400_000));
    server.stop();
    let server = start(folder.path());
    assert_eq!(kept_ms(&server, "mail"), Some(7 * 86_400_000));
    assert_eq!(kept_ms(&server, "other"), Some(90 * 60_000));
    let shown = server.run(&["queues", "keep", "mail", "--cancelled", "default", "--json"]).json();
    let keep = json!({"completed_ms": 0, "failed_ms": "ever", "cancelled_ms": 90 * 60_000});
    assert_eq!((&shown["keep"], &shown["keep_set"]), (&keep, &json!(["completed_ms"])));
}
