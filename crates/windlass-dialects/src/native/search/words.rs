//! Words of a search: how a text is split, and what each word is about.

use super::FIELDS;
use super::errors::quoted;
use crate::native::errors::ApiError;
use windlass_core::JobId;

#[derive(Debug)]
pub(super) enum Word<'a> {
    Field(&'static str, &'a str),
    Args(&'a str, &'a str),
    Id(JobId),
    /// `true`: older than; `false`: younger than.
    Age(bool, &'a str),
    /// `true`: ended longer ago; `false`: more recently.
    Ended(bool, &'a str),
    Text,
}

impl Word<'_> {
    pub(super) fn of(word: &str) -> Word<'_> {
        if let Some(age) = word.strip_prefix("age>") {
            return Word::Age(true, age);
        }
        if let Some(age) = word.strip_prefix("age<") {
            return Word::Age(false, age);
        }
        if let Some(time) = word.strip_prefix("ended>") {
            return Word::Ended(true, time);
        }
        if let Some(time) = word.strip_prefix("ended<") {
            return Word::Ended(false, time);
        }
        if let Some(id) = word.parse().ok().and_then(JobId::new).filter(|id| id.to_string() == word) {
            return Word::Id(id);
        }
        let Some((field, value)) = word.split_once(':').filter(|(_, value)| !value.is_empty()) else {
            return Word::Text;
        };
        if let Some(path) = field.strip_prefix("args.").filter(|path| !path.is_empty()) {
            return Word::Args(path, value);
        }
        FIELDS.iter().find(|known| **known == field).map_or(Word::Text, |known| Word::Field(known, value))
    }
}

/// Key of a word that looks like `key:value` and that no field has. Times, URLs and words with capitals are
/// text.
pub(super) fn unknown_key(word: &str) -> Option<&str> {
    let (key, value) = word.split_once(':')?;
    let looks_like_a_key = key == "args."
        || !key.is_empty() && key.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'_');
    (looks_like_a_key && !value.is_empty() && !value.starts_with("//") && !FIELDS.contains(&key))
        .then_some(key)
}

pub(super) fn no_such_key(word: &str) -> ApiError {
    let (key, known) = (unknown_key(word).unwrap_or(word), FIELDS.join(", "));
    ApiError::bad_request(format!(
        "unknown search key `{key}`; the keys are {known} and args.PATH, each with a colon, and age>, age<, \
         ended> and ended<; to search for the text, write it in quotes: \"{word}\""
    ))
}

/// Splits at blanks. Quotes keep blanks together, and a backslash inside them escapes the next character. The flag
/// tells whether a word begins with a quote.
pub(super) fn words(text: &str) -> Vec<(String, bool)> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut begun, mut from_quote) = (false, false, false);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                from_quote |= word.is_empty() && !begun;
                (quoted, begun) = (!quoted, true);
            }
            '\\' if quoted => word.extend(letters.next()),
            letter if letter.is_whitespace() && !quoted => {
                if begun || !word.is_empty() {
                    words.push((std::mem::take(&mut word), from_quote));
                }
                (begun, from_quote) = (false, false);
            }
            letter => word.push(letter),
        }
    }
    if begun || !word.is_empty() {
        words.push((word, from_quote));
    }
    words.retain(|(word, _)| !word.is_empty());
    words
}

/// Words of a search except its states, each followed by a blank.
pub(in crate::native) fn without_states(text: &str) -> String {
    let again = |(word, is_quoted): (String, bool)| match if is_quoted { Word::Text } else { Word::of(&word) }
    {
        Word::Field("state", _) => String::new(),
        Word::Field(field, value) => format!("{field}:{} ", quoted(value)),
        Word::Args(path, value) => format!("args.{path}:{} ", quoted(value)),
        Word::Id(_) | Word::Age(..) | Word::Ended(..) => format!("{word} "),
        Word::Text => format!("\"{}\" ", word.replace('\\', "\\\\").replace('"', "\\\"")),
    };
    words(text).into_iter().map(again).collect()
}
