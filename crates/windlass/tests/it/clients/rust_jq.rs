//! Worker library for Rust: typed handlers, failures, slots, and outages of either side.

use super::gate::Gate;
use super::until_accepted;
use crate::server::{PATIENCE, Server, ended};
use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use windlass_client::jq::{Builder, Client, Failure, Job, JobView, NewJob, Status, Worker};

/// Short backoff.
const QUICK: [&str; 2] = ["--set", "jq.backoff_base_ms=1"];
/// A dead worker is removed after ten seconds; a busy machine may take longer.
const AFTER_A_DEATH: Duration = Duration::from_secs(90);

#[derive(Serialize, Deserialize)]
struct Pair {
    a: i64,
    b: i64,
}

fn jq(server: &Server) -> String {
    format!("{}/jq", server.url())
}

async fn enqueue(client: &Client, name: &str, argument: Value) -> String {
    client.enqueue(&NewJob::new(name, argument).keep_result().max_retry(3)).await.unwrap()
}

async fn end_of(client: &Client, id: &str) -> JobView<Value> {
    let view = client.wait(id, AFTER_A_DEATH).await.unwrap();
    view.unwrap_or_else(|| panic!("job {id} did not end"))
}

fn adder(server: &str) -> Builder {
    Worker::builder(server)
        .name("adder")
        .handle("add", |job: Job<Pair>| async move { Ok(job.argument.a + job.argument.b) })
}

