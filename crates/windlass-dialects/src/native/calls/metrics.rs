//! `GET /metrics`: the counters in the Prometheus text format.

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
    page.family("windlass_jobs", "gauge", "Jobs by queue and state; each job is counted once.");
    for one in shown {
        for word in StateWord::ALL {
            queue_line(page, "windlass_jobs", one, Some(word.as_str()), one.of_word(word) as f64);
        }
    }
    page.family("windlass_queue_oldest_seconds", "gauge", "Age of the oldest job that is ready to run.");
    for one in shown {
        let oldest_ms = one.oldest_due.map_or(0, |due| now.since_ms(due));
        queue_line(page, "windlass_queue_oldest_seconds", one, None, oldest_ms as f64 / 1_000.0);
    }
    page.family("windlass_queue_paused", "gauge", "1 while the queue is paused.");
    for one in shown {
        queue_line(page, "windlass_queue_paused", one, None, f64::from(u8::from(one.paused)));
    }
    let hidden = counts.len() - shown.len();
    page.single(
        "windlass_queues_not_shown",
        "gauge",
        "Queues not shown because there are too many.",
        hidden as f64,
    );
}

fn queue_line(page: &mut Page, name: &str, counts: &QueueCounts, state: Option<&str>, value: f64) {
    let labels =
        [("tenant", &*counts.tenant), ("queue", &*counts.queue), ("state", state.unwrap_or_default())];
    let labels = if state.is_some() { &labels[..] } else { &labels[..2] };
    page.line(name, labels, value);
}

/// Requests of the routes that were called.
fn http(page: &mut Page, routes: &[Arc<RouteMeter>]) {
    page.family(
        "windlass_http_requests_total",
        "counter",
        "HTTP requests by route, method and class of the status.",
    );
    for meter in routes {
        for (class, count) in meter.counts().filter(|(_, count)| *count > 0) {
            let labels = [("route", meter.route), ("method", meter.method), ("status", class)];
            page.line("windlass_http_requests_total", &labels, count as f64);
        }
    }
    let help = "Time until the response of an HTTP request began; claims that wait for a job are included.";
    page.family("windlass_http_request_seconds", "histogram", help);
    for meter in routes.iter().filter(|meter| meter.counts().any(|(_, count)| count > 0)) {
        let labels = [("route", meter.route), ("method", meter.method)];
        page.buckets("windlass_http_request_seconds", &labels, &meter.time_us, 1e-6);
    }
}

fn tenants(page: &mut Page, live: &[LiveUse]) {
    page.family(
        "windlass_tenant_connections",
        "gauge",
        "Open connections by the tenant of their last request.",
    );
    for one in live {
        page.line("windlass_tenant_connections", &[("tenant", &*one.tenant)], one.connections as f64);
    }
    let help = "Run time of handlers and WASI modules by tenant.";
    page.family("windlass_tenant_handler_seconds_total", "counter", help);
    for one in live {
        let seconds = one.handler_ms as f64 / 1_000.0;
        page.line("windlass_tenant_handler_seconds_total", &[("tenant", &*one.tenant)], seconds);
    }
}

fn whole_server(page: &mut Page, server: &Server) {
    let engine = &server.engine;
    let meters = engine.meters();
    for (name, help, counter) in [
        ("pushed", "Jobs pushed.", &meters.pushed),
        ("claimed", "Jobs claimed by workers.", &meters.claimed),
        ("finished", "Runs that finished successfully.", &meters.finished),
        ("failed", "Runs reported as failed.", &meters.failed),
        ("lapsed", "Runs whose lease expired.", &meters.lapsed),
        ("cancelled", "Jobs cancelled.", &meters.cancelled),
        ("released", "Runs released by their worker.", &meters.released),
        ("expired", "Jobs deleted because their retention time was over.", &meters.expired),
        ("stale", "Commits retried after a concurrent change.", &meters.stale),
    ] {
        page.single(&format!("windlass_{name}_total"), "counter", help, counter.get() as f64);
    }
    page.family("windlass_turns_total", "counter", "Ended turns of repeating jobs by outcome.");
    for outcome in TurnOutcome::ALL {
        let count = meters.turns.of(outcome).get() as f64;
        page.line("windlass_turns_total", &[("outcome", outcome.as_str())], count);
    }
    page.single("windlass_waiting_claims", "gauge", "Claims waiting for jobs.", engine.waiters() as f64);
    let bytes = server.journal.bytes() as f64;
    page.single("windlass_journal_bytes", "gauge", "Size of the journal.", bytes);
    page.single(
        "windlass_leases_held",
        "gauge",
        "Running jobs claimed from this server.",
        engine.leases_held() as f64,
    );
    page.times(
        "windlass_pickup_seconds",
        "Time from when a job was due until it was claimed.",
        &meters.pickup_us,
    );
    page.times(
        "windlass_run_seconds",
        "Time from when a job was claimed until its outcome was reported.",
        &meters.run_us,
    );
    let store = engine.store_meters();
    let (_, commits, _) = store.commit_us.snapshot();
    page.single("windlass_commits_total", "counter", "Commits of the store.", commits as f64);
    page.histogram("windlass_commit_size", "Operations per commit.", &store.commit_size, 1.0);
    page.times(
        "windlass_commit_seconds",
        "Duration of commits, until the data is on disk.",
        &store.commit_us,
    );
    page.times(
        "windlass_sync_seconds",
        "Duration of writing and syncing the write-ahead log.",
        &store.sync_us,
    );
    page.times(
        "windlass_checkpoint_seconds",
        "Duration of checkpoints of the write-ahead log.",
        &store.checkpoint_us,
    );
    page.single(
        "windlass_uptime_seconds",
        "gauge",
        "Time since the start of the server.",
        server.started.elapsed().as_secs_f64(),
    );
    process::write(page);
    page.family("windlass_build_info", "gauge", "Always 1; the labels describe the program.");
    let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    page.line("windlass_build_info", &[("version", server.version), ("target", &target)], 1.0);
    page.family("windlass_info", "gauge", "Always 1; the labels contain the version and the store.");
    page.line("windlass_info", &[("version", server.version), ("store", &server.store)], 1.0);
}
