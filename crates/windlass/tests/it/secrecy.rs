//! What the server keeps is for its own user, and what it knows stays with it.

use crate::server::{Ran, Server, windlass};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Files and folders below `folder` that users other than the owner may read, write or enter.
fn open_to_others(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let about = entry.metadata().unwrap();
        if about.permissions().mode() & 0o077 != 0 {
            found.push((entry.path(), about.permissions().mode()));
        }
        if about.is_dir() {
            found.extend(open_to_others(&entry.path()));
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn nothing_the_server_keeps_is_open_to_other_users() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start_in(folder.path(), &["--data", "data"]);
    assert!(server.log().contains("other users can look into the data folder data"), "{}", server.log());
    server.call("POST", "/api/v1/jobs", Some(json!({"name": "a"})));
    server.call("PUT", "/blob", Some(json!("some bytes")));
    server.call("POST", "/default/job/t/add", Some(json!("a line")));
    assert_eq!(open_to_others(&data), []);
    server.run(&["backup", "copy.db", "--data", "data"]).ok();
    assert_eq!(mode(&folder.path().join("copy.db")), 0o600);
    assert_eq!(open_to_others(&folder.path().join("copy.db.blobs")), []);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let words: Vec<&str> = core.split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{core}");
}

#[test]
fn a_database_that_was_open_to_other_users_is_closed_to_them() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("jobs.db");
    let args = ["--store", "sqlite:jobs.db"];
    let mut server = Server::start_in(folder.path(), &args);
    assert_eq!(mode(&database), 0o600);
    server.stop();
    std::fs::set_permissions(&database, std::fs::Permissions::from_mode(0o644)).unwrap();
    let server = Server::start_in(folder.path(), &args);
    assert_eq!(mode(&database), 0o600);
    assert!(
        server.log().contains("jobs.db was open to other users; its mode is 0600 now"),
        "{}",
        server.log()
    );
}

#[test]
fn the_command_of_a_worker_does_not_get_its_token() {
    let made = Ran::of(windlass().args(["token", "--role", "worker", "--json"])).json();
    let (token, line) = (made["token"].as_str().unwrap(), made["config"].as_str().unwrap());
    let server = Server::start(&["--set", &format!("auth.tokens={line}")]);
    let run = |args: &[&str]| Ran::of(server.command(args).env("WINDLASS_TOKEN", token));
    run(&["push", "env"]).ok();
    run(&["work", "env", "--once", "--", "sh", "-c", "env"]).ok();
    let result = run(&["job", "1", "--json"]).json()["result"].to_string();
    assert!(result.contains("WINDLASS_JOB_ID=1"), "{result}");
    assert!(!result.contains("WINDLASS_TOKEN") && !result.contains(token), "{result}");
}
