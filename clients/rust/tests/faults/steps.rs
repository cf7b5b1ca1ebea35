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
