//! JSON as text: documents of clients are stored byte for byte, and edited without parsing them into a tree.
//! Also the protocol's rule for guessing the type of a value from its text.

use crate::codec::Raw;
use std::borrow::Cow;

#[cfg(test)]
mod tests;

/// True if `text` is exactly one JSON object. Strict, so that every JSON parser accepts it.
pub fn is_object(text: &str) -> bool {
    text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{')
        && serde_json::from_str::<Raw<'_>>(text).is_ok()
}

/// True if `text` is exactly one JSON array.
pub fn is_array(text: &str) -> bool {
    text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('[')
        && serde_json::from_str::<Raw<'_>>(text).is_ok()
}

/// Removes the whitespace between tokens. `text` must be JSON.
pub fn minified(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut from, mut in_text, mut escaped) = (0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b' ' | b'\t' | b'\r' | b'\n' if !in_text => {
                out.push_str(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    out.push_str(&text[from..]);
    out
}

/// Member of an object, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Includes quotes and escapes.
    pub key: &'a str,
    pub value: &'a str,
}

impl Member<'_> {
    pub fn name(&self) -> Cow<'_, str> {
        let inner = self.key.trim_matches('"');
        if !inner.contains('\\') {
            return Cow::Borrowed(inner);
        }
        serde_json::from_str::<String>(self.key).map_or(Cow::Borrowed(inner), Cow::Owned)
    }
}

/// Members of an object, in order. `object` must be a minified JSON object.
pub fn members(object: &str) -> Vec<Member<'_>> {
    let inner = object.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
    parts(inner)
        .filter_map(|member| {
            let colon = end_of_text(member)?;
            Some(Member { key: &member[..colon], value: member.get(colon + 1..)? })
        })
        .collect()
}

/// Elements of an array. `array` must be a minified JSON array.
pub fn elements(array: &str) -> Vec<&str> {
    let inner = array.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default();
    parts(inner).collect()
}

/// Splits at the commas of the outermost level.
fn parts(inner: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    inner
        .split(move |c: char| {
            match c {
                _ if escaped => escaped = false,
                '\\' if in_text => escaped = true,
                '"' => in_text = !in_text,
                '{' | '[' if !in_text => depth += 1,
                '}' | ']' if !in_text => depth = depth.saturating_sub(1),
                ',' if !in_text => return depth == 0,
                _ => {}
            }
            false
        })
        .filter(|part| !part.is_empty())
}

/// Index after the closing quote of the string that `text` begins with.
fn end_of_text(text: &str) -> Option<usize> {
    let mut escaped = false;
    let closing = text.bytes().enumerate().skip(1).find(|(_, byte)| match byte {
        _ if escaped => {
            escaped = false;
            false
        }
        b'\\' => {
            escaped = true;
            false
        }
        byte => *byte == b'"',
    });
    closing.map(|(at, _)| at + 1)
}

pub fn get<'a>(minified: &'a str, name: &str) -> Option<&'a str> {
    members(minified).into_iter().rev().find(|member| member.name() == name).map(|member| member.value)
}

/// Returns the object without the member `name`, minified.
pub fn without(object: &str, name: &str) -> String {
    let object = minified(object);
    composed(members(&object).into_iter().filter(|member| member.name() != name))
}

/// Returns the object with the member set, in its old place or at the end, minified.
pub fn with(object: &str, name: &str, value: &str) -> String {
    let object = minified(object);
    let mut all = members(&object);
    let key = quoted(name);
    match all.iter_mut().find(|member| member.name() == name) {
        Some(member) => member.value = value,
        None => all.push(Member { key: &key, value }),
    }
    composed(all.into_iter())
}

/// Merges as in RFC 7396: members of the patch replace members of the target, `null` removes them, objects
/// are merged.
pub fn merged(target: &str, patch: &str) -> String {
    let patch = minified(patch);
    if !patch.starts_with('{') {
        return patch;
    }
    let target = minified(target);
    let old = if target.starts_with('{') { members(&target) } else { Vec::new() };
    let changes = members(&patch);
    let mut all: Vec<(String, String)> =
        old.iter().map(|member| (member.key.to_owned(), member.value.to_owned())).collect();
    for change in &changes {
        let name = change.name();
        let place = old.iter().position(|member| member.name() == name);
        match place {
            Some(at) if change.value == "null" => all[at].1.clear(),
            Some(at) => all[at].1 = merged(old[at].value, change.value),
            None if change.value == "null" => {}
            None => all.push((change.key.to_owned(), merged("", change.value))),
        }
    }
    let kept = all.iter().filter(|(_, value)| !value.is_empty());
    composed(kept.map(|(key, value)| Member { key, value }))
}

pub fn composed<'a>(members: impl Iterator<Item = Member<'a>>) -> String {
    let mut out = String::from("{");
    for member in members {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(member.key);
        out.push(':');
        out.push_str(member.value);
    }
    out.push('}');
    out
}

/// Returns a value as text: a string without its quotes, any other value as written.
pub fn plain(value: &str) -> Cow<'_, str> {
    if value.starts_with('"') {
        return serde_json::from_str::<String>(value).map_or(Cow::Borrowed(value), Cow::Owned);
    }
    Cow::Borrowed(value)
}

/// Returns a text as the JSON type it looks like: an integer, a literal, an array, an object, else a string.
pub fn guessed(text: &str) -> Cow<'_, str> {
    let is_whole = text.parse::<i64>().is_ok_and(|number| number.to_string() == text);
    if is_whole {
        return Cow::Borrowed(text);
    }
    for literal in ["true", "false", "null"] {
        if text.eq_ignore_ascii_case(literal) {
            return Cow::Borrowed(literal);
        }
    }
    if (text.starts_with('{') && is_object(text)) || (text.starts_with('[') && is_array(text)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(quoted(text))
}

/// Returns a text as a JSON string. The protocol also escapes the slash.
pub fn quoted(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '/' => out.push_str("\\/"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Writer of an object, member by member.
pub struct Writer {
    out: String,
}

impl Writer {
    pub fn new() -> Writer {
        Writer { out: String::from("{") }
    }

    /// `value` must be JSON.
    pub fn put(&mut self, key: &str, value: &str) -> &mut Writer {
        if self.out.len() > 1 {
            self.out.push(',');
        }
        self.out.push('"');
        self.out.push_str(key);
        self.out.push_str("\":");
        self.out.push_str(value);
        self
    }

    pub fn finish(&mut self) -> String {
        self.out.push('}');
        std::mem::take(&mut self.out)
    }
}

impl Default for Writer {
    fn default() -> Self {
        Writer::new()
    }
}
