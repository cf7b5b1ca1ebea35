//! Reference pages as Markdown, generated from the code. The files in `docs/reference` are copies for readers
//! of the repository; a test compares them, and `WINDLASS_UPDATE=1 cargo test -p windlass reference` writes
//! them.

pub(super) mod api;
pub(super) mod command_line;
pub(super) mod configuration;
pub(super) mod metrics;
mod schema;

/// First line of each page, hidden by every renderer.
const NOTICE: &str =
    "<!-- Generated from the code; do not edit. See crates/windlass/src/docs/reference.rs. -->\n";

/// Text in a cell of a table. Code in backticks stays code.
fn cell(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    let parts = text.split('`').enumerate().map(|(index, part)| match index % 2 {
        0 => part.replace('<', "&lt;").replace('*', "\\*"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// Code in a cell of a table; empty for an empty text.
fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}

/// Number with a comma after each group of three digits.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let sign = if number < 0 { "-" } else { "" };
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    format!("{sign}{}", groups.join(","))
}

/// Sentence with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let text = text.trim();
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    let end = if text.ends_with(['.', ':', '?', '!']) { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}
