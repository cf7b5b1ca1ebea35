//! The OpenAPI document is true.

use crate::support::TestServer;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use windlass_dialects::native::calls::CALLS;

#[tokio::test]
async fn the_description_lists_exactly_the_routes() {
    let server = TestServer::open().await;
    let document = server.get("/api/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            described.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let served: BTreeSet<String> =
        CALLS.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(described, served);
}

#[tokio::test]
async fn every_call_field_and_reference_is_described() {
    let document = TestServer::open().await.get("/api/openapi.json").await.json();
    let mut ids = BTreeSet::new();
    for methods in document["paths"].as_object().unwrap().values() {
        for operation in methods.as_object().unwrap().values() {
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{operation}");
            assert!(operation["summary"].is_string() && operation["description"].is_string());
            for parameter in operation["parameters"].as_array().unwrap() {
                assert_ne!(parameter["description"], "", "{parameter} of {}", operation["operationId"]);
            }
        }
    }
    walk(&document, &document);
}

fn walk(document: &Value, part: &Value) {
    if let Some(reference) = part.get("$ref").and_then(Value::as_str) {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
    }
    if let (Some("object"), Some(fields)) = (part["type"].as_str(), part["properties"].as_object()) {
        for (name, field) in fields {
            let described =
                field.get("description").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
            assert!(described || field.get("$ref").is_some(), "{name} in {part}");
        }
    }
    match part {
        Value::Object(fields) => fields.values().for_each(|value| walk(document, value)),
        Value::Array(items) => items.iter().for_each(|value| walk(document, value)),
        _ => {}
    }
}

/// Validates a value against a schema: the part of JSON Schema that the document uses.
pub(crate) fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return fits(document, document.pointer(&reference[1..]).unwrap(), value);
    }
    if let Some(shapes) = schema.get("anyOf").and_then(Value::as_array) {
        let misfits: Vec<String> =
            shapes.iter().filter_map(|shape| fits(document, shape, value).err()).collect();
        return if misfits.len() < shapes.len() { Ok(()) } else { Err(misfits.join(" and ")) };
    }
    let fits_type = match schema["type"].as_str() {
        None if schema.get("type").is_some() => return Err(format!("{} is no type", schema["type"])),
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some(other) => return Err(format!("unknown type {other}")),
    };
    if !fits_type {
        return Err(format!("{value} is no {}", schema["type"]));
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array).filter(|words| !words.contains(value)) {
        return Err(format!("{value} is none of {words:?}"));
    }
    within_bounds(schema, value)?;
    if let Some((items, shape)) = value.as_array().zip(schema.get("items")) {
        items.iter().try_for_each(|item| fits(document, shape, item))?;
    }
    value.as_object().map_or(Ok(()), |fields| fields_fit(document, schema, fields))
}

fn within_bounds(schema: &Value, value: &Value) -> Result<(), String> {
    let size = match value {
        Value::String(text) => Some(text.len() as f64),
        Value::Array(items) => Some(items.len() as f64),
        _ => value.as_f64(),
    };
    for (least, most) in [("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems")] {
        if size.zip(schema[least].as_f64()).is_some_and(|(size, least)| size < least)
            || size.zip(schema[most].as_f64()).is_some_and(|(size, most)| size > most)
        {
            return Err(format!("{value} is not from {} to {}", schema[least], schema[most]));
        }
    }
    Ok(())
}

fn fields_fit(document: &Value, schema: &Value, fields: &Map<String, Value>) -> Result<(), String> {
    for required in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(required.as_str().unwrap()) {
            return Err(format!("{required} is missing in {fields:?}"));
        }
    }
    for (name, field) in fields {
        let other = schema.get("additionalProperties").unwrap_or(&Value::Bool(true));
        match schema["properties"].get(name).unwrap_or(other) {
            Value::Bool(true) => {}
            Value::Bool(false) => return Err(format!("{name} is not described")),
            shape => fits(document, shape, field).map_err(|e| format!("{name}: {e}"))?,
        }
    }
    Ok(())
}

