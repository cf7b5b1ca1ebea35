//! The wire: which calls the library makes, and what it does about refusals and lost answers.

#![allow(clippy::unwrap_used, reason = "a test ends at the first error")]

mod fake;
mod outage;
mod reports;
mod steps;

use fake::{Fake, Reply, Seen};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use windlass_client::{Context, Error, Windlass};

const JOBS: &str = "/api/v1/jobs";
const CLAIM: &str = "/api/v1/claim";
const SETTLE: &str = "/api/v1/settle";
const STEPS: &str = "/api/v1/jobs/1/steps";

fn refusal(code: &str) -> Value {
    json!({"error": {"code": code, "message": "no"}})
}

/// Claimed job of the task `t`.
fn claimed(id: u64, payload: Value) -> Value {
    json!({"id": id, "token": 100 + id, "name": "t", "queue": "default", "payload": payload, "attempt": 1,
        "priority": 0})
}

/// Answer that accepts all reports.
fn settled(body: &Value) -> Value {
    let accept = |entry: &Value| json!({"id": entry["id"], "ok": true, "state": "completed"});
    let settled: Vec<Value> = body["settle"].as_array().unwrap().iter().map(accept).collect();
    let mut answer = json!({"settled": settled});
    if body.get("claim").is_some() {
        answer["jobs"] = json!([]);
    }
    answer
}

/// Server that hands out jobs with the first claim; later claims wait.
async fn worker_server(
    jobs: Vec<Value>,
    script: impl Fn(usize, &Seen) -> Option<Reply> + Send + Sync + 'static,
) -> Fake {
    Fake::start(move |earlier, seen| {
        if let Some(reply) = script(earlier, seen) {
            return reply;
        }
        match (seen.path.as_str(), earlier) {
            (CLAIM, 0) => Reply::Json(200, json!({"jobs": jobs})),
            (CLAIM, _) => Reply::Hang,
            (SETTLE, _) => Reply::Json(200, settled(&seen.body)),
            (path, _) => panic!("unexpected call of {path}"),
        }
    })
    .await
}

fn reports(fake: &Fake) -> Vec<Value> {
    let calls = fake.seen(SETTLE).into_iter();
    calls.flat_map(|body| body["settle"].as_array().unwrap().clone()).collect()
}

#[tokio::test]
async fn a_push_is_repeated_with_its_key_until_it_is_answered() {
    let fake = Fake::start(|earlier, _| match earlier {
        0 => Reply::Lost,
        1 => Reply::Json(503, refusal("busy")),
        _ => Reply::Json(201, json!({"ids": [7], "existing": []})),
    })
    .await;
    let task = Windlass::new(&fake.url).unwrap().declare::<u32, u32>("t").register();
    assert_eq!(task.push(&1).await.unwrap().id(), 7);
    let seen = fake.seen(JOBS);
    assert_eq!(seen.len(), 3);
    let key = &seen[0]["jobs"][0]["idempotency_key"];
    assert!(key.as_str().unwrap().len() > 32, "{key}");
    assert!(seen.iter().all(|body| body["jobs"][0]["idempotency_key"] == *key));
}

#[tokio::test]
async fn a_refused_push_is_not_repeated() {
    let fake = Fake::start(|_, _| Reply::Json(400, refusal("bad_request"))).await;
    let task = Windlass::new(&fake.url).unwrap().declare::<u32, u32>("t").register();
    let error = task.push(&1).await.err().unwrap();
    assert_eq!((error.status(), error.code(), error.is_retryable()), (Some(400), "bad_request", false));
    assert_eq!(fake.seen(JOBS).len(), 1);
}

