//! Description of a failure in a report: class, message, error and backtrace.
//!
//! Workers describe failures in many shapes. Fields that are sent win; fields that are missing are taken from
//! an error object that has them. Long texts are cut, never refused: a worker whose report of a failure is
//! refused has nothing better to send.

use crate::codec::{self, Encoding, Raw, Text};
use crate::native::commands::inline_payload;
use crate::native::wire::MESSAGE_BYTES_MAX;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::Value;
use std::fmt;
use windlass_core::failure::{BACKTRACE_BYTES_MAX, CLASS_BYTES_MAX, cut_end, cut_middle};
use windlass_core::{Format, Payload};

/// Bytes of an error that is a text.
const ERROR_TEXT_BYTES_MAX: usize = 64 * 1024;

/// Keys of an error object, by what they mean.
const CLASS_KEYS: [&str; 3] = ["class", "type", "name"];
const BACKTRACE_KEYS: [&str; 3] = ["backtrace", "stack", "traceback"];

/// Backtrace: one text, or a list of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::native) struct Backtrace(pub String);

impl<'de> Deserialize<'de> for Backtrace {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct BacktraceVisitor;
        impl<'de> Visitor<'de> for BacktraceVisitor {
            type Value = Backtrace;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a backtrace: a string, or a list of strings")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Backtrace, E> {
                Ok(Backtrace(text.to_owned()))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut lines: A) -> Result<Backtrace, A::Error> {
                let mut text = Vec::new();
                while let Some(line) = lines.next_element::<Text<'de>>()? {
                    text.push(line.0);
                }
                Ok(Backtrace(text.join("\n")))
            }
        }
        from.deserialize_any(BacktraceVisitor)
    }
}

/// Description of a failure, within bounds.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Described {
    pub class: Option<String>,
    pub message: Option<String>,
    pub error: Option<Payload>,
    pub backtrace: Option<String>,
}

/// Parts of the description as they were sent.
pub(super) struct Sent<'a> {
    pub class: Option<&'a str>,
    pub message: Option<&'a str>,
    pub error: Option<Raw<'a>>,
    pub backtrace: Option<&'a str>,
}

pub(super) fn described(sent: &Sent<'_>) -> Result<Described, String> {
    let mut described = match sent.error {
        None => Described::default(),
        Some(raw) => from_error(raw, sent.message.is_some())?,
    };
    let own = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
    described.class = own(sent.class).or(described.class);
    described.message = sent.message.map(str::to_owned).or(described.message);
    described.backtrace = own(sent.backtrace).or(described.backtrace);
    Ok(described.within_bounds())
}

impl Described {
    fn within_bounds(self) -> Described {
        Described {
            class: self.class.map(|class| cut_end(&class, CLASS_BYTES_MAX).to_owned()),
            message: self.message.map(|message| cut_middle(&message, MESSAGE_BYTES_MAX)),
            error: self.error,
            backtrace: self.backtrace.map(|text| cut_middle(&text, BACKTRACE_BYTES_MAX)),
        }
    }
}

/// A text is the message if no other was sent, and stays an error if it is too long for one or if there is
/// another. An object is kept, and its known fields are read.
fn from_error(raw: Raw<'_>, has_message: bool) -> Result<Described, String> {
    let (encoding, bytes) = match raw {
        Raw::Json(json) => (Encoding::Json, json.as_bytes()),
        Raw::Msgpack(bytes) => (Encoding::Msgpack, bytes),
    };
    if let Ok(text) = codec::read::<Text<'_>>(encoding, bytes) {
        let is_whole_message = !has_message && text.len() <= MESSAGE_BYTES_MAX;
        let error = match text.len() {
            _ if is_whole_message => None,
            bytes if bytes > ERROR_TEXT_BYTES_MAX => {
                let cut = cut_middle(&text, ERROR_TEXT_BYTES_MAX);
                Some(Payload::new(Format::Text, cut.as_bytes()))
            }
            _ => Some(inline_payload(raw, None)?),
        };
        return Ok(Described { message: Some(text.to_string()), error, ..Described::default() });
    }
    let error = Some(inline_payload(raw, None)?);
    let Ok(Value::Object(fields)) = codec::read_map::<Value>(encoding, bytes) else {
        return Ok(Described { error, ..Described::default() });
    };
    let text = |key: &&str| fields.get(*key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Ok(Described {
        class: CLASS_KEYS.iter().find_map(text),
        message: text(&"message"),
        error,
        backtrace: BACKTRACE_KEYS.iter().find_map(|key| lines(fields.get(*key)?)),
    })
}

/// Backtrace in an error object: a text, or a list of lines or frames.
fn lines(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => {
            let line = |line: &Value| line.as_str().map_or_else(|| line.to_string(), str::to_owned);
            Some(lines.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
        _ => None,
    }
    .filter(|text| !text.is_empty())
}
