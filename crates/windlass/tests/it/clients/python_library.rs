//! Python library with packages of others: web frameworks, psycopg and OpenTelemetry; its reference; its package in a
//! new environment. `./test` installs the packages.

use super::python_sidejob::{example, library, python_with_library, succeeds};
use crate::jq::{Killed, python};
use crate::rigs::cluster::postgres_server::PostgresServer;
use crate::server::{Server, windlass};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Python with the packages of others.
fn python_with_packages() -> Command {
    let python =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/python-frameworks/bin/python"));
    assert!(
        python.exists(),
        "{} is missing: run ./test, or make it with python3 -m venv and pip install the packages that ./test names",
        python.display()
    );
    let mut command = Command::new(python);
    command.env("PYTHONPATH", library().join("src")).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    command.env("WINDLASS_BIN", windlass().get_program());
    command
}

#[test]
fn the_examples_for_fastapi_flask_and_django_work_and_traces_go_on() {
    let mut tests = python_with_packages();
    succeeds(tests.args(["-m", "unittest", "discover", "-s"]).arg(library().join("tests/frameworks")));
}

#[test]
fn jobs_are_pushed_in_a_transaction_of_psycopg() {
    let database = PostgresServer::shared();
    let url = database.new_schema_url();
    let mut tests = python_with_packages();
    tests.args(["-m", "unittest", "discover", "-p", "test_sql.py", "-s"]).arg(library().join("tests"));
    tests.env("WINDLASS_TEST_STORE_URL", url).env("WINDLASS_DURABILITY", "relaxed");
    let ran = crate::server::Ran::of(tests.env("DATABASE_URL", database.url()));
    assert!(ran.code == 0 && !ran.stderr.contains("skipped"), "{ran:?}");
}

#[test]
fn the_reference_is_made_without_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let mut pdoc = python_with_packages();
    pdoc.args(["-W", "error", "-m", "pdoc", "--output-directory"]).arg(folder.path());
    succeeds(pdoc.args(["windlass", "windlass.dev", "windlass.testing", "windlass.sidejob"]));
    let page = std::fs::read_to_string(folder.path().join("windlass.html")).unwrap();
    assert!(page.contains("push_many"), "the page describes the tasks");
}

/// Package of the library, built from a copy of its sources.
fn wheel(folder: &Path) -> PathBuf {
    // A copy, since the build leaves files behind.
    let source = folder.join("source");
    succeeds(Command::new("cp").arg("-r").arg(library()).arg(&source));
    let mut build = python_with_library();
    build.args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]);
    succeeds(build.arg("--wheel-dir").arg(folder).arg(&source));
    folder.join("windlass_client-0.1.0-py3-none-any.whl")
}

#[test]
fn the_package_holds_the_library_and_its_types() {
    let folder = tempfile::tempdir().unwrap();
    let wheel = wheel(folder.path());
    let listed = succeeds(Command::new(python()).args(["-m", "zipfile", "--list"]).arg(wheel));
    for file in ["windlass/py.typed", "windlass/sidejob/_serve_async.py", "licenses/LICENSE-MIT"] {
        assert!(listed.contains(file), "{file} is not among\n{listed}");
    }
}

#[test]
fn the_package_works_in_a_new_environment() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (wheel, fresh) = (wheel(folder.path()), folder.path().join("fresh"));
    succeeds(Command::new(python()).args(["-m", "venv", "--without-pip"]).arg(&fresh));
    let mut install = Command::new(python());
    install.args(["-m", "pip", "--quiet", "--python"]).arg(fresh.join("bin/python"));
    succeeds(install.args(["install", "--no-index"]).arg(wheel));
    let programs = folder.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let url = server.url();
    let run = |program: &str| {
        let mut command = Command::new(fresh.join("bin").join(program));
        command.current_dir(&programs).env_remove("PYTHONPATH").env("WINDLASS_SERVER", &url);
        command
    };
    example(&programs, "shop.py", &url);
    let produce = example(&programs, "produce.py", &url);
    let mut worker = run("windlass-worker");
    worker.args(["shop:app", "--concurrency", "20"]).stdin(Stdio::null()).stderr(Stdio::null());
    let _worker = Killed(worker.spawn().unwrap());
    let said = succeeds(run("python").arg(produce));
    assert_eq!(said, "welcome sent to ann@example.org\nwelcome sent to joe@example.org\n");
}
