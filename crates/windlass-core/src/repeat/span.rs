//! Calendar spans: `+1 MONTH`, or several modifiers in sequence.

use super::modifiers::{BadModifiers, Modifier, apply, parse_sqlite_modifiers};
use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Calendar span, valid by construction; stored as the text that was entered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span {
    text: String,
    steps: Vec<Modifier>,
}

impl Span {
    /// Parses a comma list of the modifiers of [`super::modifiers`], without `START OF HOUR`.
    pub fn parse(text: &str) -> Result<Span, BadModifiers> {
        Ok(Span { text: text.to_owned(), steps: parse_sqlite_modifiers(text)? })
    }

    /// Text as it was entered.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// End of the span in whole seconds, clamped to the end of the calendar.
    pub fn after(&self, from: Timestamp) -> Timestamp {
        apply(&self.steps, from).unwrap_or(Timestamp::MAX)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Span {
    type Error = BadModifiers;

    fn try_from(text: String) -> Result<Span, BadModifiers> {
        Span::parse(&text)
    }
}

impl From<Span> for String {
    fn from(span: Span) -> String {
        span.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_follows_the_calendar_and_ends_with_it() {
        let january = Timestamp::from_millis(1_706_659_200_500);
        assert_eq!(january.to_string(), "2024-01-31T00:00:00.500Z");
        let after = |text: &str| Span::parse(text).unwrap().after(january).to_string();
        assert_eq!(after("+1 MONTH"), "2024-03-02T00:00:00.000Z");
        assert_eq!(after("+1 hour, +1 minute"), "2024-01-31T01:01:00.000Z");
        assert_eq!(Span::parse("+999 YEARS").unwrap().after(Timestamp::MAX), Timestamp::MAX);
        assert!(Span::parse("START OF HOUR").is_err());
        assert!(Span::parse("").is_err());
    }
}
