mod bucket;
mod limit;
mod matcher;
mod table;

use super::{Limit, Subject};
use crate::Timestamp;
use serde_json::Value;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

#[track_caller]
fn limit(id: &str, json: &str) -> Limit {
    Limit::parse(id, &value(json)).unwrap()
}

#[track_caller]
fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

fn subject<'a>(name: &'a str, args: &'a Value) -> Subject<'a> {
    Subject { queue: "default", name, priority: 5, args }
}
