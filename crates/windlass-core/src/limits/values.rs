//! Payload values: lookup, comparison and canonical text.

use serde_json::{Number, Value};
use std::cmp::Ordering;

/// Path to a value in the payload. The empty path is the payload itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Path(pub Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A field of an object.
    Key(Box<str>),
    /// An element of an array, counted from 0.
    Index(u32),
}

impl Path {
    pub fn find<'a>(&self, args: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(args, |value, step| match step {
            Step::Key(key) => value.as_object()?.get(&**key),
            Step::Index(index) => value.as_array()?.get(usize::try_from(*index).ok()?),
        })
    }

    pub fn to_value(&self) -> Value {
        let step_to_value = |step: &Step| match step {
            Step::Key(key) => Value::from(&**key),
            Step::Index(index) => Value::from(*index),
        };
        self.0.iter().map(step_to_value).collect()
    }
}

/// Equality by value: 1 equals 1.0, and key order does not matter. Recurses no deeper than the shallower
/// value, so a validated `wanted` bounds the work on a hostile payload.
pub(super) fn equal(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Number(a), Value::Number(b)) => order_numbers(a, b) == Some(Ordering::Equal),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && b.iter().all(|(key, b)| a.get(key).is_some_and(|a| equal(a, b)))
        }
        (found, wanted) => found == wanted,
    }
}

/// Numbers by value, texts by code point; other types and mixed pairs have no order.
pub(super) fn order(found: &Value, wanted: &Value) -> Option<Ordering> {
    match (found, wanted) {
        (Value::Number(a), Value::Number(b)) => order_numbers(a, b),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// Writes the canonical text: JSON without blanks, keys sorted, integral numbers as integers. Equal values
/// have equal texts, different values have different texts, and no text contains a raw control character.
pub(super) fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => out.push_str(&value.to_string()),
        Value::Number(number) => match whole(number) {
            Some(whole) => out.push_str(&whole.to_string()),
            None => out.push_str(&number.to_string()),
        },
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_canonical(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            // Sorted here: serde_json's own key order depends on a feature that any dependency may enable.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (at, (key, field)) in fields.into_iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(field, out);
            }
            out.push('}');
        }
    }
}

/// 2^64: every integer that serde_json stores as an integer lies strictly between this and its negative.
/// Longer integers are parsed as the nearest double.
const BEYOND_INTEGERS: f64 = 18_446_744_073_709_551_616.0;

/// Exact comparison: neither side is rounded to the other's type.
fn order_numbers(a: &Number, b: &Number) -> Option<Ordering> {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        (Some(a), None) => order_integer_float(a, b.as_f64()?),
        (None, Some(b)) => order_integer_float(b, a.as_f64()?).map(Ordering::reverse),
        (None, None) => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn order_integer_float(a: i128, b: f64) -> Option<Ordering> {
    if b >= BEYOND_INTEGERS {
        return Some(Ordering::Less);
    }
    if b <= -BEYOND_INTEGERS {
        return Some(Ordering::Greater);
    }
    match a.cmp(&(b.trunc() as i128)) {
        Ordering::Equal => 0.0.partial_cmp(&b.fract()),
        unequal => Some(unequal),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// The number as an integer if its value is integral, however it was written.
fn whole(number: &Number) -> Option<i128> {
    integer(number).or_else(|| {
        let float = number.as_f64()?;
        (float.fract() == 0.0 && float.abs() < BEYOND_INTEGERS).then_some(float as i128)
    })
}
