//! The shapes of bodies and answers, for the API's description. The fields of `wire.rs` and `views.rs`, each with a
//! sentence.

mod answers;
mod bodies;

use super::wire;
use serde_json::{Map, Value, json};
use windlass_core::StateName;
use windlass_core::names::{NAME_BYTES_MAX, TENANT_BYTES_MAX};

pub fn all() -> Value {
    let mut schemas = Map::new();
    for (name, schema) in bodies::bodies().into_iter().chain(answers::answers()).chain(answers::parts()) {
        schemas.insert(name.into(), schema);
    }
    Value::Object(schemas)
}

/// Only these calls mean something without a body.
pub fn body_is_required(schema: &str) -> bool {
    !matches!(schema, "Cancel" | "Run" | "Claim" | "BlobGc" | "TokenAsk" | "RotateAsk")
}

/// Words for roles.
const ROLES: [&str; 4] = ["viewer", "worker", "operator", "admin"];

/// A field: its name, whether it is always there, its shape.
type Field = (&'static str, Need, Value);

#[derive(Clone, Copy, PartialEq)]
enum Need {
    Always,
    Maybe,
}
use Need::{Always, Maybe};

fn object(description: &str, fields: Vec<Field>) -> Value {
    let required: Vec<&str> = fields.iter().filter(|field| field.1 == Always).map(|field| field.0).collect();
    let properties: Map<String, Value> =
        fields.into_iter().map(|(name, _, shape)| (name.into(), shape)).collect();
    json!({
        "type": "object",
        "description": description,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn text_max(description: &str, bytes: usize) -> Value {
    json!({"type": "string", "description": description, "minLength": 1, "maxLength": bytes})
}

fn words(description: &str, words: &[&str]) -> Value {
    json!({"type": "string", "description": description, "enum": words})
}

fn int(description: &str) -> Value {
    json!({"type": "integer", "description": description})
}

fn int_within(description: &str, min: i64, max: i64) -> Value {
    json!({"type": "integer", "description": description, "minimum": min, "maximum": max})
}

fn count(description: &str) -> Value {
    json!({"type": "integer", "description": description, "minimum": 0})
}

fn time(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "description": format!("{description} Milliseconds since 1970.")})
}

fn id(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "minimum": 1, "description": description})
}

