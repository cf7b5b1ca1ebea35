//! Refusals that say nothing about the job: its outcome, its steps and its attempts must not suffer.

use super::*;

/// Statuses of a server that is full, slow, or does not know the worker for a while.
const PASSING: [u16; 4] = [507, 408, 401, 403];

#[tokio::test]
async fn a_refusal_that_is_not_about_a_report_keeps_it() {
    for is_long_poll in [false, true] {
        let fake = worker_server(vec![claimed(1, json!(1))], |earlier, seen| {
            let status = PASSING.get(earlier).filter(|_| seen.path == SETTLE)?;
            Some(Reply::Json(*status, refusal("x")))
        })
        .await;
        let fake = Arc::new(fake);
        let app = Windlass::new(&fake.url).unwrap();
        let server = Arc::clone(&fake);
        app.task("t", move |n: u32, _: Context| {
            let server = Arc::clone(&server);
            async move {
                if is_long_poll {
                    server.until("the long poll", |fake| fake.seen(CLAIM).len() == 2).await;
                }
                Ok::<_, Error>(n)
            }
        })
        .register();
        let worker = app.worker().concurrency(2).start().unwrap();
        fake.until("the accepted report", |fake| reports(fake).len() == PASSING.len() + 1).await;
        worker.shutdown().await.unwrap();
        let reports = reports(&fake);
        let is_same = |report: &Value| report["outcome"] == "finish" && report["result"] == 1;
        assert!(reports.iter().all(is_same), "{reports:?}");
        assert_eq!(reports.len(), PASSING.len() + 1);
    }
}

#[tokio::test]
async fn a_report_that_is_too_large_fails_its_own_job_only() {
    let fake = worker_server(vec![claimed(1, json!(1)), claimed(2, json!(2))], |_, seen| {
        let entries = seen.body["settle"].as_array().filter(|_| seen.path == SETTLE)?;
        let is_large = entries.iter().any(|entry| entry["result"] == 1);
        is_large.then(|| Reply::Json(413, refusal("payload_too_large")))
    })
    .await;
    let app = Windlass::new(&fake.url).unwrap();
    app.task("t", |n: u32, _: Context| async move { Ok::<_, Error>(n) }).register();
    let worker = app.worker().concurrency(2).start().unwrap();
    let failures = |fake: &Fake| reports(fake).into_iter().filter(|entry| entry["outcome"] == "fail");
    fake.until("the failure", |fake| failures(fake).count() == 1).await;
    worker.shutdown().await.unwrap();
    assert_eq!(failures(&fake).next().unwrap()["id"], 1);
    assert!(reports(&fake).iter().any(|entry| entry["id"] == 2 && entry["outcome"] == "finish"));
}

#[tokio::test]
async fn a_full_server_ends_no_worker_and_no_step() {
    let fake =
        worker_server(vec![claimed(1, json!(1))], |earlier, seen| match (seen.path.as_str(), earlier) {
            (CLAIM | STEPS, 0) => Some(Reply::Json(507, refusal("full"))),
            (CLAIM, 1) => Some(Reply::Json(200, json!({"jobs": [claimed(1, json!(1))]}))),
            (STEPS, _) => Some(Reply::Json(200, json!({"steps": [{"name": "charge", "kept": true}]}))),
            _ => None,
        })
        .await;
    let app = Windlass::new(&fake.url).unwrap();
    app.task("t", |n: u32, ctx: Context| async move {
        ctx.step("charge", || async { Ok::<_, Error>(n + 1) }).await
    })
    .register();
    let worker = app.worker().concurrency(1).start().unwrap();
    fake.until("the report", |fake| reports(fake).len() == 1).await;
    worker.shutdown().await.unwrap();
    assert_eq!((&reports(&fake)[0]["result"], fake.seen(STEPS).len()), (&json!(2), 2));
}

#[tokio::test]
async fn a_busy_server_inside_a_handler_releases_the_run() {
    let fake = worker_server(vec![claimed(1, json!(1))], |_, _| None).await;
    let app = Windlass::new(&fake.url).unwrap();
    app.task("t", |_: u32, ctx: Context| async move {
        let busy = Error::Refused { status: 503, code: "busy".into(), message: "busy".into() };
        ctx.step("push", || async { Err::<(), Error>(busy) }).await
    })
    .register();
    let worker = app.worker().concurrency(1).start().unwrap();
    fake.until("the report", |fake| reports(fake).len() == 1).await;
    worker.shutdown().await.unwrap();
    assert_eq!(reports(&fake)[0]["outcome"], "release");
}

#[tokio::test]
async fn calls_with_an_effect_each_time_are_not_repeated_after_a_lost_answer() {
    let fake = Fake::start(|earlier, _| match earlier {
        0 => Reply::Json(503, refusal("busy")),
        1 => Reply::Lost,
        _ => Reply::Json(202, json!({"id": 1, "woken": true})),
    })
    .await;
    let job = |id| Windlass::new(&fake.url).unwrap().job::<()>(id);
    let calls = |path: &str| fake.seen(path).len();
    let lost =
        [job(1).signal("go", &1).await.map(drop), job(2).retry().await, job(3).retry_from("charge").await];
    for result in lost {
        assert!(matches!(result, Err(Error::Unreachable { .. })), "{result:?}");
    }
    let unrepeated = ["/api/v1/jobs/1/signal/go", "/api/v1/jobs/2/retry", "/api/v1/jobs/3/retry"].map(calls);
    assert_eq!(unrepeated, [2; 3], "repeated after the 503 only");
    job(4).cancel().await.unwrap();
    assert_eq!(calls("/api/v1/jobs/4/cancel"), 3, "a second cancellation has no effect");
}
