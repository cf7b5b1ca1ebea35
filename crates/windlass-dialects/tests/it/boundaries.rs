//! Forbidden dependencies between modules.

use std::path::{Path, PathBuf};

fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = vec![];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push((path.clone(), std::fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

fn all() -> Vec<(PathBuf, String)> {
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

#[test]
fn wire_modules_and_codecs_know_no_socket_and_no_engine() {
    let is_pure = |path: &Path| {
        let path = path.to_string_lossy();
        path.contains("wire") || path.contains("/codec")
    };
    for (path, text) in all().into_iter().filter(|(path, _)| is_pure(path)) {
        for outside in ["windlass_engine", "windlass_store", "tokio", "axum", "hyper"] {
            assert!(!text.contains(outside), "{} knows {outside}", path.display());
        }
    }
}

fn dialects() -> Vec<&'static str> {
    windlass_dialects::ALL.iter().map(|dialect| dialect.name()).collect()
}

#[test]
fn every_dialect_has_a_folder_of_its_name() {
    for name in dialects() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name);
        assert!(folder.join("mod.rs").exists() && folder.join("README.md").exists(), "{name}");
    }
}

#[test]
fn keys_of_a_dialect_begin_with_its_name() {
    for dialect in windlass_dialects::ALL {
        for key in dialect.settings() {
            let below = key.name.strip_prefix(dialect.name());
            assert!(below.is_some_and(|below| below.is_empty() || below.starts_with('.')), "{}", key.name);
        }
    }
}

#[test]
fn only_the_list_of_dialects_names_them() {
    let is_shared = |path: &Path| {
        let path = path.to_string_lossy();
        !dialects().iter().any(|name| path.contains(&format!("/src/{name}/")))
            && !path.ends_with("/src/lib.rs")
            && !path.contains("/src/bin/")
    };
    for (path, text) in all().into_iter().filter(|(path, _)| is_shared(path)) {
        for name in dialects() {
            assert!(!text.contains(&format!("crate::{name}")), "{} knows {name}", path.display());
        }
    }
}

#[test]
fn no_dialect_knows_another() {
    let dialects = dialects();
    for (path, text) in all() {
        let own = dialects.iter().find(|name| path.to_string_lossy().contains(&format!("/src/{name}/")));
        let Some(own) = own else { continue };
        for other in dialects.iter().filter(|other| *other != own) {
            assert!(!text.contains(&format!("crate::{other}")), "{} knows {other}", path.display());
        }
    }
}

#[test]
fn no_dialect_reaches_a_store() {
    // Tests need a store for the engine.
    for (path, text) in all().into_iter().filter(|(path, _)| !path.ends_with("tests.rs")) {
        assert!(!text.contains("windlass_store::"), "{} knows the store", path.display());
    }
}

/// Lines of dialect calls that use the engine without the caller's scope, each file with its reason.
const UNSCOPED: [(&str, usize, &str); 6] = [
    ("bedrock/commands/mod.rs", 1, "counts requests of the tenant"),
    ("native/calls/history.rs", 2, "figures of the whole server, for callers who see all tenants"),
    ("native/calls/metrics.rs", 2, "figures of the whole server, for callers who see all tenants"),
    (
        "sidejob/family.rs",
        2,
        "cycles and descendants are followed beyond the scope; each job is checked by itself",
    ),
    ("sidejob/presence.rs", 2, "notes about workers; runs are ended within the scope of the worker"),
    (
        "sidejob/tx.rs",
        2,
        "connected ports are followed beyond the scope; the jobs that a call names are checked",
    ),
];

/// Handles of the engine that reach all jobs: those of the server and of the dialects' own tasks.
const UNSCOPED_HANDLES: [&str; 3] = ["server.engine", "state.engine", "shared.engine"];

/// A call gets its jobs through `call.engine` (in Bedrock `Commands::engine`), which knows the scope of its token.
#[test]
fn calls_use_the_engine_within_the_scope_of_their_token() {
    let serves_calls = |path: &str, text: &str| {
        let is_of_dialect = dialects().iter().any(|name| path.contains(&format!("/src/{name}/")));
        let takes_calls =
            text.contains("call: Call") || text.contains("call: &Call") || path.contains("/commands/");
        is_of_dialect && takes_calls && !path.ends_with("tests.rs")
    };
    // The clock is the same for everyone.
    let is_unscoped = |line: &&str| {
        let line = line.replace(".engine.now()", "");
        !line.trim_start().starts_with("//") && UNSCOPED_HANDLES.iter().any(|handle| line.contains(handle))
    };
    let mut seen = 0;
    for (path, text) in all() {
        let shown = path.to_string_lossy().into_owned();
        if !serves_calls(&shown, &text) {
            continue;
        }
        seen += 1;
        let found: Vec<&str> = text.lines().filter(is_unscoped).collect();
        let listed =
            UNSCOPED.iter().find(|(file, ..)| path.ends_with(file)).map_or(0, |(_, count, _)| *count);
        assert_eq!(
            found.len(),
            listed,
            "{shown}: use `call.engine`, or correct the list of exceptions here: {found:#?}"
        );
    }
    assert!(seen > 40, "the files with calls are found: {seen}");
}
