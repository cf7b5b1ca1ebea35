//! Every call of the native API. The router, the authorisation, the API's description and the tests of all three are
//! made from this list.

use super::{
    blobs, bulk, calls, events, family, handlers, history, import, metrics, openapi, probes, queries, quota,
    tokens, trail, watch,
};
use crate::auth::Role::{Admin, Operator, Viewer, Worker};
use crate::route::Access::{From, Public};
use crate::route::{Access, Answering, Call, DOCUMENT_BYTES_MAX, Doc, NO_OWN_BOUND, Route};

/// Makes a handler of a call: errors are answered in the encoding the caller reads.
macro_rules! call {
    ($call:path) => {{
        fn handle(call: Call) -> Answering {
            Box::pin(async move {
                let reply = calls::reply_encoding(&call);
                $call(call).await.unwrap_or_else(|error| error.response(reply))
            })
        }
        handle
    }};
}

const fn route(
    (method, path, access): (&'static str, &'static str, Access),
    handle: fn(Call) -> Answering,
    summary: &'static str,
    query: &'static [&'static str],
    asks: Option<&'static str>,
    answers: &'static [(u16, &'static str)],
) -> Route {
    let doc = Doc { summary, query, asks, answers };
    Route { method, path, access, handle, changes_state: false, body_bytes_max: DOCUMENT_BYTES_MAX, doc }
}

const GET: &str = "GET";
const POST: &str = "POST";
const PUT: &str = "PUT";
const PATCH: &str = "PATCH";
const DELETE: &str = "DELETE";

