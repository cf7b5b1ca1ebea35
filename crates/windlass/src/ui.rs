//! Static files of the web UI from `web/`, served under `/ui/` without authentication: the UI uses only the
//! API, which checks permissions.

#[cfg(test)]
mod tests;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::routing::any;
use std::hash::{DefaultHasher, Hash, Hasher};

struct File {
    path: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(File { path: $path, bytes: include_bytes!(concat!("../../../web/", $path)) }),*]
    };
}

/// Embedded files. A test compares the list with the folder.
static FILES: &[File] = files![
    "index.html",
    "style.css",
    "icon.svg",
    "app.js",
    "actions.js",
    "api.js",
    "charts.js",
    "dom.js",
    "edit.js",
    "failure.js",
    "family.js",
    "json.js",
    "live.js",
    "payload.js",
    "search.js",
    "table.js",
    "turns.js",
    "pages/audit.js",
    "pages/blobs.js",
    "pages/failures.js",
    "pages/handlers.js",
    "pages/job.js",
    "pages/jobs.js",
    "pages/limits.js",
    "pages/login.js",
    "pages/missing.js",
    "pages/overview.js",
    "pages/push.js",
    "pages/queue.js",
    "pages/queues.js",
    "pages/schedules.js",
    "pages/workers.js",
];

/// Content-Security-Policy: scripts, styles and requests only from this server, nothing inline, no frames, no
/// forms. Payloads stay text even if a page had an injection bug.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) fn router() -> Router {
    Router::new().route("/ui", any(to_folder)).route("/ui/", any(file)).route("/ui/{*path}", any(file))
}

/// Redirects to `ui/`. The location is relative, so that it works behind a proxy with a path prefix.
async fn to_folder() -> Response<Body> {
    let mut response = plain(StatusCode::PERMANENT_REDIRECT, "see ui/\n");
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("ui/"));
    response
}

async fn file(request: Request) -> Response<Body> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n");
    }
    let path = match request.uri().path().trim_start_matches("/ui/") {
        "" => "index.html",
        path => path,
    };
    match FILES.iter().find(|file| file.path == path) {
        Some(file) => file.answer(request.headers()),
        None => plain(StatusCode::NOT_FOUND, "not found; the web UI is at /ui/\n"),
    }
}

impl File {
    fn answer(&self, asked: &HeaderMap) -> Response<Body> {
        let tag = self.tag();
        let known = asked.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
        let is_known = known.is_some_and(|known| known.split(',').any(|known| known.trim() == tag));
        let mut response = if is_known {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            Response::new(Body::from(self.bytes))
        };
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type()));
        sealed(response)
    }

    /// ETag: a hash of the content, so that browsers can cache the file and revalidate it.
    fn tag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.bytes.hash(&mut hasher);
        format!("\"{:016x}\"", hasher.finish())
    }

    fn content_type(&self) -> &'static str {
        match self.path.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "application/octet-stream",
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    sealed(response)
}

fn sealed(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
