//! Export of traces and metrics to an OpenTelemetry collector: OTLP over HTTP, in its JSON encoding. Why by hand:
//! docs/adr/0023-otlp-as-json-by-hand.md.
//!
//! ```text
//!   engine ─ spans ─▶ bounded queue ─▶ trace_loop ──▶ traces.rs ─┐
//!                                                                ├─▶ collector.rs ─▶ POST {endpoint}/v1/…
//!   page of /metrics, every otel.interval_s ─▶ page.rs, metrics.rs ┘
//! ```
//!
//! Nothing here holds up a job: the queue drops and counts, and the loops run beside the server.

mod collector;
mod json;
mod metrics;
mod page;
mod traces;

use crate::config::{Config, Otel};
use crate::fault::{Fault, Outcome};
use collector::{Answer, Collector, Signal};
use json::Resource;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use windlass_dialects::native;
use windlass_dialects::server::Server;
use windlass_engine::Engine;
use windlass_engine::spans::JobSpan;

/// Spans that wait to be sent. A span takes about 300 bytes, and up to 1,600 with an error: a full queue is 10 to 50 MB.
const QUEUED_MAX: usize = 32_768;
/// Spans of one request, as in OpenTelemetry's own exporters.
const BATCH_MAX: usize = 512;
/// Longest wait for a batch to fill.
const BATCH_WAIT: Duration = Duration::from_secs(5);
/// Attempts to send a batch: with their delays two minutes, or five if the collector does not respond. Then it is dropped and
/// the next one is tried.
const ATTEMPTS_MAX: u32 = 15;
/// Delay before the second attempt; it doubles with each.
const DELAY_FIRST: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(10);
/// Longest delay that the collector may ask for.
const ASKED_DELAY_MAX: Duration = Duration::from_secs(60);
/// Longest flush at shutdown.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// Running export.
pub(crate) struct Exporter {
    stop: watch::Sender<bool>,
    loops: JoinSet<()>,
}

/// Context of the loops.
struct Export {
    collector: Collector,
    resource: Resource,
    engine: Engine,
    interval: Duration,
}

impl Exporter {
    /// Starts the export, if one is configured.
    pub(crate) fn start(config: &Config, server: &Arc<Server>) -> Outcome<Option<Exporter>> {
        let Some(otel) = &config.otel else { return Ok(None) };
        let engine = server.engine.clone();
        let export = Arc::new(Export {
            collector: Collector::new(otel).map_err(Fault::failed)?,
            resource: resource(otel, &engine),
            interval: otel.interval,
            engine,
        });
        let (stop, stopping) = watch::channel(false);
        let mut loops = JoinSet::new();
        if let Some(spans) = export.engine.record_spans(otel.sample, QUEUED_MAX) {
            loops.spawn(trace_loop(Arc::clone(&export), spans, stopping.clone()));
        }
        loops.spawn(metric_loop(export, Arc::clone(server), stopping));
        tracing::info!("exporting traces and metrics to {}", otel.endpoint);
        Ok(Some(Exporter { stop, loops }))
    }

    /// Sends what is left, within a bound.
    pub(crate) async fn flush(&mut self) {
        self.stop.send_replace(true);
        let ended = async { while self.loops.join_next().await.is_some() {} };
        if timeout(FLUSH_MAX, ended).await.is_err() {
            tracing::warn!("the last traces and metrics could not be exported in time");
        }
        self.loops.abort_all();
    }
}

fn resource(otel: &Otel, engine: &Engine) -> Resource {
    Resource {
        service_name: otel.service_name.clone(),
        version: env!("CARGO_PKG_VERSION"),
        instance: format!("{:016x}{:016x}", engine.random_u64(), engine.random_u64()),
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the exporter is gone.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Sends spans in batches, until it is stopped and the queue is empty.
async fn trace_loop(
    export: Arc<Export>,
    mut spans: mpsc::Receiver<JobSpan>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            () = stopped(&mut stopping) => return export.flush_spans(&mut spans).await,
            count = spans.recv_many(&mut batch, BATCH_MAX) => if count == 0 { return },
        }
        let deadline = Instant::now() + BATCH_WAIT.min(export.interval);
        while batch.len() < BATCH_MAX && !*stopping.borrow() {
            let left = BATCH_MAX - batch.len();
            let more = async {
                tokio::select! {
                    () = stopped(&mut stopping) => 0,
                    count = spans.recv_many(&mut batch, left) => count,
                }
            };
            if timeout_at(deadline, more).await.unwrap_or(0) == 0 {
                break;
            }
        }
        export.send_spans(&batch, &mut stopping).await;
    }
}

/// Sends the metrics at each interval, and once more at the end. A page that does not arrive is not repeated: the next
/// one holds the same counters.
async fn metric_loop(export: Arc<Export>, server: Arc<Server>, mut stopping: watch::Receiver<bool>) {
    let started_ms = export.engine.now().calendar_ms();
    loop {
        let is_last = tokio::select! {
            () = stopped(&mut stopping) => true,
            () = sleep(export.interval) => false,
        };
        match native::metrics_page(&server).await {
            Ok(page) => export.send_metrics(page, started_ms).await,
            Err(error) => tracing::debug!(%error, "no metrics to export"),
        }
        if is_last {
            return;
        }
    }
}

impl Export {
    /// Sends a batch, with retries unless the server stops; drops it in the end.
    async fn send_spans(&self, batch: &[JobSpan], stopping: &mut watch::Receiver<bool>) {
        let body = traces::encode(&self.resource, batch);
        let mut delay = DELAY_FIRST;
        for attempt in 1..=ATTEMPTS_MAX {
            let is_last = attempt == ATTEMPTS_MAX || *stopping.borrow();
            match self.collector.post(Signal::Traces, body.clone()).await {
                Answer::Taken { rejected } => return self.count_dropped(rejected),
                Answer::Later { after } if !is_last => {
                    let wait = after.map_or(delay, |after| after.clamp(DELAY_FIRST, ASKED_DELAY_MAX));
                    tokio::select! {
                        () = sleep(wait) => {}
                        () = stopped(stopping) => {}
                    }
                    delay = (delay * 2).min(DELAY_MAX);
                }
                Answer::Later { .. } | Answer::Refused => break,
            }
        }
        self.count_dropped(batch.len() as u64);
    }

    /// Sends what is in the queue, without retries.
    async fn flush_spans(&self, spans: &mut mpsc::Receiver<JobSpan>) {
        spans.close();
        let mut batch = Vec::new();
        while spans.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let body = traces::encode(&self.resource, &batch);
            match self.collector.post(Signal::Traces, body).await {
                Answer::Taken { rejected } => self.count_dropped(rejected),
                Answer::Later { .. } | Answer::Refused => {
                    return self.count_dropped((batch.len() + spans.len()) as u64);
                }
            }
            batch.clear();
        }
    }

    async fn send_metrics(self: &Arc<Self>, page: String, started_ms: i64) {
        let (export, now_ms) = (Arc::clone(self), self.engine.now().calendar_ms());
        // A page with thousands of series takes milliseconds.
        let encoded = tokio::task::spawn_blocking(move || {
            metrics::encode(&export.resource, &page::parse(&page), (started_ms, now_ms))
        });
        if let Ok(body) = encoded.await {
            self.collector.post(Signal::Metrics, body).await;
        }
    }

    fn count_dropped(&self, spans: u64) {
        self.engine.meters().spans_dropped.add(usize::try_from(spans).unwrap_or(usize::MAX));
    }
}

#[cfg(test)]
mod tests;
