//! Documents that must match the code.

use std::collections::BTreeSet;
use std::path::Path;

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Names of all dependencies of a crate, except crates of the workspace.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let table: toml::Table = manifest.parse().unwrap();
    let platforms = table.get("target").and_then(toml::Value::as_table).into_iter();
    let tables =
        platforms.flat_map(|targets| targets.values().filter_map(toml::Value::as_table)).chain([&table]);
    let sections = tables.flat_map(|table| {
        ["dependencies", "dev-dependencies"].into_iter().filter_map(|section| table.get(section)?.as_table())
    });
    let names = sections.flat_map(|section| section.keys().cloned());
    names.filter(|name| !name.starts_with("windlass-")).collect()
}

#[test]
fn every_dependency_has_a_line_that_says_why() {
    let page = std::fs::read_to_string(workspace().join("docs/dependencies.md")).unwrap();
    let words: BTreeSet<&str> = page.split(|c: char| !c.is_alphanumeric() && !"-_".contains(c)).collect();
    let crates = std::fs::read_dir(workspace().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let others = ["clients/rust", "benchmarks/windlass-bench"].map(|folder| workspace().join(folder));
    for manifest in crates.chain(others).map(|folder| folder.join("Cargo.toml")) {
        for name in dependencies(&std::fs::read_to_string(&manifest).unwrap()) {
            assert!(
                words.contains(name.as_str()),
                "{name} of {} is not in docs/dependencies.md",
                manifest.display()
            );
        }
    }
}

#[test]
fn the_client_needs_none_of_the_servers_crates() {
    let manifest = std::fs::read_to_string(workspace().join("clients/rust/Cargo.toml")).unwrap();
    let table: toml::Table = manifest.parse().unwrap();
    for section in ["dependencies", "dev-dependencies"] {
        let names: Vec<&String> = table[section].as_table().unwrap().keys().collect();
        assert!(!names.iter().any(|name| name.starts_with("windlass")), "{names:?}");
    }
}

/// All Rust sources below a folder, as one text.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.extension() {
            _ if entry.is_dir() => text.push_str(&sources(&entry)),
            Some(kind) if kind == "rs" => text.push_str(&std::fs::read_to_string(&entry).unwrap()),
            _ => {}
        }
    }
    text
}

#[test]
fn every_test_that_the_security_page_names_is_there() {
    let page = std::fs::read_to_string(workspace().join("docs/security.md")).unwrap();
    let sources = sources(&workspace().join("crates"));
    let rows: Vec<&str> =
        page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #")).collect();
    assert_eq!(rows.len(), 20, "a row for each rule");
    for row in rows {
        let shown_by = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        // There are no passwords that a test could be about.
        assert!(shown_by.contains('`') || row.starts_with("| 3 | Passwords"), "no test is named: {row}");
        for name in shown_by.split('`').skip(1).step_by(2).filter(|name| *name != "conformance") {
            assert!(sources.contains(&format!("fn {name}(")), "{name} of {row}");
        }
    }
}
