//! Every call of JQ. The router, the authorization and the test of the OpenAPI document use this list.

use super::{calls, openapi};
use crate::auth::Role::{Operator, Viewer, Worker};
use crate::problem::call;
use crate::route::Access::{From, Public};
use crate::route::{Access, Answering, Call, NO_OWN_BOUND, Route};

const fn route(
    method: &'static str,
    path: &'static str,
    access: Access,
    handle: fn(Call) -> Answering,
    summary: &'static str,
) -> Route {
    Route::brief((method, path, access), handle, summary)
}

#[rustfmt::skip]
pub static ROUTES: &[Route] = &[
    route("POST", "/jq/job", From(Worker), call!(calls::push), "Enqueue a job").with_body(NO_OWN_BOUND),
    route("GET", "/jq/job/{id}", From(Viewer), call!(calls::get), "Status and result of a job; deletes the stored result").changing(),
    route("DELETE", "/jq/job/{id}", From(Worker), call!(calls::delete), "Delete a job that is not running"),
    route("GET", "/jq/job/{id}/polling", From(Viewer), call!(calls::polling), "Wait for a job to finish").changing(),
    route("POST", "/jq/worker", From(Worker), call!(calls::register), "Register as a worker"),
    route("DELETE", "/jq/worker", From(Worker), call!(calls::unregister), "Leave"),
    route("POST", "/jq/worker/ping", From(Worker), call!(calls::ping), "Heartbeat"),
    route("POST", "/jq/done", From(Worker), call!(calls::done), "Report the outcome of a job").with_body(NO_OWN_BOUND),
    route("GET", "/jq/constraint", From(Viewer), call!(calls::constraints), "List constraints"),
    route("PUT", "/jq/constraint/{id}", From(Operator), call!(calls::put_constraint), "Set a constraint"),
    route("GET", "/jq/constraint/{id}", From(Viewer), call!(calls::get_constraint), "Get a constraint"),
    route("DELETE", "/jq/constraint/{id}", From(Operator), call!(calls::delete_constraint), "Delete a constraint"),
    route("GET", "/jq/openapi.json", Public, call!(openapi::document), "OpenAPI description"),
];
