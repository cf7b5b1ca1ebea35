//! HTTP server of the worker: replies to the server's calls at once; jobs run in separate tasks.

use super::handler::{Handler, Job};
use super::report;
use super::shared::Shared;
use super::wire;
use ::http::{HeaderMap, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Most bytes of a job. The server accepts less from producers.
const JOB_BYTES_MAX: usize = 256 * 1_024 * 1_024;
/// Longest wait of a job call for the registration to complete; the server gives up after five seconds.
const REGISTRATION_WITHIN: Duration = Duration::from_secs(4);
/// Timeout for the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Pause after a temporary error, such as too many open files.
const AFTER_TROUBLE: Duration = Duration::from_millis(100);

/// Accepts connections until the task is dropped.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(serve(stream, Arc::clone(&shared)))),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(AFTER_TROUBLE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let answer = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&shared, request).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), answer).await {
        tracing::debug!(%error, "a connection from the server failed");
    }
}

async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    if !head.uri.path().ends_with("/worker-job") {
        return error_response(
            StatusCode::NOT_FOUND,
            "not_found",
            "not found; a worker accepts only POST /worker-job",
        );
    }
    if head.method != Method::POST {
        return error_response(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "use POST");
    }
    let Some(me) = addressed_worker(shared, &head.headers).await else {
        let message = "the header worker-id is not the id of this worker";
        return error_response(StatusCode::SERVICE_UNAVAILABLE, "not_this_worker", message);
    };
    if !shared.registration.borrow().accepts {
        return error_response(StatusCode::SERVICE_UNAVAILABLE, "leaving", "this worker is shutting down");
    }
    let Ok(body) = Limited::new(body, JOB_BYTES_MAX).collect().await else {
        return error_response(StatusCode::BAD_REQUEST, "bad_request", "cannot read the body");
    };
    match wire::job(&body.to_bytes()) {
        Err(why) => error_response(StatusCode::BAD_REQUEST, "bad_request", &why),
        Ok(job) => match shared.handlers.get(&job.name).cloned() {
            None => error_response(
                StatusCode::NOT_FOUND,
                "unknown_name",
                "this worker has no handler for jobs of this name",
            ),
            Some(handler) => take(shared, me, job, handler),
        },
    }
}

/// This worker's id, if the call is addressed to it. The id authenticates the server, because no other party
/// knows it.
async fn addressed_worker(shared: &Shared, headers: &HeaderMap) -> Option<Arc<str>> {
    let asked = headers.get(wire::WORKER_ID)?.to_str().ok()?;
    // The first jobs may arrive before the reply to the registration.
    let mut registration = shared.registration.subscribe();
    let registered = registration.wait_for(|registration| registration.id.is_some());
    let present = tokio::time::timeout(REGISTRATION_WITHIN, registered).await.ok()?.ok()?;
    present.id.clone().filter(|id| **id == *asked)
}

/// Accepts a job with 202 and spawns a task for it.
fn take(shared: &Arc<Shared>, me: Arc<str>, job: Job<Bytes>, handler: Handler) -> Response<Full<Bytes>> {
    let Ok(place) = Arc::clone(&shared.places).try_acquire_owned() else {
        return error_response(
            StatusCode::SERVICE_UNAVAILABLE,
            "full",
            "this worker has reached its maximum number of jobs",
        );
    };
    tracing::debug!(job.id = %job.id, name = %job.name, job.attempt, "job {} accepted", job.id);
    let task = report::Task { shared: Arc::clone(shared), worker: me, place, active: shared.begin() };
    tokio::spawn(task.run(job, handler));
    let mut taken = Response::new(Full::default());
    *taken.status_mut() = StatusCode::ACCEPTED;
    taken
}

fn error_response(status: StatusCode, error: &str, message: &str) -> Response<Full<Bytes>> {
    #[derive(serde::Serialize)]
    struct Said<'a> {
        error: &'a str,
        message: &'a str,
    }
    let body = rmp_serde::to_vec_named(&Said { error, message }).unwrap_or_default();
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let kind = ::http::HeaderValue::from_static(wire::MSGPACK);
    response.headers_mut().insert(::http::header::CONTENT_TYPE, kind);
    response
}
