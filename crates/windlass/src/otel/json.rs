//! Parts that both signals share: OTLP's JSON has names in camel case, 64-bit numbers as strings, ids in hexadecimal.

use serde::Serialize;

/// Description of this server.
pub(super) struct Resource {
    pub service_name: String,
    pub version: &'static str,
    /// Random, new with each start.
    pub instance: String,
}

#[derive(Serialize)]
pub(super) struct KeyValue<'a> {
    key: &'a str,
    value: AnyValue<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum AnyValue<'a> {
    StringValue(&'a str),
    IntValue(String),
}

pub(super) fn text<'a>(key: &'a str, value: &'a str) -> KeyValue<'a> {
    KeyValue { key, value: AnyValue::StringValue(value) }
}

pub(super) fn number(key: &str, value: u64) -> KeyValue<'_> {
    KeyValue { key, value: AnyValue::IntValue(value.to_string()) }
}

#[derive(Serialize)]
pub(super) struct ResourceJson<'a> {
    attributes: [KeyValue<'a>; 3],
}

impl Resource {
    pub(super) fn json(&self) -> ResourceJson<'_> {
        ResourceJson {
            attributes: [
                text("service.name", &self.service_name),
                text("service.version", self.version),
                text("service.instance.id", &self.instance),
            ],
        }
    }

    pub(super) fn scope(&self) -> Scope {
        Scope { name: "windlass", version: self.version }
    }
}

#[derive(Serialize)]
pub(super) struct Scope {
    name: &'static str,
    version: &'static str,
}

/// Nanoseconds since 1970.
pub(super) fn nanos(ms: i64) -> String {
    (i128::from(ms.max(0)) * 1_000_000).to_string()
}
