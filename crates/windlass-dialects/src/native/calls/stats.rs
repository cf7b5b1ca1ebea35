//! `GET /api/v1/stats`: figures of a tenant, and for admins those of the server.

use super::queues::StateCounts;
use crate::codec::Nullable;
use crate::native::State;
use crate::native::rates::{self, PerSecond};
use crate::native::reply::{Answer, reply};
use crate::native::request::seen_tenant;
use crate::query::QueueCounts;
use crate::route::Call;
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use std::borrow::Cow;
use windlass_core::{Queue, Tenant};

/// Figures.
#[derive(Serialize, JsonSchema)]
pub(super) struct Stats<'a> {
    /// Number of queues.
    queues: usize,
    /// Number of jobs by state.
    totals: StateCounts<'static>,
    /// Version of the server.
    version: &'static str,
    /// Time since the server started.
    uptime_ms: u64,
    /// Waiting time of the oldest job that could run now.
    #[schemars(with = "Nullable<u64>")]
    oldest_ms: Nullable<i64>,
    #[serde(flatten)]
    server: ServerFigures<'a>,
}

#[derive(Default, Serialize, JsonSchema)]
struct ServerFigures<'a> {
    rates: Option<Rates>,
    /// Time from due to claimed, over the last minute.
    pickup_ms: Option<Nullable<Percentiles>>,
    /// Time from claimed to reported, over the last minute.
    run_ms: Option<Nullable<Percentiles>>,
    /// Name of the store.
    store: Option<&'a str>,
    /// Number of waiting claims.
    waiting_claims: Option<usize>,
}

/// Rates per second over the last minute.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Rates {
    /// Jobs pushed per second.
    pushed: f64,
    /// Jobs claimed per second.
    claimed: f64,
    /// Runs finished per second.
    finished: f64,
    /// Runs failed per second.
    failed: f64,
}

impl From<PerSecond> for Rates {
    /// Takes the rates in the order of [`rates::NAMES`].
    fn from([pushed, claimed, finished, failed]: PerSecond) -> Rates {
        Rates { pushed, claimed, finished, failed }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Percentiles {
    /// Median in milliseconds.
    p50: f64,
    /// 95th percentile in milliseconds.
    p95: f64,
    /// 99th percentile in milliseconds.
    p99: f64,
}

impl From<rates::Percentiles> for Percentiles {
    fn from(rates::Percentiles([p50, p95, p99]): rates::Percentiles) -> Percentiles {
        Percentiles { p50, p95, p99 }
    }
}

pub(super) async fn stats(call: Call) -> Answer {
    let tenant = seen_tenant(&call)?;
    let engine = &call.engine;
    let counts = engine.counts(tenant.as_ref()).await?;
    let oldest = counts.iter().filter(|one| !one.paused).filter_map(|one| one.oldest_due).min();
    let stats = Stats {
        queues: counts.len(),
        totals: totals(&counts),
        version: call.server.version,
        uptime_ms: u64::try_from(call.server.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        oldest_ms: Nullable(oldest.map(|due| engine.now().since_ms(due))),
        // Figures of the whole server are for admins only.
        server: if tenant.is_none() { server_figures(&call) } else { ServerFigures::default() },
    };
    reply(&call, StatusCode::OK, 512, &stats)
}

fn totals(counts: &[QueueCounts]) -> StateCounts<'static> {
    let mut total = QueueCounts {
        tenant: Tenant::default(),
        queue: Queue::default(),
        paused: false,
        by_state: [0; 9],
        delayed: 0,
        retrying: 0,
        oldest_due: None,
    };
    for one in counts {
        total.by_state.iter_mut().zip(one.by_state).for_each(|(sum, count)| *sum += count);
        total.delayed += one.delayed;
        total.retrying += one.retrying;
    }
    StateCounts(Cow::Owned(total))
}

fn server_figures(call: &Call) -> ServerFigures<'_> {
    let (engine, rates) = (&call.engine, &call.server.state::<State>().rates);
    let (pickup, run) = rates.latency(engine.meters());
    ServerFigures {
        rates: Some(rates.now(engine.meters()).into()),
        pickup_ms: Some(Nullable(pickup.map(Percentiles::from))),
        run_ms: Some(Nullable(run.map(Percentiles::from))),
        store: Some(&call.server.store),
        waiting_claims: Some(engine.waiters()),
    }
}
