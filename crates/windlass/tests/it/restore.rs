//! `windlass restore`: a backup becomes a store again.

use crate::server::{Ran, Server, windlass};
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Server with three jobs, a blob and a backup `copy.db`; then a fourth job that the backup lacks.
fn backed_up() -> Server {
    let server = Server::start(&[]);
    server.run(&["push", "a", "1\n2\n3", "--lines"]).ok();
    server.run(&["queues", "pause", "default"]).ok();
    server.call("PUT", "/blob", Some(json!("some bytes")));
    server.run(&["backup", "copy.db"]).ok();
    server.run(&["push", "late", "4"]).ok();
    server
}

fn kept_folder(data: &Path) -> Option<PathBuf> {
    let name = names_in(data).into_iter().find(|name| name.starts_with("before-restore-"))?;
    Some(data.join(name))
}

#[test]
fn a_backup_is_restored_into_a_new_folder_and_ids_go_on() {
    let mut server = backed_up();
    server.stop();
    let said = server.run(&["restore", "copy.db", "--data", "other"]).ok();
    assert!(said.contains("3 jobs and 1 blobs restored from copy.db"), "{said}");
    assert!(
        said.contains("the next job id is 4") && said.ends_with("next: windlass serve --data other"),
        "{said}"
    );
    let beside: Vec<String> =
        names_in(server.folder()).into_iter().filter(|name| name.starts_with("copy.db")).collect();
    assert_eq!(beside, ["copy.db", "copy.db.blobs"], "the backup is as it was");
    let restored = Server::start_in(server.folder(), &["--data", "other"]);
    assert_eq!((restored.state_of(1), restored.state_of(3)), ("ready".to_owned(), "ready".to_owned()));
    assert_eq!(restored.call("GET", "/api/v1/jobs/4", None).0, 404);
    assert_eq!(restored.run(&["push", "b"]).ok(), "4");
    assert_eq!(restored.call("GET", "/api/v1/queues", None).1["queues"][0]["paused"], true);
    let blobs = restored.run(&["blobs", "--json"]).ok();
    assert_eq!(blobs.lines().count(), 1, "{blobs}");
}

#[test]
fn a_store_is_replaced_only_if_told_so_and_is_kept() {
    let mut server = backed_up();
    let ran = server.run(&["restore", "copy.db", "--replace"]);
    assert!(ran.code == 1 && ran.stderr.contains("stop it first"), "{ran:?}");
    server.stop();
    let ran = server.run(&["restore", "copy.db"]);
    assert!(ran.code == 1 && ran.stderr.contains("--replace"), "{ran:?}");
    let restored = server.run(&["restore", "copy.db", "--replace", "--json"]).json();
    assert_eq!((&restored["jobs"], &restored["next_id"]), (&json!(3), &json!(5)), "no id is given twice");
    let kept = kept_folder(&server.folder().join("windlass-data")).unwrap();
    assert_eq!(restored["kept"].as_str().map(|kept| server.folder().join(kept)), Some(kept.clone()));
    let new = Server::start_in(server.folder(), &[]);
    assert_eq!(new.call("GET", "/api/v1/jobs/4", None).0, 404);
    assert_eq!(new.run(&["push", "b"]).ok(), "5");
    let url = format!("sqlite:{}", kept.join("windlass.db").display());
    let old = Server::start_in(server.folder(), &["--store", &url]);
    assert_eq!(old.state_of(4), "ready");
}

#[test]
fn a_damaged_backup_changes_nothing() {
    let mut server = backed_up();
    server.stop();
    let data = server.folder().join("windlass-data");
    let before = (names_in(&data), fs::read(data.join("windlass.db")).unwrap());
    let is_as_before = || (names_in(&data), fs::read(data.join("windlass.db")).unwrap()) == before;
    let refuse = |file: &str, why: &str| {
        let ran = server.run(&["restore", file, "--replace"]);
        assert!(ran.code == 1 && ran.stderr.contains(why), "{ran:?}");
        assert!(is_as_before(), "{file}: {:?} {:?}", names_in(&data), before.0);
    };
    refuse("nothing.db", "no backup at nothing.db");
    fs::write(server.folder().join("text.db"), "this is no database at all".repeat(100)).unwrap();
    refuse("text.db", "not a database");
    fs::write(server.folder().join("empty.db"), "").unwrap();
    refuse("empty.db", "it is empty");
    refuse("windlass-data/windlass.db", "the store itself");
    let bytes = fs::read(server.folder().join("copy.db")).unwrap();
    let at = bytes.windows(4).rposition(|four| four == b"defa").unwrap();
    let mut bitten = bytes.clone();
    bitten[at] ^= 1;
    fs::write(server.folder().join("bitten.db"), bitten).unwrap();
    refuse("bitten.db", "bitten.db cannot be restored");
    let blob = file_below(&server.folder().join("copy.db.blobs"), "sha256");
    fs::write(&blob, "other bytes").unwrap();
    refuse("copy.db", "is not what its name says");
}

/// First file in a folder below `root` whose path has this part.
fn file_below(root: &Path, part: &str) -> PathBuf {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false if path.components().any(|name| name.as_os_str() == part) => return path,
                false => {}
            }
        }
    }
    panic!("no file below {}", root.display())
}

#[test]
fn what_is_backed_up_and_restored_is_private_whatever_the_modes_were() {
    let mut server = backed_up();
    let data = server.folder().join("windlass-data");
    let blob = file_below(&data.join("windlass.db.blobs"), "sha256");
    fs::set_permissions(&blob, Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(data.join("windlass.db"), Permissions::from_mode(0o644)).unwrap();
    server.run(&["backup", "again.db"]).ok();
    server.stop();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(server.folder().join("again.db")), 0o600);
    assert_eq!(mode(file_below(&server.folder().join("again.db.blobs"), "sha256")), 0o600);
    fs::set_permissions(server.folder().join("again.db"), Permissions::from_mode(0o644)).unwrap();
    server.run(&["restore", "again.db", "--data", "other"]).ok();
    assert_eq!(mode(server.folder().join("other")), 0o700);
    assert_eq!(mode(server.folder().join("other/windlass.db")), 0o600);
}

#[test]
fn for_postgresql_its_own_tools_are_named() {
    let url = "postgres://windlass:secret@127.0.0.1:1/jobs";
    let ran = Ran::of(windlass().args(["restore", "copy.db", "--store", url]));
    assert!(ran.code == 2 && ran.stderr.contains("pg_restore") && !ran.stderr.contains("secret"), "{ran:?}");
}
