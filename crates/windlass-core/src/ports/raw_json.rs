//! JSON in its original text.

use super::{ITEM_BYTES, PortError};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// Longest value in bytes. Larger data belongs in a file or an object store, with its address as the value.
pub const VALUE_BYTES_MAX: usize = 1024 * 1024;
/// Nesting of lists and objects: the limit of common JSON parsers, including ours.
pub const VALUE_DEPTH_MAX: usize = 127;

/// JSON value as text: key order and integers of any length are preserved. Equality compares texts. Only
/// blanks around the value are dropped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct RawJson(Arc<str>);

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl RawJson {
    pub fn new(text: &str) -> Result<RawJson, PortError> {
        let (bytes, max) = (text.len(), VALUE_BYTES_MAX);
        if bytes > max {
            return Err(PortError::ValueTooLong { bytes, max });
        }
        let _: IgnoredAny =
            serde_json::from_str(text).map_err(|error| PortError::NotJson { reason: error.to_string() })?;
        if depth(text) > VALUE_DEPTH_MAX {
            return Err(PortError::TooDeep { max: VALUE_DEPTH_MAX });
        }
        Ok(RawJson(text.trim_matches([' ', '\t', '\n', '\r']).into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Bytes of the text plus the overhead of keeping it.
    pub(super) fn cost(&self) -> usize {
        self.0.len() + ITEM_BYTES
    }
}

impl fmt::Display for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RawJson {
    type Error = PortError;
    fn try_from(text: String) -> Result<RawJson, PortError> {
        RawJson::new(&text)
    }
}

/// Nesting depth of a valid JSON text. The validation does not recurse, so it accepts any depth.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0usize);
    let (mut in_text, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
