//! Schemas of scalars, and the final form of derived schemas in the OpenAPI description.

use super::calls::settle::failure::Backtrace;
use super::wire::{Id, KeepMs, Lease, Retry, RetryAsk, State, TenantText, Time, Unique, UniqueAsk, When};
use super::wire::{LEASE_MS_MAX, LEASE_MS_MIN};
use crate::codec::{Kept, Nullable, Raw, Text};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use windlass_core::StateWord;
use windlass_core::names::TENANT_BYTES_MAX;

/// Formats that only mark a type; see [`finish`].
const ID: &str = "id";
const TIME: &str = "time";

/// Marks a value that may be null; `Option` only means that a field may be missing.
const NULLABLE: &str = "x-nullable";

/// Implements [`JsonSchema`] for types that are inlined, not listed as components.
macro_rules! inline_schemas {
    ($($type:ty => |$generator:pat_param| $schema:tt,)*) => {
        $(impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        })*
    };
}

inline_schemas! {
    Text<'_> => |_| {"type": "string"},
    Raw<'_> => |_| {},
    Kept<'_> => |_| {},
    Id => |_| {"type": "integer", "format": ID, "minimum": 1},
    Time => |_| {"type": "integer", "format": TIME},
    When => |_| {"anyOf": [{"type": "integer"}, {"type": "string", "format": "date-time"}]},
    Lease => |_| {"type": "integer", "minimum": LEASE_MS_MIN, "maximum": LEASE_MS_MAX},
    KeepMs => |_| {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "enum": ["ever"]}]},
    State => |_| {"type": "string", "enum": StateWord::ALL.map(StateWord::as_str)},
    TenantText<'_> => |_| {
        "type": "string", "minLength": 1, "maxLength": TENANT_BYTES_MAX,
        "description": "Tenant; only an admin may give another tenant than their own.",
    },
    Backtrace => |_| {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    FormatWord => |_| {
        "type": "string", "enum": ["json", "text", "msgpack", "binary"], "description": "Format of the payload.",
    },
    RoleWord => |_| {"type": "string", "enum": ["viewer", "worker", "operator", "admin"]},
    SourceWord => |_| {"type": "string", "enum": ["configuration", "store"]},
    NoneWord => |_| {"type": "string", "enum": ["none"]},
    UniqueAsk<'_> => |g| {"anyOf": [{"type": "string"}, g.subschema_for::<Unique<'_>>()]},
    RetryAsk => |g| {"anyOf": [{"type": "integer", "minimum": 1}, g.subschema_for::<Retry>()]},
    ConflictWord => |_| {"type": "string", "enum": ["return", "update", "refuse"]},
    HeldWord => |_| {"type": "string", "enum": ["settled", "started", "forgotten"]},
    CatchUpWord => |_| {"type": "string", "enum": ["one", "none"]},
    GoneWord => |_| {"type": "string", "enum": ["gone"]},
}

/// Text form of [`windlass_core::Format`].
pub(super) struct FormatWord;
/// Text form of [`crate::auth::Role`].
pub(super) struct RoleWord;
/// Text form of [`crate::auth::Source`].
pub(super) struct SourceWord;
/// Text form of [`windlass_core::unique::OnConflict`].
pub(super) struct ConflictWord;
/// Text form of [`windlass_core::unique::HeldUntil`].
pub(super) struct HeldWord;
/// Text form of [`windlass_core::turn::CatchUp`].
pub(super) struct CatchUpWord;
/// Text form of "no backoff".
pub(super) struct NoneWord;

/// State of a deleted object.
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum GoneWord {
    Gone,
}

impl<T: JsonSchema> JsonSchema for Nullable<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Nullable{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [generator.subschema_for::<T>(), {"type": "null"}], NULLABLE: true})
    }
}

/// Normalizes a derived schema for the description: an optional field is not nullable, integer sizes of Rust
/// and defaults are removed, objects are closed, and times state their unit.
pub(super) fn finish(schema: &mut Value) {
    if *schema == Value::Bool(true) {
        *schema = json!({});
    }
    let Some(fields) = schema.as_object_mut() else { return };
    for key in ["default", "title", NULLABLE] {
        fields.remove(key);
    }
    let is_time = fields.get("format").is_some_and(|format| format == TIME)
        || fields.get("anyOf").is_some_and(|shapes| shapes[0]["format"] == TIME);
    if let Some(Value::String(about)) = fields.get_mut("description") {
        *about = about.replace('\n', " ");
        if is_time {
            about.push_str(" Milliseconds since 1970.");
        }
    }
    match fields.get("format").and_then(Value::as_str) {
        Some(ID | TIME) => drop(fields.insert("format".into(), "int64".into())),
        Some("date-time") | None => {}
        Some(_) => drop(fields.remove("format")),
    }
    finish_fields(fields);
    for key in ["anyOf", "allOf", "oneOf"] {
        fields.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().for_each(finish);
    }
    for key in ["items", "additionalProperties"] {
        fields.get_mut(key).filter(|part| **part != Value::Bool(false)).into_iter().for_each(finish);
    }
}

fn finish_fields(fields: &mut Map<String, Value>) {
    let required = fields.get("required").cloned().unwrap_or_default();
    let is_required = |name: &str| required.as_array().is_some_and(|names| names.contains(&name.into()));
    let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (name, property) in properties {
        if !is_required(name) {
            drop_null(property);
        }
        finish(property);
    }
    fields.entry("additionalProperties").or_insert(false.into());
}

/// Removes the null that `Option` adds to the schema of its type.
fn drop_null(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut().filter(|fields| !fields.contains_key(NULLABLE)) else { return };
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [kind] = types.as_slice() {
            let kind = kind.clone();
            fields.insert("type".into(), kind);
        }
    }
    if let Some(Value::Array(words)) = fields.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    let null = json!({"type": "null"});
    let Some(Value::Array(shapes)) = fields.get("anyOf").filter(|shapes| shapes[1] == null) else { return };
    let Value::Object(shape) = shapes[0].clone() else { return };
    fields.remove("anyOf");
    for (key, value) in shape {
        fields.entry(key).or_insert(value);
    }
}
