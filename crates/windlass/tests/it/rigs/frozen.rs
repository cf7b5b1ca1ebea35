//! Worker that is suspended for longer than its lease.

use crate::server::{Server, ended, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::process::Stdio;

#[test]
fn a_worker_that_wakes_up_after_its_lease_cannot_finish_the_job() {
    let server = Server::start(&[]);
    let id = server.call("POST", "/api/v1/jobs", Some(json!({ "name": "slow" }))).1["id"].as_u64().unwrap();
    let mut frozen = server
        .command(&["work", "slow", "--once", "--lease", "1s", "--worker", "frozen", "--", "sh", "-c"])
        .arg("sleep 0.3; echo '\"late\"'")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the first worker has it", || (server.job(id)["lease"]["worker"] == "frozen").then_some(()));
    kill_process(Pid::from_child(&frozen), Signal::STOP).unwrap();
    let claim = json!({ "name": "slow", "wait_ms": 10_000, "lease_ms": 60_000, "worker": "second" });
    let claimed = server.call("POST", "/api/v1/claim", Some(claim)).1;
    let token = claimed["jobs"][0]["token"].clone();
    assert_eq!(claimed["jobs"][0]["attempt"], 2, "{claimed}");
    kill_process(Pid::from_child(&frozen), Signal::CONT).unwrap();
    ended(&mut frozen);
    let job = server.job(id);
    assert_eq!((&job["state"], &job["lease"]["worker"]), (&json!("running"), &json!("second")), "{job}");
    let finish = json!({ "settle": [{ "id": id, "token": token, "outcome": "finish", "result": "mine" }] });
    assert_eq!(server.call("POST", "/api/v1/settle", Some(finish)).1["settled"][0]["ok"], true);
    assert_eq!(server.job(id)["result"], "mine");
}

#[test]
fn a_late_finish_is_refused_even_if_nobody_else_has_the_job() {
    let server = Server::start(&[]);
    server.call("POST", "/api/v1/jobs", Some(json!({ "name": "slow", "retry": 5 })));
    let claim = json!({ "name": "slow", "lease_ms": 20 });
    let claimed = server.call("POST", "/api/v1/claim", Some(claim)).1;
    let (id, token) = (claimed["jobs"][0]["id"].clone(), claimed["jobs"][0]["token"].clone());
    eventually("the lease has ended", || (server.state_of(1) == "ready").then_some(()));
    for outcome in ["finish", "fail", "release"] {
        let late = json!({ "settle": [{ "id": id, "token": token, "outcome": outcome }] });
        let answer = server.call("POST", "/api/v1/settle", Some(late)).1;
        assert_eq!(answer["settled"][0]["error"]["code"], "lease_lost", "{answer}");
    }
    let late = json!({ "extend": [{ "id": id, "token": token, "lease_ms": 60_000 }] });
    let answer = server.call("POST", "/api/v1/extend", Some(late)).1;
    assert_eq!(answer["extended"][0]["error"]["code"], "lease_lost", "{answer}");
    assert_eq!(server.state_of(1), "ready");
}
