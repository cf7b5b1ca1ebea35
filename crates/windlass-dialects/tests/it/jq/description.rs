use super::world::World;
use serde_json::Value;
use windlass_dialects::jq::routes::ROUTES;

#[tokio::test]
async fn the_description_knows_every_call_and_no_other() {
    let world = World::new().await;
    let reply = world.server.get("/jq/openapi.json").await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let document = reply.json();
    let mut described = Vec::new();
    for (path, calls) in document["paths"].as_object().unwrap() {
        let methods = calls.as_object().unwrap().keys().filter(|key| *key != "parameters");
        described.extend(methods.map(|method| format!("{} /jq{path}", method.to_uppercase())));
    }
    let mut routed: Vec<String> =
        ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    described.sort_unstable();
    routed.sort_unstable();
    assert_eq!(described, routed);
    assert!(document["webhooks"]["worker-job"]["post"]["requestBody"].is_object(), "the worker's side");
}

/// Every `$ref` resolves.
#[tokio::test]
async fn nothing_in_the_description_points_nowhere() {
    fn refs<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| refs(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| refs(item, found)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_str(windlass_dialects::jq::openapi::DOCUMENT).unwrap();
    let mut found = Vec::new();
    refs(&document, &mut found);
    assert!(found.len() > 50);
    for target in found {
        let pointer = target.strip_prefix('#').expect("within the document");
        assert!(document.pointer(pointer).is_some(), "{target}");
    }
}

#[test]
fn the_example_of_the_worker_is_what_a_worker_is_sent() {
    let document: Value = serde_json::from_str(windlass_dialects::jq::openapi::DOCUMENT).unwrap();
    let required = document.pointer("/components/schemas/WorkerJob/required").unwrap();
    assert_eq!(*required, serde_json::json!(["id", "job_id", "name", "argument", "timeout", "attempt"]));
}
