use super::world::*;
use crate::stores::Kind;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use windlass_dialects::jq::{FixedWorker, Settings};
use windlass_http::Allowed;

#[tokio::test]
async fn every_registration_is_a_worker_of_its_own() {
    let world = World::new().await;
    let (one, two) = (world.worker(1).await, world.worker(1).await);
    assert!(!one.id.is_empty() && one.id != two.id);
}

#[tokio::test]
async fn a_worker_needs_a_name_and_places() {
    let world = World::new().await;
    for bad in [
        json!({"max_jobs": 1}),
        json!({"name": "w"}),
        json!({"name": "w", "max_jobs": 0}),
        json!({"name": "w", "max_jobs": -1}),
        json!({"name": "w", "max_jobs": 1.5}),
        json!({"name": "w", "max_jobs": 1, "url": "https://localhost:1"}),
        json!({"name": "w", "max_jobs": 1, "url": "localhost:1"}),
    ] {
        let answer = world.call("POST", "/worker", &bad).await;
        assert_eq!((answer.status(), answer.error().as_str()), (400, "bad_request"), "{bad}");
    }
}

#[tokio::test]
async fn a_worker_may_only_be_where_the_server_may_call() {
    let world = World::new().await;
    for url in ["http://192.0.2.1:80", "http://169.254.169.254/latest", "http://[2001:db8::1]:9"] {
        let answer = world.call("POST", "/worker", &json!({"name": "w", "max_jobs": 1, "url": url})).await;
        assert_eq!(answer.status(), 400, "{url}");
        assert!(answer.value()["message"].as_str().unwrap().contains("may not call"), "{:?}", answer.value());
    }
    let nowhere = Settings { addresses: Arc::new(Allowed::parse([]).unwrap()), ..Settings::default() };
    let world = World::with(nowhere).await;
    let worker = FakeWorker::listen().await;
    let body = json!({"name": "w", "max_jobs": 1, "url": worker.url()});
    assert_eq!(world.call("POST", "/worker", &body).await.status(), 400);
}

#[tokio::test]
async fn a_worker_that_says_only_its_port_is_where_it_called_from() {
    let world = World::new().await;
    let mut worker = FakeWorker::listen().await;
    let body = json!({"name": "w", "max_jobs": 1, "port": worker.addr.port()});
    assert_eq!(world.call("POST", "/worker", &body).await.status(), 201);
    let id = world.enqueue(json!({})).await;
    assert_eq!(worker.next_id().await, id);
}

#[tokio::test]
async fn jobs_wait_for_a_worker_and_it_gets_them_as_it_comes() {
    let world = World::new().await;
    let ids = [world.enqueue(json!({})).await, world.enqueue(json!({})).await];
    assert_eq!(world.status(&ids[0]).await, "queued");
    let mut worker = world.worker(5).await;
    assert_eq!(HashSet::from_iter(worker.next_ids(2).await), HashSet::from(ids));
}

#[tokio::test]
async fn a_worker_never_has_more_than_it_takes() {
    let world = World::new().await;
    let mut worker = world.worker(2).await;
    for _ in 0..5 {
        world.enqueue(json!({})).await;
    }
    let mut running = worker.next_ids(2).await;
    worker.is_left_alone().await;
    for left in (0..3).rev() {
        let ended = running.remove(0);
        world.succeed(&worker.id, &ended, Value::Null).await;
        // A repeated report frees no second slot.
        world.succeed(&worker.id, &ended, Value::Null).await;
        running.push(worker.next_id().await);
        if left > 0 {
            worker.is_left_alone().await;
        }
    }
}

#[tokio::test]
async fn every_job_goes_to_one_worker() {
    let world = World::new().await;
    let (mut one, mut two) = (world.worker(8).await, world.worker(8).await);
    let count = 200;
    for _ in 0..count {
        world.enqueue(json!({})).await;
    }
    let mut seen = HashSet::new();
    let mut by_worker = [0, 0];
    while seen.len() < count {
        let (which, given, id) = tokio::select! {
            given = one.next() => (0, given, one.id.clone()),
            given = two.next() => (1, given, two.id.clone()),
        };
        assert!(seen.insert(given.id().to_owned()), "job {} was delivered twice", given.id());
        by_worker[which] += 1;
        world.succeed(&id, given.id(), Value::Null).await;
    }
    assert!(by_worker.iter().all(|given| *given > count / 10), "both have something to do: {by_worker:?}");
}

