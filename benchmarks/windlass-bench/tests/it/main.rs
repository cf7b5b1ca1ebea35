//! Runs the program against servers of this build.

#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests may")]

use serde_json::Value;
use std::process::{Command, Output};

/// The program with these options. It starts the `windlass` that stands beside it, which `cargo test --workspace` builds.
fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass-bench"));
    command.args(args).env_remove("WINDLASS").output().unwrap()
}

#[test]
fn pushes_and_drains_of_a_server_of_its_own_are_measured() {
    let save = tempfile::tempdir().unwrap();
    let saved = save.path().join("figures");
    let args = ["--workload", "W1,W4", "--durability", "relaxed", "--jobs", "60", "--json", "--save"];
    let ran = bench(&[&args[..], &[saved.to_str().unwrap()]].concat());
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    let figures: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let rows = figures["rows"].as_array().unwrap();
    let cases: Vec<&str> = rows.iter().map(|row| row["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["push, 1 connection", "drain, 16 connections", "drain in batches"]);
    for row in rows {
        assert_eq!(
            (row["server"].as_str(), row["jobs"].as_u64()),
            (Some("windlass relaxed"), Some(60)),
            "{row}"
        );
        assert!(
            row["value"].as_f64().unwrap() > 0.0 && row["latency"]["p50_ms"].as_f64().unwrap() > 0.0,
            "{row}"
        );
    }
    let table = std::fs::read_to_string(saved.with_extension("md")).unwrap();
    assert_eq!(table.lines().filter(|line| line.contains("windlass relaxed")).count(), 3, "{table}");
}

#[test]
fn a_server_that_cannot_be_measured_is_named() {
    let ran = bench(&["--server", "http://127.0.0.1:1/path"]);
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.code() == Some(2) && said.contains("http://HOST:PORT"), "{said}");
    let ran = bench(&["--windlass", "/nonexistent/windlass", "--workload", "W1"]);
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.code() == Some(1) && said.contains("/nonexistent/windlass"), "{said}");
}
