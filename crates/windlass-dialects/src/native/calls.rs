//! Calls of the native API: one line in [`CALLS`] and a file in `calls/`, with the request type, the engine
//! call and the response type. The router, the authorization, the OpenAPI description and the table in
//! README.md are made from the list.

mod act;
mod audit;
mod blobs;
mod bulk;
mod children;
mod claim;
mod clone;
mod events;
mod extend;
mod failures;
mod family;
mod get;
mod handlers;
mod history;
mod import;
mod limits;
pub(in crate::native) mod list;
mod log;
mod me;
pub mod metrics;
mod patch;
mod probes;
mod push;
mod queue_settings;
mod queues;
mod quota;
mod result;
mod schedules;
pub(in crate::native) mod settle;
mod stats;
mod steps;
mod tokens;
mod workers;

use super::errors::ErrorAnswer;
use super::params::*;
use super::{openapi, views};
use crate::auth::Role::{self, Admin, Operator, Viewer, Worker};
use crate::codec::{self, Encoding};
use crate::problem::call;
use crate::route::Access::{From, Public};
use crate::route::{Answering, Call, Content, NO_OWN_BOUND, Route, SchemaOf};
use views::JobView;

type Handler = fn(Call) -> Answering;

const fn get(path: &'static str, role: Role, handle: Handler, summary: &'static str) -> Route {
    Route::brief(("GET", path, From(role)), handle, summary)
}

const fn post(path: &'static str, role: Role, handle: Handler, summary: &'static str) -> Route {
    Route::brief(("POST", path, From(role)), handle, summary)
}

const fn put(path: &'static str, role: Role, handle: Handler, summary: &'static str) -> Route {
    Route::brief(("PUT", path, From(role)), handle, summary)
}

const fn patch(path: &'static str, role: Role, handle: Handler, summary: &'static str) -> Route {
    Route::brief(("PATCH", path, From(role)), handle, summary)
}

const fn delete(path: &'static str, role: Role, handle: Handler, summary: &'static str) -> Route {
    Route::brief(("DELETE", path, From(role)), handle, summary)
}

const fn public(path: &'static str, handle: Handler, summary: &'static str) -> Route {
    Route::brief(("GET", path, Public), handle, summary)
}

