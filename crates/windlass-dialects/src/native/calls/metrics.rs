//! `GET /metrics`: the counters in the Prometheus text format.

use crate::native::reply::Answer;
use crate::native::request::seen_tenant;
use crate::query::{Histogram, QueueCounts};
use crate::route::Call;
use crate::server::Server;
use ::http::{HeaderValue, header};
use axum::body::Body;
use axum::response::Response;
use std::fmt::Write;
use windlass_core::turn::TurnOutcome;
use windlass_core::{StateWord, Timestamp};
use windlass_engine::quota::LiveUse;

#[cfg(test)]
mod tests;

/// Queues with series of their own: each has a dozen series, which the collector stores for weeks.
const QUEUES_SHOWN_MAX: usize = 2_000;
/// Tenants with lines of their own.
const TENANTS_SHOWN_MAX: usize = 2_000;

pub(super) async fn metrics(call: Call) -> Answer {
    let tenant = seen_tenant(&call)?;
    let engine = &call.engine;
    let counts = engine.counts(tenant.as_ref()).await?;
    let mut page = Page::default();
    queues(&mut page, &counts, engine.now());
    tenants(&mut page, &engine.live_use(tenant.as_ref(), TENANTS_SHOWN_MAX));
    // Figures of the whole server are for admins only.
    if tenant.is_none() {
        server(&mut page, &call.server);
    }
    let mut response = Response::new(Body::from(page.text));
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    Ok(response)
}

fn queues(page: &mut Page, counts: &[QueueCounts], now: Timestamp) {
    let shown = &counts[..counts.len().min(QUEUES_SHOWN_MAX)];
    page.family("windlass_jobs", "gauge", "Jobs by queue and state; each job is counted once.");
    for one in shown {
        for word in StateWord::ALL {
            page.queue_line("windlass_jobs", one, Some(word.as_str()), one.of_word(word) as f64);
        }
    }
    page.family("windlass_queue_oldest_seconds", "gauge", "Age of the oldest job that is ready to run.");
    for one in shown {
        let oldest_ms = one.oldest_due.map_or(0, |due| now.since_ms(due));
        page.queue_line("windlass_queue_oldest_seconds", one, None, oldest_ms as f64 / 1_000.0);
    }
    page.family("windlass_queue_paused", "gauge", "1 while the queue is paused.");
    for one in shown {
        page.queue_line("windlass_queue_paused", one, None, f64::from(u8::from(one.paused)));
    }
    let hidden = counts.len() - shown.len();
    page.single(
        "windlass_queues_not_shown",
        "gauge",
        "Queues not shown because there are too many.",
        hidden as f64,
    );
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

fn server(page: &mut Page, server: &Server) {
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
    if let Some(bytes) = resident_bytes() {
        page.single(
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory of the process.",
            bytes as f64,
        );
    }
    page.family("windlass_info", "gauge", "Always 1; the labels contain the version and the store.");
    page.line("windlass_info", &[("version", server.version), ("store", &server.store)], 1.0);
}

/// `None` where `/proc` is not available.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1_024)
}

#[derive(Default)]
struct Page {
    text: String,
}

// Writing to a String does not fail, so the results of `write!` are ignored.
impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.line(name, &[], value);
    }

    fn queue_line(&mut self, name: &str, counts: &QueueCounts, state: Option<&str>, value: f64) {
        let labels =
            [("tenant", &*counts.tenant), ("queue", &*counts.queue), ("state", state.unwrap_or_default())];
        let labels = if state.is_some() { &labels[..] } else { &labels[..2] };
        self.line(name, labels, value);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"", if index == 0 { '{' } else { ',' });
            escape(&mut self.text, text);
            self.text.push('"');
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn times(&mut self, name: &str, help: &str, microseconds: &Histogram) {
        self.histogram(name, help, microseconds, 1e-6);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram, unit: f64) {
        self.family(name, "histogram", help);
        let (buckets, count, sum) = histogram.snapshot();
        for (bound, at_most) in buckets {
            let bound = rounded(bound as f64 * unit);
            let _ = writeln!(self.text, "{name}_bucket{{le=\"{bound}\"}} {at_most}");
        }
        let _ = writeln!(self.text, "{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(self.text, "{name}_sum {}\n{name}_count {count}", rounded(sum as f64 * unit));
    }
}

/// Removes the rounding error of binary fractions.
fn rounded(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

fn escape(to: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => to.push_str("\\\\"),
            '"' => to.push_str("\\\""),
            '\n' => to.push_str("\\n"),
            c => to.push(c),
        }
    }
}
