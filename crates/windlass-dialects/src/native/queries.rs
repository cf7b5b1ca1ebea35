//! The calls that look at, and steer, more than one job: queues, limits, statistics.

use super::calls::{Answer, answer, body, param, params, reply_encoding};
use super::errors::ApiError;
use super::rates::{NAMES, Percentiles};
use super::views::{self, Surroundings};
use crate::codec::{self, Out};
use crate::query::QueueCounts;
use crate::route::Call;
use ::http::StatusCode;
use serde_json::Value;
use windlass_core::limits::Limit;
use windlass_core::{Job, Queue, StateName, Tenant};
use windlass_engine::{Engine, LimitView};

/// A comma list of states. `delayed` is a word for the eye only: such jobs are ready but for their time.
pub fn states(list: Option<&str>) -> Result<Vec<StateName>, ApiError> {
    let parse = |word: &str| match word.trim() {
        "delayed" => Ok(StateName::Ready),
        word => StateName::parse(word).ok_or_else(|| {
            let known = StateName::ALL.map(StateName::as_str).join(", ");
            ApiError::bad_request(format!("there is no state `{word}`; there are: {known}"))
        }),
    };
    list.map_or(Ok(Vec::new()), |list| list.split(',').map(parse).collect())
}

/// What else decides whether the job can run.
pub async fn surroundings(engine: &Engine, tenant: &Tenant, job: &Job) -> Result<Surroundings, ApiError> {
    let mut around = Surroundings { now: engine.now(), ..Surroundings::default() };
    if job.state().claimable_at().is_none() {
        return Ok(around);
    }
    let counts = engine.counts(Some(tenant)).await?;
    around.queue_is_paused = counts.iter().any(|counts| counts.queue == job.spec.queue && counts.paused);
    around.held_by = engine.held_by(job).await?.map(|held| held.limit.into());
    Ok(around)
}

