//! `GET /healthz`, `/readyz` and `/`: liveness and readiness probes.

use crate::native::errors::ApiError;
use crate::native::reply::Answer;
use crate::route::Call;
use crate::server::Server;
use ::http::{HeaderValue, StatusCode, header};
use axum::body::Body;
use axum::response::Response;

/// Redirects browsers to the web UI; responds OK to other clients.
pub(super) async fn root(call: Call) -> Answer {
    let accept = call.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    if !accept.contains("text/html") {
        return Ok(plain(StatusCode::OK, "OK\n"));
    }
    let mut response = plain(StatusCode::FOUND, "see ui/\n");
    // Relative, so that it works behind a proxy that adds a path prefix.
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("ui/"));
    Ok(response)
}

/// Liveness probe: succeeds if the server responds.
pub(super) async fn healthz(_: Call) -> Answer {
    Ok(plain(StatusCode::OK, "OK\n"))
}

/// Readiness probe: acknowledged writes are durable, and resources for further requests are left.
pub(super) async fn readyz(call: Call) -> Answer {
    if let Some((code, why)) = lack(&call.server) {
        return Err(ApiError::coded(StatusCode::SERVICE_UNAVAILABLE, code, why));
    }
    if call.server.is_stopping() {
        let message = "the server is shutting down; send requests to another server";
        return Err(ApiError::coded(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", message));
    }
    if let Err(error) = call.server.journal.health() {
        return Err(ApiError::coded(
            StatusCode::SERVICE_UNAVAILABLE,
            "journal_unavailable",
            error.to_string(),
        ));
    }
    match call.engine.health().await {
        Ok(()) => Ok(plain(StatusCode::OK, format!("OK\n{}", isolation(&call)))),
        // Any error means that requests should go to another server.
        Err(error) => Err(ApiError::coded(StatusCode::SERVICE_UNAVAILABLE, error.code(), error.to_string())),
    }
}

/// Line about the isolation of handlers, where the server runs some. The server is ready whatever it says. On a
/// server with tokens only their holders see it.
fn isolation(call: &Call) -> String {
    let is_known = call.caller.token.is_some() || call.server.tokens.is_open();
    let line = call.server.runners.as_ref().filter(|_| is_known).map(|runners| runners.isolation());
    line.filter(|line| !line.is_empty()).map(|line| format!("handlers: {line}\n")).unwrap_or_default()
}

/// Resource that is nearly exhausted.
fn lack(server: &Server) -> Option<(&'static str, String)> {
    if server.budget.is_short() {
        let why = "almost all memory for requests is in use (limits.memory_bytes)".to_owned();
        return Some(("memory", why));
    }
    let max = server.descriptors_max?;
    let used = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    let why = format!(
        "{used} of {max} file descriptors are in use; raise the limit (ulimit -n), or lower \
         limits.connections"
    );
    (used > max - max / 20).then_some(("descriptors", why))
}

fn plain(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
