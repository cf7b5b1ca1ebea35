//! Hostile handlers on a server that runs as an ordinary user, as most do: the server and other handlers are
//! unaffected.

use super::{add, set_handler, until_code};
use crate::server::{Ran, Server, eventually, windlass};
use serde_json::json;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SOMEBODY: u32 = 54_322;

/// Folder of another user, if the test runs as root.
fn somebodys_folder() -> (TempDir, Option<u32>) {
    use std::os::unix::fs::{PermissionsExt, chown};
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let uid = rustix::process::geteuid().is_root().then_some(SOMEBODY);
    chown(folder.path(), uid, uid).unwrap();
    (folder, uid)
}

fn contexts(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let contexts = folder.join("windlass-data/contexts");
    std::fs::read_dir(contexts).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[test]
fn what_a_handler_does_to_limits_and_leaves_in_its_folder_ends_no_server_that_is_not_root() {
    let (folder, uid) = somebodys_folder();
    let keep = ["--set", "miniq.retry_delay_s=600", "--set", "miniq.lock_s=30"];
    let mut server = Server::start_as(uid, folder.path(), &keep);
    let body = "import resource, os\nhits = 0\nfor pid in range(1, 70000):\n    try:\n        \
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))\n        hits += 1\n    \
                except (OSError, ValueError): pass\nreturn f'{hits} hits'";
    set_handler(&server, "evil", "limits", json!({"lang": "python", "body": body}));
    let id = add(server.http, "evil", "limits", "x\n").unwrap().remove(0);
    assert_eq!(until_code(&server, "evil", "limits", &id, "ok")["result"], "0 hits");
    // Leaves an unreadable folder, and the server is killed before it can remove it.
    let shut = "mkdir -m 0 x; sleep 1000";
    set_handler(&server, "evil", "shut", json!({"lang": "sh", "body": shut}));
    add(server.http, "evil", "shut", "x\n").unwrap();
    eventually("the folder is there", || {
        contexts(folder.path()).any(|context| context.join("work/x").exists()).then_some(())
    });
    server.kill();
    let server = Server::start_as(uid, folder.path(), &keep);
    set_handler(&server, "acme", "fine", json!({"lang": "sh", "body": "echo fine > \"$WINDLASS_RESULT\""}));
    let id = add(server.http, "acme", "fine", "x\n").unwrap().remove(0);
    assert_eq!(until_code(&server, "acme", "fine", &id, "ok")["result"], "fine\n");
}

#[test]
fn data_and_configuration_below_a_folder_that_may_be_read_are_not_read() {
    let (folder, uid) = somebodys_folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("library"), "a library").unwrap();
    std::fs::write(path("windlass.toml"), "shutdown_s = 5\n").unwrap();
    let readable = format!("miniq.readable={}", folder.path().display());
    let server = Server::start_as(uid, folder.path(), &["--config", "windlass.toml", "--set", &readable]);
    let body = format!(
        "for file in {} {} {} {}; do cat $file > copy 2>/dev/null && [ -s copy ] && exit 44; done; cat {}",
        path("windlass.toml"),
        path("windlass-data/windlass.db"),
        path("windlass-data/windlass.db-wal"),
        path("windlass-data/jobs.log"),
        path("library"),
    );
    set_handler(&server, "evil", "read", json!({"lang": "sh", "body": body}));
    let id = add(server.http, "evil", "read", "x\n").unwrap().remove(0);
    let job = until_code(&server, "evil", "read", &id, "ok");
    assert_eq!(job["log"], "a library", "{job}");
}

#[test]
fn the_configuration_is_shown_with_what_holds_handlers_here() {
    let ran = Ran::of(windlass().args(["config"])).ok();
    let line = ran.lines().last().unwrap();
    let said = line.strip_prefix("handler isolation on this machine, as this user: ").expect(line);
    let (holds, missing) = said.split_once("; missing: ").expect(line);
    assert!(holds.starts_with("limits") && !missing.is_empty(), "{line}");
    // Each mechanism is either available or missing.
    assert!(["landlock", "seccomp", "control groups"].iter().all(|part| said.contains(part)), "{line}");
    let none = Ran::of(windlass().args(["config", "--set", "miniq.run=false"])).ok();
    assert!(!none.contains("handler isolation"), "{none}");
}

/// Either the isolation is complete, or no handler runs and its author gets the reason.
#[test]
fn strict_isolation_is_said_at_the_start_and_to_whoever_hands_in_a_handler() {
    let (folder, uid) = somebodys_folder();
    let args = ["--set", "runners.isolation=strict", "--set", "miniq.retry_delay_s=600"];
    let server = Server::start_as(uid, folder.path(), &args);
    let answer = set_handler(&server, "acme", "fine", json!({"lang": "sh", "body": "true"}));
    let id = add(server.http, "acme", "fine", "x\n").unwrap().remove(0);
    match answer["warning"].as_str() {
        None => drop(until_code(&server, "acme", "fine", &id, "ok")),
        Some(why) => {
            assert!(why.contains("runners.isolation"), "{why}");
            until_code(&server, "acme", "fine", &id, "BAD_HANDLER");
            eventually("the log says so", || server.log().contains("handlers are disabled").then_some(()));
        }
    }
}
