//! OpenAPI description, generated from the list of calls. A test checks it against real responses.

use super::errors::ErrorAnswer;
use super::reply::Answer;
use super::schema::finish;
use crate::answer::respond;
use crate::codec::Encoding;
use crate::route::{Access, Call, Content, RequestBody, Route, SchemaOf};
use ::http::StatusCode;
use bytes::Bytes;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::sync::OnceLock;

pub async fn document(_: Call) -> Answer {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = TEXT.get_or_init(|| Bytes::from(describe(super::calls::CALLS).to_string()));
    Ok(respond(StatusCode::OK, Encoding::Json, text.clone()))
}

pub fn describe(calls: &[Route]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut describer = Describer { generator: settings.into_generator() };
    let mut paths = Map::new();
    for call in calls {
        let path = paths.entry(call.path).or_insert_with(|| json!({}));
        path[call.method.to_ascii_lowercase()] = describer.operation(call);
    }
    let mut schemas = describer.generator.take_definitions(true);
    schemas.values_mut().for_each(finish);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Windlass",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A job server: stores jobs durably, leases each job to one worker at a time, and retries \
             failed attempts.",
            "description": "Request and response bodies are JSON or MessagePack, according to Content-Type and \
             Accept. Times are milliseconds since 1970 (UTC). All errors have the same shape: `code` \
             is stable, `message` is for people. Responses may gain fields; requests with unknown \
             fields are refused.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "this server"}],
        "tags": [
            {"name": "jobs", "description": "push, read and change jobs"},
            {"name": "work", "description": "claim, extend, settle"},
            {"name": "operations", "description": "queues, limits, metrics, probes"},
        ],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {
                "type": "http",
                "scheme": "bearer",
                "description": "`wl_…`. Not required on a server without tokens.",
            }},
        },
    })
}

/// Collects the schemas that operations refer to.
struct Describer {
    generator: SchemaGenerator,
}

impl Describer {
    fn operation(&mut self, call: &Route) -> Value {
        let mut operation = json!({
            "operationId": operation_id(call),
            "summary": call.doc.summary,
            "tags": [tag(call.path)],
            "parameters": parameters(call),
            "responses": self.responses(call),
        });
        match call.access {
            Access::Public => {
                operation["description"] = json!("Requires no token.");
                operation["security"] = json!([]);
            }
            Access::From(role) => {
                operation["description"] = json!(format!("Requires the role {role} or a higher one."));
                operation["security"] = json!([{"token": []}]);
            }
        }
        if let Some(asked) = &call.doc.body {
            operation["requestBody"] = self.body(asked);
        }
        operation
    }

    fn body(&mut self, asked: &RequestBody) -> Value {
        let schema = self.schema(asked.schema);
        json!({
            "description": format!("See {}.", (asked.schema.name)()),
            "required": !asked.may_be_left_out,
            "content": {
                "application/json": {"schema": schema, "examples": examples(asked)},
                "application/msgpack": {"schema": schema},
            },
        })
    }

    fn responses(&mut self, call: &Route) -> Value {
        let mut responses = Map::new();
        for (status, content) in call.doc.answers.iter().flatten() {
            responses.insert(status.to_string(), self.response(*status, *content));
        }
        if call.path.starts_with("/api/v1") {
            let error = Content::Data(SchemaOf::of::<ErrorAnswer>());
            responses.insert("default".into(), self.response(400, error));
        }
        Value::Object(responses)
    }

    fn response(&mut self, status: u16, content: Content) -> Value {
        let description = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let content = match content {
            Content::Text => json!({"text/plain": {"schema": {"type": "string"}}}),
            Content::Events(schema) => json!({"text/event-stream": {"schema": self.schema(schema)}}),
            Content::Document => json!({"application/json": {"schema": {"type": "object"}}}),
            Content::Data(schema) => {
                let schema = self.schema(schema);
                json!({"application/json": {"schema": schema}, "application/msgpack": {"schema": schema}})
            }
        };
        json!({"description": description.unwrap_or("answer"), "content": content})
    }

    fn schema(&mut self, of: SchemaOf) -> Value {
        (of.schema)(&mut self.generator).to_value()
    }
}

/// Examples as JSON; a test parses each.
fn examples(asked: &RequestBody) -> Value {
    let example = |(name, summary, text): &(&str, &str, &str)| {
        let value = serde_json::from_str(text).unwrap_or(Value::Null);
        ((*name).to_owned(), json!({"summary": summary, "value": value}))
    };
    Value::Object(asked.examples.iter().map(example).collect())
}

/// `GET /api/v1/jobs/{id}/result` becomes `get_jobs_id_result`; unique because method and path are.
fn operation_id(call: &Route) -> String {
    let path = call.path.trim_start_matches("/api/v1").replace(['{', '}'], "");
    let words: Vec<&str> = path.split(['/', '.']).filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        [] => format!("{}_root", call.method.to_ascii_lowercase()),
        words => format!("{}_{}", call.method.to_ascii_lowercase(), words.join("_")),
    }
}

fn tag(path: &str) -> &'static str {
    match path.trim_start_matches("/api/v1") {
        "/claim" | "/extend" | "/settle" => "work",
        path if path.starts_with("/jobs") || path.starts_with("/aliases") => "jobs",
        _ => "operations",
    }
}

fn parameters(call: &Route) -> Vec<Value> {
    let parameter = |param: &crate::route::Param| {
        let is_in_path = param.is_in(call.path);
        json!({
            "name": param.name,
            "in": if is_in_path { "path" } else { "query" },
            "required": is_in_path,
            "description": param.about,
            "schema": (param.schema)(),
        })
    };
    call.doc.params.iter().map(parameter).collect()
}
