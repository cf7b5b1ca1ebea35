//! MessagePack reader over a slice. Unlike `rmp-serde` it can return a value as its bytes, the form in which
//! payloads are stored, and it never allocates for a length before it has seen the bytes.

use super::{MSGPACK_DEPTH_MAX, Malformed, RAW_MARK};
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use std::fmt;

pub(super) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Malformed> {
    let mut reader = Reader::new(bytes);
    let value = T::deserialize(&mut reader).map_err(|e| reader.place(e))?;
    if reader.rest.is_empty() {
        return Ok(value);
    }
    Err(reader.place(Trouble("unexpected bytes after the end of the value".into())))
}

/// Number of bytes of the first value in `bytes`.
pub fn skip(bytes: &[u8]) -> Result<usize, Malformed> {
    let mut reader = Reader::new(bytes);
    reader.skip_value().map_err(|e| reader.place(e))?;
    Ok(bytes.len() - reader.rest.len())
}

pub(super) struct Reader<'de> {
    all: usize,
    rest: &'de [u8],
    depth: usize,
}

#[derive(Debug)]
pub(super) struct Trouble(String);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Trouble {}

impl de::Error for Trouble {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Trouble(message.to_string())
    }
}

/// Head of a value: all of it for scalars, the length for the rest.
pub(super) enum Head {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Str(usize),
    Bin(usize),
    Array(usize),
    Map(usize),
    /// Length without the type byte.
    Ext(usize),
}

impl Head {
    /// Some writers use the signed forms for small positive numbers; both read as unsigned.
    fn signed(value: i64) -> Head {
        u64::try_from(value).map_or(Head::Signed(value), Head::Unsigned)
    }
}