#[rustfmt::skip]
pub static ROUTES: &[Route] = &[
    route((POST, "/api/v1/jobs", From(Worker)), call!(calls::push),
        "Push one job or a batch; all are made in one step", &[], Some("Push"), &[(201, "Pushed"), (202, "Kept"), (409, "Error"), (413, "Error")]).with_body(NO_OWN_BOUND),
    route((GET, "/api/v1/jobs", From(Viewer)), call!(calls::list),
        "List jobs, newest first", &["search", "state", "queue", "name", "tag", "q", "limit", "cursor", "tenant"], None, &[(200, "Page")]),
    route((GET, "/api/v1/jobs/count", From(Viewer)), call!(bulk::count),
        "How many jobs a search finds; at least so many where counting would take long", &["search", "tenant"], None, &[(200, "Count")]),
    route((POST, "/api/v1/jobs/bulk", From(Operator)), call!(bulk::bulk),
        "One action on many jobs: up to 1,000 per call; go on with `next`", &[], Some("Bulk"), &[(200, "BulkDone")]),
    route((POST, "/api/v1/claim", From(Worker)), call!(calls::claim),
        "Take jobs to work on; waits for some if asked", &[], Some("Claim"), &[(200, "Claimed")]),
    route((POST, "/api/v1/settle", From(Worker)), call!(calls::settle),
        "End runs: finish, fail or release", &[], Some("Settle"), &[(200, "Settled")]).with_body(NO_OWN_BOUND),
    route((POST, "/api/v1/extend", From(Worker)), call!(calls::extend),
        "Heartbeats: lengthen leases, report progress, hear of cancellations", &[], Some("Extend"), &[(200, "Extended")]).with_body(NO_OWN_BOUND),
    route((POST, "/api/v1/jobs/{id}/log", From(Worker)), call!(trail::log),
        "Keep lines with a job that one holds: what its run has to say", &["tenant"], Some("LogLines"), &[(200, "ExtendedOne"), (404, "Error"), (409, "Error")]).with_body(NO_OWN_BOUND),
    route((GET, "/api/v1/jobs/{id}", From(Viewer)), call!(calls::get),
        "One job", &["tenant"], None, &[(200, "Job"), (404, "Error")]),
    route((PATCH, "/api/v1/jobs/{id}", From(Operator)), call!(calls::patch),
        "Change a job that is not running", &["tenant"], Some("Patch"), &[(200, "Job"), (404, "Error"), (409, "Error")]).with_body(NO_OWN_BOUND),
    route((DELETE, "/api/v1/jobs/{id}", From(Operator)), call!(calls::delete),
        "Delete a job", &["tenant"], None, &[(200, "Gone"), (404, "Error"), (409, "Error")]),
    route((GET, "/api/v1/jobs/{id}/result", From(Viewer)), call!(calls::result),
        "How a job ended; waits for the end if asked", &["wait_ms", "tenant"], None, &[(200, "Result"), (202, "Result"), (404, "Error")]),
    route((GET, "/api/v1/jobs/{id}/children", From(Viewer)), call!(calls::children),
        "The children of a job", &["tenant"], None, &[(200, "Children"), (404, "Error")]),
    route((GET, "/api/v1/jobs/{id}/family", From(Viewer)), call!(family::family),
        "Who a job came from, and what came of it: parents, children and theirs, within bounds", &["tenant"], None, &[(200, "FamilyTree"), (404, "Error")]),
    route((POST, "/api/v1/jobs/{id}/cancel", From(Operator)), call!(calls::cancel),
        "Cancel a job; a running one is asked to stop", &["tenant"], Some("Cancel"), &[(200, "Job"), (404, "Error"), (409, "Error")]),
    route((POST, "/api/v1/jobs/{id}/retry", From(Operator)), call!(calls::retry),
        "Start a job over, its attempts counted from zero", &["tenant"], Some("Run"), &[(200, "Job"), (404, "Error"), (409, "Error")]),
    route((POST, "/api/v1/jobs/{id}/run", From(Operator)), call!(calls::run),
        "Run a waiting job now or at a given time", &["tenant"], Some("Run"), &[(200, "Job"), (404, "Error"), (409, "Error")]),
    route((GET, "/api/v1/aliases/{alias}", From(Viewer)), call!(calls::get_by_alias),
        "One job by its alias", &["tenant"], None, &[(200, "Job"), (404, "Error")]),
    route((GET, "/api/v1/queues", From(Viewer)), call!(queries::queues),
        "Queues and how many jobs they hold", &["tenant"], None, &[(200, "Queues")]),
    route((POST, "/api/v1/queues/{queue}/pause", From(Operator)), call!(queries::pause),
        "Hand out no more jobs of a queue", &["tenant"], None, &[(200, "QueuePaused")]),
    route((POST, "/api/v1/queues/{queue}/resume", From(Operator)), call!(queries::resume),
        "Hand out jobs of a queue again", &["tenant"], None, &[(200, "QueuePaused")]),
    route((GET, "/api/v1/limits", From(Viewer)), call!(queries::limits),
        "Limits on rate and concurrency", &["tenant"], None, &[(200, "Limits")]),
    route((PUT, "/api/v1/limits/{id}", From(Operator)), call!(queries::put_limit),
        "Set a limit", &["tenant"], Some("LimitAsk"), &[(200, "Limit"), (400, "Error")]),
    route((DELETE, "/api/v1/limits/{id}", From(Operator)), call!(queries::delete_limit),
        "Remove a limit", &["tenant"], None, &[(200, "LimitGone"), (404, "Error")]),
    route((GET, "/api/v1/blobs", From(Viewer)), call!(blobs::list),
        "Blobs, the newest first", &["limit", "tenant"], None, &[(200, "Blobs")]),
    route((POST, "/api/v1/blobs/gc", From(Admin)), call!(blobs::collect),
        "Look for blobs that no job names, and remove them if asked", &["tenant"], Some("BlobGc"), &[(200, "UnnamedBlobs")]),
    route((GET, "/api/v1/stats", From(Viewer)), call!(queries::stats),
        "Totals, rates over the last minute, uptime", &["tenant"], None, &[(200, "Stats")]),
    route((GET, "/api/v1/history", From(Viewer)), call!(history::history),
        "What was pushed, claimed, finished and failed in each step of a span of time; nothing but for admins", &["span"], None, &[(200, "History")]),
    route((GET, "/api/v1/me", From(Viewer)), call!(watch::me),
        "Who is asking, and what they may", &[], None, &[(200, "Me")]),
    route((GET, "/api/v1/workers", From(Viewer)), call!(watch::workers),
        "Who holds jobs now, who has registered to be given some, and who waits for some", &["tenant"], None, &[(200, "Workers")]),
    route((POST, "/api/v1/workers/{worker}/quiet", From(Operator)), call!(watch::quiet_worker),
        "Push no more jobs to a registered worker; what it has goes on", &["tenant"], None, &[(200, "WorkerIs"), (404, "Error")]),
    route((POST, "/api/v1/workers/{worker}/wake", From(Operator)), call!(watch::wake_worker),
        "Push jobs to a registered worker again", &["tenant"], None, &[(200, "WorkerIs"), (404, "Error")]),
    route((POST, "/api/v1/workers/{worker}/dismiss", From(Operator)), call!(watch::dismiss_worker),
        "Forget a registered worker; the jobs it has count as failed", &["tenant"], None, &[(200, "WorkerIs"), (404, "Error")]),
    route((GET, "/api/v1/handlers", From(Viewer)), call!(handlers::handlers),
        "Handlers that the server runs jobs by, with their versions, the newest first", &["tenant"], None, &[(200, "Handlers")]),
    route((GET, "/api/v1/schedules", From(Viewer)), call!(watch::schedules),
        "Repeating jobs and when they run next, newest first", &["limit", "cursor", "tenant"], None, &[(200, "Page")]),
    route((GET, "/api/v1/events", From(Viewer)), call!(events::events),
        "What happens to jobs, as it happens", &["job", "summary_ms", "tenant"], None, &[(200, "Events")]),
    route((GET, "/api/v1/tenants/{tenant}/quota", From(Viewer)), call!(quota::get),
        "What a tenant may take at most, and what it takes now", &[], None, &[(200, "TenantQuota")]),
    route((PUT, "/api/v1/tenants/{tenant}/quota", From(Admin)), call!(quota::put),
        "Set what a tenant may take; what is left out stays", &[], Some("QuotaAsk"), &[(200, "TenantQuota"), (400, "Error")]),
    route((GET, "/api/v1/signing_key", From(Operator)), call!(tokens::signing_key),
        "The key by which receivers of your tenant check `Windlass-Signature`", &["tenant"], None, &[(200, "SigningKey"), (404, "Error")]),
    route((GET, "/api/v1/tokens", From(Admin)), call!(tokens::list),
        "Tokens in force, without what lets anyone in", &[], None, &[(200, "Tokens")]),
    route((POST, "/api/v1/tokens", From(Admin)), call!(tokens::create),
        "Make a token; it is shown in this answer and never again", &[], Some("TokenAsk"), &[(201, "NewToken"), (400, "Error")]),
    route((POST, "/api/v1/tokens/{prefix}/rotate", From(Admin)), call!(tokens::rotate),
        "Make another token for the holder of this one, which ends after a grace", &[], Some("RotateAsk"), &[(201, "NewToken"), (404, "Error"), (409, "Error")]),
    route((DELETE, "/api/v1/tokens/{prefix}", From(Admin)), call!(tokens::revoke),
        "Refuse a token from now on, also on open connections", &[], None, &[(200, "TokenGone"), (404, "Error"), (409, "Error")]),
    route((POST, "/api/v1/import", From(Admin)), call!(import::import),
        "Take over jobs that were made elsewhere, as they stand there", &[], Some("Import"), &[(200, "Pushed"), (400, "Error")]).with_body(NO_OWN_BOUND),
    route((GET, "/metrics", From(Viewer)), call!(metrics::metrics),
        "Figures for Prometheus; all tenants for an admin", &["tenant"], None, &[(200, "Text")]),
    route((GET, "/api/openapi.json", Public), call!(openapi::document),
        "This description", &[], None, &[(200, "Document")]),
    route((GET, "/healthz", Public), call!(probes::healthz),
        "Whether the server is alive", &[], None, &[(200, "Text")]),
    route((GET, "/readyz", Public), call!(probes::readyz),
        "Whether the server can keep what it acknowledges", &[], None, &[(200, "Text"), (503, "Error")]),
    route((GET, "/", Public), call!(probes::root),
        "Sends a browser to the web UI; says OK to everything else", &[], None, &[(200, "Text"), (302, "Text")]),
];
