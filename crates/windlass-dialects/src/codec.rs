//! JSON and MessagePack, read and written without a tree in between.
//!
//! Reading borrows from the request: a payload is a slice of it ([`Raw`]), and so is a text without escapes
//! ([`Text`]). Writing appends to one buffer ([`Out`]), with the same code for both encodings.

mod msgpack;
mod out;
mod serialize;
#[cfg(test)]
mod tests;
mod transcode;

pub use msgpack::skip as msgpack_length;
pub use out::{Out, Shown};
pub use serialize::{Kept, Nullable};

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

/// Deepest nesting of any value read. Responses add a few levels around a payload, and the strictest common
/// parser stops at 128.
pub const DEPTH_MAX: usize = 100;
/// Deepest nesting in MessagePack, whose parsers use a stack frame per level.
pub const MSGPACK_DEPTH_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Json,
    Msgpack,
}

impl Encoding {
    pub const fn content_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Msgpack => "application/msgpack",
        }
    }
}

/// Reason why bytes are malformed, with the position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

/// Reads a whole body as one value.
pub fn read<'a, T: Deserialize<'a>>(encoding: Encoding, bytes: &'a [u8]) -> Result<T, Malformed> {
    match encoding {
        Encoding::Json => {
            // Checked once for the whole body, so that the parser need not check each text again.
            let text = std::str::from_utf8(bytes)
                .map_err(|e| Malformed(format!("the body is not valid UTF-8 at byte {}", e.valid_up_to())))?;
            serde_json::from_str(text).map_err(|e| Malformed(e.to_string()))
        }
        Encoding::Msgpack => msgpack::read(bytes),
    }
}

/// Reads a body that must be a map. The parsers would also accept a list as a record with its fields in
/// order, which no client intends.
pub fn read_map<'a, T: Deserialize<'a>>(encoding: Encoding, bytes: &'a [u8]) -> Result<T, Malformed> {
    let is_map = match encoding {
        Encoding::Json => bytes.trim_ascii_start().first().is_none_or(|byte| *byte == b'{'),
        Encoding::Msgpack => bytes.first().is_none_or(|byte| matches!(byte, 0x80..=0x8f | 0xde | 0xdf)),
    };
    if is_map { read(encoding, bytes) } else { Err(Malformed("the body must be a JSON object".into())) }
}

/// Text, borrowed from the request unless it contains escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        from.deserialize_str(TextVisitor)
    }
}

impl serde::Serialize for Text<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self)
    }
}

/// Value of any shape, as its bytes in the encoding of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raw<'a> {
    Json(&'a str),
    Msgpack(&'a [u8]),
}

/// Asks the MessagePack reader for a slice instead of a value.
pub(crate) const RAW_MARK: &str = "$windlass::Raw";

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            let text = <&'de serde_json::value::RawValue>::deserialize(from)?.get();
            if nests_too_deep(text.as_bytes()) {
                return Err(D::Error::custom(format_args!(
                    "a value is nested deeper than {DEPTH_MAX} levels"
                )));
            }
            return Ok(Raw::Json(text));
        }
        struct SliceVisitor;
        impl<'de> Visitor<'de> for SliceVisitor {
            type Value = Raw<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<Raw<'de>, E> {
                Ok(Raw::Msgpack(bytes))
            }
        }
        from.deserialize_newtype_struct(RAW_MARK, SliceVisitor)
    }
}

/// The JSON parser skips a raw value without a bound on its depth, but the parser of the response has one.
fn nests_too_deep(json: &[u8]) -> bool {
    // Most values have fewer brackets in total than levels allowed, and need no scan.
    let opening = json.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if opening <= DEPTH_MAX {
        return false;
    }
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return true;
                }
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}