#[tokio::test]
async fn a_kind_of_job_one_worker_does_not_know_goes_to_another() {
    let world = World::new().await;
    let mut knows_mail = world.worker(1).await;
    knows_mail.answers(|given| if given.value["name"] == "mail" { 202 } else { 404 });
    let other = world.enqueue(json!({"name": "other"})).await;
    let mail = world.enqueue(json!({"name": "mail", "priority": 9})).await;
    assert_eq!(knows_mail.next_id().await, mail, "what nobody takes is passed by");
    let job = world.until(&other, "queued").await;
    assert_eq!((&job["retry_count"], &job["worker_id"]), (&json!(0), &Value::Null));
    let mut knows_all = world.worker(1).await;
    let given = knows_all.next().await;
    assert_eq!((given.id(), &given.value["attempt"]), (other.as_str(), &json!(1)));
    knows_mail.is_left_alone().await;
}

#[tokio::test]
async fn a_worker_in_trouble_loses_nothing_and_another_gets_the_job() {
    let world = World::new().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let broken = world.worker(1).await;
    broken.answers(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        503
    });
    let id = world.enqueue(json!({})).await;
    let mut sound = world.worker(1).await;
    assert_eq!(sound.next_id().await, id);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "the one in trouble rests meanwhile");
    assert_eq!(world.job(&id).await["retry_count"], 0);

    let deaf = world.worker(9).await;
    deaf.hang_up();
    let id = world.enqueue(json!({})).await;
    world.succeed(&sound.id, "1", Value::Null).await;
    assert_eq!(sound.next_id().await, id);
    assert_eq!(world.job(&id).await["retry_count"], 0);
}

#[tokio::test]
async fn a_worker_that_cannot_be_reached_three_times_is_gone_and_its_jobs_have_failed() {
    let world = World::new().await;
    let mut worker = world.worker(9).await;
    // Time passes during deliveries; no job may time out by that.
    let running = world.enqueue(json!({"max_retry": 0, "timeout": 86_400})).await;
    worker.next_id().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    worker.answers(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        500
    });
    let waiting = world.enqueue(json!({"timeout": 86_400})).await;
    // The pause counts from the moment the server gets the answer, slightly after the worker gave it.
    while asked.load(Ordering::SeqCst) < 3 {
        world.pass(100);
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let job = world.until(&running, "error").await;
    assert_eq!((&job["reason"], &job["worker_id"]), (&json!("other"), &json!(worker.id)));
    assert!(job["message"].as_str().unwrap().contains("lost"));
    assert_eq!(world.until(&waiting, "queued").await["retry_count"], 0);
    let body = json!({"job_id": waiting, "type": "success"});
    assert_eq!(world.done(&worker.id, body).await, 404, "it has to register again");
}

#[tokio::test]
async fn a_slow_worker_does_not_hold_up_the_others() {
    let world = World::real(Settings::default()).await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let body = json!({"name": "silent", "max_jobs": 20, "url": url});
    assert_eq!(world.call("POST", "/worker", &body).await.status(), 201);
    let mut quick = world.worker(50).await;
    let started = std::time::Instant::now();
    for _ in 0..40 {
        world.enqueue(json!({})).await;
    }
    quick.next_ids(20).await;
    assert!(started.elapsed().as_secs() < 4, "while the silent one has not even answered");
    // After five seconds without an answer its jobs go to the fast worker, too, at their first attempt.
    let late = quick.next().await;
    assert_eq!(late.value["attempt"], 1);
    drop(silent);
}

#[tokio::test]
async fn a_job_the_worker_refuses_has_failed_once() {
    let world = World::new().await;
    let worker = world.worker(1).await;
    worker.answers(|_| 400);
    let id = world.enqueue(json!({"max_retry": 0})).await;
    let job = world.until(&id, "error").await;
    assert_eq!((&job["reason"], &job["worker_id"]), (&json!("other"), &json!(worker.id)));
    let id = world.enqueue(json!({"max_retry": 1})).await;
    assert_eq!(world.until(&id, "retrying").await["retry_count"], 1);
}

