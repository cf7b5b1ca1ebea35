//! Responses with embedded files, for the web UI and the documentation: content type, ETag, and a strict
//! Content-Security-Policy.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Content-Security-Policy: scripts, styles and requests only from this server, nothing inline, no frames, no
/// forms. Payloads stay text even if a page had an injection bug.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Redirects to a folder. The location is relative, so that it works behind a proxy with a path prefix.
pub(crate) fn redirect_to(folder: &'static str) -> Response<Body> {
    let mut response = text(StatusCode::PERMANENT_REDIRECT, "moved\n");
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(folder));
    response
}

/// Responds with the file that `find` returns for the path of the request below `folder`.
pub(crate) fn answer(
    request: &Request,
    folder: &str,
    find: impl FnOnce(&str) -> Option<&'static [u8]>,
    missing: &'static str,
) -> Response<Body> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n");
    }
    let path = request.uri().path();
    let path = match path.strip_prefix(folder).unwrap_or(path) {
        "" => "index.html",
        path => path,
    };
    match find(path) {
        Some(bytes) => file(path, bytes, request.headers()),
        None => text(StatusCode::NOT_FOUND, missing),
    }
}

fn file(path: &str, bytes: &'static [u8], asked: &HeaderMap) -> Response<Body> {
    let tag = tag(bytes);
    let known = asked.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let is_known = known.is_some_and(|known| known.split(',').any(|known| known.trim() == tag));
    let mut response = if is_known {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        Response::new(Body::from(bytes))
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(path)));
    sealed(response)
}

/// ETag: a hash of the content, so that browsers can cache the file and revalidate it.
fn tag(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

pub(crate) fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        _ => "application/octet-stream",
    }
}

fn text(status: StatusCode, text: &'static str) -> Response<Body> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_known_is_not_sent_again() {
        let fresh = file("index.html", b"<p>", &HeaderMap::new());
        assert_eq!(fresh.status(), StatusCode::OK);
        assert!(
            fresh.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().contains("default-src 'none'")
        );
        let mut asked = HeaderMap::new();
        asked.insert(header::IF_NONE_MATCH, fresh.headers()[header::ETAG].clone());
        assert_eq!(file("index.html", b"<p>", &asked).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(file("index.html", b"<b>", &asked).status(), StatusCode::OK);
    }

    #[test]
    fn the_folder_is_stripped_once() {
        let status = |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let find = |path: &str| (path == "a.css").then_some(&b"a"[..]);
            answer(&request, "/ui/", find, "missing").status()
        };
        assert_eq!(status("/ui/a.css"), StatusCode::OK);
        assert_eq!(status("/ui//ui/a.css"), StatusCode::NOT_FOUND);
    }
}