impl<'de> Reader<'de> {
    pub(super) fn new(bytes: &'de [u8]) -> Reader<'de> {
        Reader { all: bytes.len(), rest: bytes, depth: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn place(&self, trouble: Trouble) -> Malformed {
        Malformed(format!("{} at byte {}", trouble.0, self.all - self.rest.len()))
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<&'de [u8], Trouble> {
        match self.rest.split_at_checked(bytes) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(Trouble("the MessagePack value is truncated".into())),
        }
    }

    pub(super) fn number<const N: usize>(&mut self) -> Result<[u8; N], Trouble> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn length(&mut self, bytes: usize) -> Result<usize, Trouble> {
        Ok(self.take(bytes)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    pub(super) fn head(&mut self) -> Result<Head, Trouble> {
        let [marker] = self.number()?;
        Ok(match marker {
            0x00..=0x7f => Head::Unsigned(marker.into()),
            0x80..=0x8f => Head::Map(usize::from(marker & 0x0f)),
            0x90..=0x9f => Head::Array(usize::from(marker & 0x0f)),
            0xa0..=0xbf => Head::Str(usize::from(marker & 0x1f)),
            0xc0 => Head::Nil,
            0xc1 => return Err(Trouble("invalid MessagePack byte 0xc1".into())),
            0xc2 | 0xc3 => Head::Bool(marker == 0xc3),
            0xc4 => Head::Bin(self.length(1)?),
            0xc5 => Head::Bin(self.length(2)?),
            0xc6 => Head::Bin(self.length(4)?),
            0xc7 => Head::Ext(self.length(1)?),
            0xc8 => Head::Ext(self.length(2)?),
            0xc9 => Head::Ext(self.length(4)?),
            0xca => Head::Float(f32::from_be_bytes(self.number()?).into()),
            0xcb => Head::Float(f64::from_be_bytes(self.number()?)),
            0xcc => Head::Unsigned(u8::from_be_bytes(self.number()?).into()),
            0xcd => Head::Unsigned(u16::from_be_bytes(self.number()?).into()),
            0xce => Head::Unsigned(u32::from_be_bytes(self.number()?).into()),
            0xcf => Head::Unsigned(u64::from_be_bytes(self.number()?)),
            0xd0 => Head::signed(i8::from_be_bytes(self.number()?).into()),
            0xd1 => Head::signed(i16::from_be_bytes(self.number()?).into()),
            0xd2 => Head::signed(i32::from_be_bytes(self.number()?).into()),
            0xd3 => Head::signed(i64::from_be_bytes(self.number()?)),
            0xd4..=0xd8 => Head::Ext(1 << (marker - 0xd4)),
            0xd9 => Head::Str(self.length(1)?),
            0xda => Head::Str(self.length(2)?),
            0xdb => Head::Str(self.length(4)?),
            0xdc => Head::Array(self.length(2)?),
            0xdd => Head::Array(self.length(4)?),
            0xde => Head::Map(self.length(2)?),
            0xdf => Head::Map(self.length(4)?),
            0xe0..=0xff => Head::Signed(i64::from(marker as i8)),
        })
    }

    pub(super) fn deeper(&mut self) -> Result<(), Trouble> {
        self.depth += 1;
        if self.depth > MSGPACK_DEPTH_MAX {
            return Err(Trouble(format!("a value is nested deeper than {MSGPACK_DEPTH_MAX} levels")));
        }
        Ok(())
    }

    /// The next value as its bytes.
    pub(super) fn slice(&mut self) -> Result<&'de [u8], Trouble> {
        let before = self.rest;
        self.skip_value()?;
        Ok(&before[..before.len() - self.rest.len()])
    }

    pub(super) fn shallower(&mut self) {
        self.depth -= 1;
    }

    fn skip_value(&mut self) -> Result<(), Trouble> {
        let parts = match self.head()? {
            Head::Nil | Head::Bool(_) | Head::Unsigned(_) | Head::Signed(_) | Head::Float(_) => return Ok(()),
            Head::Bin(bytes) => return self.take(bytes).map(drop),
            Head::Ext(bytes) => return self.take(bytes.saturating_add(1)).map(drop),
            Head::Str(bytes) => return self.text(bytes).map(drop),
            Head::Array(parts) => parts,
            Head::Map(pairs) => pairs.saturating_mul(2),
        };
        self.deeper()?;
        for _ in 0..parts {
            self.skip_value()?;
        }
        self.depth -= 1;
        Ok(())
    }

    pub(super) fn text(&mut self, bytes: usize) -> Result<&'de str, Trouble> {
        std::str::from_utf8(self.take(bytes)?).map_err(|_| Trouble("a string is not UTF-8".into()))
    }

    fn next_is_nil(&self) -> bool {
        self.rest.first() == Some(&0xc0)
    }
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Trouble;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Trouble> {
        match self.head()? {
            Head::Nil => visitor.visit_unit(),
            Head::Bool(value) => visitor.visit_bool(value),
            Head::Unsigned(value) => visitor.visit_u64(value),
            Head::Signed(value) => visitor.visit_i64(value),
            Head::Float(value) => visitor.visit_f64(value),
            Head::Str(bytes) => visitor.visit_borrowed_str(self.text(bytes)?),
            Head::Bin(bytes) => visitor.visit_borrowed_bytes(self.take(bytes)?),
            Head::Ext(bytes) => visitor.visit_borrowed_bytes(self.take(bytes.saturating_add(1))?),
            Head::Array(parts) => {
                self.deeper()?;
                let value = visitor.visit_seq(Parts { reader: self, left: parts })?;
                self.depth -= 1;
                Ok(value)
            }
            Head::Map(pairs) => {
                self.deeper()?;
                let value = visitor.visit_map(Parts { reader: self, left: pairs })?;
                self.depth -= 1;
                Ok(value)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Trouble> {
        if self.next_is_nil() {
            self.take(1)?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Trouble> {
        if name != RAW_MARK {
            return visitor.visit_newtype_struct(self);
        }
        visitor.visit_borrowed_bytes(self.slice()?)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Trouble> {
        let Head::Str(bytes) = self.head()? else {
            return Err(Trouble("expected a string".into()));
        };
        let text: BorrowedStrDeserializer<'de, Trouble> = BorrowedStrDeserializer::new(self.text(bytes)?);
        visitor.visit_enum(text)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Trouble> {
        self.skip_value()?;
        visitor.visit_unit()
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier
    }
}

struct Parts<'r, 'de> {
    reader: &'r mut Reader<'de>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Parts<'_, 'de> {
    type Error = Trouble;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Trouble> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

impl<'de> MapAccess<'de> for Parts<'_, 'de> {
    type Error = Trouble;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Trouble> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Trouble> {
        seed.deserialize(&mut *self.reader)
    }
}

impl<'de> IntoDeserializer<'de, Trouble> for &mut Reader<'de> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}
