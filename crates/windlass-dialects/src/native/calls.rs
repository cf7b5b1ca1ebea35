//! Calls of the native API: one line in [`CALLS`] and a file in `calls/`, with the request type, the engine
//! call and the response type. The router, the authorization, the OpenAPI description and the table in
//! README.md are made from the list.

mod act;
mod blobs;
mod bulk;
mod children;
mod claim;
mod events;
mod extend;
mod family;
mod get;
mod handlers;
mod history;
mod import;
mod limits;
pub(in crate::native) mod list;
mod log;
mod me;
mod metrics;
mod patch;
mod probes;
mod push;
mod queues;
mod quota;
mod result;
mod schedules;
mod settle;
mod stats;
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

const ERROR: Content = Content::Data(SchemaOf::of::<ErrorAnswer<'static>>());
const PLAIN: Content = Content::Text;
const EVENTS: Content = Content::Events(SchemaOf::of::<events::Event<'static>>());

#[rustfmt::skip]
pub static CALLS: &[Route] = &[
    post("/api/v1/jobs", Worker, call!(push::push), "Push one job or a batch; all are made in one step")
        .with_request::<push::Pushes<'_>>(push::EXAMPLES).with_body(NO_OWN_BOUND)
        .with_response::<push::PushedAnswer>(201).with_response::<push::Journaled>(202).answers_with(409, ERROR).answers_with(413, ERROR),
    get("/api/v1/jobs", Viewer, call!(list::list), "List jobs, newest first")
        .with_params(&[SEARCH, STATE, QUEUE, NAME, TAG, TEXT, LIMIT, CURSOR, TENANT]).with_response::<list::Page<'_>>(200),
    get("/api/v1/jobs/count", Viewer, call!(bulk::count), "How many jobs a search finds; at least so many where counting would take long")
        .with_params(&[SEARCH, TENANT]).with_response::<bulk::Count>(200),
    post("/api/v1/jobs/bulk", Operator, call!(bulk::bulk), "One action on many jobs: up to 1,000 per call; go on with `next`")
        .with_request::<bulk::BulkAsk<'_>>(bulk::EXAMPLES).with_response::<bulk::BulkDone>(200),
    post("/api/v1/claim", Worker, call!(claim::claim), "Take jobs to work on; waits for some if asked")
        .with_optional_request::<claim::ClaimAsk<'_>>(claim::EXAMPLES).with_response::<claim::Claimed<'_>>(200),
    post("/api/v1/settle", Worker, call!(settle::settle), "End runs: finish, fail or release")
        .with_request::<settle::SettleAsk<'_>>(settle::EXAMPLES).with_body(NO_OWN_BOUND).with_response::<settle::SettledAnswer<'_>>(200),
    post("/api/v1/extend", Worker, call!(extend::extend), "Heartbeats: lengthen leases, report progress, hear of cancellations")
        .with_request::<extend::ExtendAsk<'_>>(extend::EXAMPLES).with_body(NO_OWN_BOUND).with_response::<extend::ExtendedAnswer>(200),
    post("/api/v1/jobs/{id}/log", Worker, call!(log::log), "Keep lines with a job that one holds: what its run has to say")
        .with_params(&[ID, TENANT]).with_request::<log::LogAsk<'_>>(log::EXAMPLES).with_body(NO_OWN_BOUND)
        .with_response::<extend::ExtendedEntry>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    get("/api/v1/jobs/{id}", Viewer, call!(get::get), "One job")
        .with_params(&[ID, TENANT]).with_response::<JobView<'_>>(200).answers_with(404, ERROR),
    patch("/api/v1/jobs/{id}", Operator, call!(patch::patch), "Change a job that is not running")
        .with_params(&[ID, TENANT]).with_request::<patch::PatchAsk<'_>>(patch::EXAMPLES).with_body(NO_OWN_BOUND)
        .with_response::<JobView<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    delete("/api/v1/jobs/{id}", Operator, call!(act::delete), "Delete a job")
        .with_params(&[ID, TENANT]).with_response::<act::Gone>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    get("/api/v1/jobs/{id}/result", Viewer, call!(result::result), "How a job ended; waits for the end if asked")
        .with_params(&[ID, WAIT_MS, TENANT]).with_response::<result::ResultView<'_>>(200).with_response::<result::ResultView<'_>>(202).answers_with(404, ERROR),
    get("/api/v1/jobs/{id}/children", Viewer, call!(children::children), "The children of a job")
        .with_params(&[ID, TENANT]).with_response::<children::Children<'_>>(200).answers_with(404, ERROR),
    get("/api/v1/jobs/{id}/family", Viewer, call!(family::family), "Who a job came from, and what came of it: parents, children and theirs, within bounds")
        .with_params(&[ID, TENANT]).with_response::<family::FamilyTree<'_>>(200).answers_with(404, ERROR),
    post("/api/v1/jobs/{id}/cancel", Operator, call!(act::cancel), "Cancel a job; a running one is asked to stop")
        .with_params(&[ID, TENANT]).with_optional_request::<act::CancelAsk>(act::CANCEL_EXAMPLES)
        .with_response::<JobView<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    post("/api/v1/jobs/{id}/retry", Operator, call!(act::retry), "Start a job over, its attempts counted from zero")
        .with_params(&[ID, TENANT]).with_optional_request::<act::RunAsk>(act::RUN_EXAMPLES)
        .with_response::<JobView<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    post("/api/v1/jobs/{id}/run", Operator, call!(act::run), "Run a waiting job now or at a given time")
        .with_params(&[ID, TENANT]).with_optional_request::<act::RunAsk>(act::RUN_EXAMPLES)
        .with_response::<JobView<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    get("/api/v1/aliases/{alias}", Viewer, call!(get::get_by_alias), "One job by its alias")
        .with_params(&[ALIAS, TENANT]).with_response::<JobView<'_>>(200).answers_with(404, ERROR),
    get("/api/v1/queues", Viewer, call!(queues::queues), "Queues and how many jobs they hold")
        .with_params(&[TENANT]).with_response::<queues::Queues<'_>>(200),
    post("/api/v1/queues/{queue}/pause", Operator, call!(queues::pause), "Hand out no more jobs of a queue")
        .with_params(&[QUEUE, TENANT]).with_response::<queues::QueuePaused<'_>>(200),
    post("/api/v1/queues/{queue}/resume", Operator, call!(queues::resume), "Hand out jobs of a queue again")
        .with_params(&[QUEUE, TENANT]).with_response::<queues::QueuePaused<'_>>(200),
    get("/api/v1/limits", Viewer, call!(limits::list), "Limits on rate and concurrency")
        .with_params(&[TENANT]).with_response::<limits::Limits>(200),
    put("/api/v1/limits/{id}", Operator, call!(limits::put), "Set a limit")
        .with_params(&[LIMIT_ID, TENANT]).with_request::<limits::LimitAsk>(limits::EXAMPLES).with_response::<limits::LimitShown>(200).answers_with(400, ERROR),
    delete("/api/v1/limits/{id}", Operator, call!(limits::delete), "Remove a limit")
        .with_params(&[LIMIT_ID, TENANT]).with_response::<limits::LimitGone<'_>>(200).answers_with(404, ERROR),
    get("/api/v1/blobs", Viewer, call!(blobs::list), "Blobs, the newest first")
        .with_params(&[LIMIT, TENANT]).with_response::<blobs::Blobs<'_>>(200),
    post("/api/v1/blobs/gc", Admin, call!(blobs::collect), "Look for blobs that no job names, and remove them if asked")
        .with_params(&[TENANT]).with_optional_request::<blobs::BlobGc>(blobs::EXAMPLES).with_response::<blobs::UnnamedBlobs<'_>>(200),
    get("/api/v1/stats", Viewer, call!(stats::stats), "Totals, rates over the last minute, uptime")
        .with_params(&[TENANT]).with_response::<stats::Stats<'_>>(200),
    get("/api/v1/history", Viewer, call!(history::history), "What was pushed, claimed, finished and failed in each step of a span of time; nothing but for admins")
        .with_params(&[SPAN]).with_response::<history::HistoryAnswer>(200),
    get("/api/v1/me", Viewer, call!(me::me), "Who is asking, and what they may").with_response::<me::Me<'_>>(200),
    get("/api/v1/workers", Viewer, call!(workers::workers), "Who holds jobs now, who has registered to be given some, and who waits for some")
        .with_params(&[TENANT]).with_response::<workers::Workers<'_>>(200),
    post("/api/v1/workers/{worker}/quiet", Operator, call!(workers::quiet), "Push no more jobs to a registered worker; what it has goes on")
        .with_params(&[WORKER, TENANT]).with_response::<workers::WorkerIs<'_>>(200).answers_with(404, ERROR),
    post("/api/v1/workers/{worker}/wake", Operator, call!(workers::wake), "Push jobs to a registered worker again")
        .with_params(&[WORKER, TENANT]).with_response::<workers::WorkerIs<'_>>(200).answers_with(404, ERROR),
    post("/api/v1/workers/{worker}/dismiss", Operator, call!(workers::dismiss), "Forget a registered worker; the jobs it has count as failed")
        .with_params(&[WORKER, TENANT]).with_response::<workers::WorkerIs<'_>>(200).answers_with(404, ERROR),
    get("/api/v1/handlers", Viewer, call!(handlers::handlers), "Handlers that the server runs jobs by, with their versions, the newest first")
        .with_params(&[TENANT]).with_response::<handlers::Handlers<'_>>(200),
    get("/api/v1/schedules", Viewer, call!(schedules::schedules), "Repeating jobs and when they run next, newest first")
        .with_params(&[LIMIT, CURSOR, TENANT]).with_response::<list::Page<'_>>(200),
    get("/api/v1/events", Viewer, call!(events::events), "What happens to jobs, as it happens")
        .with_params(&[JOB, SUMMARY_MS, TENANT]).answers_with(200, EVENTS),
    get("/api/v1/tenants/{tenant}/quota", Viewer, call!(quota::get), "What a tenant may take at most, and what it takes now")
        .with_params(&[WHOSE_QUOTA]).with_response::<quota::TenantQuota<'_>>(200),
    put("/api/v1/tenants/{tenant}/quota", Admin, call!(quota::put), "Set what a tenant may take; what is left out stays")
        .with_params(&[WHOSE_QUOTA]).with_request::<quota::QuotaAsk>(quota::EXAMPLES).with_response::<quota::TenantQuota<'_>>(200).answers_with(400, ERROR),
    get("/api/v1/signing_key", Operator, call!(tokens::signing_key), "The key by which receivers of your tenant check `Windlass-Signature`")
        .with_params(&[TENANT]).with_response::<tokens::SigningKey<'_>>(200).answers_with(404, ERROR),
    get("/api/v1/tokens", Admin, call!(tokens::list), "Tokens in force, without what lets anyone in").with_response::<tokens::Tokens<'_>>(200),
    post("/api/v1/tokens", Admin, call!(tokens::create), "Make a token; it is shown in this answer and never again")
        .with_optional_request::<tokens::TokenAsk<'_>>(tokens::CREATE_EXAMPLES).with_response::<tokens::NewTokenAnswer<'_>>(201).answers_with(400, ERROR),
    post("/api/v1/tokens/{prefix}/rotate", Admin, call!(tokens::rotate), "Make another token for the holder of this one, which ends after a grace")
        .with_params(&[PREFIX]).with_optional_request::<tokens::RotateAsk>(tokens::ROTATE_EXAMPLES)
        .with_response::<tokens::NewTokenAnswer<'_>>(201).answers_with(404, ERROR).answers_with(409, ERROR),
    delete("/api/v1/tokens/{prefix}", Admin, call!(tokens::revoke), "Refuse a token from now on, also on open connections")
        .with_params(&[PREFIX]).with_response::<tokens::TokenGone<'_>>(200).answers_with(404, ERROR).answers_with(409, ERROR),
    post("/api/v1/import", Admin, call!(import::import), "Take over jobs that were made elsewhere, as they stand there")
        .with_request::<import::ImportAsk<'_>>(import::EXAMPLES).with_body(NO_OWN_BOUND).with_response::<push::PushedAnswer>(200).answers_with(400, ERROR),
    get("/metrics", Viewer, call!(metrics::metrics), "Figures for Prometheus; all tenants for an admin")
        .with_params(&[TENANT]).answers_with(200, PLAIN),
    public("/api/openapi.json", call!(openapi::document), "This description").answers_with(200, Content::Document),
    public("/healthz", call!(probes::healthz), "Whether the server is alive").answers_with(200, PLAIN),
    public("/readyz", call!(probes::readyz), "Whether the server can keep what it acknowledges")
        .answers_with(200, PLAIN).answers_with(503, ERROR),
    public("/", call!(probes::root), "Sends a browser to the web UI; says OK to everything else")
        .answers_with(200, PLAIN).answers_with(302, PLAIN),
];

/// Parses a body as each call that takes payloads or batches would. For the fuzzer.
pub fn read_as_every_body(encoding: Encoding, body: &[u8]) {
    let _ = push::read(encoding, body);
    let _ = codec::read_map::<claim::ClaimAsk<'_>>(encoding, body);
    let _ = codec::read_map::<settle::SettleAsk<'_>>(encoding, body);
    let _ = codec::read_map::<extend::ExtendAsk<'_>>(encoding, body);
    let _ = codec::read_map::<patch::PatchAsk<'_>>(encoding, body);
    let _ = codec::read_map::<log::LogAsk<'_>>(encoding, body);
    let _ = codec::read_map::<import::ImportAsk<'_>>(encoding, body);
}
