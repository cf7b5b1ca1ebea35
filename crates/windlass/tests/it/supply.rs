//! Dependencies of the binary.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Every crate in Cargo.lock: name and version.
fn locked() -> Vec<(String, Vec<u64>)> {
    let lock: toml::Table = std::fs::read_to_string(workspace().join("Cargo.lock")).unwrap().parse().unwrap();
    let packages = lock["package"].as_array().unwrap().iter();
    let text = |package: &toml::Value, key: &str| package[key].as_str().unwrap().to_owned();
    packages.map(|package| (text(package, "name"), numbers(&text(package, "version")))).collect()
}

fn numbers(version: &str) -> Vec<u64> {
    let plain = version.split(['-', '+']).next().unwrap_or_default();
    plain.split('.').map(|part| part.parse().unwrap()).collect()
}

/// Versions below which a vulnerability is known that could affect the server. The RustSec database of
/// 2026-08-21 has 118 advisories on 45 of the crates in Cargo.lock, none of them open.
const FLOORS: &[(&str, &str, &str)] = &[
    ("h2", "0.4.16", "RUSTSEC-2026-0258: empty DATA frames"),
    ("tokio-postgres", "0.7.18", "RUSTSEC-2026-0178: a server can make the client panic"),
    ("time", "0.3.47", "stack exhaustion while parsing"),
    ("rustls-webpki", "0.103.13", "revocation lists that are not heeded"),
    ("tar", "0.4.45", "RUSTSEC-2026-0067: unpacking outside the folder"),
    ("wasmtime", "48.0.8", "sandbox escapes RUSTSEC-2026-0095, -0096, -0149, -0188, -0269"),
];

#[test]
fn no_crate_is_older_than_the_mend_of_a_fault_that_is_known() {
    let locked = locked();
    for (name, floor, why) in FLOORS {
        for (_, version) in locked.iter().filter(|(locked, _)| locked == name) {
            assert!(*version >= numbers(floor), "{name} {version:?} is older than {floor}: {why}");
        }
    }
    assert!(numbers("0.4.9") < numbers("0.4.16") && numbers("1.0.0+build") == numbers("1.0.0"));
}

#[test]
fn the_bill_of_materials_names_every_crate_of_the_binary_with_its_hash() {
    let made = Command::new(workspace().join("dist/sbom")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let bill: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(bill["metadata"]["component"]["name"], "windlass");
    let components = bill["components"].as_array().unwrap();
    let locked: BTreeSet<String> = locked().into_iter().map(|(name, _)| name).collect();
    let mut names = BTreeSet::new();
    for component in components {
        let name = component["name"].as_str().unwrap();
        assert!(locked.contains(name), "{name} is not in Cargo.lock");
        assert!(
            component["purl"].as_str().unwrap().starts_with(&format!("pkg:cargo/{name}@")),
            "{component}"
        );
        let has_hash = component["hashes"][0]["content"].as_str().is_some_and(|hash| hash.len() == 64);
        assert!(has_hash || name.starts_with("windlass-"), "{component}");
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
        names.insert(name);
    }
    for part in ["windlass-core", "rusqlite", "tokio", "rustls", "wasmtime"] {
        assert!(names.contains(part), "{part} is missing");
    }
    assert!(!names.contains("proptest"), "what only tests need is no part of it");
    let refs: BTreeSet<&str> =
        bill["dependencies"].as_array().unwrap().iter().filter_map(|entry| entry["ref"].as_str()).collect();
    assert_eq!(refs.len(), components.len() + 1);
}
