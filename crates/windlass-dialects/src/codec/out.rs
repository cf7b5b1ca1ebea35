//! Writes a response into one buffer, in either encoding.

use super::Encoding;
use super::serialize::{Kept, Next};
use base64::Engine as _;
use serde::Serialize;
use serde_json::Value;
use windlass_core::{Format, Payload};

/// Response being written. The caller keeps the order: a key, then its value; an `end` for every `begin`.
pub struct Out {
    encoding: Encoding,
    bytes: Vec<u8>,
    /// Open arrays and maps. MessagePack has the number of parts in front of them: its position, and the
    /// number so far.
    open: Vec<Open>,
    /// Kind of the serializer's next text or bytes.
    next: Next,
    /// The last value was `None`: its field is removed.
    wrote_none: bool,
}

/// Position to return to.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    bytes: usize,
    parts: Option<u32>,
}

struct Open {
    at: usize,
    parts: u32,
    is_map: bool,
}

impl Out {
    pub fn new(encoding: Encoding, capacity: usize) -> Out {
        let bytes = Vec::with_capacity(capacity);
        Out { encoding, bytes, open: Vec::new(), next: Next::Value, wrote_none: false }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), parts: self.open.last().map(|open| open.parts) }
    }

    /// Removes a field whose value was `None`.
    pub(super) fn leave_out_none(&mut self, before: Mark) {
        if !std::mem::take(&mut self.wrote_none) {
            return;
        }
        self.bytes.truncate(before.bytes);
        if let (Some(open), Some(parts)) = (self.open.last_mut(), before.parts) {
            open.parts = parts;
        }
    }

    /// Keeps a `None` inside an array, as null.
    pub(super) fn after_parts(&mut self) {
        self.wrote_none = false;
    }

    pub(super) fn expect(&mut self, next: Next) {
        self.next = next;
    }

    pub(super) fn none(&mut self) {
        self.null();
        self.wrote_none = true;
    }

    /// Writes a text from the serializer: a key or a value.
    pub(super) fn text(&mut self, text: &str) {
        match std::mem::take(&mut self.next) {
            Next::Key => self.key(text),
            Next::Value | Next::Json | Next::Msgpack => self.str(text),
        }
    }

    /// Writes bytes from the serializer: an encoded value, or plain bytes.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        match (std::mem::take(&mut self.next), self.encoding) {
            (Next::Json, Encoding::Json) | (Next::Msgpack, Encoding::Msgpack) => {
                self.lead();
                self.bytes.extend_from_slice(bytes);
            }
            (Next::Json, Encoding::Msgpack) => match serde_json::from_slice::<Value>(bytes) {
                Ok(value) => self.value(&value),
                Err(_) => self.bin(bytes),
            },
            (Next::Msgpack, Encoding::Json) | (Next::Key | Next::Value, _) => self.bin(bytes),
        }
    }

    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    pub fn into_bytes(self) -> Vec<u8> {
        debug_assert!(self.open.is_empty(), "every begin has its end");
        self.bytes
    }

    pub fn begin_map(&mut self) {
        self.begin(true);
    }

    pub fn end_map(&mut self) {
        self.end(true);
    }

    pub fn begin_array(&mut self) {
        self.begin(false);
    }

    pub fn end_array(&mut self) {
        self.end(false);
    }

    fn begin(&mut self, is_map: bool) {
        self.lead();
        match self.encoding {
            Encoding::Json => self.bytes.push(if is_map { b'{' } else { b'[' }),
            Encoding::Msgpack => {
                // The 32-bit forms, so that any count can be filled in afterwards.
                self.bytes.push(if is_map { 0xdf } else { 0xdd });
                self.open.push(Open { at: self.bytes.len(), parts: 0, is_map });
                self.bytes.extend_from_slice(&[0; 4]);
            }
        }
    }

    fn end(&mut self, is_map: bool) {
        match self.encoding {
            Encoding::Json => self.bytes.push(if is_map { b'}' } else { b']' }),
            Encoding::Msgpack => {
                if let Some(open) = self.open.pop() {
                    debug_assert_eq!(open.is_map, is_map);
                    self.bytes[open.at..open.at + 4].copy_from_slice(&open.parts.to_be_bytes());
                }
            }
        }
    }

    pub fn key(&mut self, key: &str) {
        match self.encoding {
            Encoding::Json => {
                if self.bytes.last() != Some(&b'{') {
                    self.bytes.push(b',');
                }
                self.json_text(key);
                self.bytes.push(b':');
            }
            Encoding::Msgpack => {
                if let Some(open) = self.open.last_mut() {
                    open.parts += 1;
                }
                self.msgpack_text(key);
            }
        }
    }

    /// Writes the comma before a value, or increments the count.
    fn lead(&mut self) {
        match self.encoding {
            // A complete value never ends in these bytes, so the last byte shows whether this value is the
            // first.
            Encoding::Json if !matches!(self.bytes.last(), None | Some(b':' | b'[')) => self.bytes.push(b','),
            Encoding::Json => {}
            Encoding::Msgpack => {
                if let Some(open) = self.open.last_mut().filter(|open| !open.is_map) {
                    open.parts += 1;
                }
            }
        }
    }

    pub fn null(&mut self) {
        self.lead();
        match self.encoding {
            Encoding::Json => self.bytes.extend_from_slice(b"null"),
            Encoding::Msgpack => self.bytes.push(0xc0),
        }
    }

    pub fn bool(&mut self, value: bool) {
        self.lead();
        match (self.encoding, value) {
            (Encoding::Json, true) => self.bytes.extend_from_slice(b"true"),
            (Encoding::Json, false) => self.bytes.extend_from_slice(b"false"),
            (Encoding::Msgpack, true) => self.bytes.push(0xc3),
            (Encoding::Msgpack, false) => self.bytes.push(0xc2),
        }
    }

    pub fn uint(&mut self, value: u64) {
        self.lead();
        match self.encoding {
            Encoding::Json => self.bytes.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
            Encoding::Msgpack => self.msgpack_uint(value),
        }
    }

    pub fn int(&mut self, value: i64) {
        if let Ok(value) = u64::try_from(value) {
            return self.uint(value);
        }
        self.lead();
        match self.encoding {
            Encoding::Json => self.bytes.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
            Encoding::Msgpack if value >= -32 => self.bytes.push(value as u8),
            Encoding::Msgpack => {
                self.bytes.push(0xd3);
                self.bytes.extend_from_slice(&value.to_be_bytes());
            }
        }
    }

    pub fn float(&mut self, value: f64) {
        self.lead();
        match self.encoding {
            // JSON has no infinities and no NaN.
            Encoding::Json if !value.is_finite() => self.bytes.extend_from_slice(b"null"),
            Encoding::Json => self.bytes.extend_from_slice(value.to_string().as_bytes()),
            Encoding::Msgpack => {
                self.bytes.push(0xcb);
                self.bytes.extend_from_slice(&value.to_be_bytes());
            }
        }
    }

    pub fn str(&mut self, text: &str) {
        self.lead();
        match self.encoding {
            Encoding::Json => self.json_text(text),
            Encoding::Msgpack => self.msgpack_text(text),
        }
    }

    pub fn opt_str(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.key(key);
            self.str(text);
        }
    }

    pub fn opt_int(&mut self, key: &str, value: Option<i64>) {
        if let Some(value) = value {
            self.key(key);
            self.int(value);
        }
    }

    /// Base64 in JSON, bin in MessagePack.
    pub fn bin(&mut self, data: &[u8]) {
        self.lead();
        match self.encoding {
            Encoding::Json => {
                self.bytes.push(b'"');
                let start = self.bytes.len();
                self.bytes.resize(start + data.len().div_ceil(3) * 4, 0);
                let written = base64::engine::general_purpose::STANDARD
                    .encode_slice(data, &mut self.bytes[start..])
                    .unwrap_or(0);
                self.bytes.truncate(start + written);
                self.bytes.push(b'"');
            }
            Encoding::Msgpack => {
                self.msgpack_head(data.len(), [0xc4, 0xc5, 0xc6]);
                self.bytes.extend_from_slice(data);
            }
        }
    }

    /// Payload under `key`, with the additions of [`Shown`].
    pub fn payload(&mut self, key: &str, payload: &Payload) {
        let Shown { value, base64, format } = Shown::new(payload, self.encoding);
        if let Some(value) = value {
            self.key(key);
            // Writing to a Vec does not fail.
            let _ = value.serialize(&mut *self);
        }
        if let Some(Kept::Bin(bytes)) = base64 {
            self.key(&format!("{key}_base64"));
            self.bin(bytes);
        }
        if let Some(format) = format {
            self.key(&if key == "payload" { "format".to_owned() } else { format!("{key}_format") });
            self.str(format);
        }
    }

    /// Payload as a value, converted to this encoding as far as possible.
    pub fn content(&mut self, payload: &Payload) {
        let bytes = &payload.bytes[..];
        match (self.encoding, payload.format) {
            (Encoding::Json, Format::Json) => {
                self.lead();
                self.bytes.extend_from_slice(bytes);
            }
            (Encoding::Json, Format::Msgpack) => {
                self.lead();
                if !super::transcode::msgpack_as_json(bytes, &mut self.bytes) {
                    self.bytes.extend_from_slice(b"null");
                }
            }
            (Encoding::Msgpack, Format::Msgpack) if super::msgpack_length(bytes) == Ok(bytes.len()) => {
                self.lead();
                self.bytes.extend_from_slice(bytes);
            }
            (Encoding::Msgpack, Format::Json) => match serde_json::from_slice::<Value>(bytes) {
                Ok(value) => self.value(&value),
                Err(_) => self.bin(bytes),
            },
            (_, Format::Text) => match std::str::from_utf8(bytes) {
                Ok(text) => self.str(text),
                Err(_) => self.bin(bytes),
            },
            (_, Format::Msgpack | Format::Binary) => self.bin(bytes),
        }
    }

    /// Value that is already JSON.
    pub fn json(&mut self, text: &str) {
        match self.encoding {
            Encoding::Json => {
                self.lead();
                self.bytes.extend_from_slice(text.as_bytes());
            }
            Encoding::Msgpack => match serde_json::from_str::<Value>(text) {
                Ok(value) => self.value(&value),
                Err(_) => self.str(text),
            },
        }
    }

    /// Value tree, for rare or small values.
    pub fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.null(),
            Value::Bool(value) => self.bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => self.uint(value),
                (_, Some(value)) => self.int(value),
                _ => self.float(number.as_f64().unwrap_or(0.0)),
            },
            Value::String(text) => self.str(text),
            Value::Array(parts) => {
                self.begin_array();
                parts.iter().for_each(|part| self.value(part));
                self.end_array();
            }
            Value::Object(fields) => {
                self.begin_map();
                for (key, value) in fields {
                    self.key(key);
                    self.value(value);
                }
                self.end_map();
            }
        }
    }

    fn json_text(&mut self, text: &str) {
        // Writing to a Vec does not fail, and every string has a form in JSON.
        let _ = serde_json::to_writer(&mut self.bytes, text);
    }

    fn msgpack_text(&mut self, text: &str) {
        if text.len() < 32 {
            self.bytes.push(0xa0 | text.len() as u8);
        } else {
            self.msgpack_head(text.len(), [0xd9, 0xda, 0xdb]);
        }
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn msgpack_head(&mut self, length: usize, markers: [u8; 3]) {
        if let Ok(length) = u8::try_from(length) {
            self.bytes.extend_from_slice(&[markers[0], length]);
        } else if let Ok(length) = u16::try_from(length) {
            self.bytes.push(markers[1]);
            self.bytes.extend_from_slice(&length.to_be_bytes());
        } else {
            self.bytes.push(markers[2]);
            self.bytes.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }

    fn msgpack_uint(&mut self, value: u64) {
        if value < 128 {
            self.bytes.push(value as u8);
        } else if let Ok(value) = u8::try_from(value) {
            self.bytes.extend_from_slice(&[0xcc, value]);
        } else if let Ok(value) = u16::try_from(value) {
            self.bytes.push(0xcd);
            self.bytes.extend_from_slice(&value.to_be_bytes());
        } else if let Ok(value) = u32::try_from(value) {
            self.bytes.push(0xce);
            self.bytes.extend_from_slice(&value.to_be_bytes());
        } else {
            self.bytes.push(0xcf);
            self.bytes.extend_from_slice(&value.to_be_bytes());
        }
    }
}

/// Payload in a form that a reader of the response's encoding can use directly:
///
/// | stored as | JSON response | MessagePack response |
/// |---|---|---|
/// | json | the value, byte for byte | the same value in MessagePack |
/// | msgpack | the same value where JSON can represent it, and `base64` | the value, byte for byte |
/// | text | a string | a string |
/// | binary | `base64` | bin |
///
/// `format` is set for all but json.
#[derive(Clone, Debug)]
pub struct Shown<'a> {
    pub value: Option<Kept<'a>>,
    pub base64: Option<Kept<'a>>,
    pub format: Option<&'static str>,
}

