//! `GET /healthz`, `/readyz` and `/`: is it there, is it ready?

use crate::native::errors::ApiError;
use crate::native::reply::Answer;
use crate::route::Call;
use crate::server::Server;
use ::http::{HeaderValue, StatusCode, header};
use axum::body::Body;
use axum::response::Response;

/// Browsers are sent to the web UI; everything else hears that the server is there.
pub(super) async fn root(call: Call) -> Answer {
    let accept = call.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    if !accept.contains("text/html") {
        return Ok(plain(StatusCode::OK, "OK\n"));
    }
    let mut response = plain(StatusCode::FOUND, "see ui/\n");
    // Relative, so that it also holds behind a proxy that serves us from a path of its own.
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("ui/"));
    Ok(response)
}

/// Alive: it answers.
pub(super) async fn healthz(_: Call) -> Answer {
    Ok(plain(StatusCode::OK, "OK\n"))
}

/// Ready: what it acknowledges is kept, and there is room for more requests.
pub(super) async fn readyz(call: Call) -> Answer {
    if let Some((code, why)) = lack(&call.server) {
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, why));
    }
    if call.server.is_stopping() {
        let message = "the server is shutting down; send requests to another";
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", message));
    }
    if let Err(error) = call.server.journal.health() {
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "journal_unavailable", error.to_string()));
    }
    match call.engine.health().await {
        Ok(()) => Ok(plain(StatusCode::OK, "OK\n")),
        // Whatever the trouble: do not send requests here.
        Err(error) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error.code(), error.to_string())),
    }
}

/// What there is nearly none left of.
fn lack(server: &Server) -> Option<(&'static str, String)> {
    if server.budget.is_short() {
        let why = "nearly all memory for requests is in use; see limits.memory_bytes".to_owned();
        return Some(("memory", why));
    }
    let max = server.descriptors_max?;
    let used = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    let why = format!(
        "{used} of {max} file descriptors are in use; raise the limit (ulimit -n), or see limits.connections"
    );
    (used > max - max / 20).then_some(("descriptors", why))
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
