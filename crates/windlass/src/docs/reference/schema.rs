//! JSON schemas in words.

use super::{cell, code, grouped, sentence};
use crate::docs::render::slug;
use serde_json::Value;

/// Schemas that have a name.
pub(super) struct Schemas<'a>(pub &'a Value);

impl Schemas<'_> {
    /// Heading and fields of every schema.
    pub(super) fn tables(&self) -> String {
        let mut page = String::new();
        for (name, schema) in self.0.as_object().into_iter().flatten() {
            page.push_str(&format!("\n### {name}\n\n"));
            if let Some(about) = schema["description"].as_str() {
                page.push_str(&format!("{}\n\n", sentence(&cell(about))));
            }
            match schema.get("properties") {
                Some(_) => page.push_str(&fields(schema)),
                None => page.push_str(&format!("{}\n", sentence(&type_of(schema)))),
            }
            let alternatives = ["anyOf", "oneOf"].iter().filter_map(|key| schema[key].as_array()).flatten();
            for one in alternatives.filter(|one| one.get("properties").is_some()) {
                page.push_str(&format!("\n{}", fields(one)));
            }
        }
        page
    }
}

fn fields(schema: &Value) -> String {
    let required = schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
    let mut table = "| field | type | meaning |\n|---|---|---|\n".to_owned();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let optional = if is_required(name) { "" } else { ", optional" };
        let about = field["description"].as_str().map(cell).unwrap_or_default();
        table.push_str(&format!("| {} | {}{optional} | {about} |\n", code(name), type_of(field)));
    }
    table
}

/// Type in words; types with a name are links.
pub(super) fn type_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("[{name}](#{})", slug(name));
    }
    if let Some(value) = schema.get("const") {
        return code(&value.to_string());
    }
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().map(|word| code(word.as_str().unwrap_or("null")));
        return words.collect::<Vec<_>>().join(", ");
    }
    for (key, between) in [("anyOf", " or "), ("oneOf", " or "), ("allOf", " and ")] {
        if let Some(shapes) = schema[key].as_array() {
            return shapes.iter().map(type_of).collect::<Vec<_>>().join(between);
        }
    }
    match &schema["type"] {
        Value::String(kind) => plain(kind, schema),
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter_map(Value::as_str).map(|kind| plain(kind, schema));
            kinds.collect::<Vec<_>>().join(" or ")
        }
        _ => "any value".to_owned(),
    }
}

fn plain(kind: &str, schema: &Value) -> String {
    match kind {
        "array" => format!("list of {}", type_of(&schema["items"])),
        "object" => match &schema["additionalProperties"] {
            Value::Object(_) => format!("object of {}", type_of(&schema["additionalProperties"])),
            _ => "object".to_owned(),
        },
        "string" if schema["format"] == "date-time" => "time such as `2030-01-31T09:00:00Z`".to_owned(),
        "integer" | "number" => format!("{kind}{}", range(schema)),
        kind => kind.to_owned(),
    }
}

fn range(schema: &Value) -> String {
    let bound = |key: &str| match &schema[key] {
        Value::Null => None,
        number => Some(number.as_i64().map_or_else(|| number.to_string(), grouped)),
    };
    match (bound("minimum"), bound("maximum")) {
        (None, None) => String::new(),
        (Some(min), None) => format!(" from {min}"),
        (None, Some(max)) => format!(" up to {max}"),
        (Some(min), Some(max)) => format!(" {min} to {max}"),
    }
}
