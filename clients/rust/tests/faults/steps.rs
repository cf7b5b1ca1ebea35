//! Steps and children on the wire.

use super::*;

#[tokio::test]
async fn children_are_kept_and_pushed_whatever_the_options_of_their_task() {
    let fake = worker_server(vec![claimed(1, json!(1))], |_, seen| {
        (seen.path == JOBS).then(|| Reply::Json(201, json!({"ids": [7], "existing": []})))
    })
    .await;
    let app = Windlass::new(&fake.url).unwrap();
    let pack = app.declare::<u32, u32>("pack").unique(u32::to_string).keep(Duration::from_secs(1)).register();
    app.task("t", move |n: u32, ctx: Context| {
        let pack = pack.clone();
        async move { ctx.all([pack.call(&n)]).await }
    })
    .register();
    let worker = app.worker().concurrency(1).start().unwrap();
    fake.until("the report", |fake| reports(fake).len() == 1).await;
    worker.shutdown().await.unwrap();
    let child = &fake.seen(JOBS)[0]["jobs"][0];
    assert_eq!((&child["keep"]["completed_ms"], child.get("unique")), (&json!(2_592_000_000_u64), None));
    assert_eq!((&child["parent"], &child["idempotency_key"]), (&json!(1), &json!("1/all/0")));
}

#[tokio::test]
async fn a_run_without_a_lease_begins_no_further_step() {
    let fake = worker_server(vec![claimed(1, json!(1)), claimed(2, json!(2))], |_, seen| {
        (seen.path == STEPS).then(|| Reply::Json(409, refusal("lease_lost")))
    })
    .await;
    let app = Windlass::new(&fake.url).unwrap();
    let refunds = Arc::new(AtomicUsize::new(0));
    let refund = Arc::clone(&refunds);
    app.task("t", move |n: u32, ctx: Context| {
        let refund = Arc::clone(&refund);
        async move {
            if n == 1 && ctx.step("charge", || async { Ok::<_, Error>(1) }).await.is_err() {
                ctx.step("refund", || async { Ok::<_, Error>(refund.fetch_add(1, Ordering::SeqCst)) })
                    .await?;
            }
            Ok::<_, Error>(n)
        }
    })
    .register();
    let worker = app.worker().concurrency(2).start().unwrap();
    fake.until("the step", |fake| fake.seen(STEPS).len() == 1).await;
    fake.until("a report", |fake| !reports(fake).is_empty()).await;
    worker.shutdown().await.unwrap();
    assert_eq!((refunds.load(Ordering::SeqCst), fake.seen(STEPS).len(), reports(&fake).len()), (0, 1, 1));
}

#[tokio::test]
async fn a_step_of_an_ended_run_is_not_tried_again() {
    let fake = Arc::new(worker_server(vec![claimed(1, json!(1))], |_, _| None).await);
    let app = Windlass::new(&fake.url).unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let server = Arc::clone(&fake);
    app.task("t", move |_: u32, ctx: Context| {
        let (server, tell) = (Arc::clone(&server), tell.clone());
        let begun = Arc::new(Semaphore::new(0));
        let first = Arc::clone(&begun);
        // Left behind by the handler.
        tokio::spawn(async move {
            let tries = AtomicUsize::new(0);
            let function = async || {
                tries.fetch_add(1, Ordering::SeqCst);
                first.add_permits(1);
                server.until("the report", |fake| reports(fake).len() == 1).await;
                Err::<(), Error>(Error::Other("busy".into()))
            };
            let error = ctx.step_retry("late", 3, function).backoff(Duration::ZERO).await.unwrap_err();
            tell.send((error.code().to_owned(), tries.load(Ordering::SeqCst))).unwrap();
        });
        async move {
            begun.acquire().await.map_err(|e| Error::Other(e.into()))?.forget();
            Ok::<_, Error>(())
        }
    })
    .register();
    let worker = app.worker().concurrency(1).start().unwrap();
    assert_eq!(told.recv().await.unwrap(), ("lease_lost".to_owned(), 1));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_version_is_sent_until_it_is_kept() {
    let fake = worker_server(vec![claimed(1, json!(1))], |earlier, seen| {
        let steps = seen.body["steps"].as_array().filter(|_| seen.path == STEPS)?;
        let kept: Vec<Value> = steps.iter().map(|step| json!({"name": step["name"], "kept": true})).collect();
        Some(match earlier {
            0 => Reply::Json(413, refusal("payload_too_large")),
            _ => Reply::Json(200, json!({"steps": kept})),
        })
    })
    .await;
    let app = Windlass::new(&fake.url).unwrap();
    app.task("t", |n: u32, ctx: Context| async move {
        let large = ctx.step("large", || async { Ok::<_, Error>(n) }).await;
        assert_eq!(large.unwrap_err().status(), Some(413));
        ctx.step("small", || async { Ok::<_, Error>(n) }).await?;
        ctx.step("more", || async { Ok::<_, Error>(n) }).await?;
        ctx.sleep(Duration::from_secs(1)).await
    })
    .version(2)
    .register();
    let worker = app.worker().concurrency(1).start().unwrap();
    fake.until("the report", |fake| reports(fake).len() == 1).await;
    worker.shutdown().await.unwrap();
    let names = |body: &Value| -> Vec<Value> {
        body["steps"].as_array().unwrap().iter().map(|step| step["name"].clone()).collect()
    };
    let sent: Vec<Vec<Value>> = fake.seen(STEPS).iter().map(names).collect();
    assert_eq!(json!(sent), json!([["@version", "large"], ["@version", "small"], ["more"]]));
    assert_eq!(reports(&fake)[0]["outcome"], "suspend");
}
