//! Failures as an operator meets them: found, understood and acted on, also after a restart.

use crate::server::Server;
use serde_json::{Value, json};

/// Claims a job and fails it with these fields; the state afterwards.
fn fail(server: &Server, fields: Value) -> String {
    let (_, claimed) = server.call("POST", "/api/v1/claim", Some(json!({"worker": "w1"})));
    let job = &claimed["jobs"][0];
    let mut entry = json!({"id": job["id"], "token": job["token"], "outcome": "fail"});
    entry.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let (_, settled) = server.call("POST", "/api/v1/settle", Some(json!({"settle": [entry]})));
    settled["settled"][0]["state"].as_str().unwrap_or_default().to_owned()
}

fn get(server: &Server, path: &str) -> Value {
    let (status, answer) = server.call("GET", path, None);
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

#[test]
fn failures_are_kept_grouped_and_retried_after_a_restart() {
    let mut server = Server::start(&[]);
    for retry in [1, 1, 3] {
        server.call("POST", "/api/v1/jobs", Some(json!({"name": "mail", "queue": "q", "retry": retry})));
    }
    let error =
        json!({"class": "SMTPServerDisconnected", "message": "closed", "backtrace": "a.py:1\nb.py:2"});
    assert_eq!(fail(&server, error.clone()), "failed");
    assert_eq!(fail(&server, json!({"message": "no user 17"})), "failed");
    let mut later = error;
    later["delay_ms"] = json!(3_600_000);
    assert_eq!(fail(&server, later), "retrying");
    server.stop();

    let server = Server::start_in(server.folder(), &[]);
    assert_eq!([1, 2, 3].map(|id| server.state_of(id)), ["failed", "failed", "retrying"]);
    assert_eq!(server.job(3)["errors"][0]["backtrace"], json!(["a.py:1", "b.py:2"]));
    let queue = &get(&server, "/api/v1/queues")["queues"][0];
    assert_eq!((&queue["ready"], &queue["delayed"], &queue["retrying"]), (&json!(0), &json!(0), &json!(1)));
    let found = get(&server, "/api/v1/jobs?search=state:retrying");
    assert_eq!((found["jobs"].as_array().unwrap().len(), &found["jobs"][0]["id"]), (1, &json!(3)));

    let failures = get(&server, "/api/v1/failures");
    let group = &failures["groups"][0];
    assert_eq!(
        (&group["title"], &group["failed"], &group["retrying"]),
        (&json!("SMTPServerDisconnected"), &json!(1), &json!(1))
    );
    assert_eq!(failures["groups"][1]["title"], "no user *", "{failures}");
    let retry = json!({"action": "retry", "search": group["search"]});
    let (_, done) = server.call("POST", "/api/v1/jobs/bulk", Some(retry));
    assert_eq!((&done["done"], &done["next"]), (&json!(2), &Value::Null), "{done}");
    assert_eq!([1, 2, 3].map(|id| server.state_of(id)), ["ready", "failed", "ready"]);
}

#[test]
fn a_deleted_job_comes_back_and_is_still_there_after_a_restart() {
    let mut server = Server::start(&[]);
    server.call("POST", "/api/v1/jobs", Some(json!({"name": "a", "payload": {"x": 1}, "alias": "mine"})));
    let (_, gone) = server.call("DELETE", "/api/v1/jobs/1", None);
    assert!(gone["undo_until"].is_i64(), "{gone}");
    assert_eq!(server.call("POST", "/api/v1/jobs/1/undelete", None).0, 200);
    assert_eq!(
        server.call("POST", "/api/v1/jobs/1/undelete", None).0,
        404,
        "there is nothing left to bring back"
    );
    server.stop();
    let server = Server::start_in(server.folder(), &["--set", "native.undo_delete_s=0"]);
    assert_eq!(get(&server, "/api/v1/aliases/mine")["payload"], json!({"x": 1}));
    let (_, claimed) = server.call("POST", "/api/v1/claim", Some(json!({})));
    assert_eq!(claimed["jobs"][0]["id"], 1);
    server.call("POST", "/api/v1/jobs", Some(json!({"name": "b"})));
    let (_, gone) = server.call("DELETE", "/api/v1/jobs/2", None);
    assert!(gone.get("undo_until").is_none(), "{gone}");
    assert_eq!(server.call("POST", "/api/v1/jobs/2/undelete", None).0, 404);
}
