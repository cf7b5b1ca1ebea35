//! Matchers: a tree of conditions on queue, name, priority and payload that selects the jobs of a limit.

use super::parse::{BadMatcher, parse_matcher};
use super::values::{Path, equal, order};
use crate::matching::Glob;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::cmp::Ordering;

/// Job fields that a matcher reads. `args` is the decoded payload, or null if it cannot be decoded.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub queue: &'a str,
    pub name: &'a str,
    pub priority: i32,
    pub args: &'a Value,
}

/// Condition. In JSON and MessagePack each condition is a map with one key, as shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Matcher {
    /// `{"name": "mail"}`
    Name(Box<str>),
    /// `{"name_glob": "mail.*"}`
    NameGlob(Glob),
    /// `{"queue": "bulk"}`
    Queue(Box<str>),
    /// `{"arg": ["user", "id"], "op": "eq", "value": 7}`
    Arg { path: Path, test: Test },
    /// `{"priority": {"ge": 10}}`; several tests must all hold.
    Priority(Vec<Test>),
    /// `{"all": […]}`; true for an empty list.
    All(Vec<Matcher>),
    /// `{"any": […]}`; false for an empty list.
    Any(Vec<Matcher>),
    /// `{"not": …}`
    Not(Box<Matcher>),
}

/// Operator with its operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    Eq(Value),
    Ne(Value),
    Lt(Value),
    Le(Value),
    Gt(Value),
    Ge(Value),
    In(Vec<Value>),
    Exists,
}

impl Matcher {
    pub fn parse(value: &Value) -> Result<Matcher, BadMatcher> {
        parse_matcher(value)
    }

    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.decide(subject, Some(subject.args)) == Some(true)
    }

    /// Answer without the payload (`subject.args` is not read). `None`: the payload decides and has to be
    /// decoded.
    pub fn matches_unseen(&self, subject: &Subject<'_>) -> Option<bool> {
        self.decide(subject, None)
    }

    /// True if any condition reads the payload.
    pub fn needs_args(&self) -> bool {
        match self {
            Matcher::Name(_) | Matcher::NameGlob(_) | Matcher::Queue(_) | Matcher::Priority(_) => false,
            Matcher::Arg { .. } => true,
            Matcher::All(parts) | Matcher::Any(parts) => parts.iter().any(Matcher::needs_args),
            Matcher::Not(part) => part.needs_args(),
        }
    }

    pub fn to_value(&self) -> Value {
        match self {
            Matcher::Name(name) => json!({ "name": name }),
            Matcher::NameGlob(glob) => json!({ "name_glob": glob.pattern() }),
            Matcher::Queue(queue) => json!({ "queue": queue }),
            Matcher::Arg { path, test } => {
                let (op, value) = test.to_parts();
                match value {
                    Some(value) => json!({ "arg": path.to_value(), "op": op, "value": value }),
                    None => json!({ "arg": path.to_value(), "op": op }),
                }
            }
            Matcher::Priority(tests) => {
                let parts = tests.iter().map(Test::to_parts);
                let tests: Map<_, _> =
                    parts.map(|(op, value)| (op.to_owned(), value.unwrap_or_default())).collect();
                json!({ "priority": tests })
            }
            Matcher::All(parts) => json!({ "all": parts.iter().map(Matcher::to_value).collect::<Value>() }),
            Matcher::Any(parts) => json!({ "any": parts.iter().map(Matcher::to_value).collect::<Value>() }),
            Matcher::Not(part) => json!({ "not": part.to_value() }),
        }
    }

    fn decide(&self, subject: &Subject<'_>, args: Option<&Value>) -> Option<bool> {
        match self {
            Matcher::Name(name) => Some(**name == *subject.name),
            Matcher::NameGlob(glob) => Some(glob.matches(subject.name)),
            Matcher::Queue(queue) => Some(**queue == *subject.queue),
            Matcher::Arg { path, test } => args.map(|args| test.holds(path.find(args))),
            Matcher::Priority(tests) => {
                let priority = Value::from(subject.priority);
                Some(tests.iter().all(|test| test.holds(Some(&priority))))
            }
            Matcher::All(parts) => first_or_known(parts, false, |part| part.decide(subject, args)),
            Matcher::Any(parts) => first_or_known(parts, true, |part| part.decide(subject, args)),
            Matcher::Not(part) => part.decide(subject, args).map(|answer| !answer),
        }
    }
}

impl TryFrom<Value> for Matcher {
    type Error = BadMatcher;
    fn try_from(value: Value) -> Result<Matcher, BadMatcher> {
        parse_matcher(&value)
    }
}

impl From<Matcher> for Value {
    fn from(matcher: Matcher) -> Value {
        matcher.to_value()
    }
}

impl Test {
    /// An absent value differs from every value, and is neither less, greater nor in any list.
    pub fn holds(&self, found: Option<&Value>) -> bool {
        let ordering = |wanted| found.and_then(|found| order(found, wanted));
        match self {
            Test::Eq(wanted) => found.is_some_and(|found| equal(found, wanted)),
            Test::Ne(wanted) => !found.is_some_and(|found| equal(found, wanted)),
            Test::Lt(wanted) => ordering(wanted).is_some_and(Ordering::is_lt),
            Test::Le(wanted) => ordering(wanted).is_some_and(Ordering::is_le),
            Test::Gt(wanted) => ordering(wanted).is_some_and(Ordering::is_gt),
            Test::Ge(wanted) => ordering(wanted).is_some_and(Ordering::is_ge),
            Test::In(wanted) => found.is_some_and(|found| wanted.iter().any(|wanted| equal(found, wanted))),
            Test::Exists => found.is_some(),
        }
    }

    fn to_parts(&self) -> (&'static str, Option<Value>) {
        match self {
            Test::Eq(value) => ("eq", Some(value.clone())),
            Test::Ne(value) => ("ne", Some(value.clone())),
            Test::Lt(value) => ("lt", Some(value.clone())),
            Test::Le(value) => ("le", Some(value.clone())),
            Test::Gt(value) => ("gt", Some(value.clone())),
            Test::Ge(value) => ("ge", Some(value.clone())),
            Test::In(values) => ("in", Some(Value::Array(values.clone()))),
            Test::Exists => ("exists", None),
        }
    }
}

/// A part with the `deciding` answer decides, whatever the unknown parts would answer.
fn first_or_known(
    parts: &[Matcher],
    deciding: bool,
    answer: impl Fn(&Matcher) -> Option<bool>,
) -> Option<bool> {
    let mut known = Some(!deciding);
    for part in parts {
        match answer(part) {
            Some(answer) if answer == deciding => return Some(deciding),
            Some(_) => {}
            None => known = None,
        }
    }
    known
}
