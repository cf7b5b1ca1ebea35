//! Every call of the dialect.

use super::blobs;
use crate::auth::Role::{Viewer, Worker};
use crate::route::Access::From;
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
    route(("PUT", "/blob", From(Worker)), call!(blobs::put), "Keep bytes; answers with their address"),
    // An address as SRI may have slashes in it.
    route(("GET", "/blob/{*addr}", From(Viewer)), call!(blobs::get), "The bytes at an address"),
    route(("GET", "/blob/", From(Viewer)), call!(blobs::get), "No address at all: refused like a wrong one"),
];
