//! Reference of the native API, from its OpenAPI description.

use super::schema::{Schemas, type_of};
use super::{NOTICE, cell, code, sentence};
use serde_json::{Map, Value};
use windlass_dialects::native::{calls, openapi};

pub(in crate::docs) fn page() -> String {
    let document = openapi::describe(calls::CALLS);
    let mut page = format!("{NOTICE}# API\n\n");
    page.push_str(&format!("{}\n\n", text(&document["info"]["description"])));
    page.push_str("The same as a machine reads it: `GET /api/openapi.json` of a running server.\n");
    for tag in document["tags"].as_array().into_iter().flatten() {
        let title = sentence(text(&tag["name"]));
        page.push_str(&format!("\n## {}\n\n", title.trim_end_matches('.')));
        page.push_str(&format!("{}\n", sentence(text(&tag["description"]))));
        for (path, method, call) in calls_of(&document).filter(|(_, _, call)| call["tags"][0] == tag["name"])
        {
            write(&mut page, path, method, call);
        }
    }
    page.push_str("\n## Types\n\nObjects of requests and responses.\n");
    page.push_str(&Schemas(&document["components"]["schemas"]).tables());
    page
}

/// Path, method and description of every call.
pub(in crate::docs) fn calls_of(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    paths.flat_map(|(path, calls)| {
        let calls = calls.as_object().into_iter().flatten();
        calls.map(move |(method, call)| (path.as_str(), method.as_str(), call))
    })
}

fn write(page: &mut String, path: &str, method: &str, call: &Value) {
    page.push_str(&format!("\n### {} {path}\n\n", method.to_ascii_uppercase()));
    page.push_str(&format!("{} {}\n\n", sentence(text(&call["summary"])), text(&call["description"])));
    parameters(page, &call["parameters"]);
    if let Some(body) = call.get("requestBody") {
        let optional = if body["required"] == true { "" } else { " (optional)" };
        let content = &body["content"]["application/json"];
        page.push_str(&format!("Body{optional}: {}\n\n", type_of(&content["schema"])));
        for example in content["examples"].as_object().into_iter().flat_map(Map::values) {
            let json = serde_json::to_string(&example["value"]).unwrap_or_default();
            page.push_str(&format!("{}\n\n```json\n{json}\n```\n\n", sentence(text(&example["summary"]))));
        }
    }
    page.push_str("| status | response |\n|---|---|\n");
    for (status, response) in call["responses"].as_object().into_iter().flatten() {
        let status = if status == "default" { "error" } else { status };
        let content = response["content"].as_object().and_then(|content| content.iter().next());
        let content = content.map_or_else(String::new, |(kind, content)| match kind.as_str() {
            "application/json" => format!(": {}", type_of(&content["schema"])),
            "text/event-stream" => format!(": stream of {}", type_of(&content["schema"])),
            _ => ": text".to_owned(),
        });
        let meaning = if status == "error" { "any other" } else { text(&response["description"]) };
        page.push_str(&format!("| {status} | {}{content} |\n", cell(meaning)));
    }
}

fn parameters(page: &mut String, parameters: &Value) {
    let Some(parameters) = parameters.as_array().filter(|all| !all.is_empty()) else { return };
    page.push_str("| parameter | in | type | meaning |\n|---|---|---|---|\n");
    for one in parameters {
        page.push_str(&format!(
            "| {} | {} | {} | {} |\n",
            code(text(&one["name"])),
            text(&one["in"]),
            type_of(&one["schema"]),
            cell(text(&one["description"]))
        ));
    }
    page.push('\n');
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
