//! Writes any [`Serialize`] value into an [`Out`], in either encoding.
//!
//! A field that is `None` is left out together with its key. A field that must appear as null is a
//! [`Nullable`].

use super::Out;
use serde::ser::{
    Error, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple, Serializer,
};
use std::fmt;

/// Names of newtypes whose bytes are an encoded value.
const JSON_MARK: &str = "$windlass::Json";
const MSGPACK_MARK: &str = "$windlass::Msgpack";

/// Stored value in a response.
#[derive(Clone, Debug)]
pub enum Kept<'a> {
    /// The bytes of a JSON value.
    Json(&'a [u8]),
    /// The bytes of a MessagePack value; only in MessagePack responses.
    Msgpack(&'a [u8]),
    /// Base64 in JSON, bin in MessagePack.
    Bin(&'a [u8]),
    Text(&'a str),
    Tree(serde_json::Value),
}

impl Serialize for Kept<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Kept::Json(bytes) => to.serialize_newtype_struct(JSON_MARK, &Kept::Bin(bytes)),
            Kept::Msgpack(bytes) => to.serialize_newtype_struct(MSGPACK_MARK, &Kept::Bin(bytes)),
            Kept::Bin(bytes) => to.serialize_bytes(bytes),
            Kept::Text(text) => to.serialize_str(text),
            Kept::Tree(value) => value.serialize(to),
        }
    }
}

/// Field that is always present, and null without a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nullable<T>(pub Option<T>);

impl<T: Serialize> Serialize for Nullable<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(value) => value.serialize(to),
            None => to.serialize_unit(),
        }
    }
}

/// Reason why a value could not be written. Does not occur with the types of responses.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unwritable(String);

impl Error for Unwritable {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Unwritable(message.to_string())
    }
}

type Written = Result<(), Unwritable>;
type Never = Impossible<(), Unwritable>;

fn unnamed<T>(name: &str) -> Result<T, Unwritable> {
    Err(Unwritable(format!("{name} is of a shape that answers do not have")))
}

/// Methods that write a scalar with a method of [`Out`].
macro_rules! scalars {
    ($($serialize:ident($from:ty) => $write:ident as $to:ty,)*) => {
        $(fn $serialize(self, value: $from) -> Written {
            self.$write(<$to>::from(value));
            Ok(())
        })*
    };
}

impl<'o> Serializer for &'o mut Out {
    type Ok = ();
    type Error = Unwritable;
    type SerializeSeq = Parts<'o>;
    type SerializeTuple = Parts<'o>;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Parts<'o>;
    type SerializeStruct = Parts<'o>;
    type SerializeStructVariant = Never;

    scalars! {
        serialize_bool(bool) => bool as bool,
        serialize_i8(i8) => int as i64,
        serialize_i16(i16) => int as i64,
        serialize_i32(i32) => int as i64,
        serialize_i64(i64) => int as i64,
        serialize_u8(u8) => uint as u64,
        serialize_u16(u16) => uint as u64,
        serialize_u32(u32) => uint as u64,
        serialize_u64(u64) => uint as u64,
        serialize_f32(f32) => float as f64,
        serialize_f64(f64) => float as f64,
        serialize_str(&str) => text as &str,
        serialize_bytes(&[u8]) => bytes as &[u8],
    }

    fn serialize_char(self, value: char) -> Written {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_none(self) -> Written {
        self.none();
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        self.null();
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Written {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Written {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Written {
        match name {
            JSON_MARK => self.expect(Next::Json),
            MSGPACK_MARK => self.expect(Next::Msgpack),
            _ => {}
        }
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Written {
        let mut map = self.serialize_map(Some(1))?;
        SerializeStruct::serialize_field(&mut map, variant, value)?;
        map.finish()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'o>, Unwritable> {
        self.begin_array();
        Ok(Parts { out: self, is_map: false })
    }

    fn serialize_tuple(self, length: usize) -> Result<Parts<'o>, Unwritable> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_struct(self, name: &'static str, _: usize) -> Result<Never, Unwritable> {
        unnamed(name)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, Unwritable> {
        unnamed(name)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'o>, Unwritable> {
        self.begin_map();
        Ok(Parts { out: self, is_map: true })
    }

    fn serialize_struct(self, _: &'static str, fields: usize) -> Result<Parts<'o>, Unwritable> {
        self.serialize_map(Some(fields))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, Unwritable> {
        unnamed(name)
    }

    fn is_human_readable(&self) -> bool {
        self.encoding() == super::Encoding::Json
    }
}

/// Kind of the next text or bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Next {
    #[default]
    Value,
    Key,
    Json,
    Msgpack,
}

/// Array or map being written.
pub struct Parts<'o> {
    out: &'o mut Out,
    is_map: bool,
}

impl Parts<'_> {
    fn finish(self) -> Written {
        if self.is_map {
            self.out.end_map()
        } else {
            self.out.end_array()
        }
        self.out.after_parts();
        Ok(())
    }
}

impl SerializeSeq for Parts<'_> {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        value.serialize(&mut *self.out)
    }

    fn end(self) -> Written {
        self.finish()
    }
}

impl SerializeTuple for Parts<'_> {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        value.serialize(&mut *self.out)
    }

    fn end(self) -> Written {
        self.finish()
    }
}

impl SerializeStruct for Parts<'_> {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Written {
        let before = self.out.mark();
        self.out.key(key);
        value.serialize(&mut *self.out)?;
        self.out.leave_out_none(before);
        Ok(())
    }

    fn end(self) -> Written {
        self.finish()
    }
}

impl SerializeMap for Parts<'_> {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Written {
        self.out.expect(Next::Key);
        key.serialize(&mut *self.out)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        value.serialize(&mut *self.out)
    }

    fn serialize_entry<K, V>(&mut self, key: &K, value: &V) -> Written
    where
        K: Serialize + ?Sized,
        V: Serialize + ?Sized,
    {
        let before = self.out.mark();
        self.serialize_key(key)?;
        self.serialize_value(value)?;
        self.out.leave_out_none(before);
        Ok(())
    }

    fn end(self) -> Written {
        self.finish()
    }
}
