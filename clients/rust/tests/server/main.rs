//! The library against a real server. The program is that of the crate under test, or `WINDLASS_BIN`.

#![allow(clippy::unwrap_used, reason = "a test ends at the first error")]

mod process;

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use windlass_client::dev::DevServer;
use windlass_client::{Backoff, BoxError, Context, Error, Fail, JobHandle, Snooze, Windlass, WorkerBuilder};

/// Timeout of waits, generous for a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Short lease, for frequent heartbeats.
const LEASE: Duration = Duration::from_millis(1_500);

async fn server() -> DevServer {
    let built = option_env!("CARGO_BIN_EXE_windlass").map(PathBuf::from);
    let program = built.or_else(|| std::env::var_os("WINDLASS_BIN").map(PathBuf::from));
    let program =
        program.expect("these tests need a server: set WINDLASS_BIN to the path of the program windlass");
    DevServer::start_program(program).await.unwrap()
}

fn worker(app: &Windlass) -> WorkerBuilder {
    app.worker().concurrency(8).lease(LEASE)
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

/// Waits until the job is in this state.
async fn until(job: &JobHandle<Value>, state: &str) {
    let reached = async {
        while job.state().await.unwrap() != state {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(&format!("job {} {state}", job.id()), reached).await;
}

/// Sends a JSON request without the library.
fn call(server: &DevServer, method: &str, path: &str, body: &str) -> Value {
    let address = server.url().trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 2"), "{method} {path}: {answer}");
    let body = answer.split_once("\r\n\r\n").expect("a response").1;
    serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {answer}"))
}

fn job(server: &DevServer, id: u64) -> Value {
    call(server, "GET", &format!("/api/v1/jobs/{id}"), "")
}

/// Handler that starts and then waits for a permit.
#[derive(Clone)]
struct Held {
    begun: Arc<Semaphore>,
    go: Arc<Semaphore>,
    dropped: Arc<Semaphore>,
}

impl Held {
    fn new() -> Held {
        let none = || Arc::new(Semaphore::new(0));
        Held { begun: none(), go: none(), dropped: none() }
    }

    async fn wait(self, ctx: Context) -> Result<u32, BoxError> {
        struct OnDrop(Arc<Semaphore>);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0.add_permits(1);
            }
        }
        let _dropped = OnDrop(Arc::clone(&self.dropped));
        self.begun.add_permits(1);
        self.go.acquire().await?.forget();
        Ok(ctx.attempt)
    }

    fn register(&self, app: &Windlass) -> windlass_client::Task<Value, Value> {
        let held = self.clone();
        let handler = move |_: Value, ctx: Context| held.clone().wait(ctx);
        app.task("held", handler).register();
        app.declare("held").register()
    }
}

async fn taken(permits: &Semaphore, what: &str) {
    within(what, permits.acquire()).await.unwrap().forget();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_run_in_batches_and_bring_their_results() {
    let server = server().await;
    let app = server.app().unwrap();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, peak) = (Arc::clone(&now), Arc::clone(&most));
    let double = app
        .task("double", move |n: u64, _: Context| {
            let (running, peak) = (Arc::clone(&running), Arc::clone(&peak));
            async move {
                peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Error>(n * 2)
            }
        })
        .queue("numbers")
        .register();
    let worker = worker(&app).start().unwrap();
    let numbers: Vec<u64> = (0..300).collect();
    let jobs = double.push_many(&numbers).await.unwrap();
    for (n, job) in numbers.iter().zip(&jobs) {
        assert_eq!(within("a result", job.wait()).await.unwrap(), n * 2);
    }
    assert!((2..=8).contains(&most.load(Ordering::SeqCst)), "{most:?} at once");
    worker.shutdown().await.unwrap();
    let attempts = job_attempts(&server, jobs.iter().map(JobHandle::id));
    assert!(attempts.iter().all(|attempts| *attempts == 1), "each job ran once");
}

fn job_attempts(server: &DevServer, ids: impl Iterator<Item = u64>) -> Vec<u64> {
    ids.map(|id| job(server, id)["attempts"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_retried_by_the_rules_and_reported() {
    let server = server().await;
    let app = server.app().unwrap();
    let snoozed = Arc::new(AtomicUsize::new(0));
    let task = app
        .task("t", move |kind: String, ctx: Context| {
            let is_first = kind == "snooze" && snoozed.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                match kind.as_str() {
                    "twice" if ctx.attempt < 3 => Err("not yet".into()),
                    "panic" => panic!("boom"),
                    "fail" => Err(Fail::new("for good").class("Card").into()),
                    "slow" => std::future::pending().await,
                    _ if is_first => Err(Snooze::new(Duration::from_millis(10)).into()),
                    _ => Ok::<_, BoxError>(ctx.attempt),
                }
            }
        })
        .retry(3)
        .backoff(Backoff::Fixed(Duration::from_millis(1)))
        .timeout(Duration::from_millis(200))
        .register();
    let worker = worker(&app).start().unwrap();
    let run = async |kind: &str| within(kind, task.push(&kind.to_owned()).await.unwrap().wait()).await;
    assert_eq!(run("twice").await.unwrap(), 3);
    assert_eq!(run("snooze").await.unwrap(), 1, "a snooze does not count");
    for (kind, wanted, attempts) in [("panic", "Panic", 3), ("fail", "Card", 1), ("slow", "Timeout", 3)] {
        let Err(Error::NotCompleted { id, state, class, .. }) = run(kind).await else { panic!("{kind}") };
        assert_eq!((state.as_str(), class.as_deref()), ("failed", Some(wanted)), "{kind}");
        assert_eq!(job(&server, id)["attempts"], attempts, "{kind}");
    }
    let wrong = app.declare::<u32, Value>("t").register().push(&5).await.unwrap();
    let Err(Error::NotCompleted { class, .. }) = within("wrong", wrong.wait()).await else { panic!() };
    assert_eq!(class.as_deref(), Some("Payload"));
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_reaches_the_handler() {
    let server = server().await;
    let app = server.app().unwrap();
    let (begun, told) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (begin, tell) = (Arc::clone(&begun), Arc::clone(&told));
    app.task("t", move |_: Value, ctx: Context| {
        let (begin, tell) = (Arc::clone(&begin), Arc::clone(&tell));
        async move {
            begin.add_permits(1);
            ctx.cancelled().await;
            tell.add_permits(1);
            Err::<Value, _>(Error::Cancelled)
        }
    })
    .register();
    let task = app.declare::<Value, Value>("t").register();
    let worker = worker(&app).start().unwrap();
    let job = task.push(&json!(1)).await.unwrap();
    taken(&begun, "the start").await;
    job.cancel().await.unwrap();
    taken(&told, "the cancellation").await;
    until(&job, "cancelled").await;
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_without_a_lease_is_dropped() {
    let server = server().await;
    let app = server.app().unwrap();
    let held = Held::new();
    let task = held.register(&app);
    let worker = worker(&app).start().unwrap();
    let job = task.push(&json!(1)).await.unwrap();
    taken(&held.begun, "the start").await;
    call(&server, "POST", &format!("/api/v1/jobs/{}/cancel", job.id()), r#"{"now":true}"#);
    taken(&held.dropped, "the end of the handler").await;
    assert_eq!(job.state().await.unwrap(), "cancelled");
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_server_fails_no_job() {
    let mut server = server().await;
    let app = server.app().unwrap();
    let held = Held::new();
    let task = held.register(&app);
    let worker = app.worker().concurrency(2).start().unwrap();
    let (ends_meanwhile, goes_on) =
        (task.push(&json!(1)).await.unwrap(), task.push(&json!(2)).await.unwrap());
    taken(&held.begun, "the start").await;
    taken(&held.begun, "the start").await;
    server.kill();
    held.go.add_permits(1);
    taken(&held.dropped, "the end of a handler").await;
    server.restart().await.unwrap();
    held.go.add_permits(1);
    for job in [&ends_meanwhile, &goes_on] {
        assert_eq!(within("the result", job.wait()).await.unwrap(), json!(1), "the first attempt counts");
    }
    let errors = [&ends_meanwhile, &goes_on].map(|it| self::job(&server, it.id())["errors"].clone());
    assert_eq!(errors, [Value::Null, Value::Null]);
    held.go.add_permits(1);
    let next = task.push(&json!(3)).await.unwrap();
    assert_eq!(within("a job after the outage", next.wait()).await.unwrap(), json!(1));
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_waits_for_running_jobs_and_then_releases_them() {
    let server = server().await;
    let app = server.app().unwrap();
    let held = Held::new();
    let task = held.register(&app);
    let first = worker(&app).start().unwrap();
    let job = task.push(&json!(1)).await.unwrap();
    taken(&held.begun, "the start").await;
    let leaving = tokio::spawn(first.shutdown());
    let later = task.push(&json!(2)).await.unwrap();
    tokio::task::yield_now().await;
    assert!(!leaving.is_finished());
    held.go.add_permits(1);
    within("the shutdown", leaving).await.unwrap().unwrap();
    assert_eq!(job.state().await.unwrap(), "completed");
    assert_eq!(later.state().await.unwrap(), "ready", "a worker that stops claims nothing");

    let hasty = worker(&app).grace(Duration::from_millis(20)).start().unwrap();
    taken(&held.begun, "the start").await;
    within("the shutdown", hasty.shutdown()).await.unwrap();
    assert_eq!(later.state().await.unwrap(), "ready", "released");
    held.go.add_permits(1);
    let last = worker(&app).start().unwrap();
    assert_eq!(
        within("the result", later.wait()).await.unwrap(),
        json!(1),
        "the released run does not count"
    );
    last.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_and_log_are_with_the_job() {
    let server = server().await;
    let app = server.app().unwrap();
    let task = app
        .task("t", |(): (), ctx: Context| async move {
            ctx.progress(40, "half way");
            ctx.log("one");
            ctx.log("two");
            Ok::<_, Error>(ctx.traceparent().map(str::to_owned))
        })
        .register();
    let worker = worker(&app).start().unwrap();
    let pushed = task.with().traceparent("00-abc-def-01").push(&()).await.unwrap();
    assert_eq!(within("the result", pushed.wait()).await.unwrap().as_deref(), Some("00-abc-def-01"));
    let view = job(&server, pushed.id());
    assert_eq!(view["progress"], json!({"percent": 40, "note": "half way"}), "{view}");
    let log = view["log"].to_string();
    assert!(log.contains("one") && log.contains("two"), "{view}");
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_is_created_once() {
    let server = server().await;
    for _ in 0..2 {
        let app = server.app().unwrap();
        app.cron("report", "0 9 * * MON-FRI", "Europe/Berlin", || async { Ok::<_, Error>(()) });
        let ping = app.task("ping", |(): (), _: Context| async { Ok::<_, Error>(()) }).register();
        let worker = worker(&app).start().unwrap();
        within("a job after the schedule", ping.push(&()).await.unwrap().wait()).await.unwrap();
        worker.shutdown().await.unwrap();
    }
    let schedules = call(&server, "GET", "/api/v1/schedules", "");
    let rules: Vec<&Value> = schedules["jobs"].as_array().unwrap().iter().map(|job| &job["repeat"]).collect();
    assert_eq!(rules, [&json!("TZ=Europe/Berlin 0 9 * * MON-FRI")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_the_server_refuses_says_so() {
    let server = server().await;
    let app = server.app().unwrap();
    let error = worker(&app).start().err().expect("an error").to_string();
    assert_eq!(error, "a worker needs at least one task with a handler");
    app.task("t", |(): (), _: Context| async { Ok::<_, Error>(()) }).register();
    assert!(worker(&app).concurrency(0).start().is_err());
    let refused = within("the refusal", worker(&app).queues([""]).run()).await.unwrap_err();
    assert!(matches!(refused, Error::Refused { status: 400, .. }), "{refused}");
    let unknown = app.job::<Value>(999).wait().await.unwrap_err();
    assert!(matches!(unknown, Error::NotFound { .. }) && !unknown.is_retryable(), "{unknown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_with_one_key_make_one_job() {
    let server = server().await;
    let app = server.app().unwrap();
    let send = app.declare::<String, Value>("send").unique(String::clone).register();
    let push = || send.with().idempotency_key("order-7");
    let first = push().push(&"ann".to_owned()).await.unwrap();
    let again = push().push(&"bob".to_owned()).await.unwrap();
    assert_eq!((first.id(), first.is_new(), again.is_new()), (again.id(), true, false));
    let same = send.push(&"ann".to_owned()).await.unwrap();
    assert_eq!((same.id(), same.is_new()), (first.id(), false), "the unique key");
    let plain = [send.push(&"eve".to_owned()).await.unwrap(), send.push(&"kim".to_owned()).await.unwrap()];
    assert!(plain.iter().all(JobHandle::is_new));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_survive_waits_and_failures() {
    let mut server = server().await;
    let app = server.app().unwrap();
    let charged = Arc::new(AtomicUsize::new(0));
    let pack = app.task("pack", |n: u32, _: Context| async move { Ok::<_, Error>(n * 10) }).register();
    let (charge, packing) = (Arc::clone(&charged), pack.clone());
    let order = app
        .task("order", move |items: Vec<u32>, ctx: Context| {
            let (charge, pack) = (Arc::clone(&charge), packing.clone());
            async move {
                let pay = || async { Ok::<_, Error>(charge.fetch_add(1, Ordering::SeqCst) + 1) };
                let (receipt, note) = tokio::join!(
                    ctx.step("charge", pay),
                    ctx.step("note", || async { Ok::<_, Error>("noted".to_owned()) }),
                );
                let (receipt, note) = (receipt?, note?);
                ctx.sleep(Duration::from_millis(30)).await?;
                let approved: Option<bool> = ctx.wait_for("approval").await?;
                let late: Option<bool> = ctx.wait_for("late").timeout(Duration::from_millis(20)).await?;
                if ctx.attempt == 1 {
                    return Err("a bad day".into());
                }
                let packed = ctx.all(items.iter().map(|item| pack.call(item))).await?;
                Ok::<_, BoxError>(json!([receipt, note, approved, late, packed]))
            }
        })
        .retry(5)
        .backoff(Backoff::Fixed(Duration::from_millis(1)))
        .version(3)
        .register();
    let worker = worker(&app).start().unwrap();
    let pushed = order.push(&vec![1, 2, 3]).await.unwrap();
    let waits = async {
        while job(&server, pushed.id())["wait"]["signal"] != "approval" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the wait", waits).await;
    server.restart().await.unwrap();
    assert!(pushed.signal("approval", &true).await.unwrap());
    let result = within("the result", pushed.wait()).await;
    let view = job(&server, pushed.id());
    assert_eq!(
        result.unwrap_or_else(|e| panic!("{e}: {view}")),
        json!([1, "noted", true, null, [10, 20, 30]])
    );
    let names: Vec<&str> =
        view["steps"].as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["@version", "charge", "note", "sleep", "wait:approval", "wait:late", "all"]);
    assert_eq!(charged.load(Ordering::SeqCst), 1);
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_from_a_step_runs_it_and_the_later_ones_again() {
    let server = server().await;
    let app = server.app().unwrap();
    let ran = [0, 1].map(|_| Arc::new(AtomicUsize::new(0)));
    let counts = ran.clone();
    let task = app
        .task("t", move |(): (), ctx: Context| {
            let [a, b] = counts.clone();
            async move {
                ctx.step("a", || async { Ok::<_, Error>(a.fetch_add(1, Ordering::SeqCst)) }).await?;
                ctx.step("b", || async { Ok::<_, Error>(b.fetch_add(1, Ordering::SeqCst)) }).await
            }
        })
        .register();
    let worker = worker(&app).start().unwrap();
    let job = task.push(&()).await.unwrap();
    assert_eq!(within("the result", job.wait()).await.unwrap(), 0);
    job.retry_from("b").await.unwrap();
    assert_eq!(within("the second result", job.wait()).await.unwrap(), 1);
    assert_eq!(ran.map(|count| count.load(Ordering::SeqCst)), [1, 2]);
    assert!(matches!(
        job.retry_from("nowhere").await,
        Err(Error::NotFound { .. } | Error::Conflict { .. } | Error::Refused { .. })
    ));
    worker.shutdown().await.unwrap();
}
