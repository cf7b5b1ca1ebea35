//! Parameters of paths and queries, each described once.

use super::wire::{PAGE_MAX, WAIT_MS_MAX};
use crate::route::Param;
use serde_json::{Value, json};

const fn text(name: &'static str, about: &'static str) -> Param {
    Param { name, about, schema: || json!({"type": "string"}) }
}

const fn other(name: &'static str, about: &'static str, schema: fn() -> Value) -> Param {
    Param { name, about, schema }
}

fn job_id() -> Value {
    json!({"type": "integer", "minimum": 1})
}

pub(super) const ID: Param = other("id", "The job's id.", job_id);
pub(super) const LIMIT_ID: Param = text("id", "The limit's id.");
pub(super) const ALIAS: Param = text("alias", "The job's alias.");
pub(super) const PREFIX: Param = text("prefix", "The token's public part: the eight characters after `wl_`.");
pub(super) const WORKER: Param = text("worker", "The worker's id.");
pub(super) const QUEUE: Param = text("queue", "The queue.");
pub(super) const STATE: Param = text("state", "Only jobs in these states, separated by commas.");
pub(super) const NAME: Param = text("name", "Only jobs whose name matches this GLOB.");
pub(super) const TAG: Param = text("tag", "Only jobs with this tag.");
pub(super) const TEXT: Param = text("q", "Only jobs with this text in the payload.");
pub(super) const CURSOR: Param = text("cursor", "`next` of the page before.");
pub(super) const TENANT: Param =
    text("tenant", "Another tenant than your own, for admins; admins who name none see all.");
pub(super) const WHOSE_QUOTA: Param = text("tenant", "The tenant: your own, unless you are an admin.");
pub(super) const JOB: Param = other("job", "Only what happens to this job.", job_id);
pub(super) const SEARCH: Param = text(
    "search",
    "Words: `state:failed name:mail* queue:default tag:x args.user_id:42 age>1h`; also `tenant:`, `worker:`, \
     `origin:` and `age<`; any other word is looked for in the payload. Quotes keep words together.",
);
pub(super) const SPAN: Param = other(
    "span",
    "15m: the last quarter of an hour, in steps of seconds; 30d: the last month, in hours.",
    || json!({"type": "string", "enum": ["15m", "30d"]}),
);
pub(super) const SUMMARY_MS: Param = other(
    "summary_ms",
    "Instead of single events, at most one `summary` in so many milliseconds, with how many of each there were.",
    || json!({"type": "integer", "minimum": 100, "maximum": 60_000}),
);
pub(super) const LIMIT: Param = other(
    "limit",
    "Jobs per page; 50 if left out.",
    || json!({"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
);
pub(super) const WAIT_MS: Param = other(
    "wait_ms",
    "How long to wait for the end.",
    || json!({"type": "integer", "minimum": 0, "maximum": WAIT_MS_MAX}),
);
