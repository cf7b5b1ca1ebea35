//! Every call of the dialect.

use super::{calls, create, family, workers};
use crate::auth::Role::{Viewer, Worker};
use crate::route::Access::{From, Public};
use crate::route::{Access, Answering, Call, Route};

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
    Route::brief((method, path, access), handle, summary)
}

#[rustfmt::skip]
pub static ROUTES: &[Route] = &[
    route(("GET", "/sidejob", Public), call!(calls::version), "The version of this protocol"),
    route(("GET", "/sidejob/", Public), call!(calls::version), "The version of this protocol"),
    route(("PUT", "/sidejob/workers/{queue}", From(Worker)), call!(workers::register), "Register all classes of a queue"),
    route(("GET", "/sidejob/workers/{queue}", From(Viewer)), call!(workers::registered), "The classes of a queue"),
    route(("POST", "/sidejob/queues/{queue}/claim", From(Worker)), call!(workers::claim), "One run, for a worker"),
    route(("POST", "/sidejob/jobs", From(Worker)), call!(create::create), "Make a job and run it"),
    route(("GET", "/sidejob/jobs/{id}", From(Viewer)), call!(calls::get), "One job"),
    route(("DELETE", "/sidejob/jobs/{id}", From(Worker)), call!(family::delete), "Delete what is terminated"),
    route(("POST", "/sidejob/jobs/{id}/finish", From(Worker)), call!(workers::finish), "The end of a run"),
    route(("POST", "/sidejob/jobs/{id}/for_inputs", From(Worker)), call!(workers::for_inputs), "Read a set of inputs together"),
    route(("POST", "/sidejob/jobs/{id}/run", From(Worker)), call!(calls::run), "Run it, now or later"),
    route(("POST", "/sidejob/jobs/{id}/terminate", From(Worker)), call!(calls::terminate), "Give it its last run"),
    route(("POST", "/sidejob/jobs/{id}/status", From(Worker)), call!(calls::set_status), "Put it into a status"),
    route(("GET", "/sidejob/jobs/{id}/state", From(Viewer)), call!(calls::get_state), "Its state"),
    route(("POST", "/sidejob/jobs/{id}/state", From(Worker)), call!(calls::set_state), "Set keys of its state"),
    route(("POST", "/sidejob/jobs/{id}/unset", From(Worker)), call!(calls::unset), "Forget keys of its state"),
    route(("GET", "/sidejob/jobs/{id}/children", From(Viewer)), call!(family::children), "Its children by name"),
    route(("GET", "/sidejob/jobs/{id}/child/{name}", From(Viewer)), call!(family::child), "One child by name"),
    route(("POST", "/sidejob/jobs/{id}/adopt", From(Worker)), call!(family::adopt), "Adopt a job"),
    route(("POST", "/sidejob/jobs/{id}/disown", From(Worker)), call!(family::disown), "Disown a child"),
    route(("POST", "/sidejob/jobs/{id}/ports", From(Worker)), call!(calls::set_ports), "Set its ports"),
    route(("GET", "/sidejob/jobs/{id}/{side}/{port}", From(Viewer)), call!(calls::get_port), "Size and default of a port"),
    route(("POST", "/sidejob/jobs/{id}/{side}/{port}/{operation}", From(Worker)), call!(calls::port), "read, write, entries, default, connect"),
    route(("POST", "/sidejob/jobs/{id}/lock", From(Worker)), call!(workers::lock), "Keep workers away"),
    route(("POST", "/sidejob/jobs/{id}/refresh_lock", From(Worker)), call!(workers::refresh_lock), "More time for a lock or a run"),
    route(("POST", "/sidejob/jobs/{id}/unlock", From(Worker)), call!(workers::unlock), "Let workers in again"),
    route(("POST", "/sidejob/group", From(Worker)), call!(calls::group), "Several operations on ports as one"),
    route(("GET", "/sidejob/logs", From(Viewer)), call!(calls::logs), "The log, oldest first"),
    route(("POST", "/sidejob/logs", From(Worker)), call!(calls::add_log), "Add an entry to the log"),
    route(("DELETE", "/sidejob/logs", From(Worker)), call!(calls::take_logs), "Read the log and clear it"),
];
