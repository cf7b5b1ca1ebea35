//! Creating and showing jobs.

use super::{BINARY, INPUT, Queue, R1, START, fields};
use serde_json::{Value, json};

const FIELDS: [&str; 11] = [
    "job_id",
    "id",
    "binary_addr",
    "input_addr",
    "output_addr",
    "status",
    "run_attempts",
    "runner_id",
    "created_at",
    "updated_at",
    "completed_at",
];

#[tokio::test]
async fn s1_s3_s5_a_new_job_is_shown_whole() {
    let queue = Queue::open().await;
    let body = json!({"binary_addr": BINARY, "input_addr": INPUT}).to_string();
    let reply = queue.server.post("/jobs/create", &body).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let job = reply.json();
    let id = job["job_id"].as_str().unwrap();
    assert_eq!(id.len(), 36);
    assert_eq!((&id[14..15], id.to_lowercase().as_str()), ("7", id));
    let expected = json!({
        "job_id": id, "id": id, "binary_addr": BINARY, "input_addr": INPUT, "output_addr": null,
        "status": "pending", "run_attempts": 0, "runner_id": null,
        "created_at": START, "updated_at": START, "completed_at": null,
    });
    assert_eq!(job, expected);
}

#[tokio::test]
async fn s2_the_input_may_be_left_out_or_null() {
    let queue = Queue::open().await;
    for body in [json!({"binary_addr": BINARY}), json!({"binary_addr": BINARY, "input_addr": null})] {
        let reply = queue.server.post("/jobs/create", &body.to_string()).await;
        assert_eq!((reply.status, &reply.json()["input_addr"]), (200, &Value::Null));
    }
}

#[tokio::test]
async fn s4_the_same_addresses_make_two_jobs() {
    let queue = Queue::open().await;
    assert_ne!(queue.create().await, queue.create().await);
}

#[tokio::test]
async fn s6_a_bad_create_is_refused_and_enqueues_nothing() {
    let queue = Queue::open().await;
    for (body, status) in [
        ("{}", 422),
        (r#"{"binary_addr":7}"#, 422),
        (r#"{"binary_addr":null}"#, 422),
        ("[]", 422),
        ("{", 400),
        ("nonsense", 400),
        (r#"{"binary_addr":""}"#, 400),
        (r#"{"binary_addr":"a","input_addr":""}"#, 400),
    ] {
        assert_eq!(queue.server.post("/jobs/create", body).await.status, status, "{body}");
    }
    let good = format!(r#"{{"binary_addr":"{BINARY}"}}"#);
    for headers in
        [&[][..], &[("content-type", "text/plain")], &[("content-type", "application/x-www-form-urlencoded")]]
    {
        let reply = queue.server.connect().await.call("POST", "/jobs/create", headers, good.as_bytes()).await;
        assert_eq!(reply.status, 415, "{headers:?}");
    }
    let reply = queue.server.get("/jobs/create").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    assert_eq!(queue.claimed(super::R1).await, None);
}

#[tokio::test]
async fn s7_unknown_fields_are_ignored() {
    let queue = Queue::open().await;
    let body = json!({"binary_addr": BINARY, "priority": 5, "run_attempts": 7, "status": "failed"});
    let job = queue.server.post("/jobs/create", &body.to_string()).await.json();
    assert_eq!((&job["status"], &job["run_attempts"]), (&json!("pending"), &json!(0)));
}

#[tokio::test]
async fn s8_addresses_are_kept_word_for_word() {
    let queue = Queue::open().await;
    let sha256 = "979F59d88a9ea9a2ce524f679861133cdfb7318570302f3147f129a12f2e9698";
    let sri = "sha256-l59Z2IqeqaLOUk9nmGETPN+3MYVwMC8xR/EpoS8ulpg=";
    for addr in [BINARY, INPUT, sha256, sri, "anything \u{e4}t all \"quoted\" \\ \u{1f6e0}"] {
        let body = json!({"binary_addr": addr, "input_addr": addr});
        let job = queue.server.post("/jobs/create", &body.to_string()).await.json();
        assert_eq!((&job["binary_addr"], &job["input_addr"]), (&json!(addr), &json!(addr)));
        assert_eq!(queue.get(job["job_id"].as_str().unwrap()).await, job);
    }
}

#[tokio::test]
async fn s9_s10_s13_a_job_is_found_by_its_id_in_any_case() {
    let queue = Queue::open().await;
    let body = json!({"binary_addr": BINARY, "input_addr": INPUT}).to_string();
    let made = queue.server.post("/jobs/create", &body).await.json();
    let id = made["job_id"].as_str().unwrap();
    for form in [id.to_owned(), id.to_uppercase(), id.replace('-', "")] {
        let found = queue.get(&form).await;
        assert_eq!(found, made, "{form}");
        let mut names: Vec<&str> = found.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = FIELDS.to_vec();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected);
    }
}

#[tokio::test]
async fn s11_s12_an_unknown_id_is_404_and_one_that_is_no_uuid_400() {
    let queue = Queue::open().await;
    queue.create().await;
    let unknown = queue.server.get("/jobs/2d9e3e70-8f61-4c73-9f7d-30207c9eb003").await;
    assert_eq!((unknown.status, unknown.text().as_str()), (404, "Job does not exist"));
    for id in ["1", "nonsense", "2d9e3e70-8f61-4c73-9f7d-30207c9eb00", "%F0%9F%98%80", "..%2f"] {
        assert_eq!(queue.server.get(&format!("/jobs/{id}")).await.status, 400, "{id}");
    }
}

#[tokio::test]
async fn s14_s15_every_status_is_in_lower_case_and_the_output_is_shown() {
    let queue = Queue::open().await;
    let id = queue.create().await;
    assert_eq!(queue.get(&id).await["status"], "pending");
    queue.claim(super::R1).await;
    assert_eq!(queue.get(&id).await["status"], "active");
    queue.complete(&id, json!({"status": "completed", "output_addr": "there"})).await;
    let job = queue.get(&id).await;
    assert_eq!((&job["status"], &job["output_addr"]), (&json!("completed"), &json!("there")));
    let id = queue.active().await;
    queue.complete(&id, json!({"status": "failed", "output_addr": "why"})).await;
    let job = queue.get(&id).await;
    assert_eq!((&job["status"], &job["output_addr"]), (&json!("failed"), &json!("why")));
}

#[tokio::test]
async fn ping_is_answered() {
    let queue = Queue::open().await;
    let reply = queue.server.get("/ping").await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "pong"));
    let reply = queue.server.post("/ping", "{}").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET")));
}

/// A runner may claim the job before the response, which shows the job as created all the same.
#[tokio::test]
async fn the_answer_to_create_is_the_job_as_it_was_made() {
    let queue = std::sync::Arc::new(Queue::open().await);
    let polling = queue.clone();
    let runner = tokio::spawn(async move {
        let mut client = polling.server.connect().await;
        let ask = json!({ "runner_id": R1 }).to_string();
        let headers = [("content-type", "application/json")];
        loop {
            client.call("POST", "/jobs/claim", &headers, ask.as_bytes()).await;
        }
    });
    for _ in 0..100 {
        let body = json!({"binary_addr": BINARY, "input_addr": INPUT}).to_string();
        let job = queue.server.post("/jobs/create", &body).await.json();
        let shown = fields(&job, ["status", "run_attempts", "runner_id", "updated_at"]);
        assert_eq!(shown, [json!("pending"), json!(0), Value::Null, json!(START)]);
        assert_eq!((&job["binary_addr"], &job["input_addr"]), (&json!(BINARY), &json!(INPUT)));
    }
    runner.abort();
}