#[tokio::test]
async fn a_worker_that_leaves_gets_nothing_more_and_what_it_had_is_tried_again() {
    let world = World::new().await;
    let mut leaving = world.worker(1).await;
    let id = world.enqueue(json!({})).await;
    leaving.next_id().await;
    let leave = async |id: &str| world.call_as(Some(id), "DELETE", "/worker", &Value::Null).await.status();
    assert_eq!(leave(&leaving.id).await, 204);
    assert_eq!(leave(&leaving.id).await, 404);
    assert_eq!(leave("w-nobody").await, 404);
    let answer = world.call("DELETE", "/worker", &Value::Null).await;
    assert_eq!((answer.status(), answer.error().as_str()), (400, "bad_request"));
    let job = world.until(&id, "retrying").await;
    assert_eq!((&job["reason"], &job["retry_count"]), (&json!("other"), &json!(1)));
    let mut staying = world.worker(1).await;
    world.pass(1_100);
    assert_eq!(staying.next_id().await, id);
    leaving.is_left_alone().await;
}

/// Lets a worker that took over an address detect calls meant for another.
#[tokio::test]
async fn a_call_says_which_worker_it_means() {
    let world = World::new().await;
    let mut worker = world.worker(1).await;
    world.enqueue(json!({})).await;
    assert_eq!(worker.next().await.worker.as_ref(), Some(&worker.id));
}

#[tokio::test]
async fn a_worker_that_drains_ends_what_it_has_and_is_gone_then() {
    let world = World::new().await;
    let mut leaving = world.worker(2).await;
    let has = world.enqueue(json!({})).await;
    leaving.next_id().await;
    let id = leaving.id.clone();
    let drain = async |how: &str| {
        world.call_as(Some(&id), "DELETE", &format!("/worker?drain={how}"), &Value::Null).await
    };
    assert_eq!(drain("maybe").await.error(), "bad_request");
    assert_eq!(drain("true").await.status(), 204);
    assert_eq!(drain("true").await.status(), 204, "it is there until it has ended what it has");
    let next = world.enqueue(json!({})).await;
    leaving.is_left_alone().await;
    let ping = async || world.call_as(Some(&id), "POST", "/worker/ping", &Value::Null).await.status();
    assert_eq!(ping().await, 204);
    world.succeed(&id, &has, Value::Null).await;
    let job = world.job(&has).await;
    assert_eq!((&job["status"], &job["retry_count"]), (&json!("done"), &json!(0)));
    while !world.server.engine.notes("jq/worker/").await.unwrap().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(ping().await, 404);
    let mut staying = world.worker(1).await;
    assert_eq!(staying.next_id().await, next);
    assert_eq!(drain("true").await.status(), 404);
    let idle = world.worker(1).await;
    let answer = world.call_as(Some(&idle.id), "DELETE", "/worker?drain=true", &Value::Null).await;
    assert_eq!(answer.status(), 204);
    let answer = world.call_as(Some(&idle.id), "POST", "/worker/ping", &Value::Null).await;
    assert_eq!(answer.status(), 404, "who has nothing is gone at once");
}

#[tokio::test]
async fn who_works_may_push_as_well() {
    let world = World::new().await;
    let mut worker = world.worker(1).await;
    let first = world.enqueue(json!({"name": "first"})).await;
    worker.next_id().await;
    let body = packed(&job(json!({"name": "second"})));
    let headers = [("content-type", MSGPACK), ("worker-id", worker.id.as_str())];
    assert_eq!(world.send("POST", "/job", &headers, &body).await.status(), 201);
    world.succeed(&worker.id, &first, Value::Null).await;
    assert_eq!(worker.next().await.value["name"], "second");
}

