//! Python library: its own tests against a real server, its types, and workers of SideJob.

use super::gate::Gate;
use crate::jq::{Killed, python};
use crate::rigs::cluster::postgres_server::{Disk, PostgresServer};
use crate::server::{Ran, Server, eventually, request};
use serde_json::{Value, json};
use std::cell::Cell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

pub(super) fn library() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/python"))
}

pub(super) fn python_with_library() -> Command {
    let mut command = Command::new(python());
    // Nothing is written beside the sources.
    command.env("PYTHONPATH", library().join("src")).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    command
}

#[track_caller]
pub(super) fn succeeds(command: &mut Command) -> String {
    let ran = Ran::of(command);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    ran.stdout
}

#[test]
fn the_library_passes_its_tests() {
    // Some of them wait for a lease to expire; it must be long enough for heartbeats on a busy machine.
    let server = Server::start(&["--set", "sidejob.lease_s=6"]);
    let mut tests = python_with_library();
    tests.args(["-m", "unittest", "discover", "-s"]).arg(library().join("tests"));
    tests.env("WINDLASS_BIN", crate::server::windlass().get_program());
    succeeds(tests.env("SIDEJOB", format!("{}/sidejob", server.url())));
}

/// Program in the README that begins with this comment.
pub(super) fn example(folder: &Path, name: &str, url: &str) -> PathBuf {
    let text = include_str!("../../../../../clients/python/README.md");
    let (_, rest) = text.split_once(&format!("```python\n# {name}\n")).expect(name);
    let (program, _) = rest.split_once("```").unwrap();
    // The examples use the default address, which may belong to another server here.
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

/// Number of runs of a completed job of the class `Marked`.
fn runs_of(server: &Server, id: u64) -> usize {
    eventually("the job is completed", || {
        let (_, job) = server.call("GET", &format!("/sidejob/jobs/{id}"), None);
        (job["state"]["status"] == "completed").then_some(())
    });
    let (_, runs) =
        server.call("POST", &format!("/sidejob/jobs/{id}/outports/runs/entries"), Some(json!({})));
    runs["entries"].as_array().unwrap().len()
}

/// Job that runs as long as the file `mark` is there.
fn marked(server: &Server, mark: &Path) -> u64 {
    let job = json!({"queue": "marked", "class": "Marked", "args": [mark]});
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
    worker.arg(library().join("tests/workers.py")).arg("marked").stderr(Stdio::null());
    let _worker = Killed(worker.env("SIDEJOB", format!("http://{}/sidejob", gate.address)).spawn().unwrap());
    let marks = tempfile::tempdir().unwrap();
    let mark = marks.path().join("first");
    let id = marked(&server, &mark);
    eventually("the job runs", || mark.exists().then_some(()));
    gate.close();
    server.kill();
    std::fs::remove_file(&mark).unwrap();
    let server = Server::start_in(folder.path(), &[]);
    gate.lead_to(server.http);
    assert_eq!(runs_of(&server, id), 1, "its end is heard, and it is not run again");
    // A server that does not know the classes.
    let other = Server::start(&[]);
    gate.lead_to(other.http);
    drop(server);
    let mark = marks.path().join("second");
    let id = marked(&other, &mark);
    eventually("the job runs", || std::fs::remove_file(&mark).ok());
    assert_eq!(runs_of(&other, id), 1);
}

/// Outage of the server or of its database.
trait Outage {
    fn begin(&mut self, gate: &Gate);
    /// Ends the outage; returns the server's address.
    fn end(&mut self) -> SocketAddr;
}

struct Restarted {
    folder: TempDir,
    server: Option<Server>,
    is_killed: bool,
}

impl Outage for Restarted {
    fn begin(&mut self, gate: &Gate) {
        gate.close();
        let mut server = self.server.take().unwrap();
        match self.is_killed {
            true => server.kill(),
            false => assert!(server.stop().success()),
        }
    }

    fn end(&mut self) -> SocketAddr {
        self.server.insert(Server::start_in(self.folder.path(), &[])).http
    }
}

struct WithoutDatabase {
    database: PostgresServer,
    server: Server,
}

impl Outage for WithoutDatabase {
    fn begin(&mut self, _: &Gate) {
        self.database.stop();
        eventually("calls are refused", || {
            (self.server.call("GET", "/sidejob/jobs/1", None).0 == 503).then_some(())
        });
    }

    fn end(&mut self) -> SocketAddr {
        self.database.resume();
        self.server.http
    }
}

const STEADY_JOBS: u64 = 4;
const STEADY_VALUES: u64 = 15;

/// Jobs that run during an outage read all their inputs in the end, and none fails.
fn work_through_an_outage(mut outage: impl Outage, to: SocketAddr, queue: &str, class: &str, more: &[&str]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let gate = runtime.block_on(Gate::open(to));
    let at = Cell::new(to);
    let call = |method: &str, path: &str, body: Option<Value>| {
        let body = body.map_or_else(String::new, |body| body.to_string());
        let (status, text) = request(at.get(), method, &format!("/sidejob{path}"), &body).unwrap_or_default();
        (status == 200).then(|| serde_json::from_str::<Value>(&text).unwrap())
    };
    let mut worker = python_with_library();
    // Claims with a lost response are returned when the lease expires.
    worker
        .arg(library().join("tests/workers.py"))
        .args([queue, "--lease=5"])
        .args(more)
        .stderr(Stdio::null());
    let _worker = Killed(worker.env("SIDEJOB", format!("http://{}/sidejob", gate.address)).spawn().unwrap());
    let ids: Vec<u64> = (0..STEADY_JOBS)
        .map(|_| {
            let job = json!({"queue": queue, "class": class});
            let id = eventually("the class is registered", || call("POST", "/jobs", Some(job.clone())));
            id["job"].as_u64().unwrap()
        })
        .collect();
    let values: Vec<u64> = (0..STEADY_VALUES).collect();
    for id in &ids {
        call("POST", &format!("/jobs/{id}/inports/n/write"), Some(json!({"list": values}))).unwrap();
    }
    eventually("they run", || {
        let sizes =
            ids.iter().map(|id| call("GET", &format!("/jobs/{id}/outports/out"), None)?["size"].as_u64());
        (sizes.sum::<Option<u64>>()? >= STEADY_VALUES).then_some(())
    });
    outage.begin(&gate);
    // Longer than a run needs to notice the outage.
    std::thread::sleep(Duration::from_secs(1));
    at.set(outage.end());
    gate.lead_to(at.get());
    for id in &ids {
        eventually("all is handed on", || {
            let job = call("GET", &format!("/jobs/{id}"), None)?;
            assert_ne!(job["status"], "failed", "{job}");
            (job["status"] == "completed" && job["outports"]["out"]["size"] == STEADY_VALUES).then_some(())
        });
        let out = call("POST", &format!("/jobs/{id}/outports/out/entries"), Some(json!({}))).unwrap();
        assert_eq!(out["entries"], json!(values));
    }
    let log = call("GET", "/logs", None).unwrap();
    let errors: Vec<&Value> =
        log.as_array().unwrap().iter().filter(|entry| entry.get("error").is_some()).collect();
    assert_eq!(errors, Vec::<&Value>::new(), "an outage is no outcome");
}

fn restarted(is_killed: bool) -> (Restarted, SocketAddr) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(folder.path(), &[]);
    let to = server.http;
    (Restarted { folder, server: Some(server), is_killed }, to)
}

