//! The documents show the native API as in the OpenAPI document.

use crate::description::fits;
use serde_json::Value;
use std::path::{Path, PathBuf};
use windlass_dialects::native::calls::CALLS;
use windlass_dialects::native::openapi::describe;
use windlass_dialects::route::{Access, Route};

const API: &str = "/api/v1";

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Documents that show calls of the native API, with their paths.
fn documents() -> Vec<(PathBuf, String)> {
    let docs = std::fs::read_dir(workspace().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let others = ["README.md", "crates/windlass-dialects/src/native/README.md", "clients/rust/README.md"];
    let paths = docs.chain(others.map(|path| workspace().join(path)));
    let pages = paths.filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    pages.filter_map(|path| Some((path.clone(), std::fs::read_to_string(&path).ok()?))).collect()
}

/// Call at a path as written in a document: any text matches a parameter.
fn call_at(method: Option<&str>, path: &str) -> Option<&'static Route> {
    let path = path.split('?').next().unwrap();
    let fits = |pattern: &str| {
        pattern.split('/').count() == path.split('/').count()
            && pattern
                .split('/')
                .zip(path.split('/'))
                .all(|(known, shown)| known.starts_with('{') || known == shown)
    };
    CALLS.iter().find(|call| method.is_none_or(|method| method == call.method) && fits(call.path))
}

/// Request in a document, with the response shown for it.
#[derive(Debug)]
struct Shown {
    place: String,
    method: &'static str,
    path: String,
    body: Option<Value>,
    answer: Option<Value>,
}

/// Finds `curl` commands, the responses below them, and bodies in the same line as `METHOD /api/v1/…`.
fn shown(place: &str, page: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    // A command goes on after a backslash, and in lines that are indented.
    let joined = page.replace("\\\n", " ").replace("\n      ", " ");
    for line in joined.lines() {
        if let Some(command) = line.strip_prefix("$ ").or(Some(line)).filter(|line| line.starts_with("curl "))
        {
            found.extend(command_shown(place, command));
        } else if let (Some(answer), Some(last)) = (json_of(line.trim_start_matches("# ")), found.last_mut())
        {
            last.answer.get_or_insert(answer);
        } else {
            found.extend(spans_shown(place, line));
        }
    }
    found
}

fn command_shown(place: &str, command: &str) -> Option<Shown> {
    let path = command.split([' ', '"', '\'']).find_map(|word| Some(&word[word.find(API)?..]))?;
    let body = ["-d ", "--data ", "--json "].iter().find_map(|flag| command.split_once(flag));
    let body = body.map(|(_, rest)| {
        let text = rest.trim().trim_start_matches('\'').split('\'').next().unwrap();
        json_of(text).unwrap_or_else(|| panic!("{place}: no JSON in {command}"))
    });
    let methods = ["PUT", "PATCH", "DELETE", "GET", "POST"];
    let named = methods.into_iter().find(|method| command.contains(&format!("-X {method}")));
    let method = named.unwrap_or(if body.is_some() { "POST" } else { "GET" });
    Some(Shown { place: format!("{place}: {command}"), method, path: path.to_owned(), body, answer: None })
}

/// Finds bodies between back quotes in a line that names one call.
fn spans_shown(place: &str, line: &str) -> Vec<Shown> {
    let spans: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
    let calls = spans.iter().filter_map(|span| {
        let (method, path) = span.split_once(' ')?;
        path.starts_with(API)
            .then(|| call_at(Some(method), path).unwrap_or_else(|| panic!("{place}: {span}")))
    });
    let calls: Vec<&Route> = calls.collect();
    let [call] = calls.as_slice() else { return Vec::new() };
    let bodies = spans.iter().filter_map(|span| json_of(&span.replace("[…]", "[]")));
    let shown = |body| Shown {
        place: format!("{place}: {line}"),
        method: call.method,
        path: call.path.to_owned(),
        body: Some(body),
        answer: None,
    };
    bodies.map(shown).collect()
}

fn json_of(text: &str) -> Option<Value> {
    text.starts_with('{').then(|| serde_json::from_str(text).ok())?
}

#[test]
fn examples_in_documents_fit_the_description() {
    let document = describe(CALLS);
    let (mut bodies, mut answers) = (0, 0);
    for (path, page) in documents() {
        for shown in shown(&path.file_name().unwrap().to_string_lossy(), &page) {
            let call = call_at(Some(shown.method), &shown.path);
            let call = call.unwrap_or_else(|| panic!("there is no such call: {}", shown.place));
            let operation = &document["paths"][call.path][call.method.to_lowercase()];
            let json = |part: &Value| part["content"]["application/json"]["schema"].clone();
            if let Some(body) = &shown.body {
                let schema = json(&operation["requestBody"]);
                fits(&document, &schema, body).unwrap_or_else(|e| panic!("{}: {e}", shown.place));
                bodies += 1;
            }
            if let Some(answer) = &shown.answer {
                let is_error = answer.get("error").is_some_and(|error| error.get("code").is_some());
                let status = call.doc.answers[0].unwrap().0.to_string();
                let schema = match is_error {
                    true => serde_json::json!({"$ref": "#/components/schemas/Error"}),
                    false => json(&operation["responses"][status]),
                };
                fits(&document, &schema, answer).unwrap_or_else(|e| panic!("answer to {}: {e}", shown.place));
                answers += 1;
            }
        }
    }
    assert!(bodies >= 9 && answers >= 6, "only {bodies} bodies and {answers} answers were found");
}

#[test]
fn a_wrong_example_is_found() {
    let document = describe(CALLS);
    let page = "```sh\n$ curl localhost:7373/api/v1/claim --json \\\n  '{\"naem\":\"a\"}'\n{\"jobs\":[{\"id\":0}]}\n```\n";
    let shown = shown("page", page);
    assert_eq!((shown.len(), shown[0].method, shown[0].path.as_str()), (1, "POST", "/api/v1/claim"));
    let schemas = &document["components"]["schemas"];
    assert!(fits(&document, &schemas["Claim"], shown[0].body.as_ref().unwrap()).is_err());
    assert!(fits(&document, &schemas["Claimed"], shown[0].answer.as_ref().unwrap()).is_err());
}

#[test]
fn paths_in_documents_are_calls() {
    for (path, page) in documents() {
        for span in page.split('`').filter(|span| span.contains(API)) {
            for at in span.match_indices(API).map(|(at, _)| at) {
                let end = span[at..].find(|c: char| c.is_whitespace() || "\"',;)[".contains(c));
                let shown = &span[at..at + end.unwrap_or(span.len() - at)];
                let is_call = shown == API || call_at(None, shown).is_some();
                assert!(is_call, "{}: there is no call at {shown}", path.display());
            }
        }
    }
}

#[test]
fn the_table_of_calls_is_the_list() {
    let page = workspace().join("crates/windlass-dialects/src/native/README.md");
    let page = std::fs::read_to_string(page).unwrap();
    let row = |call: &Route| {
        let role = match call.access {
            Access::Public => "everyone".to_owned(),
            Access::From(role) => role.to_string(),
        };
        format!("| `{} {}` | {role} | {} |", call.method, call.path, call.doc.summary)
    };
    let wanted: Vec<String> = CALLS.iter().map(row).collect();
    let rows = page.lines().skip_while(|line| *line != "| call | role | does |").skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with("| ")).collect();
    assert_eq!(rows, wanted, "the table should be:\n{}", wanted.join("\n"));
}
