//! Parser of matchers. An error names the place (a JSON pointer into the matcher) and the fault.

use super::matcher::{Matcher, Test};
use super::values::{Path, Step};
use crate::matching::Glob;
use serde_json::{Map, Value};

/// Nesting of conditions, and of lists within operands. People write three or four levels; sixteen keeps
/// every recursion over a matcher shallow.
pub const MATCHER_DEPTH_MAX: usize = 16;
/// Conditions, path steps and operands in one matcher. The matcher is evaluated at every push.
pub const MATCHER_PARTS_MAX: usize = 1024;
/// Bytes of all names, keys and texts in one matcher. The matcher stays in memory for as long as the limit
/// exists.
pub const MATCHER_TEXT_BYTES_MAX: usize = 64 * 1024;
/// Steps in one path. Payloads nest a few levels; the path is walked at every push.
pub const PATH_STEPS_MAX: usize = 16;

/// Parse error of a matcher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("matcher{at}: {fault}")]
pub struct BadMatcher {
    /// JSON pointer such as `/all/1/op`; empty for the whole matcher.
    pub at: String,
    pub fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("must be {0}")]
    Expected(&'static str),
    #[error("requires a condition: name, name_glob, queue, arg, priority, all, any or not")]
    NoCondition,
    #[error("contains more than one condition ({first} and {second}); combine them with all or any")]
    SeveralConditions { first: String, second: String },
    #[error("has an unknown condition or field {0:?}")]
    UnknownKey(String),
    #[error("requires the field {0:?}")]
    MissingField(&'static str),
    #[error("has an unknown operator {0:?}; use eq, ne, lt, le, gt, ge, in or exists")]
    UnknownOperator(String),
    #[error("is nested deeper than {MATCHER_DEPTH_MAX} levels")]
    TooDeep,
    #[error("makes the matcher larger than {MATCHER_PARTS_MAX} parts or {MATCHER_TEXT_BYTES_MAX} bytes")]
    TooLarge,
}

pub(super) fn parse_matcher(value: &Value) -> Result<Matcher, BadMatcher> {
    let mut budget = Budget { parts: MATCHER_PARTS_MAX, text_bytes: MATCHER_TEXT_BYTES_MAX };
    budget.condition(value, "", 1)
}

/// Parses a list of keys and indexes; `None` if it is malformed or too long.
pub(super) fn parse_path(value: &Value) -> Option<Path> {
    let steps = value.as_array().filter(|steps| steps.len() <= PATH_STEPS_MAX)?;
    let parse_step = |step: &Value| match step {
        Value::String(key) => Some(Step::Key(key.as_str().into())),
        Value::Number(index) => Some(Step::Index(u32::try_from(index.as_u64()?).ok()?)),
        _ => None,
    };
    steps.iter().map(parse_step).collect::<Option<_>>().map(Path)
}

/// Remaining size budget of this matcher.
struct Budget {
    parts: usize,
    text_bytes: usize,
}

impl Budget {
    fn condition(&mut self, value: &Value, at: &str, depth: usize) -> Result<Matcher, BadMatcher> {
        if depth > MATCHER_DEPTH_MAX {
            return Err(bad(at, Fault::TooDeep));
        }
        self.spend(at, 0)?;
        let fields = value.as_object().ok_or_else(|| bad(at, Fault::Expected("an object")))?;
        let key = the_condition(fields, at)?;
        let value = &fields[key];
        let here = format!("{at}/{key}");
        match key {
            "name" => Ok(Matcher::Name(self.text(value, &here)?.into())),
            "name_glob" => Ok(Matcher::NameGlob(Glob::new(self.text(value, &here)?))),
            "queue" => Ok(Matcher::Queue(self.text(value, &here)?.into())),
            "all" => Ok(Matcher::All(self.conditions(value, &here, depth)?)),
            "any" => Ok(Matcher::Any(self.conditions(value, &here, depth)?)),
            "not" => Ok(Matcher::Not(Box::new(self.condition(value, &here, depth + 1)?))),
            "priority" => Ok(Matcher::Priority(self.priority(value, &here, depth)?)),
            _arg_or_parameter => {
                let path = self.path(value, &here)?;
                Ok(Matcher::Arg { path, test: self.arg_test(fields, at, depth)? })
            }
        }
    }

    fn conditions(&mut self, value: &Value, at: &str, depth: usize) -> Result<Vec<Matcher>, BadMatcher> {
        let parts = value.as_array().ok_or_else(|| bad(at, Fault::Expected("a list of conditions")))?;
        let mut conditions = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            conditions.push(self.condition(part, &format!("{at}/{index}"), depth + 1)?);
        }
        Ok(conditions)
    }

    fn priority(&mut self, value: &Value, at: &str, depth: usize) -> Result<Vec<Test>, BadMatcher> {
        const WANTED: Fault = Fault::Expected("an object of operators and numbers, as in {\"ge\": 10}");
        let tests = value.as_object().filter(|tests| !tests.is_empty()).ok_or_else(|| bad(at, WANTED))?;
        let mut parsed = Vec::new();
        for (op, value) in tests {
            let here = format!("{at}/{}", pointer_step(op));
            let numbers = match value {
                Value::Array(values) if op == "in" => values.iter().all(Value::is_number),
                value => value.is_number(),
            };
            match self.test(op, Some(value), &here, &here, depth)? {
                Test::Exists => return Err(bad(at, Fault::UnknownOperator(op.clone()))),
                _ if !numbers => return Err(bad(&here, Fault::Expected("a number"))),
                test => parsed.push(test),
            }
        }
        Ok(parsed)
    }

    fn path(&mut self, value: &Value, at: &str) -> Result<Path, BadMatcher> {
        const WANTED: Fault = Fault::Expected("a path: a list of at most 16 keys, as in [\"user\", \"id\"]");
        let path = parse_path(value).ok_or_else(|| bad(at, WANTED))?;
        for step in &path.0 {
            match step {
                Step::Key(key) => self.spend(at, key.len())?,
                Step::Index(_) => self.spend(at, 0)?,
            }
        }
        Ok(path)
    }

    fn arg_test(&mut self, fields: &Map<String, Value>, at: &str, depth: usize) -> Result<Test, BadMatcher> {
        let at_op = format!("{at}/op");
        let op = fields.get("op").ok_or_else(|| bad(at, Fault::MissingField("op")))?;
        let op = op.as_str().ok_or_else(|| bad(&at_op, Fault::Expected("the name of an operator")))?;
        self.test(op, fields.get("value"), &at_op, &format!("{at}/value"), depth)
    }

    fn test(
        &mut self,
        op: &str,
        value: Option<&Value>,
        at_op: &str,
        at_value: &str,
        depth: usize,
    ) -> Result<Test, BadMatcher> {
        if let Some(value) = value {
            self.value(value, at_value, depth)?;
        }
        let any = || value.cloned().ok_or_else(|| bad(at_value, Fault::Expected("given")));
        // Other types have no order; a limit with such an operand would never apply.
        let ordered = || match any()? {
            value @ (Value::Number(_) | Value::String(_)) => Ok(value),
            _ => Err(bad(at_value, Fault::Expected("a number or a string"))),
        };
        match op {
            "eq" => Ok(Test::Eq(any()?)),
            "ne" => Ok(Test::Ne(any()?)),
            "lt" => Ok(Test::Lt(ordered()?)),
            "le" => Ok(Test::Le(ordered()?)),
            "gt" => Ok(Test::Gt(ordered()?)),
            "ge" => Ok(Test::Ge(ordered()?)),
            "in" => match any()? {
                Value::Array(values) => Ok(Test::In(values)),
                _ => Err(bad(at_value, Fault::Expected("a list"))),
            },
            "exists" => match value {
                None | Some(Value::Null | Value::Bool(true)) => Ok(Test::Exists),
                Some(_) => Err(bad(at_value, Fault::Expected("absent or true"))),
            },
            unknown => Err(bad(at_op, Fault::UnknownOperator(unknown.into()))),
        }
    }

    /// Walks the whole operand and charges the budget: matching walks it again at every push.
    fn value(&mut self, value: &Value, at: &str, depth: usize) -> Result<(), BadMatcher> {
        if depth > MATCHER_DEPTH_MAX {
            return Err(bad(at, Fault::TooDeep));
        }
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.spend(at, 0),
            Value::String(text) => self.spend(at, text.len()),
            Value::Array(items) => {
                self.spend(at, 0)?;
                items.iter().try_for_each(|item| self.value(item, at, depth + 1))
            }
            Value::Object(fields) => {
                self.spend(at, fields.keys().map(String::len).sum())?;
                fields.values().try_for_each(|field| self.value(field, at, depth + 1))
            }
        }
    }

    fn text<'a>(&mut self, value: &'a Value, at: &str) -> Result<&'a str, BadMatcher> {
        let text = value.as_str().ok_or_else(|| bad(at, Fault::Expected("a string")))?;
        self.spend(at, text.len())?;
        Ok(text)
    }

    fn spend(&mut self, at: &str, text_bytes: usize) -> Result<(), BadMatcher> {
        let left = self.parts.checked_sub(1).zip(self.text_bytes.checked_sub(text_bytes));
        (self.parts, self.text_bytes) = left.ok_or_else(|| bad(at, Fault::TooLarge))?;
        Ok(())
    }
}

