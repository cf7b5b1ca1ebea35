//! Documents that must keep up with the code.

use std::collections::BTreeSet;
use std::path::Path;

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Names of everything a crate depends on, but our own crates.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let table: toml::Table = manifest.parse().unwrap();
    let sections =
        ["dependencies", "dev-dependencies"].into_iter().filter_map(|section| table.get(section)?.as_table());
    let names = sections.flat_map(|section| section.keys().cloned());
    names.filter(|name| !name.starts_with("windlass-")).collect()
}

#[test]
fn every_dependency_has_a_line_that_says_why() {
    let page = std::fs::read_to_string(workspace().join("docs/dependencies.md")).unwrap();
    let words: BTreeSet<&str> = page.split(|c: char| !c.is_alphanumeric() && !"-_".contains(c)).collect();
    for entry in std::fs::read_dir(workspace().join("crates")).unwrap() {
        let manifest = entry.unwrap().path().join("Cargo.toml");
        for name in dependencies(&std::fs::read_to_string(&manifest).unwrap()) {
            assert!(
                words.contains(name.as_str()),
                "{name} of {} is not in docs/dependencies.md",
                manifest.display()
            );
        }
    }
}
