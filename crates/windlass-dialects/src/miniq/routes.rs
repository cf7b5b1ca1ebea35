//! Every call of the dialect.

use super::calls;
use crate::auth::Role::{Admin, Operator, Viewer, Worker};
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
    route(("POST", "/{client}/job/{type}/add", From(Worker)), call!(calls::add), "Add jobs, a line each"),
    route(("PUT", "/{client}/job/{type}/add", From(Worker)), call!(calls::add), "The same"),
    route(("POST", "/add", From(Worker)), call!(calls::add_by_query), "The same, with `client` and `jobtype` in the query"),
    route(("POST", "//job/{type}/add", From(Worker)), call!(calls::nameless), "No client: refused"),
    route(("POST", "/{client}/job//add", From(Worker)), call!(calls::nameless), "No type: refused"),
    route(("GET", "/{client}/job/waiting", From(Viewer)), call!(calls::waiting), "Types with jobs that could run now"),
    route(("GET", "/{client}/job/{type}/archive", From(Viewer)), call!(calls::archive), "Jobs that have ended"),
    route(("GET", "/{client}/job/{type}/{id}", From(Viewer)), call!(calls::get), "One job"),
    route(("GET", "/{client}/job/{type}/{id}/result", From(Viewer)), call!(calls::result), "What it brought"),
    route(("POST", "/{client}/handler/add/{type}/add", From(Operator)), call!(calls::add_handler), "Set a handler"),
    route(("PUT", "/{client}/handler/add/{type}/add", From(Operator)), call!(calls::add_handler), "The same"),
    route(("GET", "/{client}/handler/get/{type}", From(Viewer)), call!(calls::get_handler), "The handler of a type"),
    route(("GET", "/{client}/handler/get", From(Viewer)), call!(calls::list_handlers), "Types that have handlers"),
    route(("DELETE", "/{client}/handler/del/{type}/delete", From(Operator)), call!(calls::delete_handler), "Remove a handler"),
    route(("POST", "/{client}/handler/del/{type}/delete", From(Operator)), call!(calls::delete_handler), "The same"),
    route(("GET", "/start", From(Admin)), call!(calls::start), "Start jobs again"),
    route(("POST", "/start", From(Admin)), call!(calls::start), "The same"),
    route(("GET", "/stop", From(Admin)), call!(calls::stop), "Start no more jobs"),
    route(("POST", "/stop", From(Admin)), call!(calls::stop), "The same"),
    route(("GET", "/quit", From(Admin)), call!(calls::quit), "End the server"),
    route(("POST", "/quit", From(Admin)), call!(calls::quit), "The same"),
];