fn flag(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

fn any(description: &str) -> Value {
    json!({"description": description})
}

fn list(description: &str, items: Value) -> Value {
    json!({"type": "array", "description": description, "items": items})
}

fn one_of(description: &str, shapes: Vec<Value>) -> Value {
    json!({"description": description, "anyOf": shapes})
}

fn or_null(mut shape: Value) -> Value {
    let description = shape["description"].take();
    if let Some(fields) = shape.as_object_mut() {
        fields.remove("description");
    }
    json!({"description": description, "anyOf": [shape, {"type": "null"}]})
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn described(description: &str, schema: &str) -> Value {
    json!({"description": description, "allOf": [reference(schema)]})
}

fn tenant() -> Field {
    (
        "tenant",
        Maybe,
        text_max("Whose jobs; only an admin may name another tenant than their own.", TENANT_BYTES_MAX),
    )
}

fn format() -> Value {
    words("How the payload is kept.", &["json", "text", "msgpack", "binary"])
}

fn when(description: &str) -> Value {
    one_of(description, vec![json!({"type": "integer"}), json!({"type": "string", "format": "date-time"})])
}

fn limit_fields(id: Need) -> Vec<Field> {
    vec![
        ("id", id, text("Its id, as in the path.")),
        (
            "matcher",
            Always,
            json!({"type": "object", "description": "Which jobs it is about: {\"name\"}, {\"name_glob\"}, {\"queue\"}, {\"priority\"}, {\"arg\",\"op\",\"value\"}, {\"all\"}, {\"any\"}, {\"not\"}."}),
        ),
        (
            "rate",
            Maybe,
            object(
                "How fast jobs may start.",
                vec![
                    ("per_second", Always, json!({"type": "number", "description": "Starts per second."})),
                    ("burst", Maybe, count("How many may start at once after a rest.")),
                ],
            ),
        ),
        ("max_running", Maybe, count("How many may run at once.")),
        (
            "group_by",
            Maybe,
            list(
                "Paths into the payload; each group of equal values has the limit for itself.",
                json!({"type": "array"}),
            ),
        ),
    ]
}

/// What a parameter of a path or query is.
pub fn parameter(path: &str, name: &str) -> (&'static str, Value) {
    match (path, name) {
        ("/api/v1/limits/{id}", "id") => ("The limit's id.", json!({"type": "string"})),
        (_, "id") => ("The job's id.", json!({"type": "integer", "minimum": 1})),
        (_, "alias") => ("The job's alias.", json!({"type": "string"})),
        (_, "prefix") => {
            ("The token's public part: the eight characters after `wl_`.", json!({"type": "string"}))
        }
        (_, "worker") => ("The worker's id.", json!({"type": "string"})),
        (_, "queue") => ("The queue.", json!({"type": "string"})),
        (_, "state") => ("Only jobs in these states, separated by commas.", json!({"type": "string"})),
        (_, "name") => ("Only jobs whose name matches this GLOB.", json!({"type": "string"})),
        (_, "tag") => ("Only jobs with this tag.", json!({"type": "string"})),
        (_, "search") => (
            "Words: `state:failed name:mail* queue:default tag:x args.user_id:42 age>1h`; also `tenant:`, `worker:`, \
             `origin:` and `age<`; any other word is looked for in the payload. Quotes keep words together.",
            json!({"type": "string"}),
        ),
        (_, "span") => (
            "15m: the last quarter of an hour, in steps of seconds; 30d: the last month, in hours.",
            json!({"type": "string", "enum": ["15m", "30d"]}),
        ),
        (_, "job") => ("Only what happens to this job.", json!({"type": "integer", "minimum": 1})),
        (_, "summary_ms") => (
            "Instead of single events, at most one `summary` in so many milliseconds, with how many of each there were.",
            json!({"type": "integer", "minimum": 100, "maximum": 60_000}),
        ),
        (_, "q") => ("Only jobs with this text in the payload.", json!({"type": "string"})),
        (_, "limit") => (
            "Jobs per page; 50 if left out.",
            json!({"type": "integer", "minimum": 1, "maximum": wire::PAGE_MAX}),
        ),
        (_, "cursor") => ("`next` of the page before.", json!({"type": "string"})),
        (_, "wait_ms") => (
            "How long to wait for the end.",
            json!({"type": "integer", "minimum": 0, "maximum": wire::WAIT_MS_MAX}),
        ),
        ("/api/v1/tenants/{tenant}/quota", "tenant") => {
            ("The tenant: your own, unless you are an admin.", json!({"type": "string"}))
        }
        (_, "tenant") => (
            "Another tenant than your own, for admins; admins who name none see all.",
            json!({"type": "string"}),
        ),
        _ => ("", json!({})),
    }
}

pub fn examples(schema: &str) -> Value {
    let example = |summary: &str, value: Value| json!({"summary": summary, "value": value});
    match schema {
        "Push" => json!({
            "one": example("one job", json!({"name": "mail", "payload": {"to": "ann@example.org"}})),
            "later": example("in ten minutes, tried three times", json!({"name": "mail", "delay_ms": 600_000, "retry": 3})),
            "batch": example("a batch", json!({"jobs": [{"name": "mail", "payload": 1}, {"name": "mail", "payload": 2}]})),
            "repeating": example("every night, once", json!({"name": "report", "repeat": "0 4 * * *", "unique": "report"})),
        }),
        "Import" => json!({"one": example("one that failed elsewhere", json!({"jobs": [{
            "alias": "old-5", "name": "mail", "payload": {}, "stands": "failed", "created_at": "2026-01-31T12:00:00Z",
            "due_at": "2026-01-31T12:00:00Z",
        }]}))}),
        "Claim" => json!({"wait": example("up to ten mail jobs, waiting up to thirty seconds", json!({
            "name": "mail*", "limit": 10, "wait_ms": 30_000, "worker": "w1",
        }))}),
        "Settle" => json!({"both": example("one went well, one did not", json!({"settle": [
            {"id": 1, "token": 65537, "outcome": "finish", "result": {"sent": true}},
            {"id": 2, "token": 131_075, "outcome": "fail", "error": "mailbox full", "delay_ms": 60_000},
        ]})), "next": example("done, and the next one please", json!({
            "settle": [{"id": 1, "token": 65537, "outcome": "finish"}], "claim": {"name": "mail*"},
        }))}),
        "Extend" => json!({"beat": example("half way through", json!({"extend": [
            {"id": 1, "token": 65537, "lease_ms": 30_000, "progress": 50, "note": "page 5 of 10"},
        ]}))}),
        "LogLines" => json!({"two": example("two lines of its messages", json!({
            "token": 65537, "lines": ["reading mail.csv", "12 rows"], "source": "stderr",
        }))}),
        "Patch" => json!({"first": example("first in line", json!({"priority": -10}))}),
        "Cancel" => json!({"now": example("at once", json!({"now": true}))}),
        "Bulk" => json!({"failed": example("retry all that failed", json!({
            "action": "retry", "search": "state:failed name:mail*",
        }))}),
        "Run" => json!({"now": example("now", json!({}))}),
        "BlobGc" => {
            json!({"look": example("what has been unused for a week", json!({"older_than_s": 604_800}))})
        }
        "QuotaAsk" => {
            json!({"small": example("a small tenant", json!({"jobs": 10_000, "requests_per_second": 100}))})
        }
        "TokenAsk" => json!({"worker": example("for a worker, for three months", json!({
            "role": "worker", "tenant": "shop", "note": "the mail service", "expires_in_ms": 7_776_000_000_u64,
        }))}),
        "RotateAsk" => {
            json!({"day": example("the old one goes on for a day", json!({"grace_ms": 86_400_000}))})
        }
        "LimitAsk" => json!({"per_user": example("two at once per user", json!({
            "matcher": {"name_glob": "mail*"}, "max_running": 2, "group_by": [["user", "id"]],
        }))}),
        _ => json!({}),
    }
}

fn quota_fields(need: Need) -> Vec<Field> {
    vec![
        ("jobs", need, count("Jobs that have not ended.")),
        ("blob_bytes", need, count("Bytes of blobs.")),
        ("handlers", need, count("Kinds of jobs with a handler.")),
        ("requests_in_flight", need, count("Requests that are being answered, waiting ones included.")),
        ("requests_per_second", need, count("Requests per second; those of one second may come at once.")),
        ("waiting_claims", need, count("Claims that wait for a job.")),
    ]
}
