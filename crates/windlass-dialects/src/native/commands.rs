//! Conversions from request fields to engine types that several calls share.

use super::wire::{self, When};
use crate::codec::{self, Encoding, Raw, Text};
use base64::Engine as _;
use std::sync::Arc;
use windlass_core::repeat::Repeat;
use windlass_core::{Format, Payload};
use windlass_engine::RunAt;

pub(super) fn run_at(at: Option<When>, delay_ms: Option<i64>) -> Result<RunAt, String> {
    match (at, delay_ms) {
        (Some(_), Some(_)) => Err("`run_at` and `delay_ms` cannot be combined; send one of them".into()),
        (Some(When(at)), None) => Ok(RunAt::At(at)),
        (None, Some(delay_ms)) if delay_ms < 0 => Err("`delay_ms` must not be negative".into()),
        (None, Some(0)) | (None, None) => Ok(RunAt::Now),
        (None, Some(delay_ms)) => Ok(RunAt::After(delay_ms)),
    }
}

pub(super) fn repeat(rule: &str) -> Result<Repeat, String> {
    within("repeat", rule, wire::REPEAT_BYTES_MAX)?;
    Repeat::parse(rule).map_err(|e| format!("`repeat`: {e}"))
}

pub(super) fn tags(tags: &[Text<'_>]) -> Result<Vec<Arc<str>>, String> {
    if tags.len() > wire::TAGS_MAX {
        return Err(format!("{} tags; the maximum is {}", tags.len(), wire::TAGS_MAX));
    }
    tags.iter().map(|tag| within("tags", tag, wire::LABEL_BYTES_MAX).map(|()| Arc::from(&**tag))).collect()
}

/// Checks that a text is neither empty nor too long.
pub(super) fn within(field: &str, text: &str, bytes_max: usize) -> Result<(), String> {
    match text.len() {
        0 => Err(format!("`{field}` must not be empty")),
        bytes if bytes > bytes_max => {
            Err(format!("`{field}` is {bytes} bytes long; the maximum is {bytes_max}"))
        }
        _ => Ok(()),
    }
}

/// Builds a payload from the request; `None`: none was sent.
pub(super) fn payload(
    raw: Option<Raw<'_>>,
    base64: Option<&Text<'_>>,
    format: Option<Format>,
) -> Result<Option<Payload>, String> {
    match (raw, base64) {
        (Some(_), Some(_)) => {
            Err("`payload` and `payload_base64` cannot be combined; send one of them".into())
        }
        (None, None) => Ok(None),
        (Some(raw), None) => inline_payload(raw, format).map(Some),
        (None, Some(text)) => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(text.as_bytes())
                .map_err(|e| format!("`payload_base64` is not base64: {e}"))?;
            let format = format.unwrap_or(Format::Binary);
            checked(format, bytes).map(Some)
        }
    }
}

pub(super) fn inline_payload(raw: Raw<'_>, format: Option<Format>) -> Result<Payload, String> {
    let expected_text = || "`payload` must be a string when `format` is \"text\"".to_owned();
    match (raw, format) {
        (Raw::Json(json), None | Some(Format::Json)) => Ok(Payload::json(json)),
        (Raw::Json(json), Some(Format::Text)) => {
            let text: Text<'_> = codec::read(Encoding::Json, json.as_bytes()).map_err(|_| expected_text())?;
            Ok(Payload::new(Format::Text, text.as_bytes()))
        }
        (Raw::Json(_), Some(Format::Msgpack | Format::Binary)) => {
            Err("in a JSON body, send a payload of this format as `payload_base64`".into())
        }
        (Raw::Msgpack(bytes), None | Some(Format::Binary)) => match (msgpack_bin(bytes), format) {
            (Some(content), _) => Ok(Payload::new(Format::Binary, content)),
            (None, None) => Ok(Payload::new(Format::Msgpack, bytes)),
            (None, Some(_)) => Err("`payload` must be a bin when `format` is \"binary\"".into()),
        },
        (Raw::Msgpack(bytes), Some(Format::Msgpack)) => Ok(Payload::new(Format::Msgpack, bytes)),
        (Raw::Msgpack(bytes), Some(Format::Text)) => {
            let text: Text<'_> = codec::read(Encoding::Msgpack, bytes).map_err(|_| expected_text())?;
            Ok(Payload::new(Format::Text, text.as_bytes()))
        }
        (Raw::Msgpack(bytes), Some(Format::Json)) => {
            let value: serde_json::Value = codec::read(Encoding::Msgpack, bytes)
                .map_err(|e| format!("`payload` cannot be represented in JSON: {e}"))?;
            Ok(Payload::new(Format::Json, value.to_string().into_bytes()))
        }
    }
}

/// Content of a MessagePack `bin` value; `None`: another type.
fn msgpack_bin(value: &[u8]) -> Option<&[u8]> {
    let head = match value.first()? {
        0xc4 => 2,
        0xc5 => 3,
        0xc6 => 5,
        _ => return None,
    };
    value.get(head..)
}

fn checked(format: Format, bytes: Vec<u8>) -> Result<Payload, String> {
    match format {
        Format::Json => {
            codec::read::<Raw<'_>>(Encoding::Json, &bytes).map_err(|e| format!("`payload_base64`: {e}"))?;
        }
        Format::Text => {
            std::str::from_utf8(&bytes).map_err(|_| "`payload_base64` is not UTF-8")?;
        }
        Format::Msgpack => match codec::msgpack_length(&bytes) {
            Ok(length) if length == bytes.len() => {}
            Ok(_) => return Err("`payload_base64` contains more than one MessagePack value".into()),
            Err(e) => return Err(format!("`payload_base64`: {e}")),
        },
        Format::Binary => {}
    }
    Ok(Payload::new(format, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_in_messagepack_are_kept_in_the_format_asked_for() {
        let bin = inline_payload(Raw::Msgpack(&[0xc4, 2, 1, 2]), None).unwrap();
        assert_eq!(bin, Payload::new(Format::Binary, [1, 2]));
        let map = inline_payload(Raw::Msgpack(&[0x81, 0xa1, b'a', 1]), Some(Format::Json)).unwrap();
        assert_eq!(map, Payload::json(r#"{"a":1}"#));
        assert!(inline_payload(Raw::Msgpack(&[0x01]), Some(Format::Binary)).is_err());
    }
}