#[test]
fn jobs_do_not_fail_because_the_server_is_killed() {
    let (outage, to) = restarted(true);
    work_through_an_outage(outage, to, "steady", "Steady", &[]);
    let (outage, to) = restarted(true);
    work_through_an_outage(outage, to, "steady-async", "SteadyAsync", &["--async"]);
}

#[test]
fn jobs_do_not_fail_because_the_server_is_stopped() {
    let (outage, to) = restarted(false);
    work_through_an_outage(outage, to, "steady", "Steady", &[]);
    let (outage, to) = restarted(false);
    work_through_an_outage(outage, to, "steady-async", "SteadyAsync", &["--async"]);
}

#[test]
fn jobs_do_not_fail_because_the_database_is_away() {
    for (queue, class, more) in
        [("steady", "Steady", &[] as &[&str]), ("steady-async", "SteadyAsync", &["--async"])]
    {
        let database = PostgresServer::start(Disk::Safe, &[]);
        let server = Server::start(&["--store", &database.new_schema_url()]);
        let to = server.http;
        work_through_an_outage(WithoutDatabase { database, server }, to, queue, class, more);
    }
}

/// Runs again at once, not after the lease of ten minutes.
#[test]
fn what_a_killed_worker_ran_is_run_again_at_once() {
    let server = Server::start(&["--set", "sidejob.lease_s=600"]);
    for (queue, class, more) in
        [("killed", "Slow", &[] as &[&str]), ("slow-async", "SlowAsync", &["--async"])]
    {
        let start = || {
            let mut worker = python_with_library();
            worker.arg(library().join("tests/workers.py")).arg(queue).args(more).stderr(Stdio::null());
            Killed(worker.env("SIDEJOB", format!("{}/sidejob", server.url())).spawn().unwrap())
        };
        let runs = |id: u64, count: u64| {
            eventually("it is run", || {
                let (_, port) = server.call("GET", &format!("/sidejob/jobs/{id}/outports/runs"), None);
                (port["size"] == count).then_some(())
            });
        };
        let first = start();
        let job = json!({"queue": queue, "class": class, "args": [3600]});
        let id = eventually("the class is registered", || {
            server.call("POST", "/sidejob/jobs", Some(job.clone())).1["job"].as_u64()
        });
        runs(id, 1);
        drop(first);
        let _second = start();
        runs(id, 2);
    }
}

#[test]
fn the_library_is_typed_throughout() {
    let cache = tempfile::tempdir().unwrap();
    let mut mypy = python_with_library();
    mypy.current_dir(library()).args(["-m", "mypy", "--strict", "--cache-dir"]).arg(cache.path());
    succeeds(mypy.args(["src/windlass", "tests"]).env("MYPYPATH", "src"));
}
