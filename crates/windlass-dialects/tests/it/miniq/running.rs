//! Ends of runs, and their effects.

use super::world::{
    GIVE_UP_MS, LOCK_MS, RETRY_MS, Setup, World, eventually, one_after_another, report, settled, with_result,
};
use bytes::Bytes;
use std::time::Duration;
use windlass_dialects::runners::{PrintedJob, Report};

fn new_job(jobtype: &str, payload: impl Into<Bytes>) -> PrintedJob {
    PrintedJob { jobtype: jobtype.to_owned(), payload: payload.into() }
}

#[tokio::test]
async fn an_exit_code_says_whether_a_job_is_over() {
    let world = World::with("acme", "t").await;
    world.fake.answers(|payload, _| report(payload.parse().unwrap()));
    let cases = [
        ("200", "ok", "ok", "__done"),
        ("250", "ok", "ok", "__done"),
        ("404", "failed", "failed", "__done"),
        ("500", "error", "error", ""),
        ("599", "error", "error", ""),
        ("100", "retry", "retry", ""),
        ("301", "retry", "retry", ""),
    ];
    let payloads: Vec<&str> = cases.iter().map(|case| case.0).collect();
    let ids = world.add("acme", "t", &payloads.join("\n")).await;
    for (id, (payload, code, status, lock)) in ids.iter().zip(cases) {
        let job = world.until_code("acme", "t", id, code).await;
        assert_eq!((&job["status"], &job["lock"]), (&status.into(), &lock.into()), "{payload}");
        assert_eq!(job["exitcode"].to_string(), payload);
    }
    world.later(RETRY_MS);
    let mut again = world.until_started(cases.len() + 4).await.split_off(cases.len());
    again.sort_unstable();
    assert_eq!(again, ["100", "301", "500", "599"], "those that are not over, and no others");
}

#[tokio::test]
async fn a_retry_comes_when_the_delay_is_over_and_not_before() {
    let world = World::with("acme", "t").await;
    world.fake.answers(one_after_another(&[500, 500, 200]));
    let id = world.add("acme", "t", "x\n").await.remove(0);
    for n in 1..3 {
        world.until_put_off("acme", "t", &id, n).await;
        world.later(RETRY_MS - 1);
        settled().await;
        assert_eq!(world.fake.payloads().len(), n);
        world.later(1);
    }
    world.until_code("acme", "t", &id, "ok").await;
    world.later(10 * RETRY_MS);
    settled().await;
    assert_eq!(world.fake.payloads().len(), 3, "exactly as often as it took");
}

#[tokio::test]
async fn a_job_that_fails_until_its_time_is_over_is_archived_as_timeout() {
    let world = World::with("acme", "t").await;
    world.fake.answers(|_, _| Report { code: "ECONNREFUSED".to_owned(), ..report(500) });
    let id = world.add("acme", "t", "x\n").await.remove(0);
    let tries = (GIVE_UP_MS / RETRY_MS) as usize + 1;
    for n in 1..tries {
        world.until_put_off("acme", "t", &id, n).await;
        assert_eq!(world.job("acme", "t", &id).await["code"], "ECONNREFUSED");
        world.later(RETRY_MS);
    }
    let job = world.until_code("acme", "t", &id, "timeout").await;
    assert_eq!(
        (&job["lock"], &job["exitcode"], &job["status"]),
        (&"__done".into(), &500.into(), &"failed".into())
    );
    // Same state through the native API.
    let native = world.server.get(&format!("/api/v1/aliases/{id}?tenant=acme")).await.json();
    assert_eq!((&native["state"], &native["code"]), (&"failed".into(), &"timeout".into()), "{native}");
    world.later(10 * RETRY_MS);
    settled().await;
    assert_eq!(world.fake.payloads().len(), tries);
}

