//! HTTP responses shared by all dialects.

use crate::codec::Encoding;
use ::http::{HeaderValue, StatusCode, header};
use axum::body::Body;
use axum::response::Response;

pub(crate) const JSON: &str = "application/json";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// `Retry-After` of temporary errors, in seconds.
const RETRY_AFTER_S: &str = "1";

/// Response in the encoding that the caller prefers.
pub(crate) fn respond(status: StatusCode, encoding: Encoding, body: impl Into<Body>) -> Response {
    answer(status, encoding.content_type(), body)
}

/// Response with the headers that HTTP requires for the status.
pub(crate) fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    match status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
        }
        _ => {}
    }
    response
}
