//! Payload as typed on the command line: JSON, text or bytes.

use crate::fault::Fault;
use crate::output;
use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use std::fmt;

/// Characters of a line shown on each side of an error.
const SHOWN: usize = 30;

/// Payload in the fields of the API.
#[derive(Debug, Default, Serialize)]
pub(super) struct Payload {
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'static str>,
    /// Raw JSON text: parsing it into a tree would reorder its keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl Payload {
    /// Reads a payload. Bytes that are not UTF-8 stay bytes. Text that begins like JSON must be valid JSON,
    /// unless `as_text`.
    pub(super) fn read(bytes: &[u8], as_text: bool) -> Result<Payload, BrokenJson> {
        let Ok(text) = std::str::from_utf8(bytes) else {
            let payload_base64 = Some(BASE64.encode(bytes));
            return Ok(Payload { format: Some("binary"), payload_base64, ..Payload::default() });
        };
        let as_is =
            || Payload { format: Some("text"), payload: to_raw_value(text).ok(), ..Payload::default() };
        if as_text {
            return Ok(as_is());
        }
        match serde_json::from_str::<Box<RawValue>>(text) {
            Ok(json) => Ok(Payload { payload: Some(json), ..Payload::default() }),
            Err(error) if text.trim_start().starts_with(['{', '[', '"']) => Err(BrokenJson::at(text, &error)),
            Err(_) => Ok(as_is()),
        }
    }
}

impl Payload {
    /// Value in JSON, for calls whose whole body it is; `None`: bytes.
    pub(super) fn into_json(self) -> Option<Box<RawValue>> {
        self.payload
    }
}

/// Place at which a payload stops being JSON.
#[derive(Debug)]
pub(super) struct BrokenJson {
    /// Error, with its line and column.
    reason: String,
    /// Part of the line, and the position of the error in it.
    shown: String,
    mark: usize,
}

impl BrokenJson {
    fn at(text: &str, error: &serde_json::Error) -> BrokenJson {
        let line = text.split('\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
        // The column counts bytes, up to and including the wrong one.
        let before = error.column().saturating_sub(usize::from(!error.is_eof())).min(line.len());
        let before = line.as_bytes().get(..before).map(String::from_utf8_lossy).unwrap_or_default();
        let place = before.chars().count();
        let first = place.saturating_sub(SHOWN);
        let part: String = line.chars().skip(first).take(2 * SHOWN).collect();
        let (head, mark) = if first > 0 { ("…", place - first + 1) } else { ("", place) };
        let shown = format!("{head}{}", output::harmless(&part));
        BrokenJson { reason: reason(text, error), shown, mark }
    }

    /// Usage error; `source` names the payload.
    pub(super) fn fault(&self, source: &str) -> Fault {
        Fault::usage(format!("{source} begins like JSON, but is not: {self}\nif it is text, add --text"))
    }
}

fn reason(text: &str, error: &serde_json::Error) -> String {
    let said = error.to_string();
    let why = said.split(" at line ").next().unwrap_or_default();
    match text.contains('\n') {
        true => format!("{why} at line {}, column {}", error.line(), error.column()),
        false => format!("{why} at column {}", error.column()),
    }
}

impl fmt::Display for BrokenJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}\n  {:>width$}", self.reason, self.shown, "^", width = self.mark + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], as_text: bool) -> Result<String, String> {
        let read = Payload::read(bytes, as_text);
        read.map(|payload| serde_json::to_string(&payload).unwrap_or_default())
            .map_err(|broken| broken.to_string())
    }

    #[test]
    fn a_payload_is_json_text_or_bytes() {
        for (bytes, as_text, fields) in [
            (&b"{\"b\":1, \"a\":[ ]}"[..], false, r#"{"payload":{"b":1, "a":[ ]}}"#),
            (b" [1]\n", false, r#"{"payload":[1]}"#),
            (b"42", false, r#"{"payload":42}"#),
            (b"42", true, r#"{"format":"text","payload":"42"}"#),
            (b"just words", false, r#"{"format":"text","payload":"just words"}"#),
            (b"", false, r#"{"format":"text","payload":""}"#),
            (b"nul", false, r#"{"format":"text","payload":"nul"}"#),
            (b"{\"to\":\"ann", true, r#"{"format":"text","payload":"{\"to\":\"ann"}"#),
            (b"{\xff", false, r#"{"format":"binary","payload_base64":"e/8="}"#),
            (b"\xff\x00", true, r#"{"format":"binary","payload_base64":"/wA="}"#),
        ] {
            let found = read(bytes, as_text).expect("a payload");
            assert!(found.starts_with(fields), "{found} is not {fields}");
        }
    }

    #[test]
    fn what_begins_like_json_and_is_not_is_refused_with_the_place() {
        for (text, said) in [
            ("{\"to\":\"ann", "EOF while parsing a string at column 10\n  {\"to\":\"ann\n            ^"),
            ("[1,]", "expected value at column 4\n  [1,]\n     ^"),
            ("\"ä\" ö", "trailing characters at column 6\n  \"ä\" ö\n      ^"),
            ("{\n\t\"a\" 1}", "expected `:` at line 2, column 6\n   \"a\" 1}\n       ^"),
            ("  {a:1}", "key must be a string at column 4\n    {a:1}\n     ^"),
        ] {
            assert_eq!(read(text.as_bytes(), false).expect_err(text), said, "{text}");
        }
    }

    #[test]
    fn of_a_long_line_the_part_with_the_error_is_shown() {
        let text = format!("[{}x{}]", "1,".repeat(100), ",2".repeat(100));
        let said = read(text.as_bytes(), false).expect_err("not JSON");
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[1].chars().count(), 2 + 1 + 2 * SHOWN, "{said}");
        assert_eq!(lines[1].chars().nth(lines[2].len() - 1), Some('x'), "{said}");
    }
}
