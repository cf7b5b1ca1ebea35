//! Routes of the dialect.

use super::{calls, create, family, presence, workers};
use crate::auth::Role::{Viewer, Worker};
use crate::problem::call;
use crate::route::Access::{From, Public};
use crate::route::{NO_OWN_BOUND, Route};

/// Size of a queue's classes, of a log entry and of a list of names: hundreds of classes, thousands of names.
const LIST_BYTES_MAX: usize = 1 << 20;

#[rustfmt::skip]
pub static ROUTES: &[Route] = &[
    Route::brief(("GET", "/sidejob", Public), call!(calls::version), "Protocol version"),
    Route::brief(("GET", "/sidejob/", Public), call!(calls::version), "Protocol version"),
    Route::brief(("PUT", "/sidejob/workers/{queue}", From(Worker)), call!(workers::register), "Register all classes of a queue").with_body(LIST_BYTES_MAX),
    Route::brief(("GET", "/sidejob/workers/{queue}", From(Viewer)), call!(workers::registered), "List the classes of a queue"),
    Route::brief(("POST", "/sidejob/presence", From(Worker)), call!(presence::attend), "Presence of a worker: it counts as alive while this response is open"),
    Route::brief(("POST", "/sidejob/queues/{queue}/claim", From(Worker)), call!(workers::claim), "Claim a run"),
    Route::brief(("POST", "/sidejob/jobs", From(Worker)), call!(create::create), "Create a job and run it").with_body(NO_OWN_BOUND),
    Route::brief(("GET", "/sidejob/jobs/{id}", From(Viewer)), call!(calls::get), "Get a job"),
    Route::brief(("DELETE", "/sidejob/jobs/{id}", From(Worker)), call!(family::delete), "Delete a terminated job"),
    Route::brief(("POST", "/sidejob/jobs/{id}/finish", From(Worker)), call!(workers::finish), "Report the end of a run").with_body(NO_OWN_BOUND),
    Route::brief(("POST", "/sidejob/jobs/{id}/for_inputs", From(Worker)), call!(workers::for_inputs), "Read a set of inputs atomically").with_body(NO_OWN_BOUND),
    Route::brief(("POST", "/sidejob/jobs/{id}/run", From(Worker)), call!(calls::run), "Run a job, now or later"),
    Route::brief(("POST", "/sidejob/jobs/{id}/terminate", From(Worker)), call!(calls::terminate), "Terminate a job"),
    Route::brief(("POST", "/sidejob/jobs/{id}/status", From(Worker)), call!(calls::set_status), "Set the status of a job"),
    Route::brief(("GET", "/sidejob/jobs/{id}/state", From(Viewer)), call!(calls::get_state), "Get the state of a job"),
    Route::brief(("POST", "/sidejob/jobs/{id}/state", From(Worker)), call!(calls::set_state), "Set keys of the state").with_body(NO_OWN_BOUND),
    Route::brief(("POST", "/sidejob/jobs/{id}/unset", From(Worker)), call!(calls::unset), "Delete keys of the state").with_body(LIST_BYTES_MAX),
    Route::brief(("GET", "/sidejob/jobs/{id}/children", From(Viewer)), call!(family::children), "List the children by name"),
    Route::brief(("GET", "/sidejob/jobs/{id}/child/{name}", From(Viewer)), call!(family::child), "Get a child by name"),
    Route::brief(("POST", "/sidejob/jobs/{id}/adopt", From(Worker)), call!(family::adopt), "Adopt a job"),
    Route::brief(("POST", "/sidejob/jobs/{id}/disown", From(Worker)), call!(family::disown), "Disown a child"),
    Route::brief(("POST", "/sidejob/jobs/{id}/ports", From(Worker)), call!(calls::set_ports), "Set the ports of a job").with_body(NO_OWN_BOUND),
    Route::brief(("GET", "/sidejob/jobs/{id}/{side}/{port}", From(Viewer)), call!(calls::get_port), "Get the size and default of a port"),
    Route::brief(("POST", "/sidejob/jobs/{id}/{side}/{port}/{operation}", From(Worker)), call!(calls::port), "read, write, entries, default, connect").with_body(NO_OWN_BOUND),
    Route::brief(("POST", "/sidejob/jobs/{id}/lock", From(Worker)), call!(workers::lock), "Lock a job"),
    Route::brief(("POST", "/sidejob/jobs/{id}/refresh_lock", From(Worker)), call!(workers::refresh_lock), "Extend a lock or the lease of a run"),
    Route::brief(("POST", "/sidejob/jobs/{id}/unlock", From(Worker)), call!(workers::unlock), "Unlock a job"),
    Route::brief(("POST", "/sidejob/group", From(Worker)), call!(calls::group), "Run several port operations atomically").with_body(NO_OWN_BOUND),
    Route::brief(("GET", "/sidejob/logs", From(Viewer)), call!(calls::logs), "Read the log, oldest first"),
    Route::brief(("POST", "/sidejob/logs", From(Worker)), call!(calls::add_log), "Add an entry to the log").with_body(LIST_BYTES_MAX),
    Route::brief(("DELETE", "/sidejob/logs", From(Worker)), call!(calls::take_logs), "Read the log and clear it"),
];