const CONDITIONS: &[&str] =
    &["name", "name_glob", "queue", "arg", "parameter", "priority", "all", "any", "not"];

/// Key that names the kind of condition. Only `arg` takes further fields.
fn the_condition<'a>(fields: &'a Map<String, Value>, at: &str) -> Result<&'a str, BadMatcher> {
    let mut condition: Option<&str> = None;
    for key in fields.keys() {
        match (CONDITIONS.contains(&key.as_str()), condition) {
            (true, None) => condition = Some(key),
            (true, Some(first)) => {
                let fault = Fault::SeveralConditions { first: first.into(), second: key.clone() };
                return Err(bad(at, fault));
            }
            (false, _) => {}
        }
    }
    let takes_operator = matches!(condition, Some("arg" | "parameter"));
    for key in fields.keys() {
        let known = Some(key.as_str()) == condition || (takes_operator && matches!(&**key, "op" | "value"));
        if !known {
            return Err(bad(at, Fault::UnknownKey(key.clone())));
        }
    }
    condition.ok_or_else(|| bad(at, Fault::NoCondition))
}

fn bad(at: &str, fault: Fault) -> BadMatcher {
    BadMatcher { at: at.into(), fault }
}

/// Key escaped for a JSON pointer (RFC 6901).
fn pointer_step(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
