//! Search query as sent to the server, which alone interprets it, so that it means the same in the web UI.

use crate::client::escaped;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    words: String,
}

impl Query {
    /// Joins the arguments; an argument that contains blanks stays one word.
    pub(crate) fn from_words(words: &[String]) -> Query {
        let mut query = Query::default();
        words.iter().for_each(|word| query.add(word));
        query
    }

    pub(crate) fn narrow(&mut self, field: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(&format!("{field}:{value}"));
        }
    }

    fn add(&mut self, word: &str) {
        if !self.words.is_empty() {
            self.words.push(' ');
        }
        let is_plain =
            !word.contains(|letter: char| letter.is_whitespace() || letter == '"' || letter == '\\');
        if is_plain {
            self.words.push_str(word);
        } else {
            self.words.push_str(&format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")));
        }
    }

    pub(crate) fn path(&self, limit: usize, cursor: Option<&str>) -> String {
        let mut path = format!("/api/v1/jobs?limit={limit}");
        if !self.words.is_empty() {
            path.push_str(&format!("&search={}", escaped(&self.words)));
        }
        if let Some(cursor) = cursor {
            path.push_str(&format!("&cursor={}", escaped(cursor)));
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str], search: &str) {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        assert_eq!(Query::from_words(&words).words, search);
    }

    #[test]
    fn words_stay_words() {
        check(&[], "");
        check(&["state:failed", "age>1h"], "state:failed age>1h");
        check(&["queue:mail out", "say \"hi\""], r#""queue:mail out" "say \"hi\"""#);
        check(&[r"C:\dir"], r#""C:\\dir""#);
    }

    #[test]
    fn flags_are_words_too() {
        let mut query = Query::default();
        query.narrow("state", Some("ready,running"));
        query.narrow("queue", None);
        assert_eq!(
            query.path(20, Some("7")),
            "/api/v1/jobs?limit=20&search=state%3Aready%2Crunning&cursor=7"
        );
    }
}
