//! Payload decoded for limits, as a JSON tree. A value that JSON cannot represent becomes an object that
//! equals only itself, and does not affect the values beside it.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};
use std::fmt;
use windlass_core::{Format, Payload};

/// Deeper nesting would overflow the stack, and no limit needs it.
const DEPTH_MAX: usize = 64;

/// Decodes a payload; null if it cannot be decoded.
pub(crate) fn decode_payload(payload: &Payload) -> Value {
    match payload.format {
        Format::Json => serde_json::from_slice(&payload.bytes).unwrap_or_default(),
        Format::Msgpack => {
            let mut reader = rmp_serde::Deserializer::from_read_ref(&*payload.bytes);
            reader.set_max_depth(DEPTH_MAX);
            Any::deserialize(&mut reader).map(|any| any.0).unwrap_or_default()
        }
        Format::Text => Value::String(String::from_utf8_lossy(&payload.bytes).into_owned()),
        Format::Binary => Value::Null,
    }
}

/// MessagePack value as JSON.
struct Any(Value);

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyVisitor)
    }
}

struct AnyVisitor;

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = Any;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Any, E> {
        Ok(Any(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Any, E> {
        Ok(Any(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Any, E> {
        Ok(Any(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Any, E> {
        Ok(Any(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Any, E> {
        Ok(Any(value.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Any, E> {
        Ok(Any(text.into()))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Any, E> {
        Ok(Any(json!({ "$bytes": bytes })))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Any, D::Error> {
        // Extension: its type, then its bytes.
        let Any(parts) = from.deserialize_any(AnyVisitor)?;
        Ok(Any(json!({ "$ext": parts })))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Any, A::Error> {
        let mut items = Vec::new();
        while let Some(Any(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Any(items.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Any, A::Error> {
        let mut fields = Map::new();
        while let Some((Any(key), Any(value))) = map.next_entry()? {
            // Paths consist of texts, so a numeric key is found by its digits.
            let key = match key {
                Value::String(text) => text,
                other => other.to_string(),
            };
            fields.insert(key, value);
        }
        Ok(Any(Value::Object(fields)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Value {
        decode_payload(&Payload::new(Format::Msgpack, bytes))
    }

    #[test]
    fn bytes_and_extensions_do_not_hide_what_stands_beside_them() {
        // {"b": bin(1, 2), "e": ext(5, 9), 7: "seven", "host": "a"}
        let bytes = [
            0x84, 0xa1, b'b', 0xc4, 2, 1, 2, 0xa1, b'e', 0xd4, 5, 9, 7, 0xa5, b's', b'e', b'v', b'e', b'n',
            0xa4, b'h', b'o', b's', b't', 0xa1, b'a',
        ];
        let value = read(&bytes);
        assert_eq!(value["host"], "a");
        assert_eq!(value["7"], "seven");
        assert_eq!(value["b"], json!({ "$bytes": [1, 2] }));
        assert_eq!(value["e"]["$ext"][0], 5);
    }

    #[test]
    fn what_cannot_be_read_is_nothing() {
        assert_eq!(read(&[0xc1]), Value::Null);
        assert_eq!(read(&[0x91; 1_000]), Value::Null);
    }
}
