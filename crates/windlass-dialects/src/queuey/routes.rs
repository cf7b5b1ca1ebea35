//! Every call of the dialect.

use super::{blobs, calls};
use crate::auth::Role::{Viewer, Worker};
use crate::problem::call;
use crate::route::Access::{From, Public};
use crate::route::{NO_OWN_BOUND, Route};

#[rustfmt::skip]
pub static ROUTES: &[Route] = &[
    Route::brief(("POST", "/jobs/create", From(Worker)), call!(calls::create), "Create a job"),
    Route::brief(("POST", "/jobs/claim", From(Worker)), call!(calls::claim), "Claim the oldest pending job"),
    Route::brief(("GET", "/jobs/{id}", From(Viewer)), call!(calls::get), "Get a job"),
    Route::brief(("POST", "/jobs/{id}/tickle", From(Worker)), call!(calls::tickle), "Heartbeat"),
    Route::brief(("POST", "/jobs/{id}/complete", From(Worker)), call!(calls::complete), "Report the outcome of a job"),
    Route::brief(("GET", "/ping", Public), call!(calls::ping), "Liveness probe"),
    Route::brief(("PUT", "/blob", From(Worker)), call!(blobs::put), "Upload a blob; responds with its address").with_body(NO_OWN_BOUND),
    // An address in SRI form may contain slashes.
    Route::brief(("GET", "/blob/{*addr}", From(Viewer)), call!(blobs::get), "Download a blob"),
    Route::brief(("GET", "/blob/", From(Viewer)), call!(blobs::get), "Without an address: 400"),
];
