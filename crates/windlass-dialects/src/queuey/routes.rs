//! Every call of the dialect.

use super::{blobs, calls};
use crate::auth::Role::{Viewer, Worker};
use crate::route::Access::{From, Public};
use crate::route::{Access, Answering, Call, Doc, Route};

macro_rules! call {
    ($call:path) => {{
        fn handle(call: Call) -> Answering {
            Box::pin(async move { $call(call).await.unwrap_or_else(|problem| problem.response()) })
        }
        handle
    }};
}

const fn route(
    (method, path, access): (&'static str, &'static str, Access),
    handle: fn(Call) -> Answering,
    summary: &'static str,
) -> Route {
    Route { method, path, access, handle, doc: Doc { summary, query: &[], asks: None, answers: &[] } }
}

#[rustfmt::skip]
pub static ROUTES: &[Route] = &[
    route(("POST", "/jobs/create", From(Worker)), call!(calls::create), "Make a job"),
    route(("POST", "/jobs/claim", From(Worker)), call!(calls::claim), "The oldest pending job, for a runner"),
    route(("GET", "/jobs/{id}", From(Viewer)), call!(calls::get), "One job"),
    route(("POST", "/jobs/{id}/tickle", From(Worker)), call!(calls::tickle), "A sign of life"),
    route(("POST", "/jobs/{id}/complete", From(Worker)), call!(calls::complete), "The end of a run"),
    route(("GET", "/ping", Public), call!(calls::ping), "Whether the server is there"),
    route(("PUT", "/blob", From(Worker)), call!(blobs::put), "Keep bytes; answers with their address"),
    // An address as SRI may have slashes in it.
    route(("GET", "/blob/{*addr}", From(Viewer)), call!(blobs::get), "The bytes at an address"),
    route(("GET", "/blob/", From(Viewer)), call!(blobs::get), "No address at all: refused like a wrong one"),
];
