//! Libraries and examples of `clients/`, against the real server.

mod gate;
mod python_jq;
mod python_library;
mod python_sidejob;
mod rust_jq;
#[path = "../../../../../clients/rust/tests/server/main.rs"]
mod rust_native;
mod rust_sql;
mod scenarios;
mod typescript;

use crate::jq::call;
use crate::server::{Server, eventually};
use serde_json::Value;

/// Waits until a worker's acceptance of the job is committed; returns the worker's id. The lease names the worker from
/// the delivery on; its time restarts with the acceptance.
fn until_accepted(server: &Server, id: &str) -> String {
    let (_, job) = call(server.http, "GET", &format!("/job/{id}"), "", &Value::Null).unwrap();
    let timeout_ms = 1_000 * job["timeout"].as_i64().unwrap();
    eventually("a worker has accepted the job", || {
        let (_, job) = server.call("GET", &format!("/api/v1/jobs/{id}"), None);
        let lease = &job["lease"];
        let worker = lease["worker"].as_str().filter(|worker| worker.starts_with("w-"))?;
        // The delivery renews the lease from its own time; what the acceptance began is written a moment later.
        let began = lease["until"].as_i64()? - timeout_ms;
        (began < job["updated_at"].as_i64()?).then(|| worker.to_owned())
    })
}