impl<'a> Shown<'a> {
    pub fn new(payload: &'a Payload, encoding: Encoding) -> Shown<'a> {
        let bytes = &payload.bytes[..];
        let (value, base64) = match (encoding, payload.format) {
            (_, Format::Json) => (Some(Kept::Json(bytes)), None),
            (Encoding::Msgpack, Format::Msgpack) if super::msgpack_length(bytes) == Ok(bytes.len()) => {
                (Some(Kept::Msgpack(bytes)), None)
            }
            (Encoding::Json, Format::Msgpack) => {
                let value = super::read::<Value>(Encoding::Msgpack, bytes).ok();
                (value.map(Kept::Tree), Some(Kept::Bin(bytes)))
            }
            (_, Format::Text) if std::str::from_utf8(bytes).is_ok() => {
                (Some(Kept::Text(std::str::from_utf8(bytes).unwrap_or_default())), None)
            }
            (Encoding::Msgpack, Format::Msgpack | Format::Text | Format::Binary) => {
                (Some(Kept::Bin(bytes)), None)
            }
            (Encoding::Json, Format::Text | Format::Binary) => (None, Some(Kept::Bin(bytes))),
        };
        let format = Some(format_name(payload.format)).filter(|_| payload.format != Format::Json);
        Shown { value, base64, format }
    }
}

pub(super) fn format_name(format: Format) -> &'static str {
    match format {
        Format::Json => "json",
        Format::Msgpack => "msgpack",
        Format::Text => "text",
        Format::Binary => "binary",
    }
}
