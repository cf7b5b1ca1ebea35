//! The library for Python: its own tests against a real server, the examples of its README, its types and its package.

use super::gate::Gate;
use crate::jq::{Killed, python};
use crate::server::{Ran, Server, eventually};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn library() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/python"))
}

fn python_with_library() -> Command {
    let mut command = Command::new(python());
    // Nothing is written beside the sources.
    command.env("PYTHONPATH", library().join("src")).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    command
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let ran = Ran::of(command);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    ran.stdout
}

#[test]
fn the_library_passes_its_tests() {
    // Some of them wait for a lease to end; it has to be long enough for signs of life on a busy machine.
    let server = Server::start(&["--set", "sidejob.lease_s=6"]);
    let mut tests = python_with_library();
    tests.args(["-m", "unittest", "discover", "-s"]).arg(library().join("tests"));
    succeeds(tests.env("SIDEJOB", format!("{}/sidejob", server.url())));
}

/// The program in the README that begins with this comment.
fn example(folder: &Path, name: &str, url: &str) -> PathBuf {
    let text = include_str!("../../../../../clients/python/README.md");
    let (_, rest) = text.split_once(&format!("```python\n# {name}\n")).expect(name);
    let (program, _) = rest.split_once("```").unwrap();
    // They speak to a server at its usual address, which is another one's here.
    let program = program
        .replace("Client()", &format!("Client({url:?})"))
        .replace("concurrency=", &format!("url={url:?}, concurrency="));
    let path = folder.join(name);
    std::fs::write(&path, program).unwrap();
    path
}

#[test]
fn the_examples_of_the_readme_do_what_it_says() {
    let server = Server::start(&[]);
    let url = format!("{}/sidejob", server.url());
    let start = |name: &str| {
        let mut command = python_with_library();
        Killed(command.arg(example(server.folder(), name, &url)).stderr(Stdio::null()).spawn().unwrap())
    };
    let _workers = [start("worker.py"), start("async_worker.py")];
    for queue in ["math", "echo"] {
        eventually("the classes are registered", || {
            let (status, classes) = server.call("GET", &format!("/sidejob/workers/{queue}"), None);
            (status == 200 && classes.as_object().is_some_and(|classes| !classes.is_empty())).then_some(())
        });
    }
    let said = succeeds(python_with_library().arg(example(server.folder(), "client.py", &url)));
    assert_eq!(said, "[11, 12]\n8\n");
    let (_, job) = server.call("POST", "/sidejob/jobs", Some(json!({"queue": "echo", "class": "Echo"})));
    let id = job["job"].as_u64().unwrap();
    server.call("POST", &format!("/sidejob/jobs/{id}/inports/in/write"), Some(json!({"data": "hello"})));
    eventually("it is echoed", || {
        let (_, read) =
            server.call("POST", &format!("/sidejob/jobs/{id}/outports/out/read"), Some(json!({})));
        (read["data"] == "hello").then_some(())
    });
}

/// How many times a job of the class `Slow` was begun, once it is completed.
fn runs_of(server: &Server, id: u64) -> usize {
    eventually("the job is completed", || {
        let (_, job) = server.call("GET", &format!("/sidejob/jobs/{id}"), None);
        (job["state"]["status"] == "completed").then_some(())
    });
    let (_, runs) =
        server.call("POST", &format!("/sidejob/jobs/{id}/outports/runs/entries"), Some(json!({})));
    runs["entries"].as_array().unwrap().len()
}

fn slow(server: &Server, seconds: f64) -> u64 {
    let job = json!({"queue": "slow", "class": "Slow", "args": [seconds]});
    eventually("the class is registered", || {
        server.call("POST", "/sidejob/jobs", Some(job.clone())).1["job"].as_u64()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_outlives_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    let gate = Gate::open(server.http).await;
    let mut worker = python_with_library();
    worker.arg(library().join("tests/workers.py")).arg("slow").stderr(Stdio::null());
    let _worker = Killed(worker.env("SIDEJOB", format!("http://{}/sidejob", gate.address)).spawn().unwrap());
    let id = slow(&server, 1.0);
    eventually("the job runs", || {
        let (_, port) = server.call("GET", &format!("/sidejob/jobs/{id}/outports/runs"), None);
        (port["size"] == 1).then_some(())
    });
    gate.close();
    server.kill();
    let server = Server::start_in(folder.path(), &[]);
    gate.lead_to(server.http);
    assert_eq!(runs_of(&server, id), 1, "its end is heard, and it is not run again");
    // One that has never heard of its classes.
    let other = Server::start(&[]);
    gate.lead_to(other.http);
    drop(server);
    let id = slow(&other, 0.0);
    assert_eq!(runs_of(&other, id), 1);
}

#[test]
fn the_library_is_typed_throughout() {
    let cache = tempfile::tempdir().unwrap();
    let mut mypy = python_with_library();
    mypy.current_dir(library()).args(["-m", "mypy", "--strict", "--cache-dir"]).arg(cache.path());
    succeeds(mypy.args(["src/windlass", "tests"]).env("MYPYPATH", "src"));
}

#[test]
fn the_package_holds_the_library_and_its_types() {
    let folder = tempfile::tempdir().unwrap();
    // A copy, since building leaves things behind.
    let source = folder.path().join("source");
    succeeds(Command::new("cp").arg("-r").arg(library()).arg(&source));
    let mut build = python_with_library();
    build.args([
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
    ]);
    succeeds(build.arg(folder.path()).arg(&source));
    let wheel = folder.path().join("windlass_client-0.1.0-py3-none-any.whl");
    let listed = succeeds(Command::new(python()).args(["-m", "zipfile", "--list"]).arg(wheel));
    for file in ["windlass/py.typed", "windlass/sidejob/__init__.py", "windlass/sidejob/_serve_async.py"] {
        assert!(listed.contains(file), "{file} is not among\n{listed}");
    }
}
