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
    Route::brief(("POST", "/{client}/job/{type}/add", From(Worker)), call!(calls::add), "Add jobs, one per line").with_body(NO_OWN_BOUND),
    Route::brief(("PUT", "/{client}/job/{type}/add", From(Worker)), call!(calls::add), "The same").with_body(NO_OWN_BOUND),
    Route::brief(("POST", "/add", From(Worker)), call!(calls::add_by_query), "The same, with `client` and `jobtype` as query parameters").with_body(NO_OWN_BOUND),
    Route::brief(("POST", "//job/{type}/add", From(Worker)), call!(calls::nameless), "Without a client: 400"),
    Route::brief(("POST", "/{client}/job//add", From(Worker)), call!(calls::nameless), "Without a type: 400"),
    Route::brief(("GET", "/{client}/job/waiting", From(Viewer)), call!(calls::waiting), "Types with jobs that are ready to run"),
    Route::brief(("GET", "/{client}/job/{type}/archive", From(Viewer)), call!(calls::archive), "Finished jobs"),
    Route::brief(("GET", "/{client}/job/{type}/{id}", From(Viewer)), call!(calls::get), "Get a job"),
    Route::brief(("GET", "/{client}/job/{type}/{id}/result", From(Viewer)), call!(calls::result), "Result of a job"),
    Route::brief(("POST", "/{client}/handler/add/{type}/add", From(Operator)), call!(calls::add_handler), "Set a handler").with_body(HANDLER_BODY_BYTES_MAX),
    Route::brief(("PUT", "/{client}/handler/add/{type}/add", From(Operator)), call!(calls::add_handler), "The same").with_body(HANDLER_BODY_BYTES_MAX),
    Route::brief(("GET", "/{client}/handler/get/{type}", From(Viewer)), call!(calls::get_handler), "Get the handler of a type"),
    Route::brief(("GET", "/{client}/handler/get", From(Viewer)), call!(calls::list_handlers), "Types that have handlers"),
    Route::brief(("DELETE", "/{client}/handler/del/{type}/delete", From(Operator)), call!(calls::delete_handler), "Delete a handler"),
    Route::brief(("POST", "/{client}/handler/del/{type}/delete", From(Operator)), call!(calls::delete_handler), "The same"),
    Route::brief(("GET", "/start", From(Admin)), call!(calls::start), "Resume starting jobs").changing(),
    Route::brief(("POST", "/start", From(Admin)), call!(calls::start), "The same"),
    Route::brief(("GET", "/stop", From(Admin)), call!(calls::stop), "Stop starting jobs").changing(),
    Route::brief(("POST", "/stop", From(Admin)), call!(calls::stop), "The same"),
    Route::brief(("GET", "/quit", From(Admin)), call!(calls::quit), "Shut down the server").changing(),
    Route::brief(("POST", "/quit", From(Admin)), call!(calls::quit), "The same"),
];
