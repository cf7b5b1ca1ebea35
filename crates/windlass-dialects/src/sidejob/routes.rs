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
    Route::brief(("GET", "/sidejob", Public), call!(calls::version), "The version of this protocol"),
    Route::brief(("GET", "/sidejob/", Public), call!(calls::version), "The version of this protocol"),
    Route::brief(("PUT", "/sidejob/workers/{queue}", From(Worker)), call!(workers::register), "Register all classes of a queue").with_body(LIST_BYTES_MAX),
    Route::brief(("GET", "/sidejob/workers/{queue}", From(Viewer)), call!(workers::registered), "The classes of a queue"),
    Route::brief(("POST", "/sidejob/presence", From(Worker)), call!(presence::attend), "A worker is there for as long as this answer lasts"),
    Route::brief(("POST", "/sidejob/queues/{queue}/claim", From(Worker)), call!(workers::claim), "One run, for a worker"),
    Route::brief(("POST", "/sidejob/jobs", From(Worker)), call!(create::create), "Make a job and run it").with_body(NO_OWN_BOUND),
    Route::brief(("GET", "/sidejob/jobs/{id}", From(Viewer)), call!(calls::get), "One job"),
    Route::brief(("DELETE", "/sidejob/jobs/{id}", From(Worker)), call!(family::delete), "Delete what is terminated"),
    Route::brief(("POST", "/sidejob/jobs/{id}/finish", From(Worker)), call!(workers::finish), "The end of a run").with_body(NO_OWN_BOUND),
    Route::brief(("POST", "/sidejob/jobs/{id}/for_inputs", From(Worker)), call!(workers::for_inputs), "Read a set of inputs together").with_body(NO_OWN_BOUND),
    Route::brief(("POST", "/sidejob/jobs/{id}/run", From(Worker)), call!(calls::run), "Run it, now or later"),
    Route::brief(("POST", "/sidejob/jobs/{id}/terminate", From(Worker)), call!(calls::terminate), "Give it its last run"),
    Route::brief(("POST", "/sidejob/jobs/{id}/status", From(Worker)), call!(calls::set_status), "Put it into a status"),
    Route::brief(("GET", "/sidejob/jobs/{id}/state", From(Viewer)), call!(calls::get_state), "Its state"),
    Route::brief(("POST", "/sidejob/jobs/{id}/state", From(Worker)), call!(calls::set_state), "Set keys of its state").with_body(NO_OWN_BOUND),
    Route::brief(("POST", "/sidejob/jobs/{id}/unset", From(Worker)), call!(calls::unset), "Forget keys of its state").with_body(LIST_BYTES_MAX),
    Route::brief(("GET", "/sidejob/jobs/{id}/children", From(Viewer)), call!(family::children), "Its children by name"),
    Route::brief(("GET", "/sidejob/jobs/{id}/child/{name}", From(Viewer)), call!(family::child), "One child by name"),
    Route::brief(("POST", "/sidejob/jobs/{id}/adopt", From(Worker)), call!(family::adopt), "Adopt a job"),
    Route::brief(("POST", "/sidejob/jobs/{id}/disown", From(Worker)), call!(family::disown), "Disown a child"),
    Route::brief(("POST", "/sidejob/jobs/{id}/ports", From(Worker)), call!(calls::set_ports), "Set its ports").with_body(NO_OWN_BOUND),
    Route::brief(("GET", "/sidejob/jobs/{id}/{side}/{port}", From(Viewer)), call!(calls::get_port), "Size and default of a port"),
    Route::brief(("POST", "/sidejob/jobs/{id}/{side}/{port}/{operation}", From(Worker)), call!(calls::port), "read, write, entries, default, connect").with_body(NO_OWN_BOUND),
    Route::brief(("POST", "/sidejob/jobs/{id}/lock", From(Worker)), call!(workers::lock), "Keep workers away"),
    Route::brief(("POST", "/sidejob/jobs/{id}/refresh_lock", From(Worker)), call!(workers::refresh_lock), "More time for a lock or a run"),
    Route::brief(("POST", "/sidejob/jobs/{id}/unlock", From(Worker)), call!(workers::unlock), "Let workers in again"),
    Route::brief(("POST", "/sidejob/group", From(Worker)), call!(calls::group), "Several operations on ports as one").with_body(NO_OWN_BOUND),
    Route::brief(("GET", "/sidejob/logs", From(Viewer)), call!(calls::logs), "The log, oldest first"),
    Route::brief(("POST", "/sidejob/logs", From(Worker)), call!(calls::add_log), "Add an entry to the log").with_body(LIST_BYTES_MAX),
    Route::brief(("DELETE", "/sidejob/logs", From(Worker)), call!(calls::take_logs), "Read the log and clear it"),
];
