//! Requests to the collector, and the log of its outages.

use crate::client::tls;
use crate::config::Otel;
use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;
use windlass_http::{Allowed, Pool, Target};

/// Time for one request, as in OpenTelemetry's own exporters.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Most bytes read of a response: enough for an error message.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Most characters of a response in the log.
const SHOWN_CHARS_MAX: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

/// Answer of the collector to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// All but the rejected entries were taken.
    Taken { rejected: u64 },
    /// The same request may succeed later, perhaps after this time.
    Later { after: Option<Duration> },
    /// The same request will never succeed.
    Refused,
}

pub(super) struct Collector {
    endpoint: String,
    traces: Pool,
    metrics: Pool,
    headers: Vec<(HeaderName, HeaderValue)>,
    traces_out: AtomicBool,
    metrics_out: AtomicBool,
}

impl Collector {
    pub(super) fn new(otel: &Otel) -> Result<Collector, String> {
        let tls = match otel.traces.is_https() {
            true => {
                Some(tls::config(otel.ca.as_deref(), "otel.ca").map_err(|why| format!("otel.ca: {why}"))?)
            }
            false => None,
        };
        // The operator has configured the address, so that any is allowed.
        let allowed = Arc::new(Allowed::any());
        let pool = |target: &Target| {
            let pool = Pool::new(target.clone(), 1, Arc::clone(&allowed));
            match tls.clone() {
                Some(tls) => pool.with_tls(move || Ok(Arc::clone(&tls))),
                None => pool,
            }
        };
        Ok(Collector {
            endpoint: otel.endpoint.clone(),
            traces: pool(&otel.traces),
            metrics: pool(&otel.metrics),
            headers: otel.headers.clone(),
            traces_out: AtomicBool::new(false),
            metrics_out: AtomicBool::new(false),
        })
    }

    /// Sends a request. A failure is logged once until the collector takes a request of this signal again.
    pub(super) async fn post(&self, signal: Signal, body: Vec<u8>) -> Answer {
        let (answer, why) = match timeout(REQUEST_MAX, self.call(signal, body)).await {
            Ok(Ok((status, body, after))) => (judge(status, &body, after), reason(status, &body)),
            Ok(Err(why)) => (Answer::Later { after: None }, why),
            Err(_) => {
                let why = format!("no response within {} s", REQUEST_MAX.as_secs());
                (Answer::Later { after: None }, why)
            }
        };
        self.log(signal, &answer, &why);
        answer
    }

    async fn call(&self, signal: Signal, body: Vec<u8>) -> Result<(u16, Bytes, Option<Duration>), String> {
        let pool = match signal {
            Signal::Traces => &self.traces,
            Signal::Metrics => &self.metrics,
        };
        let mut request = pool.request(body.into(), "application/json");
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        let _slot = pool.slot().await;
        let call = pool.send(request).await.map_err(|error| error.to_string())?;
        let (status, after) = (call.status(), call.header("retry-after").and_then(seconds));
        // A connection with an unread rest of an answer is not reused.
        Ok((status, call.bytes(ANSWER_BYTES_MAX).await.unwrap_or_default(), after))
    }

    fn log(&self, signal: Signal, answer: &Answer, why: &str) {
        let endpoint = &self.endpoint;
        // True since the first failure in a row; only that one is logged.
        let (name, is_out, dropped) = match signal {
            Signal::Traces => (
                "traces",
                &self.traces_out,
                ", and windlass_otel_dropped_total counts the spans that are dropped",
            ),
            Signal::Metrics => ("metrics", &self.metrics_out, ""),
        };
        match answer {
            Answer::Taken { rejected } => {
                if is_out.swap(false, Ordering::Relaxed) {
                    tracing::info!("{name} are exported again to {endpoint}");
                }
                if *rejected > 0 {
                    tracing::debug!("{endpoint} rejected {rejected} entries: {why}");
                }
            }
            Answer::Later { .. } | Answer::Refused => {
                if !is_out.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "cannot export {name} to {endpoint}: {why}; jobs are not affected{dropped}"
                    );
                }
            }
        }
    }
}

fn seconds(header: &HeaderValue) -> Option<Duration> {
    header.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Meaning of a response by the specification of OTLP.
fn judge(status: u16, body: &[u8], after: Option<Duration>) -> Answer {
    match status {
        200..=299 => Answer::Taken { rejected: rejected(body) },
        429 | 502 | 503 | 504 => Answer::Later { after },
        _ => Answer::Refused,
    }
}

/// Number of rejected entries in a successful response, which as a 64-bit number is a string or a number.
fn rejected(body: &[u8]) -> u64 {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Response {
        partial_success: PartialSuccess,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct PartialSuccess {
        #[serde(default)]
        rejected_spans: Value,
    }
    let Ok(response) = serde_json::from_slice::<Response>(body) else { return 0 };
    match response.partial_success.rejected_spans {
        Value::String(text) => text.parse().unwrap_or(0),
        number => number.as_u64().unwrap_or(0),
    }
}

/// Status and beginning of the body, in one line.
fn reason(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text: String =
        text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SHOWN_CHARS_MAX).collect();
    let word =
        StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or_default();
    format!("status {status} {word} {text}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_read_as_the_specification_says() {
        let after = Some(Duration::from_secs(7));
        for (status, body, expected) in [
            (200, "", Answer::Taken { rejected: 0 }),
            (200, "{}", Answer::Taken { rejected: 0 }),
            (202, "not json", Answer::Taken { rejected: 0 }),
            (
                200,
                r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}"#,
                Answer::Taken { rejected: 3 },
            ),
            (200, r#"{"partialSuccess":{"rejectedSpans":4}}"#, Answer::Taken { rejected: 4 }),
            (200, r#"{"partialSuccess":{}}"#, Answer::Taken { rejected: 0 }),
            (429, "", Answer::Later { after }),
            (503, "", Answer::Later { after }),
            (400, "", Answer::Refused),
            (401, "", Answer::Refused),
            (404, "", Answer::Refused),
            (500, "", Answer::Refused),
        ] {
            assert_eq!(judge(status, body.as_bytes(), after), expected, "{status} {body}");
        }
        assert_eq!(reason(404, b"<html>\n no  page"), "status 404 Not Found <html> no page");
        assert_eq!(reason(404, b""), "status 404 Not Found");
        assert_eq!(seconds(&HeaderValue::from_static("12")), Some(Duration::from_secs(12)));
        assert_eq!(seconds(&HeaderValue::from_static("Tue, 17 Nov 2026 04:00:00 GMT")), None);
    }
}
