//! Reports during the long poll of a claim.

use super::*;
use std::time::Instant;
use tokio::sync::mpsc;

const EXTEND: &str = "/api/v1/extend";

/// Worker with the task `t`, whose runs end when the long poll is open. The receiver gets the payload of each run
/// as it starts.
fn start_worker(
    fake: &Arc<Fake>,
    lease: Duration,
) -> (windlass_client::Worker, mpsc::UnboundedReceiver<u32>) {
    let app = Windlass::new(&fake.url).unwrap();
    let (tell, started) = mpsc::unbounded_channel();
    let server = Arc::clone(fake);
    app.task("t", move |n: u32, _: Context| {
        let (server, tell) = (Arc::clone(&server), tell.clone());
        async move {
            tell.send(n).map_err(|e| Error::Other(e.into()))?;
            server.until("the long poll", |fake| fake.seen(CLAIM).len() >= 2).await;
            Ok::<_, Error>(n)
        }
    })
    .register();
    (app.worker().concurrency(2).lease(lease).start().unwrap(), started)
}

#[tokio::test]
async fn a_claimed_job_starts_while_a_report_is_on_its_way() {
    let fake =
        worker_server(vec![claimed(1, json!(1))], |earlier, seen| match (seen.path.as_str(), earlier) {
            (CLAIM, 1) => {
                Some(Reply::Late(Duration::from_millis(200), json!({"jobs": [claimed(2, json!(2))]})))
            }
            (SETTLE, 0) => Some(Reply::Hang),
            _ => None,
        })
        .await;
    let fake = Arc::new(fake);
    let (worker, mut started) = start_worker(&fake, Duration::from_secs(3_600));
    let second = async { (started.recv().await, started.recv().await) };
    let second = tokio::time::timeout(Duration::from_secs(10), second).await;
    assert_eq!(second.expect("not started"), (Some(1), Some(2)));
    assert_eq!(fake.seen(SETTLE).len(), 1, "the report has no answer");
    drop(worker);
}

#[tokio::test]
async fn the_long_poll_goes_on_after_a_failed_report() {
    let fake = worker_server(vec![claimed(1, json!(1))], |earlier, seen| {
        (seen.path == SETTLE && earlier < 2).then(|| Reply::Json(503, refusal("busy")))
    })
    .await;
    let fake = Arc::new(fake);
    let (worker, _started) = start_worker(&fake, Duration::from_secs(30));
    fake.until("the accepted report", |fake| reports(fake).len() == 3).await;
    assert_eq!(fake.seen(CLAIM).len(), 2);
    let is_claiming = fake.seen(SETTLE).iter().any(|body| body.get("claim").is_some());
    assert!(!is_claiming, "the first claim is still open");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_keeps_its_lease_until_its_report_has_arrived() {
    let fake = worker_server(vec![claimed(1, json!(1))], |earlier, seen| {
        if seen.path == EXTEND {
            return Some(Reply::Json(200, json!({"extended": [{"id": 1, "ok": true}]})));
        }
        (seen.path == SETTLE && earlier == 0).then_some(Reply::Hang)
    })
    .await;
    let fake = Arc::new(fake);
    let begin = Instant::now();
    let (worker, _started) = start_worker(&fake, Duration::from_millis(300));
    fake.until("a heartbeat after the report", |fake| {
        let paths = fake.paths();
        let reported = paths.iter().position(|path| path == SETTLE);
        reported.is_some_and(|at| paths[at..].iter().any(|path| path == EXTEND))
    })
    .await;
    let last = fake.seen(EXTEND).pop().unwrap();
    assert_eq!((&last["extend"][0]["id"], &last["extend"][0]["token"]), (&json!(1), &json!(101)));
    fake.until("the second report", |fake| reports(fake).len() == 2).await;
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "a report has a third of the lease, at least a second"
    );
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_is_refused_for_good_ends_when_its_leases_have_expired() {
    let fake = worker_server(vec![claimed(1, json!(1))], |earlier, seen| {
        let is_first = seen.path == CLAIM && earlier == 0;
        (!is_first).then(|| Reply::Json(401, refusal("unauthorized")))
    })
    .await;
    let fake = Arc::new(fake);
    let (worker, _started) = start_worker(&fake, Duration::from_millis(300));
    fake.until("a repeated report", |fake| reports(fake).len() > 1).await;
    let ended = tokio::time::timeout(Duration::from_secs(10), worker.shutdown()).await;
    assert_eq!(ended.expect("still waiting").unwrap_err().status(), Some(401));
}
