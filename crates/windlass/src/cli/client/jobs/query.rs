//! Search query as sent to the server, which alone interprets it, so that it means the same in the web UI.

use crate::client::escaped;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    words: String,
}

impl Query {
    /// Adds the arguments as they are: blanks separate terms inside an argument, too, as in the search box.
    /// Added last, because an open quote reaches to the end.
    pub(crate) fn add(&mut self, words: &[String]) {
        for word in words {
            self.separate();
            self.words.push_str(word);
        }
    }

    fn separate(&mut self) {
        if !self.words.is_empty() {
            self.words.push(' ');
        }
    }

    /// Adds a term with a value, which stays one word.
    pub(crate) fn narrow(&mut self, field: &str, value: Option<&str>) {
        let Some(value) = value else { return };
        self.separate();
        let is_plain =
            !value.contains(|letter: char| letter.is_whitespace() || letter == '"' || letter == '\\');
        if is_plain {
            self.words.push_str(&format!("{field}:{value}"));
        } else {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            self.words.push_str(&format!("{field}:\"{value}\""));
        }
    }

    pub(crate) fn words(&self) -> &str {
        &self.words
    }

    pub(crate) fn count_path(&self) -> String {
        format!("/api/v1/jobs/count?search={}", escaped(&self.words))
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

    #[test]
    fn arguments_are_joined_as_they_are() {
        for (words, search) in [
            (&[][..], ""),
            (&["state:failed", "age>1h"][..], "state:failed age>1h"),
            (&["state:failed error:SMTP*"][..], "state:failed error:SMTP*"),
            (&[r#"queue:"mail out""#, r#""two words""#][..], r#"queue:"mail out" "two words""#),
        ] {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            let mut query = Query::default();
            query.add(&words);
            assert_eq!(query.words(), search);
        }
    }

    #[test]
    fn values_of_flags_stay_one_word() {
        for (value, search) in [
            ("mail", "queue:mail"),
            ("mail out", r#"queue:"mail out""#),
            (r#"say "hi" \o"#, r#"queue:"say \"hi\" \\o""#),
        ] {
            let mut query = Query::default();
            query.narrow("queue", Some(value));
            assert_eq!(query.words(), search);
        }
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
