//! `windlass init` writes a configuration that changes nothing until a key is set.

use crate::server::{Ran, Server, windlass};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

fn init(folder: &Path, args: &[&str]) -> Ran {
    Ran::of(windlass().current_dir(folder).arg("init").args(args))
}

fn config(folder: &Path, args: &[&str]) -> serde_json::Value {
    Ran::of(windlass().current_dir(folder).args(["config", "--json"]).args(args)).json()
}

/// Values without their sources.
fn values(config: &serde_json::Value) -> Vec<(&String, &serde_json::Value)> {
    config.as_object().unwrap().iter().map(|(key, entry)| (key, &entry["value"])).collect()
}

#[test]
fn a_new_file_has_the_defaults_also_with_every_key_set() {
    let folder = tempfile::tempdir().unwrap();
    let said = init(folder.path(), &[]).ok();
    assert!(said.contains("windlass serve --config windlass.toml"), "{said}");
    let path = folder.path().join("windlass.toml");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    let defaults = config(folder.path(), &[]);
    let new = config(folder.path(), &["--config", "windlass.toml"]);
    assert_eq!(new, defaults);
    let set: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if key.contains(" = ") && !key.starts_with(' ') => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    fs::write(folder.path().join("set.toml"), set).unwrap();
    let set = config(folder.path(), &["--config", "set.toml"]);
    assert_eq!(values(&set), values(&defaults));
    for (key, entry) in set.as_object().unwrap() {
        assert_eq!(entry["source"], "set.toml", "{key} is not in the file");
    }
}

#[test]
fn a_server_starts_with_a_new_file_and_with_a_key_that_was_set() {
    let folder = tempfile::tempdir().unwrap();
    init(folder.path(), &["my.toml"]).ok();
    let path = folder.path().join("my.toml");
    let text = fs::read_to_string(&path).unwrap().replace("#batch = 10000", "batch = 2");
    fs::write(&path, text).unwrap();
    let server = Server::start_in(folder.path(), &["--config", "my.toml"]);
    let refused = server.run(&["push", "row", "1\n2\n3", "--lines"]);
    assert!(refused.code == 1 && refused.stderr.contains('2'), "{refused:?}");
}

#[test]
fn a_file_that_exists_stays_unless_forced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.toml");
    fs::write(&path, "mine").unwrap();
    let refused = init(folder.path(), &[]);
    assert!(refused.code == 1 && refused.stderr.contains("already exists"), "{refused:?}");
    assert!(refused.stderr.contains("--force"), "{refused:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    init(folder.path(), &["--force"]).ok();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# Configuration of windlass"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(init(folder.path(), &["--stdout"]).stdout, text);
    let nowhere = init(folder.path(), &["no/folder.toml"]);
    assert!(nowhere.code == 1 && nowhere.stderr.contains("cannot write no/folder.toml"), "{nowhere:?}");
}

#[test]
fn a_file_that_is_replaced_keeps_its_mode_and_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.toml");
    for mode in [0o644, 0o640, 0o600] {
        fs::write(&path, "mine").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        // Only root can do this; for others the file keeps their own id.
        let _ = chown(&path, Some(12345), Some(12346));
        let before = fs::metadata(&path).unwrap();
        init(folder.path(), &["--force"]).ok();
        let after = fs::metadata(&path).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("# Configuration"), "{mode:o}");
        assert_eq!(after.permissions().mode() & 0o777, mode);
        assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    }
    fs::remove_file(&path).unwrap();
    init(folder.path(), &["--force"]).ok();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}
