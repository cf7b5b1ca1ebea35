//! `POST /api/v1/claim`: claims jobs for a worker.

use crate::answer::respond;
use crate::codec::{Encoding, Text};
use crate::listener::TakenBody;
use crate::native::commands::within;
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, encode};
use crate::native::request::{Body, reply_encoding};
use crate::native::views::{ClaimedJob, JOB_BYTES_GUESS};
use crate::native::wire::{self, Lease, TenantText};
use crate::route::{Call, Examples};
use ::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use windlass_core::{Job, NameMatch, Queue, Tenant};
use windlass_engine::{Claim, Delivery};

/// Jobs of a claim without a limit.
const CLAIM_LIMIT_DEFAULT: usize = 1;

pub(super) const EXAMPLES: Examples = &[(
    "wait",
    "up to ten mail jobs, waiting up to thirty seconds",
    r#"{"name":"mail*","limit":10,"wait_ms":30000,"worker":"w1"}"#,
)];

/// Claim of a worker.
#[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Claim")]
pub(super) struct ClaimBody<'a> {
    /// Queues to claim from; any if empty.
    #[serde(borrow)]
    pub queues: Vec<Text<'a>>,
    /// Single queue to claim from.
    #[serde(borrow)]
    pub queue: Option<Text<'a>>,
    /// GLOB pattern that the name must match.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// Names to claim, instead of `name`.
    #[serde(borrow)]
    pub names: Vec<Text<'a>>,
    /// Exact priority.
    pub priority: Option<i32>,
    /// Maximum number of jobs; 1 if omitted.
    pub limit: Option<usize>,
    /// Time to wait if no job is ready; at most five minutes.
    pub wait_ms: u64,
    /// Length of the leases without a heartbeat.
    pub lease_ms: Option<Lease>,
    /// Name of the worker, shown to people.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = wire::LABEL_BYTES_MAX))]
    pub worker: Option<Text<'a>>,
    #[serde(borrow)]
    pub tenant: Option<TenantText<'a>>,
}

/// Claimed jobs; empty if none became ready in time.
#[derive(Serialize, JsonSchema)]
pub(super) struct Claimed<'a> {
    /// Jobs in claim order.
    jobs: Vec<ClaimedJob<'a>>,
}

pub(super) async fn claim(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let ask: ClaimBody<'_> = body.read_or_default()?;
    let tenant = call.caller.tenant_for(ask.tenant.as_deref())?;
    let delivery = next_jobs(&call, to_claim(&ask, tenant)?).await?;
    let reply = reply_encoding(&call);
    let answer = Claimed { jobs: claimed(&delivery, reply) };
    let written = encode(reply, room_for(&delivery) + 16, &answer)?;
    drop(answer);
    Ok(deliver(reply, written, delivery))
}

/// Converts the request to a claim of the engine.
pub(super) fn to_claim(ask: &ClaimBody<'_>, tenant: Tenant) -> Result<Claim, ApiError> {
    let names = match (&ask.name, ask.names.as_slice()) {
        (None, []) => NameMatch::Any,
        (Some(glob), []) => NameMatch::glob(glob),
        (None, [name]) => NameMatch::Exact((**name).into()),
        (None, names) => NameMatch::OneOf(names.iter().map(|name| (**name).into()).collect()),
        (Some(_), _) => {
            return Err(ApiError::bad_request("`name` and `names` cannot be combined; send one of them"));
        }
    };
    let asked = ask.queues.iter().chain(&ask.queue);
    let queues: Vec<Queue> = asked.map(|queue| Queue::new(queue)).collect::<Result<_, _>>()?;
    if queues.len().max(ask.names.len()) > wire::QUEUES_MAX {
        return Err(ApiError::bad_request(format!(
            "too many queues and names; the maximum per claim is {}",
            wire::QUEUES_MAX
        )));
    }
    if let Some(worker) = &ask.worker {
        within("worker", worker, wire::LABEL_BYTES_MAX).map_err(ApiError::bad_request)?;
    }
    Ok(Claim {
        tenant,
        queues,
        names,
        priority: ask.priority,
        limit: ask.limit.unwrap_or(CLAIM_LIMIT_DEFAULT).min(wire::BATCH_MAX),
        wait_ms: ask.wait_ms.min(wire::WAIT_MS_MAX),
        lease_ms: ask.lease_ms.map(|lease| lease.0),
        worker: ask.worker.as_ref().map(|worker| Arc::from(&**worker)),
    })
}

/// Claims jobs; `None` if the server is shutting down, or the caller's token was revoked or has expired: the
/// worker gets an empty response.
pub(super) async fn next_jobs(call: &Call, claim: Claim) -> Result<Option<Delivery>, ApiError> {
    tokio::select! {
        biased;
        delivery = call.engine.claim(claim) => Ok(Some(delivery?)),
        () = call.wait_until_ended() => Ok(None),
    }
}

fn jobs_of(delivery: &Option<Delivery>) -> &[Arc<Job>] {
    delivery.as_ref().map_or(&[], |delivery| &delivery.jobs)
}

pub(super) fn room_for(delivery: &Option<Delivery>) -> usize {
    jobs_of(delivery).iter().map(|job| job.spec.payload.bytes.len() + JOB_BYTES_GUESS).sum()
}

pub(super) fn claimed(delivery: &Option<Delivery>, reply: Encoding) -> Vec<ClaimedJob<'_>> {
    jobs_of(delivery).iter().map(|job| ClaimedJob::new(job, reply)).collect()
}

/// Responds with the jobs. They belong to the worker once the connection takes the bytes; if it ends before,
/// they are released.
pub(super) fn deliver(reply: Encoding, written: Vec<u8>, delivery: Option<Delivery>) -> Response {
    let body = axum::body::Body::new(TakenBody::new(
        Bytes::from(written),
        delivery,
        |delivery: Option<Delivery>| {
            delivery.map(Delivery::accept);
        },
    ));
    respond(StatusCode::OK, reply, body)
}
