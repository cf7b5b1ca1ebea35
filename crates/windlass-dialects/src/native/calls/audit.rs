//! `GET /api/v1/audit`: actions of operators and admins.

use crate::codec::Nullable;
use crate::native::reply::{Answer, reply};
use crate::native::request::Params;
use crate::native::wire::Time;
use crate::route::Call;
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_engine::audit::{AuditEntry, AuditFilter};

/// Actions of operators and admins, newest first.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Audit")]
pub(super) struct AuditPage<'a> {
    /// Entries.
    entries: Vec<Entry<'a>>,
    /// Cursor of the next page; null: no more entries.
    next: Nullable<String>,
}

/// Action of an operator or admin.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AuditEntry")]
struct Entry<'a> {
    /// Number of the entry; larger is newer.
    id: u64,
    /// Time of the action.
    at: Time,
    /// Tenant concerned.
    tenant: &'a str,
    /// Note of the token, or its public prefix; `anyone` on a server without tokens.
    who: &'a str,
    /// Role of the token.
    role: &'a str,
    /// Kind of the target and verb: `job.cancel`, `queue.pause`, `limit.set`, …
    action: &'a str,
    /// Id or name of the job, queue, limit, token, …; empty if there is none.
    target: &'a str,
    /// Further facts for people.
    detail: &'a str,
}

impl<'a> Entry<'a> {
    fn new(entry: &'a AuditEntry) -> Entry<'a> {
        let AuditEntry { id, at, tenant, who, role, action, target, detail } = entry;
        Entry { id: *id, at: (*at).into(), tenant, who, role, action, target, detail }
    }
}

pub(super) async fn audit(call: Call) -> Answer {
    let params = Params::of(&call)?;
    let text = |key| params.text(key).map(str::to_owned);
    let job = params.number::<u64>("job")?.map(|id| id.to_string());
    let limit = params.page_limit()?;
    let filter = AuditFilter {
        tenant: call.caller.tenants_for(params.tenant())?,
        who: text("who"),
        action: text("action").or_else(|| job.as_ref().map(|_| "job".to_owned())),
        target: job.or_else(|| text("target")),
        before: params.number("cursor")?,
        limit,
    };
    let found = call.engine.audit(filter).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|entry| entry.id.to_string());
    let entries = found.iter().map(Entry::new).collect();
    reply(&call, StatusCode::OK, 64 + found.len() * 256, &AuditPage { entries, next: Nullable(next) })
}