const ERROR: Content = Content::Data(SchemaOf::of::<ErrorAnswer>());
const PLAIN: Content = Content::Text;
const EVENTS: Content = Content::Events(SchemaOf::of::<events::Event<'static>>());

#[rustfmt::skip]
pub static CALLS: &[Route] = &[
    post("/api/v1/jobs", Worker, call!(push::push), "Push one job or a batch; a batch is committed atomically")
        .with_request::<push::PushBody<'_>>(push::EXAMPLES).with_body(NO_OWN_BOUND)
        .with_response::<push::PushedAnswer>(201).with_response::<push::Journaled>(202).answers_with(409, ERROR).answers_with(413, ERROR),
    get("/api/v1/jobs", Viewer, call!(list::list), "List jobs, newest first")
        .with_params(&[SEARCH, STATE, QUEUE, NAME, TAG, TEXT, LIMIT, CURSOR, TENANT]).with_response::<list::Page<'_>>(200),
    get("/api/v1/jobs/count", Viewer, call!(bulk::count), "Number of jobs that match a search; a lower bound if counting takes too long")
        .with_params(&[SEARCH, TENANT]).with_response::<bulk::Count>(200),
    post("/api/v1/jobs/bulk", Operator, call!(bulk::bulk), "Apply an action to many jobs, up to 1,000 per call; continue with `next`")
        .with_request::<bulk::BulkAsk<'_>>(bulk::EXAMPLES).with_response::<bulk::BulkDone>(200),
    post("/api/v1/claim", Worker, call!(claim::claim), "Claim jobs; with `wait_ms`, waits for one")
        .with_optional_request::<claim::ClaimBody<'_>>(claim::EXAMPLES).with_response::<claim::Claimed<'_>>(200),
    post("/api/v1/settle", Worker, call!(settle::settle), "Settle claimed jobs: finish, fail, release or suspend")
        .with_request::<settle::SettleAsk<'_>>(settle::EXAMPLES).with_body(NO_OWN_BOUND).with_response::<settle::SettledAnswer<'_>>(200),
    post("/api/v1/extend", Worker, call!(extend::extend), "Heartbeats: extend leases, report progress, learn of cancellations")
        .with_request::<extend::ExtendAsk<'_>>(extend::EXAMPLES).with_body(NO_OWN_BOUND).with_response::<extend::ExtendedAnswer>(200),
    post("/api/v1/jobs/{id}/log", Worker, call!(log::log), "Append lines to the log of a claimed job")
        .with_params(&[ID, TENANT]).with_request::<log::LogAsk<'_>>(log::EXAMPLES).with_body(NO_OWN_BOUND)
        .with_response::<extend::ExtendedEntry>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    post("/api/v1/jobs/{id}/steps", Worker, call!(steps::keep), "Keep results of steps of a claimed job; a step that is kept already does not change")
        .with_params(&[ID, TENANT]).with_request::<steps::StepsAsk<'_>>(steps::EXAMPLES).with_body(NO_OWN_BOUND)
        .with_response::<steps::KeptSteps<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR).answers_with(413, ERROR),
    post("/api/v1/jobs/{id}/signal/{name}", Worker, call!(steps::signal), "Send a signal to a job: ends its wait for it, or is kept until the job waits for it; the body is its payload, any value")
        .with_params(&[ID, SIGNAL, TENANT]).with_response::<steps::Signalled>(202).answers_with(404, ERROR).answers_with(409, ERROR).answers_with(413, ERROR),
    get("/api/v1/jobs/{id}", Viewer, call!(get::get), "Get a job")
        .with_params(&[ID, TENANT]).with_response::<JobView<'_>>(200).answers_with(404, ERROR),
    patch("/api/v1/jobs/{id}", Operator, call!(patch::patch), "Change a job that is not running")
        .with_params(&[ID, TENANT]).with_request::<patch::PatchAsk<'_>>(patch::EXAMPLES).with_body(NO_OWN_BOUND)
        .with_response::<JobView<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    delete("/api/v1/jobs/{id}", Operator, call!(act::delete), "Delete a job")
        .with_params(&[ID, TENANT]).with_response::<act::Gone>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    post("/api/v1/jobs/{id}/undelete", Operator, call!(act::undelete), "Bring back a job that was deleted a moment ago")
        .with_params(&[ID, TENANT]).with_response::<JobView<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    get("/api/v1/jobs/{id}/result", Viewer, call!(result::result), "Result of a job; with `wait_ms`, waits until the job is finished")
        .with_params(&[ID, WAIT_MS, TENANT]).with_response::<result::ResultView<'_>>(200).with_response::<result::ResultView<'_>>(202).answers_with(404, ERROR),
    get("/api/v1/jobs/{id}/children", Viewer, call!(children::children), "Children of a job, by id, up to 1,000 per page")
        .with_params(&[ID, CURSOR, TENANT]).with_response::<children::Children<'_>>(200).answers_with(404, ERROR),
    get("/api/v1/jobs/{id}/family", Viewer, call!(family::family), "Ancestors and descendants of a job, up to a maximum number")
        .with_params(&[ID, TENANT]).with_response::<family::FamilyTree<'_>>(200).answers_with(404, ERROR),
    post("/api/v1/jobs/{id}/cancel", Operator, call!(act::cancel), "Cancel a job; the worker of a running job is asked to stop")
        .with_params(&[ID, TENANT]).with_optional_request::<act::CancelAsk>(act::CANCEL_EXAMPLES)
        .with_response::<JobView<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    post("/api/v1/jobs/{id}/retry", Operator, call!(act::retry), "Start a completed, failed or cancelled job again, or the next attempt of a failed one at once; attempts count from zero")
        .with_params(&[ID, TENANT]).with_optional_request::<act::RetryJobAsk<'_>>(act::RETRY_EXAMPLES)
        .with_response::<JobView<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    post("/api/v1/jobs/{id}/run", Operator, call!(act::run), "Run a delayed job now or at a given time")
        .with_params(&[ID, TENANT]).with_optional_request::<act::RunAsk>(act::RUN_EXAMPLES)
        .with_response::<JobView<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    post("/api/v1/jobs/{id}/clone", Operator, call!(clone::clone), "Push a new job like this one, without its idempotency key, alias, parent and repeat rule")
        .with_params(&[ID, TENANT]).with_optional_request::<clone::CloneAsk<'_>>(clone::EXAMPLES).with_body(NO_OWN_BOUND)
        .with_response::<clone::Cloned>(201).answers_with(404, ERROR),
    get("/api/v1/aliases/{alias}", Viewer, call!(get::get_by_alias), "Get a job by its alias")
        .with_params(&[ALIAS, TENANT]).with_response::<JobView<'_>>(200).answers_with(404, ERROR),
    get("/api/v1/queues", Viewer, call!(queues::queues), "List queues with job counts")
        .with_params(&[TENANT]).with_response::<queues::Queues<'_>>(200),
    get("/api/v1/queues/{queue}", Viewer, call!(queue_settings::get), "Get a queue with its job counts and settings")
        .with_params(&[QUEUE, TENANT]).with_response::<queues::QueueView<'_>>(200),
    put("/api/v1/queues/{queue}", Operator, call!(queue_settings::put), "Set how long the jobs of a queue are kept; settings that are left out do not change")
        .with_params(&[QUEUE, TENANT]).with_request::<queue_settings::QueueAsk>(queue_settings::EXAMPLES).with_response::<queues::QueueView<'_>>(200).answers_with(400, ERROR),
    post("/api/v1/queues/{queue}/pause", Operator, call!(queues::pause), "Pause a queue: its jobs are not handed out")
        .with_params(&[QUEUE, TENANT]).with_response::<queues::QueuePaused<'_>>(200),
    post("/api/v1/queues/{queue}/resume", Operator, call!(queues::resume), "Resume a paused queue")
        .with_params(&[QUEUE, TENANT]).with_response::<queues::QueuePaused<'_>>(200),
    get("/api/v1/failures", Viewer, call!(failures::failures), "Failed and retrying jobs, grouped by error class (else message) and name")
        .with_params(&[FAILED_STATE, QUEUE, NAME, SEARCH, SORT, GROUPS_LIMIT, CURSOR, TENANT]).with_response::<failures::Failures>(200),
    get("/api/v1/limits", Viewer, call!(limits::list), "List rate and concurrency limits")
        .with_params(&[TENANT]).with_response::<limits::Limits>(200),
    put("/api/v1/limits/{id}", Operator, call!(limits::put), "Set a limit")
        .with_params(&[LIMIT_ID, TENANT]).with_request::<limits::LimitAsk>(limits::EXAMPLES).with_response::<limits::LimitShown>(200).answers_with(400, ERROR),
    delete("/api/v1/limits/{id}", Operator, call!(limits::delete), "Delete a limit")
        .with_params(&[LIMIT_ID, TENANT]).with_response::<limits::LimitGone<'_>>(200).answers_with(404, ERROR),
    get("/api/v1/blobs", Viewer, call!(blobs::list), "List blobs, newest first")
        .with_params(&[LIMIT, TENANT]).with_response::<blobs::Blobs<'_>>(200),
    post("/api/v1/blobs/gc", Admin, call!(blobs::collect), "List unused blobs; with `remove`, delete them")
        .with_params(&[TENANT]).with_optional_request::<blobs::BlobGc>(blobs::EXAMPLES).with_response::<blobs::UnnamedBlobs<'_>>(200),
    get("/api/v1/stats", Viewer, call!(stats::stats), "Job totals, rates over the last minute, uptime")
        .with_params(&[TENANT]).with_response::<stats::Stats<'_>>(200),
    get("/api/v1/history", Viewer, call!(history::history), "Numbers of jobs pushed, claimed, finished and failed over time; without `queue`, empty unless \
     the caller is an admin")
        .with_params(&[SPAN, ONE_QUEUE, TENANT]).with_response::<history::HistoryAnswer>(200),
    get("/api/v1/me", Viewer, call!(me::me), "Role and rights of the caller").with_response::<me::Me<'_>>(200),
    get("/api/v1/workers", Viewer, call!(workers::workers), "Workers that hold jobs, have registered, or wait for jobs")
        .with_params(&[TENANT]).with_response::<workers::Workers<'_>>(200),
    post("/api/v1/workers/{worker}/quiet", Operator, call!(workers::quiet), "Send no new jobs to a registered worker; its running jobs continue")
        .with_params(&[WORKER, TENANT]).with_response::<workers::WorkerIs<'_>>(200).answers_with(404, ERROR),
    post("/api/v1/workers/{worker}/wake", Operator, call!(workers::wake), "Send jobs to a quiet worker again")
        .with_params(&[WORKER, TENANT]).with_response::<workers::WorkerIs<'_>>(200).answers_with(404, ERROR),
    post("/api/v1/workers/{worker}/dismiss", Operator, call!(workers::dismiss), "Remove a registered worker; its running jobs fail")
        .with_params(&[WORKER, TENANT]).with_response::<workers::WorkerIs<'_>>(200).answers_with(404, ERROR),
    get("/api/v1/handlers", Viewer, call!(handlers::handlers), "List handlers with their versions, newest first")
        .with_params(&[TENANT]).with_response::<handlers::Handlers<'_>>(200),
    get("/api/v1/schedules", Viewer, call!(schedules::schedules), "List repeating jobs with their next runs and last turns, newest first")
        .with_params(&[LIMIT, CURSOR, TENANT]).with_response::<list::Page<'_>>(200),
    get("/api/v1/schedules/{id}/turns", Viewer, call!(schedules::turns), "Last turns of a repeating job with their outcomes, newest first")
        .with_params(&[ID, TENANT]).with_response::<schedules::Turns<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    patch("/api/v1/schedules/{id}", Operator, call!(schedules::change), "Change the rule, payload, priority, queue or next run of a repeating job")
        .with_params(&[ID, TENANT]).with_request::<schedules::ScheduleAsk<'_>>(schedules::EXAMPLES).with_body(NO_OWN_BOUND)
        .with_response::<JobView<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    post("/api/v1/schedules/{id}/pause", Operator, call!(schedules::pause), "Pause a schedule: no further turn starts, a running one goes on")
        .with_params(&[ID, TENANT]).with_response::<JobView<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    post("/api/v1/schedules/{id}/resume", Operator, call!(schedules::resume), "Resume a paused schedule at its next scheduled time")
        .with_params(&[ID, TENANT]).with_response::<JobView<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    post("/api/v1/schedules/{id}/run", Operator, call!(schedules::run), "Run a repeating job once now; its next scheduled time does not move")
        .with_params(&[ID, TENANT]).with_response::<JobView<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    get("/api/v1/events", Viewer, call!(events::events), "Stream of job events (server-sent events)")
        .with_params(&[JOB, SUMMARY_MS, TENANT]).answers_with(200, EVENTS),
    get("/api/v1/tenants/{tenant}/quota", Viewer, call!(quota::get), "Quotas of a tenant and their current use")
        .with_params(&[WHOSE_QUOTA]).with_response::<quota::TenantQuota<'_>>(200),
    put("/api/v1/tenants/{tenant}/quota", Admin, call!(quota::put), "Set quotas of a tenant; quotas that are left out do not change")
        .with_params(&[WHOSE_QUOTA]).with_request::<quota::QuotaAsk>(quota::EXAMPLES).with_response::<quota::TenantQuota<'_>>(200).answers_with(400, ERROR),
    get("/api/v1/signing_key", Operator, call!(tokens::signing_key), "Key with which your tenant verifies the header `Windlass-Signature`")
        .with_params(&[TENANT]).with_response::<tokens::SigningKey<'_>>(200).answers_with(404, ERROR),
    get("/api/v1/tokens", Admin, call!(tokens::list), "List tokens, without their secrets").with_response::<tokens::Tokens<'_>>(200),
    post("/api/v1/tokens", Admin, call!(tokens::create), "Create a token; only this response contains its secret")
        .with_optional_request::<tokens::TokenAsk<'_>>(tokens::CREATE_EXAMPLES).with_response::<tokens::NewTokenAnswer<'_>>(201).answers_with(400, ERROR),
    post("/api/v1/tokens/{prefix}/rotate", Admin, call!(tokens::rotate), "Create a token with the same rights; the old one expires after a grace period")
        .with_params(&[PREFIX]).with_optional_request::<tokens::RotateAsk>(tokens::ROTATE_EXAMPLES)
        .with_response::<tokens::NewTokenAnswer<'_>>(201).answers_with(404, ERROR).answers_with(409, ERROR),
    delete("/api/v1/tokens/{prefix}", Admin, call!(tokens::revoke), "Revoke a token at once, also on open connections")
        .with_params(&[PREFIX]).with_response::<tokens::TokenGone<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    post("/api/v1/import", Admin, call!(import::import), "Import jobs of another job system with their states")
        .with_request::<import::ImportAsk<'_>>(import::EXAMPLES).with_body(NO_OWN_BOUND).with_response::<push::PushedAnswer>(200).answers_with(400, ERROR),
    get("/api/v1/audit", Operator, call!(audit::audit), "Actions of operators and admins, newest first")
        .with_params(&[WHO, ACTION, AUDITED_JOB, TARGET, LIMIT, CURSOR, TENANT]).with_response::<audit::AuditPage<'_>>(200),
    get("/metrics", Viewer, call!(metrics::metrics), "Prometheus metrics; of all tenants for an admin")
        .with_params(&[TENANT]).answers_with(200, PLAIN),
    public("/api/openapi.json", call!(openapi::document), "OpenAPI description").answers_with(200, Content::Document),
    public("/healthz", call!(probes::healthz), "Liveness probe").answers_with(200, PLAIN),
    public("/readyz", call!(probes::readyz), "Readiness probe: the server can store new jobs")
        .answers_with(200, PLAIN).answers_with(503, ERROR),
    public("/", call!(probes::root), "Redirects a browser to the web UI; responds OK to other clients")
        .answers_with(200, PLAIN).answers_with(302, PLAIN),
];

/// Parses a body as each call that takes payloads or batches would. For the fuzzer.
pub fn read_as_every_body(encoding: Encoding, body: &[u8]) {
    let _ = push::read(encoding, body);
    let _ = codec::read_map::<claim::ClaimBody<'_>>(encoding, body);
    let _ = codec::read_map::<settle::SettleAsk<'_>>(encoding, body);
    let _ = codec::read_map::<extend::ExtendAsk<'_>>(encoding, body);
    let _ = codec::read_map::<patch::PatchAsk<'_>>(encoding, body);
    let _ = codec::read_map::<log::LogAsk<'_>>(encoding, body);
    let _ = codec::read_map::<steps::StepsAsk<'_>>(encoding, body);
    let _ = codec::read_map::<import::ImportAsk<'_>>(encoding, body);
}
