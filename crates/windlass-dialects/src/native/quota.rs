//! What tenants may take, and what they take.

use super::calls::{Answer, answer, body, params, reply_encoding};
use super::errors::ApiError;
use super::wire::QuotaAsk;
use crate::codec::{self, Out};
use crate::route::Call;
use ::http::StatusCode;
use windlass_core::Tenant;
use windlass_engine::Quota;

pub async fn get(call: Call) -> Answer {
    params(&call, &[])?;
    let tenant = call.caller.tenant_for(Some(call.param(0)))?;
    show(&call, &tenant).await
}

pub async fn put(mut call: Call) -> Answer {
    let (encoding, body) = body(&mut call).await?;
    let ask: QuotaAsk = codec::read_map(encoding, &body)?;
    params(&call, &[])?;
    let tenant = call.caller.tenant_for(Some(call.param(0)))?;
    let engine = &call.engine;
    let now = engine.quota(&tenant);
    let quota = Quota {
        jobs: ask.jobs.unwrap_or(now.jobs),
        blob_bytes: ask.blob_bytes.unwrap_or(now.blob_bytes),
        handlers: ask.handlers.unwrap_or(now.handlers),
        requests_in_flight: ask.requests_in_flight.unwrap_or(now.requests_in_flight),
        requests_per_second: ask.requests_per_second.unwrap_or(now.requests_per_second),
        waiting_claims: ask.waiting_claims.unwrap_or(now.waiting_claims),
    };
    if quota.requests_in_flight == 0 || quota.requests_per_second == 0 {
        return Err(ApiError::bad_request("a tenant needs at least one request; revoke its tokens instead"));
    }
    engine.set_quota(&tenant, quota).await?;
    tracing::info!(%tenant, by = %call.caller.who, "quota of {tenant} set: {quota:?}");
    show(&call, &tenant).await
}

async fn show(call: &Call, tenant: &Tenant) -> Answer {
    let engine = &call.engine;
    let (quota, in_use) = (engine.quota(tenant), engine.in_use(tenant).await?);
    let mut out = Out::new(reply_encoding(call), 512);
    out.begin_map();
    out.key("tenant");
    out.str(tenant);
    let quota = [
        ("jobs", quota.jobs),
        ("blob_bytes", quota.blob_bytes),
        ("handlers", quota.handlers),
        ("requests_in_flight", quota.requests_in_flight),
        ("requests_per_second", quota.requests_per_second),
        ("waiting_claims", quota.waiting_claims),
    ];
    let in_use = [
        ("jobs", in_use.jobs),
        ("blob_bytes", in_use.blob_bytes),
        ("requests_in_flight", in_use.requests_in_flight),
        ("waiting_claims", in_use.waiting_claims),
    ];
    for (key, numbers) in [("quota", quota.as_slice()), ("in_use", in_use.as_slice())] {
        out.key(key);
        out.begin_map();
        for (key, number) in numbers {
            out.key(key);
            out.uint(*number);
        }
        out.end_map();
    }
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}
