//! Rules about the source text that no compiler checks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const LINES_MAX: usize = 500;

/// Longer files, each with the reason.
const LONG_FILES: [(&str, &str); 1] =
    [("windlass-core/src/transition/tests/table.rs", "the whole transition table on one page")];

/// Crates whose code knows no wire protocol.
const BELOW_THE_DIALECTS: [&str; 3] = ["windlass-core", "windlass-store", "windlass-engine"];

/// Words of one dialect. `jq` is also a word of others and is left to the reader.
const DIALECT_WORDS: [&str; 4] = ["bedrock", "sidejob", "miniq", "queuey"];

/// Public types that every dialect has under the same name, in a module of its own.
const ONE_PER_DIALECT: [&str; 1] = ["Settings"];

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

/// The walks are a block of code, which the test above does not read. They leave out `windlass-` and `src`.
#[test]
fn every_file_that_a_walk_of_the_architecture_names_exists() {
    const CRATES: [&str; 4] = ["core", "store", "engine", "dialects"];
    let all = files(workspace());
    let page = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let section = page.split("## One job through the code").nth(1).unwrap();
    let walks = section.split("```").nth(1).unwrap();
    let words = walks.split(|c: char| c.is_whitespace() || "(),:;".contains(c));
    let named: Vec<&str> = words.filter(|word| word.ends_with(".rs")).collect();
    assert!(named.len() > 50, "the walks name files: {named:?}");
    for name in named {
        let path = match name.split_once('/') {
            Some((first, rest)) if CRATES.contains(&first) => format!("windlass-{first}/src/{rest}"),
            _ => name.to_owned(),
        };
        assert!(all.iter().any(|file| file.ends_with(&path)), "a walk names {name}, which is not there");
    }
}

/// Doc comments of a file, each with its first line's number.
fn first_lines_of_doc_comments(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_within = false;
    for (line, number) in text.lines().zip(1..) {
        let comment = line.trim_start().strip_prefix("///").or(line.trim_start().strip_prefix("//!"));
        found.extend(comment.filter(|_| !is_within).map(|comment| (number, comment)));
        is_within = comment.is_some();
    }
    found
}

#[test]
fn doc_comments_begin_with_a_noun_or_a_verb() {
    for path in sources("crates")
        .into_iter()
        .filter(|path| !path.components().any(|part| part.as_os_str() == "tests"))
    {
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, comment) in first_lines_of_doc_comments(&text) {
            let first = comment.split(|c: char| !c.is_alphabetic()).nth(1).unwrap_or_default();
            let is_pronoun = ["One", "What", "Those", "Whoever"].contains(&first);
            assert!(!is_pronoun, "{}:{number} begins with a pronoun:{comment}", path.display());
        }
    }
}

#[test]
fn no_code_below_the_dialects_knows_one() {
    for path in BELOW_THE_DIALECTS.iter().flat_map(|name| sources(&format!("crates/{name}/src"))) {
        let text = std::fs::read_to_string(&path).unwrap().to_lowercase();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for (line, number) in code.zip(1..) {
            let word = DIALECT_WORDS.iter().find(|word| line.contains(**word));
            assert!(
                word.is_none(),
                "{} names {}: line {number} of the code: {line}",
                path.display(),
                word.unwrap()
            );
        }
    }
}

/// Name of the public type that a line declares.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest = ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric()).next()
}

#[test]
fn no_crate_has_two_public_types_of_one_name() {
    let crates = std::fs::read_dir(workspace().join("crates")).unwrap().map(|entry| entry.unwrap());
    for name in crates.map(|entry| entry.file_name().into_string().unwrap()) {
        let mut seen: BTreeMap<String, PathBuf> = BTreeMap::new();
        for path in sources(&format!("crates/{name}/src")) {
            let text = std::fs::read_to_string(&path).unwrap();
            let types = text.lines().filter_map(public_type).filter(|name| !ONE_PER_DIALECT.contains(name));
            for found in types {
                let first = seen.insert(found.to_owned(), path.clone());
                assert!(
                    first.is_none(),
                    "{found} is in {} and in {}",
                    first.unwrap().display(),
                    path.display()
                );
            }
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
