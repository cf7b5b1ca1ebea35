use super::*;
use std::collections::BTreeSet;
use std::path::Path;

/// Limit on the size of all files loaded by a first visit.
const FIRST_LOAD_BYTES_MAX: usize = 200_000;

fn names_in(folder: &Path, prefix: &str, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        if name == "docs" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            names_in(&entry.path(), &format!("{name}/"), names);
        } else {
            names.insert(name);
        }
    }
}

#[test]
fn every_file_of_the_folder_is_served_and_nothing_else() {
    let mut there = BTreeSet::new();
    names_in(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web")), "", &mut there);
    let served: BTreeSet<String> = FILES.iter().map(|file| file.path.to_owned()).collect();
    assert_eq!(served, there);
    assert!(FILES.iter().all(|file| static_files::content_type(file.path) != "application/octet-stream"));
}

#[test]
fn a_first_visit_is_small() {
    let bytes: usize = FILES.iter().map(|file| file.bytes.len()).sum();
    assert!(bytes < FIRST_LOAD_BYTES_MAX, "{bytes} bytes");
}

#[test]
fn the_files_ask_for_nothing_from_elsewhere_and_write_no_markup() {
    for file in FILES {
        let text = std::str::from_utf8(file.bytes).unwrap();
        for word in ["https://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!text.contains(word), "{} has {word}", file.path);
        }
    }
}
