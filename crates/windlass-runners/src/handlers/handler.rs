//! Handler as submitted by its author, validated.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::time::Duration;
use windlass_core::handler::HandlerText;

/// Most jobs in a batch, whatever a handler asks for: all are locked while the first one runs.
pub const BATCH_MAX: usize = 10_000;

/// Language of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lang {
    Http,
    Node,
    Python,
    Php,
    Sh,
    Wasi,
}

impl Lang {
    pub const ALL: [Lang; 6] = [Lang::Http, Lang::Node, Lang::Python, Lang::Php, Lang::Sh, Lang::Wasi];

    pub fn name(self) -> &'static str {
        match self {
            Lang::Http => "http",
            Lang::Node => "node",
            Lang::Python => "python",
            Lang::Php => "php",
            Lang::Sh => "sh",
            Lang::Wasi => "wasi",
        }
    }

    pub fn parse(text: &str) -> Result<Lang, String> {
        let named = Lang::ALL.into_iter().find(|lang| lang.name() == text);
        named.ok_or_else(|| format!("unknown lang {text:?}; use http, node, python, php, sh or wasi"))
    }

    /// Default number of jobs in a batch.
    pub(crate) fn batch_size(self) -> usize {
        match self {
            // Same as in miniq.
            Lang::Http => 10,
            // A round trip to a process costs as much as several dozen small jobs.
            Lang::Node | Lang::Python | Lang::Php | Lang::Sh => 40,
            Lang::Wasi => 10,
        }
    }
}

impl fmt::Display for Lang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    pub lang: Lang,
    /// Handlers of a client with the same `eid` share contexts.
    pub eid: Option<String>,
    /// Code run once in every context.
    pub before: Option<String>,
    /// Code run before every batch.
    pub before_each: Option<String>,
    /// Code for one job; URL of an http handler; blob address of a wasi handler.
    pub body: String,
    /// Code run after every batch.
    pub after_each: Option<String>,
    pub options: HandlerOptions,
}

impl Handler {
    /// Validates a handler. The error is a message for its author.
    pub fn parse(text: &HandlerText) -> Result<Handler, String> {
        Ok(Handler {
            before: text.before.clone(),
            before_each: text.before_each.clone(),
            body: text.body.clone(),
            after_each: text.after_each.clone(),
            ..Handler::outline(text)?
        })
    }

    /// Validates a handler without copying its code, which is not needed to choose a slot. An http handler keeps its URL,
    /// which is.
    pub fn outline(text: &HandlerText) -> Result<Handler, String> {
        let lang = Lang::parse(&text.lang)?;
        let options = HandlerOptions::from_json(text.options.as_ref().unwrap_or(&Value::Null))?;
        let body = if lang == Lang::Http { text.body.clone() } else { String::new() };
        Ok(Handler {
            lang,
            eid: text.eid.clone(),
            before: None,
            before_each: None,
            body,
            after_each: None,
            options,
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandlerOptions {
    /// The body gets all payloads of a batch at once and returns a line `NNN[ data]` for each.
    pub batch: bool,
    pub batch_size: Option<usize>,
    /// Time limit per job, within the operator's limit.
    pub timeout: Option<Duration>,
    /// Jobs before a context is replaced, within the operator's limit.
    pub recycle: Option<u32>,
    /// Requests network access. The operator decides.
    pub network: bool,
}

impl HandlerOptions {
    /// Parses `null` or an object. Unknown keys are ignored.
    pub fn from_json(options: &Value) -> Result<HandlerOptions, String> {
        let fields = match options {
            Value::Null => return Ok(HandlerOptions::default()),
            Value::Object(fields) => fields,
            other => return Err(format!("options must be an object, not {other}")),
        };
        let flag = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(format!("options.{name} must be true or false, not {other}")),
        };
        let number = |name: &str, most: u64| match fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) if (1..=most).contains(&number) => Ok(Some(number)),
                _ => Err(format!("options.{name} must be a whole number from 1 to {most}, not {value}")),
            },
        };
        Ok(HandlerOptions {
            batch: flag("batch")?,
            batch_size: number("batchSize", BATCH_MAX as u64)?.and_then(|size| usize::try_from(size).ok()),
            timeout: number("timeout", 7 * 86_400)?.map(Duration::from_secs),
            recycle: number("recycle", u64::from(u32::MAX))?.and_then(|jobs| u32::try_from(jobs).ok()),
            network: flag("network")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn languages_are_known_by_their_names() {
        for lang in Lang::ALL {
            assert_eq!(Lang::parse(lang.name()), Ok(lang));
        }
        assert!(Lang::parse("perl").unwrap_err().contains("python"));
    }

    #[test]
    fn options_say_what_is_wrong_with_them() {
        let options = json!({"batch": true, "batchSize": 3, "timeout": 7, "recycle": 2, "next": "other"});
        let read = HandlerOptions::from_json(&options).unwrap();
        assert_eq!(read.batch_size, Some(3));
        assert_eq!(Lang::Http.batch_size(), 10, "as in the original");
        assert_eq!((read.batch, read.network), (true, false));
        assert_eq!((read.timeout, read.recycle), (Some(Duration::from_secs(7)), Some(2)));
        assert_eq!(HandlerOptions::from_json(&Value::Null).unwrap(), HandlerOptions::default());
        for (bad, word) in [
            (json!([]), "object"),
            (json!({"batch": 1}), "options.batch"),
            (json!({"batchSize": 0}), "options.batchSize"),
            (json!({"batchSize": 1_000_000}), "options.batchSize"),
            (json!({"timeout": -1}), "options.timeout"),
            (json!({"timeout": 1.5}), "options.timeout"),
        ] {
            assert!(HandlerOptions::from_json(&bad).unwrap_err().contains(word), "{bad}");
        }
    }
}
