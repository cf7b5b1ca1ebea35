//! Every call of the dialect.

use super::calls;
use super::wire::HANDLER_BYTES_MAX;
use crate::auth::Role::{Admin, Operator, Viewer, Worker};
use crate::problem::call;
use crate::route::Access::From;
use crate::route::{NO_OWN_BOUND, Route};

/// Twice the size limit of a handler, so that a longer one is refused with this dialect's own error.
const HANDLER_BODY_BYTES_MAX: usize = 2 * HANDLER_BYTES_MAX;

#[rustfmt::skip]
pub static ROUTES: &[Route] = &[
    Route::brief(("POST", "/{client}/job/{type}/add", From(Worker)), call!(calls::add), "Add jobs, a line each").with_body(NO_OWN_BOUND),
    Route::brief(("PUT", "/{client}/job/{type}/add", From(Worker)), call!(calls::add), "The same").with_body(NO_OWN_BOUND),
    Route::brief(("POST", "/add", From(Worker)), call!(calls::add_by_query), "The same, with `client` and `jobtype` in the query").with_body(NO_OWN_BOUND),
    Route::brief(("POST", "//job/{type}/add", From(Worker)), call!(calls::nameless), "No client: refused"),
    Route::brief(("POST", "/{client}/job//add", From(Worker)), call!(calls::nameless), "No type: refused"),
    Route::brief(("GET", "/{client}/job/waiting", From(Viewer)), call!(calls::waiting), "Types with jobs that could run now"),
    Route::brief(("GET", "/{client}/job/{type}/archive", From(Viewer)), call!(calls::archive), "Jobs that have ended"),
    Route::brief(("GET", "/{client}/job/{type}/{id}", From(Viewer)), call!(calls::get), "One job"),
    Route::brief(("GET", "/{client}/job/{type}/{id}/result", From(Viewer)), call!(calls::result), "What it brought"),
    Route::brief(("POST", "/{client}/handler/add/{type}/add", From(Operator)), call!(calls::add_handler), "Set a handler").with_body(HANDLER_BODY_BYTES_MAX),
    Route::brief(("PUT", "/{client}/handler/add/{type}/add", From(Operator)), call!(calls::add_handler), "The same").with_body(HANDLER_BODY_BYTES_MAX),
    Route::brief(("GET", "/{client}/handler/get/{type}", From(Viewer)), call!(calls::get_handler), "The handler of a type"),
    Route::brief(("GET", "/{client}/handler/get", From(Viewer)), call!(calls::list_handlers), "Types that have handlers"),
    Route::brief(("DELETE", "/{client}/handler/del/{type}/delete", From(Operator)), call!(calls::delete_handler), "Remove a handler"),
    Route::brief(("POST", "/{client}/handler/del/{type}/delete", From(Operator)), call!(calls::delete_handler), "The same"),
    Route::brief(("GET", "/start", From(Admin)), call!(calls::start), "Start jobs again").changing(),
    Route::brief(("POST", "/start", From(Admin)), call!(calls::start), "The same"),
    Route::brief(("GET", "/stop", From(Admin)), call!(calls::stop), "Start no more jobs").changing(),
    Route::brief(("POST", "/stop", From(Admin)), call!(calls::stop), "The same"),
    Route::brief(("GET", "/quit", From(Admin)), call!(calls::quit), "End the server").changing(),
    Route::brief(("POST", "/quit", From(Admin)), call!(calls::quit), "The same"),
];