#[tokio::test]
async fn who_has_once_pinged_has_to_go_on() {
    let world = World::new().await;
    let (mut pinging, mut silent) = (world.worker(1).await, world.worker(1).await);
    let ping = async |id: &str| world.call_as(Some(id), "POST", "/worker/ping", &Value::Null).await.status();
    assert_eq!(ping(&pinging.id).await, 204);
    assert_eq!(ping("w-nobody").await, 404);
    let ids = [world.enqueue(json!({"timeout": 600})).await, world.enqueue(json!({"timeout": 600})).await];
    let theirs = pinging.next_id().await;
    silent.next_id().await;
    world.pass(9_000);
    assert_eq!(ping(&pinging.id).await, 204);
    world.pass(9_000);
    assert_eq!(ping(&pinging.id).await, 204);
    world.pass(10_000);
    assert_eq!(world.until(&theirs, "retrying").await["reason"], "other");
    assert_eq!(ping(&pinging.id).await, 404);
    let other = ids.iter().find(|id| **id != theirs).unwrap();
    assert_eq!(world.status(other).await, "running", "who never pinged need not");
}

#[tokio::test]
async fn workers_may_stand_in_the_configuration() {
    let mut worker = FakeWorker::listen().await;
    let line = format!("mailer {} 2", worker.url());
    let settings = Settings { workers: vec![FixedWorker::parse(&line).unwrap()], ..Settings::default() };
    let world = World::with(settings).await;
    let id = world.enqueue(json!({})).await;
    assert_eq!(worker.next_id().await, id);
    world.succeed("mailer", &id, Value::Null).await;
    for bad in ["mailer", "mailer http://a", "mailer http://a 0", "mailer ftp://a 1", "mailer http://a x"] {
        FixedWorker::parse(bad).unwrap_err();
    }
}

#[tokio::test]
async fn connections_to_a_worker_are_kept() {
    let world = World::new().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let body = json!({"name": "counts", "max_jobs": 1, "url": url});
    let worker = world.call("POST", "/worker", &body).await.value()["worker_id"].as_str().unwrap().to_owned();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let (tell, mut given) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            counted.fetch_add(1, Ordering::SeqCst);
            let tell = tell.clone();
            let app = axum::Router::new().fallback(move || {
                tell.send(()).unwrap();
                std::future::ready(axum::http::StatusCode::ACCEPTED)
            });
            let service = hyper_util::service::TowerToHyperService::new(app);
            let io = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
        }
    });
    for _ in 0..20 {
        let id = world.enqueue(json!({})).await;
        given.recv().await.unwrap();
        world.succeed(&worker, &id, Value::Null).await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn thousands_of_workers_share_the_work() {
    let world = World::new().await;
    let mut worker = FakeWorker::listen().await;
    let mut ids = Vec::new();
    // Each registration costs a database some milliseconds.
    let count = if Kind::chosen() == Kind::Memory { 3_000 } else { 300 };
    for _ in 0..count {
        worker.register(&world, 1).await;
        ids.push(worker.id.clone());
    }
    for _ in 0..count + 100 {
        world.enqueue(json!({})).await;
    }
    let first = worker.next_ids(count).await;
    worker.is_left_alone().await;
    let mut at = HashSet::new();
    for id in &first[..100] {
        let holder = world.job(id).await["worker_id"].as_str().unwrap().to_owned();
        assert!(at.insert(holder.clone()), "one place each");
        world.succeed(&holder, id, Value::Null).await;
    }
    worker.next_ids(100).await;
}

#[tokio::test]
async fn a_worker_can_be_quieted_woken_and_let_go_from_outside() {
    let world = World::new().await;
    let mut worker = world.worker(2).await;
    let name = worker.id.clone();
    let registered = async || world.server.get("/api/v1/workers").await.json()["registered"].clone();
    let act =
        async |what: &str| world.server.post(&format!("/api/v1/workers/{name}/{what}"), "").await.status;
    let expected = json!([{"worker": worker.id, "tenant": "default", "dialect": "jq", "address": worker.addr.to_string(),
        "slots": 2, "running": 0, "quiet": false, "fixed": false}]);
    assert_eq!(registered().await, expected);
    assert_eq!(act("quiet").await, 200);
    assert_eq!(registered().await[0]["quiet"], true);
    let id = world.enqueue(json!({})).await;
    worker.is_left_alone().await;
    assert_eq!(act("wake").await, 200);
    assert_eq!(worker.next_id().await, id);
    world.until_written(&id, &worker.id).await;
    assert_eq!(act("dismiss").await, 200);
    assert_eq!((registered().await, act("dismiss").await), (json!([]), 404));
    assert_ne!(world.status(&id).await, "running");
}
