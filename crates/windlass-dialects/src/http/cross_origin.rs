//! Cross-origin access (CORS) for web pages that a dialect allows.

use crate::dialect::Running;
use crate::guard::SEC_FETCH_SITE;
use ::http::request::Parts;
use ::http::{HeaderValue, header};
use axum::response::Response;

/// Time for which a browser may cache the permission, in seconds.
const REMEMBERED_S: HeaderValue = HeaderValue::from_static("600");

/// Origin of an allowed page.
pub(super) fn allowed_origin(dialect: &dyn Running, parts: &Parts) -> Option<HeaderValue> {
    let origin = parts.headers.get(header::ORIGIN)?;
    dialect.allows_origin(origin.to_str().ok()?).then(|| origin.clone())
}

/// Removes the headers by which the guard would refuse the allowed origin.
pub(super) fn strip_origin_headers(parts: &mut Parts) {
    parts.headers.remove(header::ORIGIN);
    parts.headers.remove(SEC_FETCH_SITE);
}

/// Adds the CORS headers, so that the page may read the response.
pub(super) fn add_cors_headers(
    mut response: Response,
    origin: Option<HeaderValue>,
    methods: &str,
) -> Response {
    let Some(origin) = origin else { return response };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    if let Ok(methods) = HeaderValue::from_str(methods) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    let allowed = HeaderValue::from_static("authorization, content-type");
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, REMEMBERED_S);
    response
}
