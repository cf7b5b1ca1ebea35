//! `POST /api/v1/extend`: heartbeats.

use crate::codec::{Nullable, Text};
use crate::native::errors::{ApiError, ErrorBody};
use crate::native::reply::{Answer, reply};
use crate::native::request::Body;
use crate::native::wire::{self, Id, Lease, TenantText, Time};
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::{Holder, JobId, Tenant, Token};
use windlass_engine::{Extend, Extended, Report, VerbError};

pub(super) const EXAMPLES: Examples = &[(
    "beat",
    "report 50 % progress",
    r#"{"extend":[{"id":1,"token":65537,"lease_ms":30000,"progress":50,"note":"page 5 of 10"}]}"#,
)];

/// Heartbeats.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Extend")]
pub(super) struct ExtendAsk<'a> {
    /// Entries, one per run.
    #[serde(borrow)]
    pub extend: Vec<ExtendEntry<'a>>,
    #[serde(borrow, default)]
    pub tenant: Option<TenantText<'a>>,
}

/// Heartbeat of one run.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExtendEntry<'a> {
    /// Id of the job.
    pub id: Id,
    /// Lease token from the claim.
    #[schemars(with = "u64")]
    pub token: Token,
    /// Length of the lease from now; never shortens it.
    #[serde(default)]
    pub lease_ms: Option<Lease>,
    /// Percent done.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub progress: Option<u8>,
    /// Progress note for people.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = wire::MESSAGE_BYTES_MAX))]
    pub note: Option<Text<'a>>,
}

/// Results, one per entry, in order.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Extended")]
pub(super) struct ExtendedAnswer {
    /// Results.
    extended: Vec<ExtendedEntry>,
}

/// Result of one entry.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ExtendedOne")]
pub(super) struct ExtendedEntry {
    /// Id of the job.
    id: Id,
    /// True if the lease was extended.
    ok: bool,
    error: Option<ErrorBody>,
    /// Expiry of the lease; null if it does not expire.
    lease_until: Option<Nullable<Time>>,
    /// True if the job should be stopped; a finish still counts.
    cancel: Option<bool>,
}

impl ExtendedEntry {
    pub(super) fn new(id: JobId, answer: Result<Extended, VerbError>) -> ExtendedEntry {
        let id = Id(id);
        match answer {
            Ok(extended) => ExtendedEntry {
                id,
                ok: true,
                error: None,
                lease_until: Some(Nullable(extended.until.map(Time::from))),
                cancel: Some(extended.cancel_asked),
            },
            Err(error) => {
                let error = Some(ApiError::from(error).into_body());
                ExtendedEntry { id, ok: false, error, lease_until: None, cancel: None }
            }
        }
    }
}

pub(super) async fn extend(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let ask: ExtendAsk<'_> = body.read()?;
    if ask.extend.len() > wire::BATCH_MAX {
        return Err(ApiError::batch_too_large(ask.extend.len()));
    }
    let tenant = call.caller.tenant_for(ask.tenant.as_deref())?;
    let answers = extend_and_report(&call, &tenant, &ask.extend).await?;
    let entries =
        ask.extend.iter().zip(answers).map(|(entry, answer)| ExtendedEntry::new(entry.id.0, answer));
    let answer = ExtendedAnswer { extended: entries.collect() };
    reply(&call, StatusCode::OK, 16 + answer.extended.len() * 64, &answer)
}

/// Extends every lease; entries with progress or a note also report it.
async fn extend_and_report(
    call: &Call,
    tenant: &Tenant,
    entries: &[ExtendEntry<'_>],
) -> Result<Vec<Result<Extended, VerbError>>, ApiError> {
    let mut reports = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if entry.progress.is_some_and(|percent| percent > 100) {
            return Err(ApiError::bad_request(format!(
                "entry {index}: `progress` must be between 0 and 100"
            )));
        }
        if entry.note.as_ref().is_some_and(|note| note.len() > wire::MESSAGE_BYTES_MAX) {
            let max = wire::MESSAGE_BYTES_MAX;
            return Err(ApiError::bad_request(format!(
                "entry {index}: `note` is longer than the maximum of {max} bytes"
            )));
        }
        if entry.progress.is_some() || entry.note.is_some() {
            reports.push(Report {
                id: entry.id.0,
                by: Holder::Token(entry.token),
                percent: entry.progress,
                note: entry.note.as_ref().map(|note| note.to_string()),
                payload: None,
            });
        }
    }
    let engine = &call.engine;
    if !reports.is_empty() {
        // A lost lease shows in the result of the extension.
        engine.report(tenant, reports).await?;
    }
    let extend = |entry: &ExtendEntry<'_>| Extend {
        id: entry.id.0,
        by: Holder::Token(entry.token),
        lease_ms: entry.lease_ms.map(|lease| lease.0),
    };
    Ok(engine.extend(tenant, entries.iter().map(extend).collect()).await?)
}
