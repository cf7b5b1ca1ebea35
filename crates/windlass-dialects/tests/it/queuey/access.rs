//! Authorization and tenants.

use super::{BINARY, Queue, R1};
use crate::support::{Keys, Reply};
use serde_json::json;
use windlass_dialects::auth::Role;
use windlass_dialects::queuey::routes::ROUTES;
use windlass_dialects::route::Access;

async fn call(queue: &Queue, token: Option<&str>, method: &str, path: &str) -> Reply {
    let body = match path {
        "/jobs/create" => json!({ "binary_addr": BINARY }),
        "/jobs/claim" => json!({ "runner_id": R1 }),
        path if path.ends_with("/complete") => json!({"status": "completed"}),
        _ => return queue.server.call_as(token, method, path, "").await,
    };
    queue.server.call_as(token, method, path, &body.to_string()).await
}

#[tokio::test]
async fn every_call_but_ping_asks_for_its_role() {
    let keys = Keys::for_tenants(&["a"]);
    let queue = Queue::serving(keys.options()).await;
    for route in ROUTES {
        let path =
            route.path.replace("{id}", "2d9e3e70-8f61-4c73-9f7d-30207c9eb003").replace("{*addr}", BINARY);
        let needed = match route.access {
            Access::Public => {
                assert_eq!(
                    (path.as_str(), call(&queue, None, route.method, &path).await.status),
                    ("/ping", 200)
                );
                continue;
            }
            Access::From(role) => role,
        };
        assert_eq!(call(&queue, None, route.method, &path).await.status, 401, "{path}");
        for role in Role::ALL {
            let status = call(&queue, Some(keys.of("a", role)), route.method, &path).await.status;
            assert_eq!(status == 403, role < needed, "{path} as {role}: {status}");
        }
    }
}

#[tokio::test]
async fn one_tenants_jobs_are_not_there_for_another() {
    let keys = Keys::for_tenants(&["a", "b"]);
    let queue = Queue::serving(keys.options()).await;
    let (a, b) = (Some(keys.of("a", Role::Operator)), Some(keys.of("b", Role::Operator)));
    let id = call(&queue, a, "POST", "/jobs/create").await.json()["job_id"].as_str().unwrap().to_owned();
    assert_eq!(call(&queue, b, "POST", "/jobs/claim").await.status, 204);
    assert_eq!(call(&queue, a, "POST", "/jobs/claim").await.status, 200);
    // By number, too.
    for id in [id.as_str(), "00000000-0000-8000-8000-000000000001"] {
        for (method, path) in [("GET", ""), ("POST", "/tickle"), ("POST", "/complete")] {
            let path = format!("/jobs/{id}{path}");
            assert_eq!(call(&queue, b, method, &path).await.status, 404, "{path}");
        }
    }
    // A call of another tenant does not detect the abandonment.
    queue.pass_unseen(super::AGE + 1).await;
    assert_eq!(call(&queue, b, "POST", "/jobs/claim").await.status, 204);
    assert_eq!(call(&queue, a, "POST", &format!("/jobs/{id}/complete")).await.status, 200);
    let admin = Some(keys.of("b", Role::Admin));
    assert_eq!(call(&queue, admin, "GET", &format!("/jobs/{id}?tenant=a")).await.status, 200);
    assert_eq!(call(&queue, b, "GET", &format!("/jobs/{id}?tenant=a")).await.status, 403);
}
