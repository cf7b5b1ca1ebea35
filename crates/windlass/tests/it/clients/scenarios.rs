//! Scenarios of durable steps, `clients/scenarios`, with the worker program of each language.

use crate::jq::python;
use crate::rigs::cluster::postgres_server::{Disk, PostgresServer};
use crate::server::windlass;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Time for all scenarios of a language, generous for a slow machine.
const WITHIN_S: u32 = 240;
/// For a database without fsync.
const NOT_SAFE: [&str; 2] = ["--flag=--durability", "--flag=relaxed"];

/// Held during a run: each keeps all cores busy.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients")
}

/// Command of a worker program in Python, below `clients`.
fn in_python(program: &str) -> String {
    format!("'{}' '{}'", python().display(), clients().join(program).display())
}

/// Runs the scenarios with a worker program. `more` are further arguments of the runner; `restart` gets its
/// requests to restart the database.
fn run(worker: &str, more: &[&str], restart: impl Fn(&str)) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut runner = Command::new(python());
    runner.arg(clients().join("scenarios/run.py")).env("PYTHONPATH", clients().join("python/src"));
    runner.arg("--server-bin").arg(windlass().get_program());
    runner.args(["--worker", worker, "--within", &WITHIN_S.to_string(), "--patience", "3"]).args(more);
    let mut child = runner.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut done, said) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut lines = Vec::new();
    for line in said.lines().map(Result::unwrap) {
        if let Some(how) = line.strip_suffix(" database") {
            restart(how);
            writeln!(done, "done").unwrap();
        }
        lines.push(line);
    }
    let status = child.wait().unwrap();
    let last = lines.last().map_or("", String::as_str);
    assert!(status.success() && last.ends_with("failed: none"), "{status}:\n{}", lines.join("\n"));
}

fn no_database(how: &str) {
    panic!("{how} the database? There is none");
}

/// In the short form on PostgreSQL only.
#[test]
fn the_scenarios_hold_with_plain_http() {
    if std::env::var_os("WINDLASS_LONG").is_some() {
        run(&in_python("scenarios/reference_worker.py"), &[], no_database);
    }
}

fn of_typescript() -> String {
    format!("node '{}'", super::typescript::library().join("tests/scenario-worker.mjs").display())
}

fn of_rust() -> String {
    let program = Path::new(windlass().get_program()).with_file_name("examples").join("scenario_worker");
    format!("'{}'", program.display())
}

fn of_python() -> String {
    in_python("python/tests/scenario_worker.py")
}

#[test]
fn the_scenarios_hold_with_the_typescript_library() {
    run(&of_typescript(), &[], no_database);
}

#[test]
fn the_scenarios_hold_with_the_rust_library() {
    run(&of_rust(), &[], no_database);
}

#[test]
fn the_scenarios_hold_with_the_python_library() {
    run(&of_python(), &[], no_database);
}

#[test]
fn the_scenarios_hold_on_postgres() {
    let url = PostgresServer::shared().url();
    // Without the large numbers, which are about time.
    let files = ["steps", "sleeps", "signals", "children", "outcomes", "crashes", "changes"];
    let only = files.iter().flat_map(|file| ["--only", file]).collect::<Vec<_>>();
    let more = [&["--store", &url, "--jobs", "6"][..], &NOT_SAFE, &only].concat();
    run(&in_python("scenarios/reference_worker.py"), &more, no_database);
}

/// Plays the scenarios in which the database is restarted or killed.
fn survives_restarts_of_the_database(worker: &str) {
    let database = PostgresServer::start(Disk::Safe, &[]);
    let restart = |how: &str| match how {
        "kill" => {
            database.kill();
            database.resume();
        }
        _ => database.restart(),
    };
    run(worker, &["--store", &database.url(), "--database", "--only", "database", "--jobs", "4"], restart);
}

/// In the short form with the libraries only.
#[test]
fn steps_survive_restarts_of_the_database() {
    if std::env::var_os("WINDLASS_LONG").is_some() {
        survives_restarts_of_the_database(&in_python("scenarios/reference_worker.py"));
    }
}

#[test]
fn steps_of_the_typescript_library_survive_restarts_of_the_database() {
    survives_restarts_of_the_database(&of_typescript());
}

#[test]
fn steps_of_the_rust_library_survive_restarts_of_the_database() {
    survives_restarts_of_the_database(&of_rust());
}

#[test]
fn steps_of_the_python_library_survive_restarts_of_the_database() {
    survives_restarts_of_the_database(&of_python());
}
