//! Scenarios of durable steps, `clients/scenarios`, with the worker program of each language.

use crate::jq::python;
use crate::server::windlass;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Time for all scenarios of a language, generous for a slow machine.
const WITHIN_S: u32 = 240;

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients")
}

/// Command of a worker program in Python, below `clients`.
fn in_python(program: &str) -> String {
    format!("'{}' '{}'", python().display(), clients().join(program).display())
}

/// Runs the scenarios with a worker program; `more` are further arguments of the runner.
fn run(worker: &str, more: &[&str]) {
    let mut runner = Command::new(python());
    runner.arg(clients().join("scenarios/run.py"));
    runner.arg("--server-bin").arg(windlass().get_program());
    runner.args(["--worker", worker, "--within", &WITHIN_S.to_string()]).args(more);
    let output = runner.output().unwrap();
    let (said, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{complaints}");
    assert!(said.contains("; failed: none"), "{said}");
}

#[test]
fn the_scenarios_hold_with_plain_http() {
    run(&in_python("scenarios/reference_worker.py"), &[]);
}

#[test]
fn the_scenarios_hold_with_the_python_library() {
    run(&in_python("python/tests/scenario_worker.py"), &[]);
}