#[tokio::test]
async fn while_a_job_runs_its_lock_moves_on_and_nobody_else_has_it() {
    let world = World::with("acme", "t").await;
    world.fake.hold();
    let id = world.add("acme", "t", "x\n").await.remove(0);
    world.until_started(1).await;
    let first = world.job("acme", "t", &id).await;
    assert_eq!(first["lock"].as_str().unwrap(), id[8..15].to_owned(), "the sysid: {first}");
    assert_eq!(first["dt"], "2025-11-15T09:46:50.000Z", "{LOCK_MS} ms after it was started");
    let mut last = first["dt"].as_str().unwrap().to_owned();
    for _ in 0..9 {
        world.later(LOCK_MS / 3 + 1);
        let mut now = last.clone();
        for _ in 0..3_000 {
            now = world.job("acme", "t", &id).await["dt"].as_str().unwrap().to_owned();
            if now > last {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(now > last, "{now} after {last}");
        last = now;
    }
    assert_eq!(world.fake.payloads(), ["x"], "three locks long, and no second run");
    world.fake.let_end(1);
    world.until_code("acme", "t", &id, "ok").await;
}

#[tokio::test]
async fn a_batch_has_jobs_of_one_client_and_one_type() {
    let world = Setup { rooms: 1, ..Setup::default() }.start().await;
    for (client, jobtype) in [("acme", "t"), ("acme", "u"), ("bolt", "t")] {
        world.handler(client, jobtype, "{}").await;
        world.add(client, jobtype, &format!("{client}.{jobtype}\n").repeat(25)).await;
    }
    world.until_started(75).await;
    for batch in world.fake.batches() {
        let (name, payloads) = batch.split_once(": ").unwrap();
        assert!(payloads.split(' ').all(|payload| payload == name.replace('/', ".")), "{batch}");
        assert!(payloads.split(' ').count() <= 10, "{batch}");
    }
}

#[tokio::test]
async fn a_batch_is_no_larger_than_its_handler_wants() {
    let world = World::new().await;
    world.handler("acme", "t", "{\"batchSize\":3}").await;
    world.add("acme", "t", &"x\n".repeat(20)).await;
    world.until_started(20).await;
    assert!(world.fake.batches().iter().all(|batch| batch.matches('x').count() <= 3));
}

#[tokio::test]
async fn jobs_that_a_job_asks_for_are_jobs_of_the_same_client() {
    let world = World::with("acme", "t").await;
    world.handler("acme", "child", "{}").await;
    world.fake.answers(|payload, _| {
        let new = [("child", "c1"), ("bolt-t", "not bolt's"), ("bad/type", "x"), ("child", "c2")];
        let new_jobs = match payload {
            "parent" => new.map(|(jobtype, payload)| new_job(jobtype, payload)).to_vec(),
            _ => Vec::new(),
        };
        Report { new_jobs, ..report(200) }
    });
    world.add("acme", "t", "parent\n").await;
    world.until_started(3).await;
    // The last of them has no handler; its first attempt fails, then it waits.
    let mut waiting = serde_json::Value::Null;
    for _ in 0..3_000 {
        waiting = world.server.get("/acme/job/waiting").await.json();
        if waiting == serde_json::json!({}) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(waiting, serde_json::json!({}));
    let mut batches = world.fake.batches();
    batches.sort_unstable();
    assert_eq!(batches.join("\n").matches("acme/child").count(), batches.len() - 1);
    let of_acme = world.server.get("/api/v1/jobs?tenant=acme&queue=miniq").await.json();
    let names: Vec<&str> =
        of_acme["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"bolt-t"), "a type with a dash is a type of its own client: {names:?}");
    let of_bolt = world.server.get("/api/v1/jobs?tenant=bolt").await.json();
    assert_eq!(of_bolt["jobs"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn jobs_that_cannot_be_made_are_told_of_in_the_log_of_the_job_that_asked_for_them() {
    let world = World::with("acme", "t").await;
    world.fake.answers(|payload, _| {
        let wrong: &[&str] = match payload {
            "few" => &["bad/type", "bad/type", ",", "large"],
            _ => &["a/", "b/", "c/", "d/", "e/", "f/", "g/", "h/", "i/", "j/", "k/", "l/"],
        };
        let new = |jobtype: &&str| match *jobtype {
            "large" => new_job(jobtype, vec![b'x'; (16 << 20) + 1]),
            _ => new_job(jobtype, "x"),
        };
        let times = if payload == "few" { 1 } else { 2 };
        let new_jobs = wrong.repeat(times).iter().map(new).collect();
        Report { new_jobs, log: Bytes::from("its own words"), ..report(200) }
    });
    let ids = world.add("acme", "t", "few\nmany\n").await;
    let few = world.until_code("acme", "t", &ids[0], "ok").await;
    let lines: Vec<&str> = few["log"].as_str().unwrap().lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, "its own words"), "{lines:?}");
    assert!(
        lines[1].starts_with("windlass: 2 jobs were not created: invalid job type")
            && lines[1].contains("bad/type")
    );
    assert!(lines[2].starts_with("windlass: 1 job was not created: invalid job type"), "{lines:?}");
    assert!(
        lines[3].contains("a payload of 16777217 bytes is too large; the maximum is 16777216"),
        "{lines:?}"
    );
    let many = world.until_code("acme", "t", &ids[1], "ok").await;
    let lines: Vec<&str> = many["log"].as_str().unwrap().lines().collect();
    assert_eq!((lines.len(), lines[21]), (22, "windlass: 4 more jobs were not created"), "{lines:?}");
    // The web UI and the command line read the same log.
    let native = world.server.get(&format!("/api/v1/aliases/{}?tenant=acme", ids[0])).await.json();
    assert!(native["log"]["lines"][1]["text"].as_str().unwrap().contains("bad/type"), "{native}");
}

#[tokio::test]
async fn a_result_is_kept_and_can_be_waited_for() {
    let world = World::with("acme", "t").await;
    world.fake.answers(|payload, _| Report {
        log: Bytes::from("said\nthis\n"),
        ..with_result(&payload.to_uppercase())
    });
    let id = world.add("acme", "t", "abc\n").await.remove(0);
    let reply = world.server.get(&format!("/acme/job/t/{id}/result?wait=30")).await;
    assert_eq!((reply.status, reply.text()), (200, "ABC".to_owned()));
    assert_eq!((reply.header("x-code"), reply.header("x-exitcode")), (Some("ok"), Some("200")));
    let job = world.job("acme", "t", &id).await;
    assert_eq!(
        (&job["result"], &job["log"], &job["resultBytes"]),
        (&"ABC".into(), &"said\nthis".into(), &3.into())
    );
    let native = world.server.get(&format!("/api/v1/aliases/{id}?tenant=acme")).await.json();
    assert_eq!(native["exit_code"], 200);
    assert!(native["log"].to_string().contains("said"), "{native}");
}

#[tokio::test]
async fn a_result_of_sixteen_megabytes_is_kept() {
    let world = World::with("acme", "t").await;
    world.fake.answers(|_, _| Report { result: Bytes::from(vec![b'r'; 16 << 20]), ..report(200) });
    let id = world.add("acme", "t", "x\n").await.remove(0);
    let reply = world.server.get(&format!("/acme/job/t/{id}/result?wait=30")).await;
    assert_eq!((reply.status, reply.body.len()), (200, 16 << 20));
    let job = world.job("acme", "t", &id).await;
    assert_eq!((&job["resultBytes"], job.get("result")), (&(16 << 20).into(), None));
}

#[tokio::test]
async fn a_result_of_more_is_an_error_of_the_run_and_the_job_is_not_stuck() {
    let world = World::with("acme", "t").await;
    world.handler("acme", "t", "{\"next\":\"second\"}").await;
    world.fake.answers(|payload, attempt| match (payload, attempt) {
        ("x", 1) => Report {
            result: Bytes::from(vec![b'r'; (16 << 20) + 1]),
            new_jobs: vec![new_job("third", "each time")],
            ..report(200)
        },
        _ => with_result("small"),
    });
    let ids = world.add("acme", "t", "x\ny\n").await;
    let large = world.until_code("acme", "t", &ids[0], "TOO_MUCH").await;
    let third = world.server.get("/acme/job/third/archive").await.json();
    let waiting = world.server.get("/acme/job/waiting").await.json();
    assert!(third["jobs"] == serde_json::json!([]) && waiting.get("third").is_none(), "{third} {waiting}");
    assert_eq!((&large["lock"], &large["exitcode"]), (&"".into(), &500.into()), "{large}");
    assert!(large["message"].as_str().unwrap().contains("16777217 bytes"), "{large}");
    world.until_code("acme", "t", &ids[1], "ok").await;
    world.later(RETRY_MS);
    world.until_code("acme", "t", &ids[0], "ok").await;
}

#[tokio::test]
async fn a_result_before_the_end_is_not_there_yet() {
    let world = World::with("acme", "t").await;
    world.fake.hold();
    let id = world.add("acme", "t", "x\n").await.remove(0);
    world.until_started(1).await;
    assert_eq!(world.server.get(&format!("/acme/job/t/{id}/result")).await.status, 202);
    world.fake.let_end(1);
    assert_eq!(world.server.get(&format!("/acme/job/t/{id}/result?wait=30")).await.status, 200);
    assert_eq!(world.server.get("/acme/job/t/1234567-vm-0000-000/result").await.status, 404);
}

#[tokio::test]
async fn a_job_that_ends_well_is_followed_by_the_next_with_its_result() {
    let world = World::new().await;
    world.handler("acme", "first", "{\"next\":\"second\"}").await;
    world.handler("acme", "second", "{}").await;
    world.fake.answers(|payload, _| match payload {
        "fails" => Report { result: Bytes::from("nothing"), ..report(400) },
        "lines" => with_result("two\nlines\n"),
        other => with_result(&format!("{other}!\n")),
    });
    world.add("acme", "first", "a\nfails\nlines\n").await;
    world.until_started(5).await;
    settled().await;
    let mut followed: Vec<String> = world
        .fake
        .batches()
        .iter()
        .filter_map(|batch| batch.strip_prefix("acme/second: ").map(str::to_owned))
        .collect();
    followed.sort_unstable();
    assert_eq!(
        followed.join(" ").replace('\n', "/").split(' ').collect::<std::collections::BTreeSet<_>>(),
        ["a!", "two/lines"].into_iter().collect()
    );
}

#[tokio::test]
async fn a_job_that_is_cancelled_while_it_runs_is_stopped() {
    let world = World::with("acme", "t").await;
    world.fake.hold();
    let id = world.add("acme", "t", "x\n").await.remove(0);
    world.until_started(1).await;
    let number = world.server.get(&format!("/api/v1/aliases/{id}?tenant=acme")).await.json()["id"].clone();
    let reply = world.server.post(&format!("/api/v1/jobs/{number}/cancel?tenant=acme"), "{}").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    world.later(LOCK_MS / 3 + 1);
    let job = world.until_code("acme", "t", &id, "cancelled").await;
    assert_eq!(job["lock"], "__done");
    assert_eq!(world.fake.stopped(), ["x"]);
}

#[tokio::test]
async fn jobs_by_another_door_are_run_by_handlers_too() {
    let world = World::with("acme", "t").await;
    let push = r#"{"tenant":"acme","queue":"miniq","name":"t","payload":"native"}"#;
    assert_eq!(world.server.post("/api/v1/jobs", push).await.status, 201);
    eventually("it is run", || world.fake.payloads() == ["\"native\""]).await;
}
