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
    /// How many queues there are.
    queues: usize,
    /// Jobs by state.
    totals: StateCounts<'static>,
    /// Of the server.
    version: &'static str,
    /// Since the start.
    uptime_ms: u64,
    /// How long the oldest job that could run has been waiting.
    #[schemars(with = "Nullable<u64>")]
    oldest_ms: Nullable<i64>,
    #[serde(flatten)]
    server: ServerFigures<'a>,
}

#[derive(Default, Serialize, JsonSchema)]
struct ServerFigures<'a> {
    rates: Option<Rates>,
    /// From due to picked up, over the last minute.
    pickup_ms: Option<Nullable<Percentiles>>,
    /// From picked up to reported, over the last minute.
    run_ms: Option<Nullable<Percentiles>>,
    /// Which store it is.
    store: Option<&'a str>,
    /// Claims that wait for jobs.
    waiting_claims: Option<usize>,
}

/// Per second, over the last minute.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Rates {
    /// Per second.
    pushed: f64,
    /// Per second.
    claimed: f64,
    /// Per second.
    finished: f64,
    /// Per second.
    failed: f64,
}

impl From<PerSecond> for Rates {
    /// In the order of [`rates::NAMES`].
    fn from([pushed, claimed, finished, failed]: PerSecond) -> Rates {
        Rates { pushed, claimed, finished, failed }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Percentiles {
    /// Milliseconds.
    p50: f64,
    /// Milliseconds.
    p95: f64,
    /// Milliseconds.
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
        // What the server as a whole does is not one tenant's to know.
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
        oldest_due: None,
    };
    for one in counts {
        total.by_state.iter_mut().zip(one.by_state).for_each(|(sum, count)| *sum += count);
        total.delayed += one.delayed;
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
