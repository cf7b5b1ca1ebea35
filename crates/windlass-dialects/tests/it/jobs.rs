//! Life of a job over HTTP.

use crate::support::TestServer;
use serde_json::{Value, json};

#[tokio::test]
async fn a_timetable_waits_for_its_first_turn_and_an_interval_begins_at_once() {
    // The clock is at a quarter past midnight, on 1 January 1970.
    let (server, _clock) = TestServer::manual().await;
    let three_at_night = 3 * 3_600_000;
    for (job, run_at) in [
        (r#"{"name":"nightly","repeat":"0 3 * * *"}"#, three_at_night),
        (r#"{"name":"tick","repeat":"every 5m"}"#, 1_000_000),
        (r#"{"name":"nightly","repeat":"0 3 * * *","delay_ms":0}"#, 1_000_000),
        (r#"{"name":"nightly","repeat":"0 3 * * *","run_at":2000000}"#, 2_000_000),
    ] {
        let id = server.post("/api/v1/jobs", job).await.json()["id"].clone();
        let view = server.get(&format!("/api/v1/jobs/{id}")).await.json();
        assert_eq!(view["run_at"], json!(run_at), "{job}");
    }
}

#[tokio::test]
async fn a_job_is_pushed_claimed_and_finished() {
    let server = TestServer::open().await;
    let pushed = server.post("/api/v1/jobs", r#"{"name":"mail","payload":{"to":"ann"}}"#).await;
    assert_eq!(pushed.status, 201);
    assert_eq!(pushed.text(), r#"{"ids":[1],"id":1,"existing":[]}"#);

    let claimed = server.post("/api/v1/claim", r#"{"worker":"w1"}"#).await;
    let job = &claimed.json()["jobs"][0];
    assert_eq!(job["payload"], json!({"to":"ann"}));
    assert_eq!((&job["attempt"], &job["name"]), (&json!(1), &json!("mail")));
    let running = server.get("/api/v1/jobs/1").await.json();
    assert_eq!((&running["state"], &running["lease"]["worker"]), (&json!("running"), &json!("w1")));
    assert!(!running.to_string().contains("token"), "the token is for the worker alone");

    let settle = json!({"settle":[{"id":1,"token":job["token"],"outcome":"finish","result":[1,2]}]});
    let settled = server.post("/api/v1/settle", &settle.to_string()).await;
    assert_eq!(settled.text(), r#"{"settled":[{"id":1,"ok":true,"state":"completed"}]}"#);

    let view = server.get("/api/v1/jobs/1").await.json();
    assert_eq!(view["state"], "completed");
    assert_eq!(view["result"], json!([1, 2]));
    let result = server.get("/api/v1/jobs/1/result").await;
    assert_eq!((result.status, result.json()["result"].clone()), (200, json!([1, 2])));
}

#[tokio::test]
async fn a_batch_keeps_its_order_and_says_what_was_there_already() {
    let server = TestServer::open().await;
    let batch = r#"{"jobs":[{"name":"a","unique":"k"},{"name":"b"},{"name":"a","unique":"k"}]}"#;
    let pushed = server.post("/api/v1/jobs", batch).await.json();
    let ids = pushed["ids"].as_array().unwrap();
    assert_eq!(ids[0], ids[2]);
    assert_eq!(pushed["existing"], json!([ids[0]]));
    assert!(pushed.get("id").is_none());
}

#[tokio::test]
async fn a_refused_duplicate_names_the_job_in_the_way() {
    let server = TestServer::open().await;
    let job = r#"{"name":"a","unique":{"key":"k","on_conflict":"refuse"}}"#;
    assert_eq!(server.post("/api/v1/jobs", job).await.status, 201);
    let again = server.post("/api/v1/jobs", job).await;
    assert_eq!((again.status, again.code().as_str()), (409, "duplicate"));
    assert_eq!(again.json()["error"]["id"], 1);
    let batch = format!(r#"{{"jobs":[{{"name":"b"}},{job}]}}"#);
    let partly = server.post("/api/v1/jobs", &batch).await;
    assert_eq!(partly.status, 201);
    let refused = &partly.json()["refused"][0];
    assert_eq!(
        (&refused["index"], &refused["code"], &refused["id"]),
        (&json!(1), &json!("duplicate"), &json!(1))
    );
    assert_eq!(partly.json()["ids"][1], Value::Null);
}

#[tokio::test]
async fn a_thousand_jobs_go_through_in_two_calls() {
    let server = TestServer::open().await;
    let jobs: Vec<Value> = (0..1000).map(|n| json!({"name": "n", "payload": {"n": n}})).collect();
    let pushed = server.post("/api/v1/jobs", &json!({"jobs": jobs}).to_string()).await.json();
    assert_eq!(pushed["ids"].as_array().unwrap().len(), 1000);
    let claimed = server.post("/api/v1/claim", r#"{"limit":1000}"#).await.json();
    let claimed = claimed["jobs"].as_array().unwrap();
    assert_eq!(claimed.len(), 1000);
    assert!(claimed.iter().enumerate().all(|(n, job)| job["payload"]["n"] == n));
    let settle: Vec<Value> = claimed
        .iter()
        .map(|job| json!({"id": job["id"], "token": job["token"], "outcome": "finish"}))
        .collect();
    let settled = server.post("/api/v1/settle", &json!({"settle": settle}).to_string()).await.json();
    assert!(settled["settled"].as_array().unwrap().iter().all(|one| one["ok"] == true));
}

#[tokio::test]
async fn settling_answers_each_entry_for_itself() {
    let server = TestServer::open().await;
    let (id, token) = server.claimed(r#"{"name":"a","retry":2}"#).await;
    let settle = json!({"settle":[
        {"id": id, "token": token + 1, "outcome": "finish"},
        {"id": 999, "token": 1, "outcome": "finish"},
        {"id": id, "token": token, "outcome": "fail", "error": "no", "delay_ms": 60_000},
    ]});
    let settled = server.post("/api/v1/settle", &settle.to_string()).await.json();
    assert_eq!(settled["settled"][0]["error"]["code"], "lease_lost");
    assert_eq!(settled["settled"][1]["error"]["code"], "not_found");
    assert_eq!(settled["settled"][2]["state"], "retrying");
    assert!(settled["settled"][2]["run_at"].is_i64());
    let view = server.get("/api/v1/jobs/1").await.json();
    assert_eq!(view["errors"][0]["message"], "no");
    assert_eq!(view["waiting_for"], "due");
}

#[tokio::test]
async fn heartbeats_lengthen_the_lease_report_and_hear_of_cancellation() {
    let (server, clock) = TestServer::manual().await;
    let (id, token) = server.claimed(r#"{"name":"a","lease_ms":1000}"#).await;
    clock.advance(500);
    let beat =
        json!({"extend":[{"id":id,"token":token,"lease_ms":2000,"progress":40,"note":"page 4"}]}).to_string();
    let extended = server.post("/api/v1/extend", &beat).await.json();
    assert_eq!(extended, json!({"extended":[{"id":1,"ok":true,"lease_until":1_002_500,"cancel":false}]}));
    let view = server.get("/api/v1/jobs/1").await.json();
    assert_eq!(view["progress"], json!({"percent": 40, "note": "page 4"}));
    assert_eq!(server.post("/api/v1/jobs/1/cancel", "").await.status, 200);
    let extended = server.post("/api/v1/extend", &beat).await.json();
    assert_eq!(extended["extended"][0]["cancel"], true);
    let wrong = json!({"extend":[{"id":id,"token":1}]}).to_string();
    let lost = server.post("/api/v1/extend", &wrong).await.json();
    assert_eq!(lost["extended"][0]["error"]["code"], "lease_lost");
    let over = json!({"extend":[{"id":id,"token":token,"progress":101}]}).to_string();
    assert_eq!(server.post("/api/v1/extend", &over).await.status, 400);
}

#[tokio::test]
async fn a_job_can_be_changed_run_cancelled_retried_and_deleted() {
    let server = TestServer::open().await;
    let job = r#"{"name":"a","delay_ms":600000,"tags":["x"],"alias":"mine","repeat":"every 5m"}"#;
    server.post("/api/v1/jobs", job).await;
    let patch = r#"{"priority":-5,"payload":{"n":1},"queue":"q","tags":["y","z"],"repeat":null}"#;
    let patched = server.call("PATCH", "/api/v1/jobs/1", patch).await.json();
    assert_eq!((&patched["priority"], &patched["payload"]["n"]), (&json!(-5), &json!(1)));
    assert_eq!((&patched["queue"], &patched["tags"]), (&json!("q"), &json!(["y", "z"])));
    assert!(patched.get("repeat").is_none());
    assert_eq!(server.get("/api/v1/aliases/mine").await.json()["id"], 1);
    assert_eq!(server.get("/api/v1/aliases/other").await.status, 404);

    let run = server.post("/api/v1/jobs/1/run", "").await.json();
    assert!(run["run_at"].as_i64() <= run["updated_at"].as_i64());
    assert_eq!(server.post("/api/v1/jobs/1/cancel", "{}").await.json()["state"], "cancelled");
    let again = server.post("/api/v1/jobs/1/cancel", "").await;
    assert_eq!((again.status, again.code().as_str()), (409, "settled"));
    assert_eq!(server.post("/api/v1/jobs/1/retry", "").await.json()["state"], "ready");
    let gone = server.call("DELETE", "/api/v1/jobs/1", "").await;
    assert_eq!((&gone.json()["id"], &gone.json()["state"]), (&json!(1), &json!("gone")));
    assert_eq!(server.get("/api/v1/jobs/1").await.status, 404);
}

#[tokio::test]
async fn a_result_can_be_waited_for() {
    let server = TestServer::open().await;
    let (id, token) = server.claimed(r#"{"name":"a","keep":{"completed_ms":0}}"#).await;
    let early = server.get("/api/v1/jobs/1/result").await;
    assert_eq!((early.status, early.json()["state"].clone()), (202, json!("running")));
    let mut waiting = server.connect().await;
    waiting.send("GET", "/api/v1/jobs/1/result?wait_ms=20000", &[], b"").await;
    let settle =
        json!({"settle":[{"id":id,"token":token,"outcome":"finish","result":"done","message":"ok"}]});
    // The test cannot observe the start of the wait; the pause gives the server time for it.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    server.post("/api/v1/settle", &settle.to_string()).await;
    let reply = waiting.reply("GET").await.unwrap();
    assert_eq!((reply.status, reply.json()["result"].clone()), (200, json!("done")));
    assert_eq!(server.get("/api/v1/jobs/1/result").await.status, 404, "it was not to be kept");
}

#[tokio::test]
async fn children_are_found_by_their_parent() {
    let server = TestServer::open().await;
    let (id, token) = server.claimed(r#"{"name":"parent"}"#).await;
    assert_eq!(
        server.post("/api/v1/jobs", &format!(r#"{{"name":"child","parent":{id}}}"#)).await.status,
        201
    );
    let children = server.get("/api/v1/jobs/1/children").await.json();
    assert_eq!(children["jobs"][0]["parent"], id);
    assert_eq!(children["jobs"][0]["state"], "waiting");
    let settle = json!({"settle":[{"id":id,"token":token,"outcome":"finish"}]});
    server.post("/api/v1/settle", &settle.to_string()).await;
    assert_eq!(server.get("/api/v1/jobs/1").await.json()["waiting_for"], "children 1");
    let orphan = server.post("/api/v1/jobs", r#"{"name":"child","parent":77}"#).await;
    assert_eq!((orphan.status, orphan.code().as_str()), (404, "no_parent"));
}

#[tokio::test]
async fn settled_children_keep_to_their_own_keep_times_whatever_becomes_of_their_parent() {
    for (parent_keep, links) in [("{}", true), (r#"{"completed_ms":0}"#, false)] {
        let (server, clock) = TestServer::manual().await;
        let (id, token) = server.claimed(&format!(r#"{{"name":"parent","keep":{parent_keep}}}"#)).await;
        let child = format!(r#"{{"name":"child","parent":{id},"keep":{{"completed_ms":60000}}}}"#);
        assert_eq!(server.post("/api/v1/jobs", &child).await.status, 201);
        let finish = async |id: &Value, token: &Value| {
            let settle = json!({"settle":[{"id":id,"token":token,"outcome":"finish"}]}).to_string();
            server.post("/api/v1/settle", &settle).await;
        };
        finish(&json!(id), &json!(token)).await;
        for _ in ["child", "parent, once more"] {
            let job = server.post("/api/v1/claim", "{}").await.json()["jobs"][0].clone();
            finish(&job["id"], &job["token"]).await;
        }
        let shown = server.get("/api/v1/jobs/2").await.json();
        assert_eq!((&shown["state"], shown["parent"].is_u64()), (&json!("completed"), links));
        let listed = server.get("/api/v1/jobs/1/children").await;
        match links {
            true => assert_eq!(listed.json()["jobs"][0]["id"], 2),
            false => assert_eq!(listed.status, 404, "the parent was not to be kept"),
        }
        clock.advance(60_001);
        server.engine.catch_up().await.unwrap();
        assert_eq!(server.get("/api/v1/jobs/2").await.status, 404);
    }
}

#[tokio::test]
async fn a_list_is_filtered_and_paged() {
    let server = TestServer::open().await;
    for n in 0..5 {
        let job = json!({"name": format!("mail.{n}"), "queue": "q", "payload": {"n": n}, "tags": [format!("t{n}")]});
        server.post("/api/v1/jobs", &job.to_string()).await;
    }
    server.post("/api/v1/jobs", r#"{"name":"other"}"#).await;
    let ids = async |query: &str| {
        let page = server.get(&format!("/api/v1/jobs{query}")).await.json();
        let ids: Vec<u64> =
            page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect();
        (ids, page["next"].as_str().map(str::to_owned))
    };
    assert_eq!(ids("").await.0, [6, 5, 4, 3, 2, 1]);
    assert_eq!(ids("?queue=q&name=mail.*&state=ready").await.0, [5, 4, 3, 2, 1]);
    assert_eq!(ids("?tag=t3").await.0, [4]);
    assert_eq!(ids("?q=%7B%22n%22%3A2%7D").await.0, [3]);
    assert_eq!(ids("?state=completed,failed").await.0, [0; 0]);
    let (first, next) = ids("?limit=4").await;
    assert_eq!(first, [6, 5, 4, 3]);
    let (rest, end) = ids(&format!("?limit=4&cursor={}", next.unwrap())).await;
    assert_eq!((rest, end), (vec![2, 1], None));
    assert_eq!(server.get("/api/v1/jobs?state=odd").await.status, 400);
    assert_eq!(server.get("/api/v1/jobs?stat=ready").await.status, 400);
    assert_eq!(server.get("/api/v1/jobs?limit=x").await.status, 400);
}

#[tokio::test]
async fn claims_choose_by_queue_name_and_priority() {
    let server = TestServer::open().await;
    let jobs = r#"{"jobs":[{"name":"a","queue":"x"},{"name":"b","queue":"y"},{"name":"c","queue":"y","priority":5},
        {"name":"d","queue":"z"}]}"#;
    server.post("/api/v1/jobs", jobs).await;
    let claim = async |body: &str| {
        let jobs = server.post("/api/v1/claim", body).await.json();
        let names: Vec<String> = jobs["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["name"].as_str().unwrap().to_owned())
            .collect();
        names.join(",")
    };
    assert_eq!(claim(r#"{"queues":["y"],"priority":5}"#).await, "c");
    assert_eq!(claim(r#"{"name":"[ab]","limit":5}"#).await, "a,b");
    assert_eq!(claim(r#"{"queue":"x"}"#).await, "");
    assert_eq!(claim(r#"{"names":["d","e"]}"#).await, "d");
    assert_eq!(server.post("/api/v1/claim", r#"{"name":"a","names":["b"]}"#).await.status, 400);
}

#[tokio::test]
async fn every_call_on_a_job_takes_its_alias() {
    let server = TestServer::open().await;
    server.post("/api/v1/jobs", r#"{"name":"a","alias":"order 7/b","delay_ms":60000}"#).await;
    let path = "/api/v1/jobs/order%207%2Fb";
    assert_eq!(server.get(path).await.json()["id"], 1);
    assert_eq!(server.call("PATCH", path, r#"{"priority":4}"#).await.json()["priority"], 4);
    for (below, state) in [("/run", "ready"), ("/cancel", "cancelled"), ("/retry", "ready")] {
        assert_eq!(server.post(&format!("{path}{below}"), "").await.json()["state"], state, "{below}");
    }
    for below in ["/children", "/family"] {
        assert_eq!(server.get(&format!("{path}{below}")).await.status, 200, "{below}");
    }
    assert_eq!(server.get(&format!("{path}/result")).await.status, 202);
    assert_eq!(server.call("DELETE", path, "").await.json()["id"], 1);
    assert_eq!(server.get(path).await.status, 404);
    // A number is an id, even if another job has it as its alias.
    server.post("/api/v1/jobs", r#"{"jobs":[{"name":"b"},{"name":"c","alias":"2"}]}"#).await;
    assert_eq!(server.get("/api/v1/jobs/2").await.json()["name"], "b");
    assert_eq!(server.get("/api/v1/aliases/2").await.json()["name"], "c");
}

#[tokio::test]
async fn a_clone_is_a_job_of_its_own_with_the_same_work() {
    let server = TestServer::open().await;
    let original = json!({
        "name": "mail", "queue": "out", "payload": {"to": "ann"}, "priority": 3, "retry": 2, "tags": ["vip"],
        "alias": "first", "unique": "k", "repeat": "every 5m", "lease_ms": 5_000,
    });
    server.post("/api/v1/jobs", &original.to_string()).await;
    let cloned = server.post("/api/v1/jobs/1/clone", "").await;
    assert_eq!((cloned.status, cloned.json()["id"].as_u64()), (201, Some(2)), "{}", cloned.text());
    let job = server.get("/api/v1/jobs/2").await.json();
    for key in ["name", "queue", "payload", "priority", "tags"] {
        assert_eq!(job[key], original[key], "{key}");
    }
    assert_eq!((&job["max_attempts"], &job["attempts"]), (&json!(2), &json!(0)));
    for key in ["alias", "unique", "repeat", "parent"] {
        assert_eq!(job[key], Value::Null, "{key}");
    }
    let changes = r#"{"payload":{"to":"bob"},"queue":"later","delay_ms":60000,"priority":-1}"#;
    assert_eq!(server.post("/api/v1/jobs/first/clone", changes).await.json()["id"], 3);
    let job = server.get("/api/v1/jobs/3").await.json();
    assert_eq!((&job["payload"], &job["queue"]), (&json!({"to": "bob"}), &json!("later")));
    assert_eq!(job["priority"], -1);
    assert!(job["run_at"].as_i64() >= job["created_at"].as_i64().map(|at| at + 60_000), "{job}");
}

#[tokio::test]
async fn retry_starts_a_completed_job_again() {
    let server = TestServer::open().await;
    let (id, token) = server.claimed(r#"{"name":"a","retry":1}"#).await;
    let settle = json!({"settle":[{"id":id,"token":token,"outcome":"finish","result":1}]});
    server.post("/api/v1/settle", &settle.to_string()).await;
    let again = server.post(&format!("/api/v1/jobs/{id}/retry"), "").await.json();
    assert_eq!((&again["state"], &again["attempts"]), (&json!("ready"), &json!(0)));
    let job = server.post("/api/v1/claim", r#"{"name":"a"}"#).await.json()["jobs"][0].clone();
    assert_eq!((&job["id"], &job["attempt"]), (&json!(id), &json!(1)));
}
