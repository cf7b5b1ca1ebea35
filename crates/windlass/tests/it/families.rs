//! Parents and children, through the real server.

use crate::server::Server;
use serde_json::{Value, json};

/// Claims a job of this name and finishes it.
fn work(server: &Server, name: &str) {
    let (_, claimed) = server.call("POST", "/api/v1/claim", Some(json!({"name": name})));
    finish(server, &claimed["jobs"][0]);
}

fn finish(server: &Server, job: &Value) {
    let end = json!({"id": job["id"], "token": job["token"], "outcome": "finish"});
    let (status, answer) = server.call("POST", "/api/v1/settle", Some(json!({"settle": [end]})));
    assert!(status == 200 && answer["settled"][0]["ok"] == true, "{job} {answer}");
}

#[test]
fn children_can_be_looked_at_after_their_parent_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    server.run(&["push", "parent"]).ok();
    let (_, parent) = server.call("POST", "/api/v1/claim", Some(json!({"name": "parent"})));
    let children = json!({"jobs": [{"name": "child", "parent": 1}, {"name": "child", "parent": 1}]});
    server.call("POST", "/api/v1/jobs", Some(children));
    finish(&server, &parent["jobs"][0]);
    for name in ["child", "child", "parent"] {
        work(&server, name);
    }
    server.stop();
    let server = Server::start_in(folder.path(), &[]);
    assert_eq!(server.state_of(1), "completed");
    assert!(server.run(&["job", "2"]).ok().contains("completed"));
    let (_, listed) = server.call("GET", "/api/v1/jobs/1/children", None);
    let ids: Vec<&Value> = listed["jobs"].as_array().unwrap().iter().map(|job| &job["id"]).collect();
    assert_eq!(ids, [&json!(2), &json!(3)]);
    let (_, family) = server.call("GET", "/api/v1/jobs/1/family", None);
    assert_eq!(family["children"].as_array().map(Vec::len), Some(2), "{family}");
}