/// Handler that starts and then waits for a permit.
#[derive(Clone)]
struct Held {
    begun: Arc<Semaphore>,
    go: Arc<Semaphore>,
    at_once: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Held {
    fn new() -> Held {
        let none = || Arc::new(Semaphore::new(0));
        Held { begun: none(), go: none(), at_once: Arc::default(), most: Arc::default() }
    }

    fn add_to(&self, builder: Builder) -> Builder {
        let held = self.clone();
        builder.handle("held", move |_: Job<Value>| {
            let held = held.clone();
            async move {
                let now = held.at_once.fetch_add(1, Ordering::SeqCst) + 1;
                held.most.fetch_max(now, Ordering::SeqCst);
                held.begun.add_permits(1);
                held.go.acquire().await?.forget();
                held.at_once.fetch_sub(1, Ordering::SeqCst);
                Ok("held")
            }
        })
    }

    async fn has_begun(&self) {
        let begun = tokio::time::timeout(PATIENCE, self.begun.acquire()).await;
        begun.expect("a handler begins").unwrap().forget();
    }
}

/// Status of a worker's response to a request without a valid job.
fn status_of(worker: SocketAddr, method: &str, path: &str, headers: &str) -> u16 {
    let mut stream = TcpStream::connect(worker).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: w\r\nConnection: close\r\n{headers}Content-Length: 2\r\n\r\n{{}}"
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_run_by_their_names_with_types_or_bytes() {
    let server = Server::start(&QUICK);
    let worker = adder(&jq(&server))
        .handle_raw("echo", |job: Job<Bytes>| async move { Ok(job.argument) })
        .start()
        .await
        .unwrap();
    let client = Client::new(&jq(&server)).unwrap();
    let id = enqueue(&client, "add", json!({"a": 1, "b": 2})).await;
    let view = end_of(&client, &id).await;
    assert_eq!((view.status, view.result, view.worker_id), (Status::Done, Some(json!(3)), worker.id()));
    assert_eq!(client.job::<Value>(&id).await.unwrap().result, None, "a result is read once");

    let id = enqueue(&client, "echo", json!({"deep": [1, {"x": null}]})).await;
    assert_eq!(end_of(&client, &id).await.result, Some(json!({"deep": [1, {"x": null}]})));

    let unknown = enqueue(&client, "subtract", json!({})).await;
    let id = enqueue(&client, "add", json!({"a": 2, "b": 2})).await;
    assert_eq!(end_of(&client, &id).await.result, Some(json!(4)), "one it does not know is in nobody's way");
    assert_eq!(client.job::<Value>(&unknown).await.unwrap().status, Status::Queued);
    client.cancel(&unknown).await.unwrap();
    assert!(client.job::<Value>(&unknown).await.unwrap_err().is_not_found());
    let summary = worker.shutdown().await;
    assert_eq!((summary.done, summary.failed, summary.dropped), (3, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_tried_again_unless_that_is_of_no_use() {
    let server = Server::start(&QUICK);
    let worker = adder(&jq(&server))
        .handle("flaky", |job: Job<Value>| async move {
            if job.attempt < 3 { Err(Failure::retry("not yet")) } else { Ok(job.attempt) }
        })
        .handle("hopeless", |_: Job<Value>| async move {
            Err::<(), _>(Failure::give_up("never").with_error(&json!({"code": 7})))
        })
        .handle("panics", |job: Job<Value>| async move {
            match job.attempt {
                1 => panic!("oh no"),
                attempt => Ok(attempt),
            }
        })
        .handle("always panics", |job: Job<Value>| async move {
            assert!(job.attempt == 0, "over and over, {}", job.attempt);
            Ok(())
        })
        .handle("errors", |_: Job<Value>| async move { Ok("x".parse::<i64>()?) })
        .handle("endless", |_: Job<Value>| async move {
            std::future::pending::<()>().await;
            Ok(())
        })
        .start()
        .await
        .unwrap();
    let client = Client::new(&jq(&server)).unwrap();
    let run = async |name: &str, argument: Value| {
        let id = enqueue(&client, name, argument).await;
        end_of(&client, &id).await
    };
    let view = run("flaky", json!({})).await;
    assert_eq!((view.status, view.result, view.retry_count), (Status::Done, Some(json!(3)), 2));
    let view = run("hopeless", json!({})).await;
    assert_eq!((view.status, view.retry_count, view.message.as_deref()), (Status::Error, 0, Some("never")));
    let (_, job) = server.call("GET", &format!("/jq/job/{}", view.job_id), None);
    assert_eq!(job["error"], json!({"code": 7}));
    let view = run("panics", json!({})).await;
    assert_eq!((view.status, view.result), (Status::Done, Some(json!(2))));
    let view = run("always panics", json!({})).await;
    assert_eq!((view.status, view.retry_count), (Status::Error, 3));
    assert_eq!(view.message.as_deref(), Some("the handler panicked: over and over, 4"));
    let view = run("errors", json!({})).await;
    assert_eq!((view.status, view.retry_count), (Status::Error, 3));
    assert_eq!(view.message.as_deref(), Some("invalid digit found in string"));
    let view = run("add", json!({"a": 1})).await;
    assert_eq!((view.status, view.retry_count), (Status::Error, 0));
    assert!(view.message.unwrap().starts_with("the argument does not match add: missing field `b`"));

    let job = NewJob::new("endless", json!({})).max_retry(1).timeout(Duration::from_secs(1));
    let id = client.enqueue(&job).await.unwrap();
    let view = end_of(&client, &id).await;
    assert_eq!((view.status, view.retry_count), (Status::Error, 1), "{view:?}");
    let (_, job) = server.call("GET", &format!("/jq/job/{id}"), None);
    assert_eq!(job["reason"], "timeout");
    let view = run("add", json!({"a": 1, "b": 1})).await;
    assert_eq!(view.result, Some(json!(2)), "after all of that it works on");
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_the_server_does_not_take_is_a_failure() {
    let server = Server::start(&["--set", "limits.body_bytes=4096"]);
    let worker = Worker::builder(jq(&server))
        .handle("large", |_: Job<Value>| async move { Ok("x".repeat(5_000)) })
        .handle_raw("broken", |_| async move { Ok(vec![0xc1]) })
        .start()
        .await
        .unwrap();
    let client = Client::new(&jq(&server)).unwrap();
    let id = enqueue(&client, "large", json!({})).await;
    let view = end_of(&client, &id).await;
    assert_eq!((view.status, view.retry_count), (Status::Error, 0));
    assert!(view.message.as_deref().unwrap().starts_with("the server refused the result: "), "{view:?}");
    let id = enqueue(&client, "broken", json!({})).await;
    let view = end_of(&client, &id).await;
    assert_eq!(view.message.as_deref(), Some("the result of the handler is not a single MessagePack value"));
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_handlers_run_at_once_than_there_are_places() {
    let server = Server::start(&[]);
    let held = Held::new();
    let worker = held.add_to(Worker::builder(jq(&server)).max_jobs(3)).start().await.unwrap();
    let client = Client::new(&jq(&server)).unwrap();
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(enqueue(&client, "held", json!({})).await);
    }
    for _ in 0..3 {
        held.has_begun().await;
    }
    held.go.add_permits(40);
    for id in &ids {
        let view = end_of(&client, id).await;
        assert_eq!((view.status, view.retry_count), (Status::Done, 0), "none was turned away: {view:?}");
    }
    assert_eq!(held.most.load(Ordering::SeqCst), 3);
    assert_eq!(worker.shutdown().await.done, 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_shuts_down_ends_what_it_has_and_gets_nothing_more() {
    let server = Server::start(&QUICK);
    let held = Held::new();
    let worker = held.add_to(Worker::builder(jq(&server)).max_jobs(4)).start().await.unwrap();
    let client = Client::new(&jq(&server)).unwrap();
    let has = enqueue(&client, "held", json!({})).await;
    held.has_begun().await;
    let (id, address) = (worker.id().unwrap(), worker.address());
    let leaving = tokio::spawn(worker.shutdown());
    // Once the server has been informed, the worker refuses everything.
    let named = format!("worker-id: {id}\r\n");
    crate::server::eventually("the server knows", || {
        (status_of(address, "POST", "/worker-job", &named) == 503).then_some(())
    });
    let next = enqueue(&client, "held", json!({})).await;
    assert!(!leaving.is_finished());
    // The job may have been offered and refused just before.
    let queued = async {
        while client.job::<Value>(&next).await.unwrap().status != Status::Queued {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, queued).await.expect("nobody has it");
    held.go.add_permits(1);
    let summary = leaving.await.unwrap();
    assert_eq!((summary.done, summary.failed, summary.dropped), (1, 0, 0));
    let view = client.job::<Value>(&has).await.unwrap();
    assert_eq!((view.status, view.retry_count, view.worker_id), (Status::Done, 0, Some(id)));
    held.go.add_permits(1);
    let other = held.add_to(Worker::builder(jq(&server))).start().await.unwrap();
    assert_eq!(end_of(&client, &next).await.worker_id, other.id());
    other.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_done_in_the_grace_time_is_tried_again_elsewhere() {
    let server = Server::start(&QUICK);
    let held = Held::new();
    let builder = Worker::builder(jq(&server)).grace(Duration::from_millis(50));
    let worker = held.add_to(builder).start().await.unwrap();
    let client = Client::new(&jq(&server)).unwrap();
    let id = enqueue(&client, "held", json!({})).await;
    held.has_begun().await;
    let summary = worker.shutdown().await;
    assert_eq!((summary.done, summary.dropped), (0, 1));
    held.go.add_permits(1);
    let other = held.add_to(Worker::builder(jq(&server))).start().await.unwrap();
    let view = end_of(&client, &id).await;
    assert_eq!((view.status, view.retry_count, view.worker_id), (Status::Done, 1, other.id()));
    other.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_finds_its_worker_and_hears_what_was_done_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &QUICK);
    let gate = Gate::open(server.http).await;
    let held = Held::new();
    let worker = held.add_to(adder(&gate.url()).max_jobs(2)).start().await.unwrap();
    let me = worker.id();
    let client = Client::new(&gate.url()).unwrap();
    let id = enqueue(&client, "held", json!({})).await;
    held.has_begun().await;
    until_accepted(&server, &id);
    gate.close();
    server.kill();
    held.go.add_permits(1);
    // The handler ends while the server is down.
    while held.at_once.load(Ordering::SeqCst) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let server = Server::start_in(folder.path(), &QUICK);
    gate.lead_to(server.http);
    let view = end_of(&client, &id).await;
    assert_eq!((view.status, view.retry_count, view.result), (Status::Done, 0, Some(json!("held"))));
    let id = enqueue(&client, "add", json!({"a": 20, "b": 22})).await;
    let view = end_of(&client, &id).await;
    assert_eq!((view.result, view.worker_id), (Some(json!(42)), me), "the same worker as before");
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_the_server_does_not_know_any_more_registers_anew() {
    let server = Server::start(&QUICK);
    let gate = Gate::open(server.http).await;
    let held = Held::new();
    let worker = held.add_to(adder(&gate.url())).start().await.unwrap();
    let client = Client::new(&gate.url()).unwrap();
    enqueue(&client, "held", json!({})).await;
    held.has_begun().await;
    let before = worker.id();
    // Another server, which does not know the worker.
    let other = Server::start(&QUICK);
    gate.lead_to(other.http);
    drop(server);
    let client = Client::new(&gate.url()).unwrap();
    let id = enqueue(&client, "add", json!({"a": 1, "b": 1})).await;
    let view = end_of(&client, &id).await;
    assert_eq!((view.status, &view.worker_id), (Status::Done, &worker.id()));
    assert_ne!(worker.id(), before);
    let summary = worker.shutdown().await;
    assert_eq!((summary.done, summary.dropped), (1, 1), "what the first server gave it was dropped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_says_what_is_wrong_with_how_it_was_set_up() {
    let server = Server::start(&[]);
    let error = async |builder: Builder| builder.start().await.err().expect("an error").to_string();
    assert_eq!(error(Worker::builder(jq(&server))).await, "a worker needs at least one handler");
    assert_eq!(
        error(adder("https://a/jq")).await,
        "the server URL \"https://a/jq\" must start with http://; for TLS, use a proxy on this machine"
    );
    assert_eq!(error(adder(&jq(&server)).max_jobs(0)).await, "max_jobs must be from 1 to 100000");
    let said = error(adder(&jq(&server)).url("http://192.0.2.1:1")).await;
    assert!(
        said.starts_with("the server refused the request (400 bad_request): ") && said.contains("192.0.2.1"),
        "{said}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _taker = tokio::net::TcpListener::bind(taken).await.unwrap();
    let said = error(adder(&jq(&server)).listen(taken)).await;
    assert!(said.starts_with(&format!("cannot listen on {taken}: ")), "{said}");
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/jq", nobody.local_addr().unwrap());
    drop(nobody);
    let said = error(adder(&url).register_within(Duration::ZERO)).await;
    assert!(said.starts_with(&format!("cannot call {url}: cannot connect: ")), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_calls_that_mean_this_worker_are_answered() {
    let server = Server::start(&[]);
    let ran = Arc::new(Notify::new());
    let tell = Arc::clone(&ran);
    let worker = Worker::builder(jq(&server))
        .handle("t", move |_: Job<Value>| {
            tell.notify_one();
            std::future::ready(Ok(()))
        })
        .start()
        .await
        .unwrap();
    let call = |method: &str, path: &str, headers: &str| status_of(worker.address(), method, path, headers);
    assert_eq!(call("POST", "/worker-job", ""), 503);
    assert_eq!(call("POST", "/worker-job", "worker-id: w-other\r\n"), 503);
    let me = format!("worker-id: {}\r\n", worker.id().unwrap());
    assert_eq!(call("POST", "/worker-job", &me), 400, "this one is looked at, and is no MessagePack");
    assert_eq!(call("GET", "/worker-job", &me), 405);
    assert_eq!(call("POST", "/", &me), 404);
    let client = Client::new(&jq(&server)).unwrap();
    let id = enqueue(&client, "t", json!({})).await;
    assert_eq!(end_of(&client, &id).await.status, Status::Done);
    tokio::time::timeout(PATIENCE, ran.notified()).await.unwrap();
    worker.shutdown().await;
}

// --- as a process --------------------------------------------------------------------------------------------------

/// Environment variable with the server's address, for a worker in a process of its own.
const SERVER: &str = "RUST_JQ_SERVER";

/// Not a test: the process that the tests below start, from this program.
#[tokio::test]
#[ignore = "the tests that need it start it"]
async fn a_process_that_works() {
    let Ok(server) = std::env::var(SERVER) else { return };
    let worker = Worker::builder(server).name("process").handle("slow", |job: Job<Value>| async move {
        let ms = job.argument["ms"].as_u64().unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok("slept")
    });
    let summary = worker.run().await.unwrap();
    assert_eq!((summary.failed, summary.dropped), (0, 0));
}

struct Process(Child);

impl Process {
    fn start(server: &Server) -> Process {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["clients::rust_jq::a_process_that_works", "--exact", "--ignored"])
            .env(SERVER, jq(server))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Process(child.unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_worker_had_is_done_by_another() {
    let server = Server::start(&QUICK);
    let client = Client::new(&jq(&server)).unwrap();
    let process = Process::start(&server);
    // Far longer than the test waits.
    let job = NewJob::new("slow", json!({"ms": 3_600_000})).keep_result().timeout(Duration::from_secs(7_200));
    let id = client.enqueue(&job).await.unwrap();
    until_accepted(&server, &id);
    process.signal(Signal::KILL);
    let other = Worker::builder(jq(&server))
        .handle("slow", |job: Job<Value>| std::future::ready(Ok(job.attempt)))
        .start()
        .await
        .unwrap();
    let view = client.wait::<Value>(&id, AFTER_A_DEATH).await.unwrap();
    let view = view.unwrap_or_else(|| panic!("{} {}", server.job(1), server.log()));
    assert_eq!((view.status, view.retry_count, view.result), (Status::Done, 1, Some(json!(2))));
    other.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_told_to_stop_by_a_signal_ends_what_it_has() {
    let server = Server::start(&QUICK);
    let client = Client::new(&jq(&server)).unwrap();
    let mut process = Process::start(&server);
    let id = enqueue(&client, "slow", json!({"ms": 1_500})).await;
    until_accepted(&server, &id);
    process.signal(Signal::TERM);
    assert!(ended(&mut process.0).success());
    let view = client.job::<Value>(&id).await.unwrap();
    assert_eq!((view.status, view.retry_count, view.result), (Status::Done, 0, Some(json!("slept"))));
}