#[tokio::test]
async fn many_jobs_are_pushed_in_batches_with_a_key_each() {
    let fake = Fake::start(|_, seen| {
        let ids: Vec<usize> = (1..=seen.body["jobs"].as_array().unwrap().len()).collect();
        Reply::Json(201, json!({"ids": ids, "existing": []}))
    })
    .await;
    let task = Windlass::new(&fake.url).unwrap().declare::<u32, u32>("t").register();
    let payloads: Vec<u32> = (0..2_500).collect();
    assert_eq!(task.push_many(&payloads).await.unwrap().len(), 2_500);
    let sizes: Vec<usize> =
        fake.seen(JOBS).iter().map(|body| body["jobs"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [1_000, 1_000, 500]);
    let keys: std::collections::HashSet<String> = fake
        .seen(JOBS)
        .iter()
        .flat_map(|body| body["jobs"].as_array().unwrap().clone())
        .map(|job| job["idempotency_key"].to_string())
        .collect();
    assert_eq!(keys.len(), 2_500);
}

#[tokio::test]
async fn a_batch_is_bounded_in_bytes() {
    let fake = Fake::start(|_, seen| {
        let ids: Vec<usize> = (1..=seen.body["jobs"].as_array().unwrap().len()).collect();
        Reply::Json(201, json!({"ids": ids, "existing": []}))
    })
    .await;
    let task = Windlass::new(&fake.url).unwrap().declare::<String, u32>("t").register();
    let mib = |n: usize| "x".repeat(n << 20);
    task.push_many(&[mib(1), mib(1), mib(5), mib(3), mib(2)]).await.unwrap();
    let sizes: Vec<usize> =
        fake.seen(JOBS).iter().map(|body| body["jobs"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [2, 1, 1, 1]);
}

#[tokio::test]
async fn ended_runs_are_reported_together_with_the_next_claim() {
    let jobs = (1..=4).map(|id| claimed(id, json!(id))).collect();
    let fake = worker_server(jobs, |_, _| None).await;
    let app = Windlass::new(&fake.url).unwrap();
    app.task("t", |n: u32, _: Context| async move { Ok::<_, Error>(n * 2) }).register();
    let worker = app.worker().concurrency(4).name("w1").start().unwrap();
    fake.until("four reports", |fake| reports(fake).len() == 4).await;
    worker.shutdown().await.unwrap();
    let claim = &fake.seen(CLAIM)[0];
    assert_eq!(
        (&claim["names"], &claim["queues"], &claim["limit"], &claim["worker"], &claim["lease_ms"]),
        (&json!(["t"]), &json!(["default"]), &json!(4), &json!("w1"), &json!(30_000))
    );
    let calls = fake.seen(SETTLE);
    assert!(calls.len() < 4, "{calls:?}");
    assert!(calls[0]["claim"]["limit"].as_u64() > Some(0), "no slot was free before: {calls:?}");
    let results: i64 = reports(&fake).iter().map(|entry| entry["result"].as_i64().unwrap()).sum();
    assert_eq!(results, 20);
}

#[tokio::test]
async fn a_run_that_ends_during_the_long_poll_is_reported_at_once() {
    let fake = worker_server(vec![claimed(1, json!(1))], |_, _| None).await;
    let app = Windlass::new(&fake.url).unwrap();
    let go = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&go);
    app.task("t", move |_: u32, _: Context| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.map_err(|e| Error::Other(e.into()))?.forget();
            Ok::<_, Error>(())
        }
    })
    .register();
    let worker = app.worker().concurrency(2).start().unwrap();
    fake.until("the long poll", |fake| fake.seen(CLAIM).len() == 2).await;
    assert_eq!(fake.seen(CLAIM)[1]["limit"], 1, "one slot is free");
    go.add_permits(1);
    fake.until("the report", |fake| reports(fake).len() == 1).await;
    assert_eq!(fake.seen(SETTLE)[0].get("claim"), None);
    assert_eq!(fake.seen(CLAIM).len(), 2, "the long poll goes on");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_report_is_repeated_until_the_server_answers() {
    let fake =
        worker_server(vec![claimed(1, json!(1))], |earlier, seen| match (seen.path.as_str(), earlier) {
            (SETTLE, 0) => Some(Reply::Lost),
            (SETTLE, 1) => Some(Reply::Json(503, refusal("busy"))),
            (SETTLE, 2) => {
                let lost = json!({"id": 1, "ok": false, "error": {"code": "lease_lost", "message": "lost"}});
                Some(Reply::Json(200, json!({"settled": [lost]})))
            }
            _ => None,
        })
        .await;
    let app = Windlass::new(&fake.url).unwrap();
    app.task("t", |n: u32, _: Context| async move { Ok::<_, Error>(n) }).register();
    let worker = app.worker().concurrency(1).start().unwrap();
    fake.until("three reports", |fake| reports(fake).len() == 3).await;
    worker.shutdown().await.unwrap();
    let reports = reports(&fake);
    assert!(reports.iter().all(|report| *report == reports[0]), "{reports:?}");
    assert_eq!(reports.len(), 3, "dropped only when the lease is lost");
}

