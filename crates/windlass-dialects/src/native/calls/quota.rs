//! `GET` and `PUT /api/v1/tenants/{tenant}/quota`: quota of a tenant, and its usage.

use crate::audit::with_detail;
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, reply};
use crate::native::request::{Body, Params};
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::Tenant;
use windlass_engine::Quota;

pub(super) const EXAMPLES: Examples =
    &[("small", "quotas of a small tenant", r#"{"jobs":10000,"requests_per_second":100}"#)];

/// Quota of a tenant; omitted fields stay unchanged.
#[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct QuotaAsk {
    /// Jobs that are not settled.
    pub jobs: Option<u64>,
    /// Bytes of the payloads of all stored jobs, including settled ones.
    pub payload_bytes: Option<u64>,
    /// Bytes of blobs.
    pub blob_bytes: Option<u64>,
    /// Kinds of jobs with a handler.
    pub handlers: Option<u64>,
    /// Concurrent requests, including waiting ones.
    pub requests_in_flight: Option<u64>,
    /// Requests per second, also the size of a burst.
    pub requests_per_second: Option<u64>,
    /// Waiting claims.
    pub waiting_claims: Option<u64>,
    /// Open connections whose last request was the tenant's.
    pub connections: Option<u64>,
    /// Seconds per minute that handlers and WASI modules run, all runs added up; jobs beyond wait.
    pub handler_seconds_per_minute: Option<u64>,
}

/// Quota of a tenant, and its usage.
#[derive(Serialize, JsonSchema)]
pub(super) struct TenantQuota<'a> {
    /// Tenant.
    tenant: &'a str,
    quota: QuotaShown,
    in_use: InUse,
}

/// Quota.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct QuotaShown {
    /// Jobs that are not settled.
    jobs: u64,
    /// Bytes of the payloads of all stored jobs, including settled ones.
    payload_bytes: u64,
    /// Bytes of blobs.
    blob_bytes: u64,
    /// Kinds of jobs with a handler.
    handlers: u64,
    /// Concurrent requests, including waiting ones.
    requests_in_flight: u64,
    /// Requests per second, also the size of a burst.
    requests_per_second: u64,
    /// Waiting claims.
    waiting_claims: u64,
    /// Open connections whose last request was the tenant's.
    connections: u64,
    /// Seconds per minute that handlers and WASI modules run, all runs added up; jobs beyond wait.
    handler_seconds_per_minute: u64,
}

/// Current usage.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct InUse {
    /// Jobs that are not settled.
    jobs: u64,
    /// Bytes of the payloads of all stored jobs, including settled ones.
    payload_bytes: u64,
    /// Bytes of blobs.
    blob_bytes: u64,
    /// Concurrent requests on this server.
    requests_in_flight: u64,
    /// Waiting claims on this server.
    waiting_claims: u64,
    /// Connections to this server.
    connections: u64,
    /// Seconds of run time on this server that are not yet given back: a minute gives back the quota.
    handler_seconds_per_minute: u64,
}

pub(super) async fn get(call: Call) -> Answer {
    Params::of(&call)?;
    let tenant = call.caller.tenant_for(Some(call.param(0)))?;
    show(&call, &tenant).await
}

pub(super) async fn put(mut call: Call) -> Answer {
    let ask: QuotaAsk = Body::of(&mut call).await?.read()?;
    Params::of(&call)?;
    let tenant = call.caller.tenant_for(Some(call.param(0)))?;
    let engine = &call.engine;
    let now = engine.quota(&tenant);
    let quota = Quota {
        jobs: ask.jobs.unwrap_or(now.jobs),
        payload_bytes: ask.payload_bytes.unwrap_or(now.payload_bytes),
        blob_bytes: ask.blob_bytes.unwrap_or(now.blob_bytes),
        handlers: ask.handlers.unwrap_or(now.handlers),
        requests_in_flight: ask.requests_in_flight.unwrap_or(now.requests_in_flight),
        requests_per_second: ask.requests_per_second.unwrap_or(now.requests_per_second),
        waiting_claims: ask.waiting_claims.unwrap_or(now.waiting_claims),
        connections: ask.connections.unwrap_or(now.connections),
        handler_seconds_per_minute: ask.handler_seconds_per_minute.unwrap_or(now.handler_seconds_per_minute),
    };
    if [quota.requests_in_flight, quota.requests_per_second, quota.connections].contains(&0) {
        let why =
            "quotas of requests and connections must be at least 1; to block a tenant, revoke its tokens";
        return Err(ApiError::bad_request(why));
    }
    call.concerns(&tenant, None);
    engine.set_quota(&tenant, quota).await?;
    tracing::info!(%tenant, by = %call.caller.who, "quotas of tenant {tenant} set: {quota:?}");
    Ok(with_detail(show(&call, &tenant).await?, None, format!("{quota:?}")))
}

async fn show(call: &Call, tenant: &Tenant) -> Answer {
    let (quota, in_use) = (call.engine.quota(tenant), call.engine.in_use(tenant).await?);
    let quota = QuotaShown {
        jobs: quota.jobs,
        payload_bytes: quota.payload_bytes,
        blob_bytes: quota.blob_bytes,
        handlers: quota.handlers,
        requests_in_flight: quota.requests_in_flight,
        requests_per_second: quota.requests_per_second,
        waiting_claims: quota.waiting_claims,
        connections: quota.connections,
        handler_seconds_per_minute: quota.handler_seconds_per_minute,
    };
    let in_use = InUse {
        jobs: in_use.jobs,
        payload_bytes: in_use.payload_bytes,
        blob_bytes: in_use.blob_bytes,
        requests_in_flight: in_use.requests_in_flight,
        waiting_claims: in_use.waiting_claims,
        connections: in_use.connections,
        handler_seconds_per_minute: in_use.handler_seconds_per_minute,
    };
    reply(call, StatusCode::OK, 512, &TenantQuota { tenant, quota, in_use })
}
