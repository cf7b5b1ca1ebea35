//! Date and lock of this dialect. Claims, leases and guarded commits have their own suites in the store and
//! the engine.

use super::world::{KEEP_MS, LOCK_MS, NOT_RUN, RETRY_MS, World, report, settled};
use serde_json::json;

#[tokio::test]
async fn an_archived_job_has_its_date_a_thousand_years_later_and_is_purged_in_time() {
    let world = World::with("acme", "t").await;
    let id = world.add("acme", "t", "x\n").await.remove(0);
    let job = world.until_code("acme", "t", &id, "ok").await;
    assert_eq!((&job["lock"], &job["dt"]), (&"__done".into(), &"3025-11-15T09:46:40.000Z".into()));
    let archive = world.server.get("/acme/job/t/archive").await.json();
    assert_eq!(archive["jobs"][0]["id"], id.as_str());
    world.later(KEEP_MS - 1);
    settled().await;
    assert_eq!(world.job("acme", "t", &id).await["code"], "ok");
    world.later(1);
    for _ in 0..3_000 {
        if world.server.get(&format!("/acme/job/t/{id}")).await.status == 404 {
            assert_eq!(world.server.get("/acme/job/t/archive").await.json()["jobs"], json!([]));
            assert_eq!(world.fake.payloads(), ["x"], "archived jobs never run");
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it is not purged");
}

#[tokio::test]
async fn the_archive_is_read_page_by_page() {
    let world = World::with("acme", "t").await;
    let ids = world.add("acme", "t", &"x\n".repeat(25)).await;
    for id in &ids {
        world.until_code("acme", "t", id, "ok").await;
    }
    let (mut seen, mut path) = (Vec::new(), "/acme/job/t/archive?limit=10".to_owned());
    loop {
        let page = world.server.get(&path).await.json();
        seen.extend(
            page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_u64() else { break };
        path = format!("/acme/job/t/archive?limit=10&before={next}");
    }
    seen.reverse();
    assert_eq!(seen, ids);
}

#[tokio::test]
async fn waiting_types_are_those_with_a_job_that_could_run_now() {
    let world = World::new().await;
    world.server.get("/stop").await;
    let waiting = async |client: &str| world.server.get(&format!("/{client}/job/waiting")).await.json();
    assert_eq!(waiting("acme").await, json!({}));
    let ids = world.add("acme", "t", "a\nb\n").await;
    world.job("acme", "t", &ids[1]).await;
    let late = world.server.connect().await.call("POST", "/acme/job/late/add?delay=5", &[], b"x\n").await;
    world.job("acme", "late", late.json()["ids"][0].as_str().unwrap()).await;
    let other = world.add("bolt", "t", "c\n").await.remove(0);
    world.job("bolt", "t", &other).await;
    assert_eq!(waiting("acme").await, json!({"t": 2}));
    assert_eq!(waiting("bolt").await, json!({"t": 1}));
    world.later(5_000);
    assert_eq!(waiting("acme").await, json!({"late": 1, "t": 2}));
    world.server.get("/start").await;
    world.until_code("acme", "t", &ids[0], "BAD_HANDLER").await;
    world.until_code("acme", "t", &ids[1], "BAD_HANDLER").await;
    assert!(waiting("acme").await.get("t").is_none(), "put off is not waiting");
    world.fake.hold();
    world.handler("bolt", "u", "{}").await;
    let running = world.add("bolt", "u", "d\n").await.remove(0);
    world.until_started(1).await;
    assert!(waiting("bolt").await.get("u").is_none(), "locked is not waiting");
    world.fake.let_end(1);
    world.until_code("bolt", "u", &running, "ok").await;
    assert!(waiting("bolt").await.get("u").is_none(), "done is not waiting");
}

#[tokio::test]
async fn a_job_that_was_locked_and_not_run_is_free_at_once_and_no_try_of_it_is_used_up() {
    let world = World::with("acme", "t").await;
    let times = std::sync::atomic::AtomicUsize::new(0);
    world.fake.answers(move |_, _| {
        let is_first = times.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        report(if is_first { NOT_RUN } else { 200 })
    });
    let id = world.add("acme", "t", "x\n").await.remove(0);
    // The clock has not moved.
    let job = world.until_code("acme", "t", &id, "ok").await;
    assert_eq!(world.fake.payloads(), ["x", "x"]);
    assert_eq!(job["attempts"], 1);
}

#[tokio::test]
async fn a_retry_is_due_when_the_delay_is_over() {
    let world = World::with("acme", "t").await;
    world.fake.answers(|_, _| report(503));
    let id = world.add("acme", "t", "x\n").await.remove(0);
    let job = world.until_code("acme", "t", &id, "error").await;
    assert_eq!(
        (&job["lock"], &job["dt"]),
        (&"".into(), &"2025-11-15T09:47:00.000Z".into()),
        "{RETRY_MS} ms later"
    );
}

#[tokio::test]
async fn a_lock_that_has_ended_leaves_the_job_free_at_once() {
    let world = World::new().await;
    let claim = r#"{"tenant":"acme","queues":["miniq"],"name":"t","lease_ms":10000,"worker":"other-0000"}"#;
    world.server.get("/stop").await;
    let id = world.add("acme", "t", "x\n").await.remove(0);
    world.job("acme", "t", &id).await;
    let claimed = world.server.post("/api/v1/claim", claim).await.json();
    assert_eq!(claimed["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(world.job("acme", "t", &id).await["lock"], "other-0000");
    world.handler("acme", "t", "{}").await;
    world.server.get("/start").await;
    world.later(LOCK_MS - 1);
    settled().await;
    assert!(world.fake.payloads().is_empty(), "another's lock holds until its end");
    world.fake.hold();
    world.later(1);
    assert_eq!(world.until_started(1).await, ["x"]);
    let held = world.job("acme", "t", &id).await;
    assert_ne!(held["lock"], "other-0000");
    let (number, token) = (&claimed["jobs"][0]["id"], &claimed["jobs"][0]["token"]);
    let late =
        format!(r#"{{"tenant":"acme","settle":[{{"id":{number},"token":{token},"outcome":"finish"}}]}}"#);
    let answer = world.server.post("/api/v1/settle", &late).await.text();
    assert!(answer.contains("error"), "who does not hold the lock changes nothing: {answer}");
    let extend = format!(r#"{{"tenant":"acme","extend":[{{"id":{number},"token":{token}}}]}}"#);
    let answer = world.server.post("/api/v1/extend", &extend).await.text();
    assert!(answer.contains("error"), "nor does a renewal: {answer}");
    assert_eq!(world.job("acme", "t", &id).await, held, "nothing has changed");
    world.fake.let_end(1);
    world.until_code("acme", "t", &id, "ok").await;
}
