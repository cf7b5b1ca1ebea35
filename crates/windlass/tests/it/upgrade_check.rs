//! `windlass upgrade-check` on stores of every format: it tells what a start would do, and changes no byte.

use crate::rigs::cluster::postgres_server::PostgresServer;
use crate::server::{Ran, Server, windlass};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of every file in a folder and below it.
fn bytes_in(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => found.extend(bytes_in(&path)),
            false => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    found
}

fn upgrade_check(folder: &Path, args: &[&str]) -> Ran {
    Ran::of(windlass().current_dir(folder).arg("upgrade-check").args(args))
}

/// Answer of a run that changed nothing in its folder.
#[track_caller]
fn answer(folder: &Path, args: &[&str]) -> (i32, Value) {
    let before = bytes_in(folder);
    let ran = upgrade_check(folder, &[&["--json"], args].concat());
    assert!(bytes_in(folder) == before, "files were changed: {ran:?}");
    let answer = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    (ran.code, answer)
}

#[track_caller]
fn check(answer: &Value, about: &str, level: &str, words: &str) {
    let found = answer["findings"].as_array().unwrap();
    let is_it = |finding: &&Value| {
        let text = |key: &str| finding[key].as_str().unwrap_or_default();
        finding["about"] == about
            && finding["level"] == level
            && (text("text").contains(words) || text("advice").contains(words))
    };
    assert!(found.iter().any(|finding| is_it(&finding)), "no {level} about {about}: {words} in {answer:#}");
}

/// Folder with a database of an older format.
fn old_store(format: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../windlass-store/tests/it/fixtures");
    fs::create_dir(folder.path().join("windlass-data")).unwrap();
    let database = folder.path().join("windlass-data/windlass.db");
    fs::copy(fixtures.join(format!("{format}.db")), database).unwrap();
    folder
}

#[test]
fn a_store_of_an_older_format_is_upgraded_by_a_start_as_said() {
    for (format, version, steps) in [("format-1", 1, 2), ("format-2", 2, 1)] {
        let folder = old_store(format);
        let (code, said) = answer(folder.path(), &[]);
        assert_eq!((code, &said["verdict"], &said["ok"]), (0, &"upgrade possible".into(), &true.into()));
        assert_eq!((&said["format"], &said["format_after"]), (&version.into(), &3.into()), "{said}");
        assert_eq!(said["migrations"].as_array().unwrap().len(), steps, "{said}");
        assert_eq!(said["older_binaries_can_open"], false);
        check(&said, "way back", "warn", "windlass backup");
        check(&said, "server", "ok", "none");
        assert!(said["jobs"].as_u64() > Some(0), "{said}");
        let mut server = Server::start_in(folder.path(), &[]);
        assert_eq!(server.call("GET", "/api/v1/stats", None).0, 200);
        server.stop();
        let (code, said) = answer(folder.path(), &[]);
        assert_eq!((code, &said["verdict"], &said["format"]), (0, &"nothing to do".into(), &3.into()));
        check(&said, "way back", "ok", "can still open it");
    }
}

#[test]
fn a_store_that_was_not_closed_is_read_without_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    server.run(&["push", "mail"]).ok();
    let ran = upgrade_check(folder.path(), &[]);
    assert!(ran.code == 0 && ran.stdout.contains(&format!("(pid {})", server.pid())), "{ran:?}");
    server.kill();
    let (code, said) = answer(folder.path(), &[]);
    assert_eq!((code, &said["format"]), (0, &3.into()), "{said}");
    check(&said, "unclean stop", "ok", "write-ahead log");
    check(&said, "not checked", "warn", "unfinished copies, lost commits");
    check(&said, "server", "ok", "none");
}

#[test]
fn a_store_of_a_newer_version_cannot_be_taken_over() {
    let folder = old_store("format-2");
    let database = folder.path().join("windlass-data/windlass.db");
    rusqlite::Connection::open(&database).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let (code, said) = answer(folder.path(), &[]);
    assert_eq!((code, &said["ok"]), (1, &false.into()));
    check(&said, "format", "fail", "the database has format 99, but this binary supports formats up to 3");
    let ran = upgrade_check(folder.path(), &[]);
    assert!(ran.code == 1 && ran.stderr.contains("cannot take over the store"), "{ran:?}");
}

#[test]
fn nothing_is_created_where_no_store_is() {
    let folder = tempfile::tempdir().unwrap();
    let (code, said) = answer(folder.path(), &["--data", "none"]);
    assert_eq!((code, &said["verdict"]), (0, &"nothing to do".into()));
    check(&said, "format", "ok", "no store yet");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let (_, said) = answer(folder.path(), &["--store", "memory:"]);
    check(&said, "format", "ok", "in memory");
}

#[test]
fn a_url_of_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for url in ["bogus:x", "sqlite:", "jobs.db", "postgress://ann:s3cret@127.0.0.1:1/jobs"] {
        let (code, said) = answer(folder.path(), &["--store", url]);
        assert_eq!((code, &said["ok"], &said["format_after"]), (1, &false.into(), &Value::Null), "{said}");
        check(&said, "format", "fail", "is not a store URL; use sqlite:PATH");
        assert!(!said.to_string().contains("s3cret"), "{said}");
    }
}

#[test]
fn keys_that_this_version_does_not_know_are_all_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w.toml"), "old_key = 1\n[limits]\nbatch = 7\nbach = 8\n").unwrap();
    let (code, said) = answer(folder.path(), &["--config", "w.toml"]);
    assert_eq!(code, 1);
    check(&said, "configuration", "fail", "\"old_key\"");
    check(&said, "configuration", "fail", "\"limits.bach\" (w.toml); did you mean \"limits.batch\"");
    check(&said, "format", "ok", "no store yet");
    let ran = Ran::of(
        windlass().current_dir(folder.path()).env("WINDLASS_HTPP", "x").args(["upgrade-check", "--json"]),
    );
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(ran.code, 0);
    check(&said, "configuration", "warn", "WINDLASS_HTPP");
    fs::write(folder.path().join("w.toml"), "durability = \"none\"\n").unwrap();
    let (code, said) = answer(folder.path(), &["--config", "w.toml"]);
    assert_eq!(code, 1);
    check(&said, "configuration", "fail", "one of full, relaxed");
}

#[test]
fn tables_in_postgresql_are_looked_at_without_a_change() {
    let url = PostgresServer::shared().new_schema_url();
    let folder = tempfile::tempdir().unwrap();
    let (code, said) = answer(folder.path(), &["--store", &url]);
    assert_eq!(code, 0, "{said}");
    check(&said, "format", "ok", "no store yet");
    let standing = Ran::of(windlass().args(["migrate", "--dry-run", "--json", "--store", &url])).json();
    assert_eq!(standing["version"], 0, "no table was made");
    let mut server = Server::start_in(folder.path(), &["--store", &url, "--durability", "relaxed"]);
    let ran = upgrade_check(folder.path(), &["--store", &url]);
    assert!(ran.code == 0 && ran.stdout.contains("1 server is on these tables"), "{ran:?}");
    server.stop();
    let (code, said) = answer(folder.path(), &["--store", &url]);
    assert_eq!((code, &said["format"], &said["verdict"]), (0, &8.into(), &"nothing to do".into()), "{said}");
    let away = upgrade_check(folder.path(), &["--store", "postgres://windlass:secret@127.0.0.1:1/jobs"]);
    assert!(away.code == 1 && !away.stdout.contains("secret"), "{away:?}");
}
