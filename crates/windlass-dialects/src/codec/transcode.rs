//! MessagePack as JSON for display: everything is shown, but not everything can be read back.

use super::msgpack::{Head, Reader, Trouble};
use base64::Engine as _;
use std::io::Write;

/// Appends the value as JSON. Returns false, with nothing appended, if the bytes are not exactly one value.
///
/// Bytes become base64, an extension `{"ext": type, "data": base64}`, a key that is not a text its digits or
/// the base64 of its bytes, and a float without a form in JSON null.
pub(super) fn msgpack_as_json(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut reader = Reader::new(bytes);
    let whole = value(&mut reader, out).is_ok() && reader.is_at_end();
    if !whole {
        out.truncate(start);
    }
    whole
}

fn value(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), Trouble> {
    match reader.head()? {
        Head::Nil => out.extend_from_slice(b"null"),
        Head::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Head::Unsigned(value) => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
        Head::Signed(value) => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
        Head::Float(value) if !value.is_finite() => out.extend_from_slice(b"null"),
        Head::Float(value) => json(&value, out),
        Head::Str(bytes) => json(reader.text(bytes)?, out),
        Head::Bin(bytes) => base64(reader.take(bytes)?, out),
        Head::Ext(bytes) => {
            let kind = i8::from_be_bytes(reader.number()?);
            // Writing to a Vec does not fail.
            let _ = write!(out, "{{\"ext\":{kind},\"data\":");
            base64(reader.take(bytes)?, out);
            out.push(b'}');
        }
        Head::Array(parts) => {
            reader.deeper()?;
            out.push(b'[');
            for part in 0..parts {
                if part > 0 {
                    out.push(b',');
                }
                value(reader, out)?;
            }
            out.push(b']');
            reader.shallower();
        }
        Head::Map(pairs) => {
            reader.deeper()?;
            out.push(b'{');
            for pair in 0..pairs {
                if pair > 0 {
                    out.push(b',');
                }
                key(reader, out)?;
                out.push(b':');
                value(reader, out)?;
            }
            out.push(b'}');
            reader.shallower();
        }
    }
    Ok(())
}

fn key(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), Trouble> {
    let bytes = reader.slice()?;
    let mut inner = Reader::new(bytes);
    match inner.head()? {
        Head::Str(length) => json(inner.text(length)?, out),
        Head::Nil | Head::Bool(_) | Head::Unsigned(_) | Head::Signed(_) | Head::Float(_) => {
            let mut text = Vec::new();
            value(&mut Reader::new(bytes), &mut text)?;
            json(&*String::from_utf8_lossy(&text), out);
        }
        // Not as JSON within a text: each level of keys within keys would double the escapes.
        Head::Bin(_) | Head::Ext(_) | Head::Array(_) | Head::Map(_) => base64(bytes, out),
    }
    Ok(())
}

fn json<T: serde::Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    // Writing to a Vec does not fail, and every text and finite number has a form in JSON.
    let _ = serde_json::to_writer(out, value);
}

fn base64(data: &[u8], out: &mut Vec<u8>) {
    json(&base64::engine::general_purpose::STANDARD.encode(data), out);
}