#[tokio::test]
async fn a_result_that_the_server_refuses_fails_the_job() {
    let fake = worker_server(vec![claimed(1, json!(1))], |earlier, seen| {
        let is_first = seen.path == SETTLE && earlier == 0;
        is_first.then(|| {
            let error = json!({"code": "payload_too_large", "message": "too large"});
            Reply::Json(200, json!({"settled": [{"id": 1, "ok": false, "error": error}]}))
        })
    })
    .await;
    let app = Windlass::new(&fake.url).unwrap();
    app.task("t", |n: u32, _: Context| async move { Ok::<_, Error>(n) }).register();
    let worker = app.worker().concurrency(1).start().unwrap();
    fake.until("two reports", |fake| reports(fake).len() == 2).await;
    worker.shutdown().await.unwrap();
    let last = &reports(&fake)[1];
    assert_eq!(
        (&last["outcome"], &last["retry"], &last["token"]),
        (&json!("fail"), &json!(false), &json!(101))
    );
    assert!(last["message"].as_str().unwrap().contains("too large"), "{last}");
}

#[tokio::test]
async fn an_unreachable_server_inside_a_handler_releases_the_run() {
    let fake = worker_server(vec![claimed(1, json!(1))], |_, _| None).await;
    let app = Windlass::new(&fake.url).unwrap();
    app.task("t", |_: u32, _: Context| async move {
        Err::<(), Error>(Error::Unreachable { server: "elsewhere".into(), why: "down".into() })
    })
    .register();
    let worker = app.worker().concurrency(1).start().unwrap();
    fake.until("the report", |fake| reports(fake).len() == 1).await;
    worker.shutdown().await.unwrap();
    assert_eq!(reports(&fake)[0]["outcome"], "release");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_that_finish_together_are_kept_in_one_call() {
    const JOBS: u64 = 50;
    let fake = worker_server((1..=JOBS).map(|id| claimed(id, json!(id))).collect(), |_, seen| {
        let steps = seen.body["steps"].as_array()?;
        let kept: Vec<Value> = steps.iter().map(|step| json!({"name": step["name"], "kept": true})).collect();
        Some(Reply::Json(200, json!({"steps": kept})))
    })
    .await;
    let app = Windlass::new(&fake.url).unwrap();
    app.task("t", |_: u32, ctx: Context| async move {
        let value = |n: u32| move || async move { Ok::<_, Error>(n) };
        let (a, b, c) =
            tokio::join!(ctx.step("a", value(1)), ctx.step("b", value(2)), ctx.step("a", value(3)));
        let d = ctx.step("d", value(4)).await?;
        Ok::<_, Error>([a?, b?, c?, d])
    })
    .version(2)
    .register();
    let worker = app.worker().concurrency(50).start().unwrap();
    fake.until("the reports", |fake| reports(fake).len() as u64 == JOBS).await;
    worker.shutdown().await.unwrap();
    assert!(reports(&fake).iter().all(|report| report["result"] == json!([1, 2, 3, 4])));
    let step = |name: &str, n: u32| (json!(name), json!(n));
    let expected =
        [vec![step("@version", 2), step("a", 1), step("b", 2), step("a#2", 3)], vec![step("d", 4)]];
    for id in 1..=JOBS {
        let calls = fake.seen(&format!("/api/v1/jobs/{id}/steps"));
        assert!(calls.iter().all(|body| body["token"] == 100 + id));
        let calls: Vec<Vec<(Value, Value)>> = calls
            .iter()
            .map(|body| body["steps"].as_array().unwrap().iter())
            .map(|steps| steps.map(|step| (step["name"].clone(), step["result"].clone())).collect())
            .collect();
        assert_eq!(calls, expected);
    }
}

#[tokio::test]
async fn a_step_is_kept_once_though_answers_are_lost() {
    let fake =
        worker_server(vec![claimed(1, json!(1))], |earlier, seen| match (seen.path.as_str(), earlier) {
            (STEPS, 0) => Some(Reply::Lost),
            (STEPS, 1) => Some(Reply::Json(502, json!({}))),
            (STEPS, _) => {
                Some(Reply::Json(200, json!({"steps": [{"name": "charge", "kept": false, "result": 41}]})))
            }
            _ => None,
        })
        .await;
    let app = Windlass::new(&fake.url).unwrap();
    let charged = Arc::new(AtomicUsize::new(0));
    let charge = Arc::clone(&charged);
    app.task("t", move |_: u32, ctx: Context| {
        let charge = Arc::clone(&charge);
        async move {
            ctx.step("charge", || async { Ok::<_, Error>(charge.fetch_add(1, Ordering::SeqCst) + 100) }).await
        }
    })
    .register();
    let worker = app.worker().concurrency(1).start().unwrap();
    fake.until("the report", |fake| reports(fake).len() == 1).await;
    worker.shutdown().await.unwrap();
    assert_eq!(charged.load(Ordering::SeqCst), 1);
    assert_eq!(reports(&fake)[0]["result"], 41, "the kept result counts");
    assert_eq!(fake.seen(STEPS).len(), 3);
}

#[tokio::test]
async fn a_run_without_a_lease_keeps_no_step_and_reports_nothing() {
    let fake = worker_server(vec![claimed(1, json!(1)), claimed(2, json!(2))], |_, seen| {
        (seen.path == STEPS).then(|| Reply::Json(409, refusal("lease_lost")))
    })
    .await;
    let app = Windlass::new(&fake.url).unwrap();
    app.task("t", |n: u32, ctx: Context| async move {
        if n == 1 {
            ctx.step("charge", || async { Ok::<_, Error>(1) }).await?;
        }
        Ok::<_, Error>(n)
    })
    .register();
    let worker = app.worker().concurrency(2).start().unwrap();
    fake.until("the step", |fake| fake.seen(STEPS).len() == 1).await;
    fake.until("a report", |fake| !reports(fake).is_empty()).await;
    worker.shutdown().await.unwrap();
    let ids: Vec<Value> = reports(&fake).iter().map(|report| report["id"].clone()).collect();
    assert_eq!(ids, [json!(2)]);
}

#[tokio::test]
async fn heartbeats_bring_the_cancellation_and_the_loss_of_the_lease() {
    const EXTEND: &str = "/api/v1/extend";
    let fake = worker_server(vec![claimed(1, json!(1)), claimed(2, json!(2))], |_, seen| {
        let entries = seen.body["extend"].as_array().filter(|_| seen.path == EXTEND)?;
        let answer = |entry: &Value| match entry["id"].as_u64() {
            Some(1) => json!({"id": 1, "ok": true, "cancel": true}),
            _ => json!({"id": 2, "ok": false, "error": {"code": "lease_lost", "message": "lost"}}),
        };
        Some(Reply::Json(200, json!({"extended": entries.iter().map(answer).collect::<Vec<_>>()})))
    })
    .await;
    let app = Windlass::new(&fake.url).unwrap();
    app.task("t", |n: u32, ctx: Context| async move {
        match n {
            1 => ctx.cancelled().await,
            _ => std::future::pending().await,
        }
        Err::<(), Error>(Error::Cancelled)
    })
    .register();
    let worker = app.worker().concurrency(2).lease(Duration::from_millis(60)).start().unwrap();
    fake.until("the report", |fake| !reports(fake).is_empty()).await;
    assert_eq!(fake.seen(EXTEND)[0]["extend"].as_array().unwrap().len(), 2, "one call for all jobs");
    // Ends without waiting for the second handler, which is dropped.
    worker.shutdown().await.unwrap();
    let reports = reports(&fake);
    assert_eq!((reports.len(), &reports[0]["id"], &reports[0]["outcome"]), (1, &json!(1), &json!("release")));
}

#[tokio::test]
async fn a_run_is_settled_after_its_last_line_has_arrived() {
    const LOG: &str = "/api/v1/jobs/1/log";
    let fake = worker_server(vec![claimed(1, json!(1))], |_, seen| {
        let late = || Reply::Late(Duration::from_millis(100), json!({"id": 1, "ok": true, "cancel": false}));
        (seen.path == LOG).then(late)
    })
    .await;
    let fake = Arc::new(fake);
    let app = Windlass::new(&fake.url).unwrap();
    let server = Arc::clone(&fake);
    app.task("t", move |_: u32, ctx: Context| {
        let server = Arc::clone(&server);
        async move {
            ctx.log("last words");
            // The line is on its way when the handler ends.
            server.until("the line", |fake| !fake.seen(LOG).is_empty()).await;
            Ok::<_, Error>(())
        }
    })
    .register();
    let worker = app.worker().concurrency(1).start().unwrap();
    fake.until("the report", |fake| reports(fake).len() == 1).await;
    worker.shutdown().await.unwrap();
    let paths = fake.paths();
    let position = |path: &str| paths.iter().position(|seen| seen == path);
    let answered = position("answered").unwrap_or_else(|| panic!("{paths:?}"));
    assert!(Some(answered) < position(SETTLE), "{paths:?}");
    assert_eq!(fake.seen(LOG)[0]["lines"], json!(["last words"]));
}
