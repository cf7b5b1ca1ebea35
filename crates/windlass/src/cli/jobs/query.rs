//! The words of a search, the same on the command line and in the browser: `state:failed queue:mail some text`.

use crate::client::escaped;

const FIELDS: [&str; 4] = ["state", "queue", "name", "tag"];

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Parameter and value, each parameter once.
    fields: Vec<(&'static str, String)>,
    text: String,
}

impl Query {
    pub fn from_words(words: &[String]) -> Query {
        let mut query = Query::default();
        for word in words {
            let known = word.split_once(':').and_then(|(field, value)| {
                let field = FIELDS.iter().find(|known| **known == field)?;
                (!value.is_empty()).then_some((*field, value))
            });
            match known {
                Some((field, value)) => query.narrow(field, Some(value)),
                None => {
                    let gap = if query.text.is_empty() { "" } else { " " };
                    query.text.push_str(gap);
                    query.text.push_str(word);
                }
            }
        }
        query
    }

    /// Several states are a choice between them; of anything else the last word counts.
    pub fn narrow(&mut self, field: &'static str, value: Option<&str>) {
        let Some(value) = value else { return };
        match self.fields.iter_mut().find(|(known, _)| *known == field) {
            Some((_, present)) if field == "state" => {
                present.push(',');
                present.push_str(value);
            }
            Some((_, present)) => *present = value.to_string(),
            None => self.fields.push((field, value.to_string())),
        }
    }

    pub fn path(&self, limit: usize, cursor: Option<&str>) -> String {
        let mut path = format!("/api/v1/jobs?limit={limit}");
        for (field, value) in &self.fields {
            path.push_str(&format!("&{field}={}", escaped(value)));
        }
        if !self.text.is_empty() {
            path.push_str(&format!("&q={}", escaped(&self.text)));
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

    fn check(words: &[&str], path: &str) {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        assert_eq!(Query::from_words(&words).path(20, None), format!("/api/v1/jobs?limit=20{path}"));
    }

    #[test]
    fn words_with_a_known_field_narrow_and_the_rest_is_text() {
        check(&[], "");
        check(&["state:failed", "queue:mail"], "&state=failed&queue=mail");
        check(&["state:failed", "state:ready"], "&state=failed%2Cready");
        check(&["ann", "smith", "name:a*"], "&name=a%2A&q=ann%20smith");
        check(&["http://x", "state:"], "&q=http%3A%2F%2Fx%20state%3A");
    }
}
