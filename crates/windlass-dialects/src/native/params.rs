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

fn job_id_or_alias() -> Value {
    json!({"anyOf": [job_id(), {"type": "string"}]})
}

pub(super) const ID: Param =
    other("id", "Id of the job, or its alias if that is not a number.", job_id_or_alias);
pub(super) const SIGNAL: Param = text("name", "Name of the signal.");
pub(super) const LIMIT_ID: Param = text("id", "Id of the limit.");
pub(super) const ALIAS: Param = text("alias", "Alias of the job.");
pub(super) const PREFIX: Param =
    text("prefix", "Public part of the token: the eight characters after `wl_`.");
pub(super) const WORKER: Param = text("worker", "Id of the worker.");
pub(super) const QUEUE: Param = text("queue", "Name of the queue.");
pub(super) const STATE: Param = text("state", "Only jobs in these states, separated by commas.");
pub(super) const NAME: Param = text("name", "Only jobs whose name matches this GLOB pattern.");
pub(super) const TAG: Param = text("tag", "Only jobs with this tag.");
pub(super) const TEXT: Param = text("q", "Only jobs with this text in the payload.");
pub(super) const CURSOR: Param = text("cursor", "`next` of the previous page.");
pub(super) const TENANT: Param =
    text("tenant", "Another tenant (admins only); without it, admins see all tenants.");
pub(super) const WHOSE_QUOTA: Param =
    text("tenant", "Name of the tenant; only admins may give another tenant than their own.");
pub(super) const JOB: Param = other("job", "Only events of this job.", job_id);
pub(super) const AUDITED_JOB: Param = other("job", "Only actions on this job.", job_id);
pub(super) const WHO: Param = text("who", "Only actions of this caller: the note of a token.");
pub(super) const ACTION: Param = text(
    "action",
    "Only this action, such as `job.cancel`, or actions on this kind of target, such as `queue`.",
);
pub(super) const TARGET: Param = text("target", "Only actions on the target with this id or name.");
pub(super) const SEARCH: Param = text(
    "search",
    "Search terms: `state:failed name:mail* queue:default tag:x class:Timeout error:SMTP* id:7 \
     args.user_id:42 age>1h ended<1h`; also `alias:`, `group:`, `tenant:`, `worker:`, `origin:`, `age<` and \
     `ended>` (since the end of the last run). A number is an id. Any other word is searched for in the payload, \
     as is a word in quotes; an unknown key is refused. Use quotes for values with spaces.",
);
pub(super) const ONE_QUEUE: Param =
    text("queue", "Only this queue, of the tenant of the caller or of `tenant`; needs `span=15m`.");
pub(super) const SPAN: Param = other(
    "span",
    "15m: the last 15 minutes, in steps of seconds; 30d: the last 30 days, in steps of hours.",
    || json!({"type": "string", "enum": ["15m", "30d"]}),
);
pub(super) const SUMMARY_MS: Param = other(
    "summary_ms",
    "Interval in milliseconds: send at most one event `summary` per interval, with the number of \
     events of each kind, instead of single events.",
    || json!({"type": "integer", "minimum": 100, "maximum": 60_000}),
);
pub(super) const LIMIT: Param = other(
    "limit",
    "Jobs per page, at most; default 50. A page also ends with the job that brings its payloads, errors, results and \
     logs to 8 MiB.",
    || json!({"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
);
pub(super) const FAILED_STATE: Param = text("state", "Only failed or only retrying jobs; both if omitted.");
pub(super) const SORT: Param = other(
    "sort",
    "Order of the groups: by number of jobs (default), or by the latest error.",
    || json!({"type": "string", "enum": ["count", "last"]}),
);
pub(super) const GROUPS_LIMIT: Param = other(
    "limit",
    "Groups in the answer; default 50.",
    || json!({"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
);
pub(super) const WAIT_MS: Param = other(
    "wait_ms",
    "How long to wait until the job is finished.",
    || json!({"type": "integer", "minimum": 0, "maximum": WAIT_MS_MAX}),
);
