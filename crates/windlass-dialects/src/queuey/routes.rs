//! Every call of the dialect.

use super::{blobs, calls};
use crate::auth::Role::{Viewer, Worker};
use crate::problem::call;
use crate::route::Access::{From, Public};
use crate::route::{NO_OWN_BOUND, Route};

#[rustfmt::skip]
pub static ROUTES: &[Route] = &[
    Route::brief(("POST", "/jobs/create", From(Worker)), call!(calls::create), "Make a job"),
    Route::brief(("POST", "/jobs/claim", From(Worker)), call!(calls::claim), "The oldest pending job, for a runner"),
    Route::brief(("GET", "/jobs/{id}", From(Viewer)), call!(calls::get), "One job"),
    Route::brief(("POST", "/jobs/{id}/tickle", From(Worker)), call!(calls::tickle), "A sign of life"),
    Route::brief(("POST", "/jobs/{id}/complete", From(Worker)), call!(calls::complete), "The end of a run"),
    Route::brief(("GET", "/ping", Public), call!(calls::ping), "Whether the server is there"),
    Route::brief(("PUT", "/blob", From(Worker)), call!(blobs::put), "Keep bytes; answers with their address").with_body(NO_OWN_BOUND),
    // An address in SRI form may contain slashes.
    Route::brief(("GET", "/blob/{*addr}", From(Viewer)), call!(blobs::get), "The bytes at an address"),
    Route::brief(("GET", "/blob/", From(Viewer)), call!(blobs::get), "No address at all: refused like a wrong one"),
];
