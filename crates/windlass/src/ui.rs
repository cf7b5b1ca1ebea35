//! Static files of the web UI from `web/`, served under `/ui/` without authentication: the UI uses only the
//! API, which checks permissions.

#[cfg(test)]
mod tests;

use crate::static_files;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use axum::routing::any;

struct File {
    path: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(File { path: $path, bytes: include_bytes!(concat!("../../../web/", $path)) }),*]
    };
}

/// Embedded files. A test compares the list with the folder, in which `docs` belongs to the documentation.
static FILES: &[File] = files![
    "index.html",
    "theme.css",
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

pub(crate) fn router() -> Router {
    Router::new().route("/ui", any(to_folder)).route("/ui/", any(file)).route("/ui/{*path}", any(file))
}

async fn to_folder() -> Response<Body> {
    static_files::redirect_to("ui/")
}

async fn file(request: Request) -> Response<Body> {
    let find = |path: &str| FILES.iter().find(|file| file.path == path).map(|file| file.bytes);
    static_files::answer(&request, "/ui/", find, "not found; the web UI is at /ui/\n")
}
