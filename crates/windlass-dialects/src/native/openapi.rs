//! The API's description, made from the routes and the schemas. A test holds it against real answers.

use super::calls::Answer;
use super::errors::respond;
use super::schemas;
use crate::codec::Encoding;
use crate::route::{Access, Call, Route};
use ::http::StatusCode;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::sync::OnceLock;

pub async fn document(_: Call) -> Answer {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = TEXT.get_or_init(|| Bytes::from(describe(super::routes::ROUTES).to_string()));
    Ok(respond(StatusCode::OK, Encoding::Json, text.clone()))
}

pub fn describe(routes: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Windlass",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A job server: keeps jobs safe, hands each to one worker at a time, and sees it to its end.",
            "description": "Bodies and answers are JSON or MessagePack, by Content-Type and Accept. Times are \
                milliseconds since 1970 (UTC). Every error has the same shape; `code` is stable, `message` is for \
                people. Answers may gain fields; requests with unknown fields are refused.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "this server"}],
        "tags": [
            {"name": "jobs", "description": "push, look, change"},
            {"name": "work", "description": "claim, extend, settle"},
            {"name": "operations", "description": "queues, limits, figures, probes"},
        ],
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {"token": {
                "type": "http",
                "scheme": "bearer",
                "description": "`wl_…`. Not needed on a server without configured tokens.",
            }},
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.doc.summary,
        "tags": [tag(route.path)],
        "parameters": parameters(route),
        "responses": responses(route),
    });
    match route.access {
        Access::Public => {
            operation["description"] = json!("For everyone who can reach the port.");
            operation["security"] = json!([]);
        }
        Access::From(role) => {
            operation["description"] = json!(format!("Needs the role {role} or a higher one."));
            operation["security"] = json!([{"token": []}]);
        }
    }
    if let Some(schema) = route.doc.asks {
        let content = json!({
            "schema": reference(schema),
            "examples": schemas::examples(schema),
        });
        operation["requestBody"] = json!({
            "description": format!("See {schema}."),
            "required": schemas::body_is_required(schema),
            "content": {"application/json": content, "application/msgpack": {"schema": reference(schema)}},
        });
    }
    operation
}

/// `GET /api/v1/jobs/{id}/result` is `get_jobs_id_result`: unique because method and path are.
fn operation_id(route: &Route) -> String {
    let path = route.path.trim_start_matches("/api/v1").replace(['{', '}'], "");
    let words: Vec<&str> = path.split(['/', '.']).filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        [] => format!("{}_root", route.method.to_ascii_lowercase()),
        words => format!("{}_{}", route.method.to_ascii_lowercase(), words.join("_")),
    }
}

fn tag(path: &str) -> &'static str {
    match path.trim_start_matches("/api/v1") {
        "/claim" | "/extend" | "/settle" => "work",
        path if path.starts_with("/jobs") || path.starts_with("/aliases") => "jobs",
        _ => "operations",
    }
}

fn parameters(route: &Route) -> Vec<Value> {
    let in_path = route.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let of = |name: &str, place: &str| {
        let (description, schema) = schemas::parameter(route.path, name);
        json!({
            "name": name,
            "in": place,
            "required": place == "path",
            "description": description,
            "schema": schema,
        })
    };
    let in_path: Vec<Value> = in_path.map(|name| of(name, "path")).collect();
    in_path.into_iter().chain(route.doc.query.iter().map(|name| of(name, "query"))).collect()
}

fn responses(route: &Route) -> Value {
    let mut responses = Map::new();
    for (status, schema) in route.doc.answers {
        responses.insert(status.to_string(), response(*status, schema));
    }
    if route.path.starts_with("/api/v1") {
        responses.insert("default".into(), response(400, "Error"));
    }
    Value::Object(responses)
}

fn response(status: u16, schema: &str) -> Value {
    let description = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let content = match schema {
        "Text" => json!({"text/plain": {"schema": {"type": "string"}}}),
        "Events" => json!({"text/event-stream": {"schema": reference("Event")}}),
        "Document" => json!({"application/json": {"schema": {"type": "object"}}}),
        schema => json!({
            "application/json": {"schema": reference(schema)},
            "application/msgpack": {"schema": reference(schema)},
        }),
    };
    json!({"description": description.unwrap_or("answer"), "content": content})
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}
