//! Rules about the source text that no compiler checks.

use std::path::{Path, PathBuf};

const LINES_MAX: usize = 500;

/// Longer files, each with the reason.
const LONG_FILES: [(&str, &str); 2] = [
    ("windlass-core/src/transition/tests/scenarios.rs", "a list of short scenarios"),
    ("windlass-core/src/transition/tests/table.rs", "the whole transition table on one page"),
];

/// Crates whose comments follow the rule about their first word.
const CRATES_IN_PLAIN_WORDS: [&str; 4] =
    ["windlass-core", "windlass-store", "windlass-runners", "windlass-http"];

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Every file below a folder of the workspace, without build output.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap_or_default();
        match entry.is_dir() {
            true if name == "target" || name == ".git" => {}
            true => {
                found.extend(files(&entry));
                found.push(entry);
            }
            false => found.push(entry),
        }
    }
    found
}

fn sources(folder: &str) -> Vec<PathBuf> {
    let mut sources = files(&workspace().join(folder));
    sources.retain(|path| path.is_file() && path.extension().is_some_and(|kind| kind == "rs"));
    assert!(!sources.is_empty(), "there are sources in {folder}");
    sources
}

#[test]
fn no_source_file_has_more_lines_than_a_reader_keeps_in_mind() {
    for path in sources("crates").into_iter().chain(sources("benchmarks")) {
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        let is_listed = LONG_FILES.iter().any(|(listed, _)| path.ends_with(listed));
        assert!(
            (lines > LINES_MAX) == is_listed,
            "{} has {lines} lines: split it, or correct the list of long files here",
            path.display()
        );
    }
}

/// Expands `a/{b,c}.rs` to `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let braces = path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match braces {
        Some((before, (inside, after))) => {
            inside.split(',').map(|part| format!("{before}{part}{after}")).collect()
        }
        None => vec![path.to_owned()],
    }
}

#[test]
fn every_path_that_the_architecture_names_exists() {
    let all = files(workspace());
    let page = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let quoted = page.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| (text.ends_with(".rs") || text.ends_with('/')) && !text.contains([' ', '<']);
    let named: Vec<String> = quoted.filter(is_path).flat_map(alternatives).collect();
    assert!(named.len() > 50, "the page names files: {named:?}");
    for name in named {
        let name = name.trim_end_matches('/');
        assert!(
            all.iter().any(|path| path.ends_with(name)),
            "ARCHITECTURE.md names {name}, which is not there"
        );
    }
}

#[test]
fn comments_begin_with_a_noun_or_a_verb() {
    for path in CRATES_IN_PLAIN_WORDS.iter().flat_map(|name| sources(&format!("crates/{name}/src"))) {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut is_within = false;
        for (line, number) in text.lines().zip(1..) {
            let comment = line.trim_start().strip_prefix("///").or(line.trim_start().strip_prefix("//!"));
            let first = comment.and_then(|comment| comment.split(|c: char| !c.is_alphabetic()).nth(1));
            let is_vague = first.is_some_and(|word| ["One", "What", "Those", "Whoever"].contains(&word));
            assert!(is_within || !is_vague, "{}:{number} begins with a pronoun: {line}", path.display());
            is_within = comment.is_some();
        }
    }
}

#[test]
fn the_server_calls_out_from_one_place() {
    let product = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned()
    };
    let is_test =
        |path: &Path| path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests");
    let connects = |path: &PathBuf| {
        let text = product(path);
        ["TcpStream::connect", "client::conn", "TlsConnector"].iter().any(|word| text.contains(word))
    };
    for folder in ["windlass-dialects", "windlass-runners"] {
        let all = sources(&format!("crates/{folder}/src"));
        let found: Vec<_> = all.into_iter().filter(|path| !is_test(path)).filter(connects).collect();
        assert!(found.is_empty(), "use the pool of windlass-http: {found:?}");
    }
    assert!(
        connects(&workspace().join("crates/windlass-http/src/pool.rs")),
        "the words are those of the pool"
    );
    let manifest = std::fs::read_to_string(workspace().join("crates/windlass-http/Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let dependencies = manifest["dependencies"].as_table().unwrap();
    assert!(!dependencies.keys().any(|name| name.starts_with("windlass")), "{dependencies:?}");
}
