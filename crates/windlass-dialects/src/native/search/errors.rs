//! Words of a search about the last error of a job.

use windlass_core::NameMatch;
use windlass_core::failure::group_title;
use windlass_core::job::AttemptError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ErrorMatch {
    /// Class by a GLOB pattern.
    Class(NameMatch),
    /// Class or message contains the text, in any case.
    Contains(String),
    /// Class or message matches the GLOB pattern, in any case.
    Like(NameMatch),
    /// Title of the failure's group.
    Title(String),
}

impl ErrorMatch {
    pub(super) fn class(pattern: &str) -> ErrorMatch {
        ErrorMatch::Class(NameMatch::glob(pattern))
    }

    /// Text with wildcards is a pattern for the whole class or message; other text is part of one.
    pub(super) fn text(text: &str) -> ErrorMatch {
        let text = text.to_lowercase();
        match text.contains(['*', '?', '[']) {
            true => ErrorMatch::Like(NameMatch::glob(&text)),
            false => ErrorMatch::Contains(text),
        }
    }

    pub(super) fn fits(&self, error: &AttemptError) -> bool {
        let class_or_message = |fits: &dyn Fn(&str) -> bool| {
            let class = error.class.as_ref().is_some_and(|class| fits(&class.to_lowercase()));
            class || fits(&error.message.to_lowercase())
        };
        match self {
            ErrorMatch::Class(pattern) => error.class.as_ref().is_some_and(|class| pattern.matches(class)),
            ErrorMatch::Contains(text) => class_or_message(&|told| told.contains(text.as_str())),
            ErrorMatch::Like(pattern) => class_or_message(&|told| pattern.matches(told)),
            ErrorMatch::Title(title) => group_title(error) == *title,
        }
    }
}

/// GLOB pattern that matches exactly this text.
pub(in crate::native) fn exactly(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '*' | '?' | '[' => pattern.extend(['[', letter, ']']),
            letter => pattern.push(letter),
        }
    }
    pattern
}

/// Value as a word of a search, in quotes if it needs them.
pub(in crate::native) fn quoted(value: &str) -> String {
    let needs_none = |letter: char| !letter.is_whitespace() && letter != '"';
    if !value.is_empty() && value.chars().all(needs_none) {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}