/// Requests: method, path, path in the document, body, status. `TOKEN` is the lease token of job 1.
fn described_calls() -> Vec<(&'static str, &'static str, &'static str, String, u16)> {
    let full = json!({
        "name": "mail", "queue": "q", "payload": {"a": 1}, "priority": 3, "retry": 2, "lease_ms": 60_000,
        "alias": "x", "tags": ["t"], "unique": {"key": "k", "on_conflict": "refuse"}, "repeat": "every 5m",
    });
    vec![
        ("POST", "/api/v1/jobs", "/api/v1/jobs", full.to_string(), 201),
        ("POST", "/api/v1/jobs", "/api/v1/jobs", full.to_string(), 409),
        ("POST", "/api/v1/jobs", "/api/v1/jobs", format!(r#"{{"jobs":[{full},{{"name":"b"}}]}}"#), 201),
        ("GET", "/api/v1/jobs", "/api/v1/jobs", String::new(), 200),
        ("GET", "/api/v1/jobs/1", "/api/v1/jobs/{id}", String::new(), 200),
        ("POST", "/api/v1/claim", "/api/v1/claim", r#"{"queue":"q","worker":"w"}"#.into(), 200),
        ("GET", "/api/v1/jobs/1", "/api/v1/jobs/{id}", String::new(), 200),
        ("POST", "/api/v1/extend", "/api/v1/extend", r#"{"extend":[{"id":1,"token":TOKEN,"progress":5,"note":"n"},{"id":9,"token":1}]}"#.into(), 200),
        ("POST", "/api/v1/jobs/1/log", "/api/v1/jobs/{id}/log", r#"{"token":TOKEN,"lines":["one","two"],"source":"stderr"}"#.into(), 200),
        ("POST", "/api/v1/jobs/1/log", "/api/v1/jobs/{id}/log", r#"{"token":1,"lines":["late"]}"#.into(), 409),
        ("POST", "/api/v1/jobs/1/steps", "/api/v1/jobs/{id}/steps", r#"{"token":TOKEN,"steps":[{"name":"s","result":{"a":1},"started_at":5}]}"#.into(), 200),
        ("POST", "/api/v1/jobs/1/steps", "/api/v1/jobs/{id}/steps", r#"{"token":1,"name":"s"}"#.into(), 409),
        ("POST", "/api/v1/jobs/1/signal/go", "/api/v1/jobs/{id}/signal/{name}", r#"{"any":1}"#.into(), 202),
        ("GET", "/api/v1/jobs/1", "/api/v1/jobs/{id}", String::new(), 200),
        ("GET", "/api/v1/jobs/1/result", "/api/v1/jobs/{id}/result", String::new(), 202),
        ("POST", "/api/v1/settle", "/api/v1/settle", r#"{"settle":[{"id":1,"token":TOKEN,"outcome":"fail","error":{"a":1},"message":"m","code":"c","exit_code":1,"delay_ms":5,"class":"E","backtrace":["a","b"]},{"id":9,"token":1,"outcome":"finish"}]}"#.into(), 200),
        ("GET", "/api/v1/jobs/1", "/api/v1/jobs/{id}", String::new(), 200),
        ("GET", "/api/v1/failures", "/api/v1/failures", String::new(), 200),
        ("GET", "/api/v1/aliases/x", "/api/v1/aliases/{alias}", String::new(), 200),
        ("PATCH", "/api/v1/jobs/1", "/api/v1/jobs/{id}", r#"{"priority":1}"#.into(), 200),
        ("POST", "/api/v1/jobs/1/run", "/api/v1/jobs/{id}/run", String::new(), 200),
        ("PATCH", "/api/v1/schedules/1", "/api/v1/schedules/{id}", r#"{"repeat":"every 6m","catch_up":"none"}"#.into(), 200),
        ("POST", "/api/v1/schedules/1/pause", "/api/v1/schedules/{id}/pause", String::new(), 200),
        ("POST", "/api/v1/schedules/1/run", "/api/v1/schedules/{id}/run", String::new(), 409),
        ("POST", "/api/v1/schedules/1/resume", "/api/v1/schedules/{id}/resume", String::new(), 200),
        ("POST", "/api/v1/schedules/1/run", "/api/v1/schedules/{id}/run", String::new(), 200),
        ("POST", "/api/v1/claim", "/api/v1/claim", r#"{"queue":"q","worker":"w"}"#.into(), 200),
        ("POST", "/api/v1/settle", "/api/v1/settle", r#"{"settle":[{"id":1,"token":TOKEN,"outcome":"fail","retry":false,"message":"m","code":"c"}]}"#.into(), 200),
        ("GET", "/api/v1/jobs/1", "/api/v1/jobs/{id}", String::new(), 200),
        ("GET", "/api/v1/schedules/1/turns", "/api/v1/schedules/{id}/turns", String::new(), 200),
        ("POST", "/api/v1/jobs/1/cancel", "/api/v1/jobs/{id}/cancel", String::new(), 200),
        ("GET", "/api/v1/jobs/1/result", "/api/v1/jobs/{id}/result", String::new(), 200),
        ("POST", "/api/v1/jobs/1/retry", "/api/v1/jobs/{id}/retry", String::new(), 200),
        ("GET", "/api/v1/jobs/1/children", "/api/v1/jobs/{id}/children", String::new(), 200),
        ("GET", "/api/v1/jobs/1/family", "/api/v1/jobs/{id}/family", String::new(), 200),
        ("POST", "/api/v1/jobs/x/clone", "/api/v1/jobs/{id}/clone", r#"{"delay_ms":9000000}"#.into(), 201),
        ("DELETE", "/api/v1/jobs/x", "/api/v1/jobs/{id}", String::new(), 200),
        ("DELETE", "/api/v1/jobs/1", "/api/v1/jobs/{id}", String::new(), 404),
        ("POST", "/api/v1/jobs/1/undelete", "/api/v1/jobs/{id}/undelete", String::new(), 200),
        ("POST", "/api/v1/jobs/1/undelete", "/api/v1/jobs/{id}/undelete", String::new(), 404),
        ("DELETE", "/api/v1/jobs/1", "/api/v1/jobs/{id}", String::new(), 200),
        ("GET", "/api/v1/queues", "/api/v1/queues", String::new(), 200),
        ("PUT", "/api/v1/queues/q", "/api/v1/queues/{queue}", r#"{"keep":{"completed_ms":5,"failed_ms":"ever"}}"#.into(), 200),
        ("GET", "/api/v1/queues/q", "/api/v1/queues/{queue}", String::new(), 200),
        ("PUT", "/api/v1/queues/q", "/api/v1/queues/{queue}", "{}".into(), 400),
        ("POST", "/api/v1/queues/q/pause", "/api/v1/queues/{queue}/pause", String::new(), 200),
        ("PUT", "/api/v1/limits/l", "/api/v1/limits/{id}", r#"{"matcher":{"name":"b"},"rate":{"per_second":5}}"#.into(), 200),
        ("GET", "/api/v1/limits", "/api/v1/limits", String::new(), 200),
        ("DELETE", "/api/v1/limits/l", "/api/v1/limits/{id}", String::new(), 200),
        ("GET", "/api/v1/stats", "/api/v1/stats", String::new(), 200),
        ("GET", "/api/v1/me", "/api/v1/me", String::new(), 200),
        ("GET", "/api/v1/history", "/api/v1/history", String::new(), 200),
        ("GET", "/api/v1/history?span=15m", "/api/v1/history", String::new(), 200),
        ("GET", "/api/v1/history?span=15m&queue=q", "/api/v1/history", String::new(), 200),
        ("POST", "/api/v1/jobs", "/api/v1/jobs", r#"{"jobs":[{"name":"r","repeat":"every 5m"},{"name":"w"}]}"#.into(), 201),
        ("POST", "/api/v1/claim", "/api/v1/claim", r#"{"name":"w","worker":"w1"}"#.into(), 200),
        ("GET", "/api/v1/workers", "/api/v1/workers", String::new(), 200),
        ("GET", "/api/v1/schedules", "/api/v1/schedules", String::new(), 200),
        ("GET", "/api/v1/handlers", "/api/v1/handlers", String::new(), 200),
        ("GET", "/api/v1/jobs/count?search=state:ready", "/api/v1/jobs/count", String::new(), 200),
        ("POST", "/api/v1/jobs/bulk", "/api/v1/jobs/bulk", r#"{"action":"delete","ids":[1,4,5]}"#.into(), 200),
        ("POST", "/api/v1/jobs/bulk", "/api/v1/jobs/bulk", r#"{"action":"cancel","search":"name:b","dry_run":true}"#.into(), 200),
        ("POST", "/api/v1/jobs/2/clone", "/api/v1/jobs/{id}/clone", String::new(), 201),
        ("POST", "/api/v1/import", "/api/v1/import", r#"{"jobs":[{"alias":"i","name":"n","stands":"waiting","created_at":5,"due_at":6}]}"#.into(), 200),
    ]
}

#[tokio::test]
async fn answers_fit_their_schemas() {
    let server = TestServer::open().await;
    let document = server.get("/api/openapi.json").await.json();
    let mut token = 0;
    for (method, path, described, body, status) in described_calls() {
        let body = body.replace("TOKEN", &token.to_string());
        let reply = server.call(method, path, &body).await;
        assert_eq!(reply.status, status, "{method} {path} {body}: {}", reply.text());
        let answer = reply.json();
        token = answer["jobs"][0]["token"].as_u64().unwrap_or(token);
        let operation = &document["paths"][described][method.to_lowercase()];
        let schema = &operation["responses"][status.to_string()]["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{method} {described} does not describe {status}");
        fits(&document, schema, &answer).unwrap_or_else(|e| panic!("{method} {path} {status}: {e}"));
    }
}

#[tokio::test]
async fn examples_fit_their_schemas_and_are_understood() {
    let server = TestServer::open().await;
    let document = server.get("/api/openapi.json").await.json();
    for route in CALLS.iter().filter(|route| route.doc.body.is_some()) {
        let operation = &document["paths"][route.path][route.method.to_lowercase()];
        let content = &operation["requestBody"]["content"]["application/json"];
        let examples = content["examples"].as_object().unwrap();
        assert!(!examples.is_empty(), "{} {}", route.method, route.path);
        for example in examples.values() {
            let what = format!("{} {}: {}", route.method, route.path, example["value"]);
            fits(&document, &content["schema"], &example["value"]).unwrap_or_else(|e| panic!("{what}: {e}"));
            let mut body = example["value"].clone();
            if let Some(wait_ms) = body.get_mut("wait_ms") {
                *wait_ms = json!(0);
            }
            let path = route.path.replace("{id}", "1").replace("{tenant}", "acme");
            // The first token would close the server on which the other examples run.
            let another =
                if path.starts_with("/api/v1/tokens") { Some(TestServer::open().await) } else { None };
            let reply =
                another.as_ref().unwrap_or(&server).call(route.method, &path, &body.to_string()).await;
            assert!(matches!(reply.status, 200 | 201 | 404 | 409), "{what}: {}", reply.text());
        }
    }
}

#[tokio::test]
async fn a_field_that_is_not_described_is_refused() {
    let server = TestServer::open().await;
    server.call("POST", "/api/v1/jobs", r#"{"name":"a"}"#).await;
    for route in CALLS.iter().filter(|route| route.doc.body.is_some()) {
        let (_, _, example) = route.doc.body.as_ref().unwrap().examples[0];
        let mut body: Value = serde_json::from_str(example).unwrap();
        body["surprise"] = json!(1);
        let path = route.path.replace("{id}", "1").replace("{tenant}", "acme").replace("{prefix}", "x");
        let reply = server.call(route.method, &path, &body.to_string()).await;
        assert_eq!(reply.status, 400, "{} {path} {body}", route.method);
        assert!(reply.text().contains("surprise"), "{} {path}: {}", route.method, reply.text());
    }
}
