//! `GET /metrics`: the counters in the Prometheus text format.

pub mod families;
mod jobs;
mod page;
mod process;
mod trouble;

use crate::http::meters::RouteMeter;
use crate::native::reply::Answer;
use crate::native::request::seen_tenant;
use crate::query::QueueCounts;
use crate::route::Call;
use crate::server::Server;
use ::http::{HeaderValue, header};
use axum::body::Body;
use axum::response::Response;
use page::Page;
use std::sync::Arc;
use windlass_core::turn::TurnOutcome;
use windlass_core::{StateWord, Tenant, Timestamp};
use windlass_engine::job_meters::JobKey;
use windlass_engine::quota::LiveUse;
use windlass_engine::{Engine, EngineError};

#[cfg(test)]
mod tests;

/// Queues with series of their own: each has a dozen series, which the collector stores for weeks.
const QUEUES_SHOWN_MAX: usize = 2_000;
/// Tenants with lines of their own.
const TENANTS_SHOWN_MAX: usize = 2_000;

pub(super) async fn metrics(call: Call) -> Answer {
    let tenant = seen_tenant(&call)?;
    let page = page_for(&call.engine, &call.server, tenant).await?;
    let mut response = Response::new(Body::from(page.text));
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    Ok(response)
}

/// Page as an admin sees it, for the server's own export.
pub(in crate::native) async fn whole_page(server: &Arc<Server>) -> Result<String, EngineError> {
    Ok(page_for(&server.engine, server, None).await?.text)
}

async fn page_for(engine: &Engine, server: &Server, tenant: Option<Tenant>) -> Result<Page, EngineError> {
    let counts = match engine.counts(tenant.as_ref()).await {
        // The figures of the server are wanted most when its store does not answer.
        Err(EngineError::Store(_)) if tenant.is_none() => None,
        counts => Some(counts?),
    };
    let mut page = Page::default();
    queues(&mut page, counts.as_deref().unwrap_or_default(), engine.now());
    tenants(&mut page, &engine.live_use(tenant.as_ref(), TENANTS_SHOWN_MAX));
    // Figures of the whole server are for admins only.
    let sees_all = tenant.is_none();
    let (series, other) = engine.meters().jobs.all();
    let is_seen = |(of, queue, name): &JobKey| {
        tenant.as_ref().is_none_or(|tenant| tenant == of) && engine.reaches(queue, name)
    };
    let series: Vec<_> = series.into_iter().filter(|(key, _)| is_seen(key)).collect();
    jobs::write(&mut page, &series, Some(&*other).filter(|_| sees_all));
    if sees_all {
        whole_server(&mut page, server);
        trouble::write(&mut page, server, counts.is_some());
        http(&mut page, &server.http_meters.all());
    }
    Ok(page)
}

fn queues(page: &mut Page, counts: &[QueueCounts], now: Timestamp) {
    let shown = &counts[..counts.len().min(QUEUES_SHOWN_MAX)];
    page.family(&families::JOBS);
    for one in shown {
        for word in StateWord::ALL {
            let of = [&*one.tenant, &*one.queue, word.as_str()];
            page.line(&families::JOBS, &of, one.of_word(word) as f64);
        }
    }
    page.family(&families::QUEUE_OLDEST);
    for one in shown {
        let oldest_ms = one.oldest_due.map_or(0, |due| now.since_ms(due));
        page.line(&families::QUEUE_OLDEST, &[&*one.tenant, &*one.queue], oldest_ms as f64 / 1_000.0);
    }
    page.family(&families::QUEUE_PAUSED);
    for one in shown {
        let paused = f64::from(u8::from(one.paused));
        page.line(&families::QUEUE_PAUSED, &[&*one.tenant, &*one.queue], paused);
    }
    page.single(&families::QUEUES_NOT_SHOWN, (counts.len() - shown.len()) as f64);
}

/// Requests of the routes that were called.
fn http(page: &mut Page, routes: &[Arc<RouteMeter>]) {
    page.family(&families::HTTP_REQUESTS);
    for meter in routes {
        for (class, count) in meter.counts().filter(|(_, count)| *count > 0) {
            page.line(&families::HTTP_REQUESTS, &[meter.route, meter.method, class], count as f64);
        }
    }
    page.family(&families::HTTP_REQUEST_SECONDS);
    for meter in routes.iter().filter(|meter| meter.counts().any(|(_, count)| count > 0)) {
        let of = [meter.route, meter.method];
        page.buckets(&families::HTTP_REQUEST_SECONDS, &of, &meter.time_us, 1e-6);
    }
}

fn tenants(page: &mut Page, live: &[LiveUse]) {
    page.family(&families::TENANT_CONNECTIONS);
    for one in live {
        page.line(&families::TENANT_CONNECTIONS, &[&*one.tenant], one.connections as f64);
    }
    page.family(&families::TENANT_HANDLER_SECONDS);
    for one in live {
        page.line(&families::TENANT_HANDLER_SECONDS, &[&*one.tenant], one.handler_ms as f64 / 1_000.0);
    }
}

fn whole_server(page: &mut Page, server: &Server) {
    let engine = &server.engine;
    let meters = engine.meters();
    for (family, counter) in [
        (&families::PUSHED, &meters.pushed),
        (&families::CLAIMED, &meters.claimed),
        (&families::FINISHED, &meters.finished),
        (&families::FAILED, &meters.failed),
        (&families::LAPSED, &meters.lapsed),
        (&families::CANCELLED, &meters.cancelled),
        (&families::RELEASED, &meters.released),
        (&families::EXPIRED, &meters.expired),
        (&families::STALE, &meters.stale),
    ] {
        page.single(family, counter.get() as f64);
    }
    page.family(&families::TURNS);
    for outcome in TurnOutcome::ALL {
        page.line(&families::TURNS, &[outcome.as_str()], meters.turns.of(outcome).get() as f64);
    }
    page.single(&families::WAITING_CLAIMS, engine.waiters() as f64);
    page.single(&families::JOURNAL_BYTES, server.journal.bytes() as f64);
    page.single(&families::LEASES_HELD, engine.leases_held() as f64);
    page.times(&families::PICKUP, &meters.pickup_us);
    page.times(&families::RUN, &meters.run_us);
    let store = engine.store_meters();
    let (_, commits, _) = store.commit_us.snapshot();
    page.single(&families::COMMITS, commits as f64);
    page.histogram(&families::COMMIT_SIZE, &store.commit_size, 1.0);
    page.times(&families::COMMIT_SECONDS, &store.commit_us);
    page.times(&families::SYNC_SECONDS, &store.sync_us);
    page.times(&families::CHECKPOINT_SECONDS, &store.checkpoint_us);
    page.single(&families::UPTIME, server.started.elapsed().as_secs_f64());
    process::write(page);
    page.family(&families::BUILD_INFO);
    let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    page.line(&families::BUILD_INFO, &[server.version, &target], 1.0);
    page.family(&families::INFO);
    page.line(&families::INFO, &[server.version, &server.store], 1.0);
}