pub async fn queues(call: Call) -> Answer {
    let params = params(&call, &["tenant"])?;
    let tenant = call.caller.tenants_for(param(&params, "tenant"))?;
    let engine = &call.engine;
    let (counts, now) = (engine.counts(tenant.as_ref()).await?, engine.now());
    let mut out = Out::new(reply_encoding(&call), 32 + counts.len() * 256);
    out.begin_map();
    out.key("queues");
    out.begin_array();
    let flows = call.server.rates.flows(engine.meters());
    for counts in &counts {
        let flow = flows.get(&(counts.tenant.clone(), counts.queue.clone())).copied();
        views::queue(&mut out, counts, flow, now);
    }
    out.end_array();
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

pub async fn pause(call: Call) -> Answer {
    set_paused(call, true).await
}

pub async fn resume(call: Call) -> Answer {
    set_paused(call, false).await
}

async fn set_paused(call: Call, paused: bool) -> Answer {
    let params = params(&call, &["tenant"])?;
    let tenant = call.caller.tenant_for(param(&params, "tenant"))?;
    let queue = Queue::new(call.param(0))?;
    call.engine.set_paused(&tenant, &queue, paused).await?;
    let mut out = Out::new(reply_encoding(&call), 64);
    out.begin_map();
    out.key("queue");
    out.str(&queue);
    out.key("tenant");
    out.str(&tenant);
    out.key("paused");
    out.bool(paused);
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

pub async fn limits(call: Call) -> Answer {
    let params = params(&call, &["tenant"])?;
    let tenant = call.caller.tenant_for(param(&params, "tenant"))?;
    let limits = call.engine.limits(&tenant).await?;
    let mut out = Out::new(reply_encoding(&call), 256);
    out.begin_map();
    out.key("limits");
    out.begin_array();
    limits.iter().for_each(|view| limit(&mut out, view));
    out.end_array();
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

fn limit(out: &mut Out, view: &LimitView) {
    let mut value = Value::from(view.limit.clone());
    if let Some(fields) = value.as_object_mut() {
        fields.insert("running".into(), view.running.into());
        fields.insert("waiting".into(), view.waiting.into());
        fields.insert("held".into(), view.held.into());
    }
    out.value(&value);
}

pub async fn put_limit(mut call: Call) -> Answer {
    let (encoding, body) = body(&mut call).await?;
    let value: Value = codec::read(encoding, &body)?;
    let params = params(&call, &["tenant"])?;
    let tenant = call.caller.tenant_for(param(&params, "tenant"))?;
    let asked = Limit::parse(call.param(0), &value).map_err(|e| ApiError::bad_request(e.to_string()))?;
    call.engine.set_limit(&tenant, asked.clone()).await?;
    let limits = call.engine.limits(&tenant).await?;
    let now = limits.into_iter().find(|view| view.limit.id == asked.id);
    let mut out = Out::new(reply_encoding(&call), 256);
    limit(&mut out, &now.unwrap_or(LimitView { limit: asked, running: 0, waiting: 0, held: 0 }));
    Ok(answer(StatusCode::OK, out))
}

pub async fn delete_limit(call: Call) -> Answer {
    let params = params(&call, &["tenant"])?;
    let tenant = call.caller.tenant_for(param(&params, "tenant"))?;
    if !call.engine.remove_limit(&tenant, call.param(0)).await? {
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", "there is no such limit"));
    }
    let mut out = Out::new(reply_encoding(&call), 64);
    out.begin_map();
    out.key("id");
    out.str(call.param(0));
    out.key("state");
    out.str("gone");
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

pub async fn stats(call: Call) -> Answer {
    let params = params(&call, &["tenant"])?;
    let tenant = call.caller.tenants_for(param(&params, "tenant"))?;
    let engine = &call.engine;
    let counts = engine.counts(tenant.as_ref()).await?;
    let mut out = Out::new(reply_encoding(&call), 512);
    out.begin_map();
    totals(&mut out, &counts);
    out.key("version");
    out.str(call.server.version);
    out.key("uptime_ms");
    out.uint(u64::try_from(call.server.started.elapsed().as_millis()).unwrap_or(u64::MAX));
    out.key("oldest_ms");
    match counts.iter().filter(|one| !one.paused).filter_map(|one| one.oldest_due).min() {
        Some(due) => out.int(engine.now().since_ms(due)),
        None => out.null(),
    }
    // What the server as a whole does is not one tenant's to know.
    if tenant.is_none() {
        server_figures(&mut out, &call);
    }
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

fn totals(out: &mut Out, counts: &[QueueCounts]) {
    let mut total = QueueCounts {
        tenant: Tenant::default(),
        queue: Queue::default(),
        paused: false,
        by_state: [0; 9],
        delayed: 0,
        oldest_due: None,
    };
    for one in counts {
        total.by_state.iter_mut().zip(one.by_state).for_each(|(sum, count)| *sum += count);
        total.delayed += one.delayed;
    }
    out.key("queues");
    out.uint(counts.len() as u64);
    out.key("totals");
    out.begin_map();
    views::states(out, &total);
    out.end_map();
}

fn server_figures(out: &mut Out, call: &Call) {
    let engine = &call.engine;
    let rates = call.server.rates.now(engine.meters());
    out.key("rates");
    out.begin_map();
    for (key, rate) in NAMES.into_iter().zip(rates) {
        out.key(key);
        out.float(rate);
    }
    out.end_map();
    let (pickup, run) = call.server.rates.latency(engine.meters());
    for (key, percentiles) in [("pickup_ms", pickup), ("run_ms", run)] {
        out.key(key);
        let Some(Percentiles(ms)) = percentiles else {
            out.null();
            continue;
        };
        out.begin_map();
        for (key, ms) in ["p50", "p95", "p99"].into_iter().zip(ms) {
            out.key(key);
            out.float(ms);
        }
        out.end_map();
    }
    out.key("store");
    out.str(&call.server.store);
    out.key("waiting_claims");
    out.uint(engine.waiters() as u64);
}
