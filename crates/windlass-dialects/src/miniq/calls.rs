//! The calls: parse the request, write to the journal or read the store, write the response.

use super::commands::{self, QUEUE};
use super::errors::{Problem, json_response};
use super::{State, handlers, wire};
use crate::answer::{TEXT, answer};
use crate::query::Filter;
use crate::route::Call;
use ::http::{HeaderValue, StatusCode, header};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::{Job, JobId, Name, NameMatch, StateName, Tenant};
use windlass_engine::journal::ids;
use windlass_engine::{EngineError, Waited};

pub(super) type Answer = Result<Response, Problem>;

/// Age up to which a missing job is waited for: a job that was just added may not be in the store yet.
const FRESH_MS: i64 = 60_000;
/// Wait while this server's journal has lines that are not in the store.
const OUR_JOURNAL: Duration = Duration::from_secs(15);
/// Wait for a job that may be in another server's journal.
const ANOTHERS_JOURNAL: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Longest wait for a result in one call, in seconds.
const WAIT_S_MAX: u64 = 60;
const PAGE_DEFAULT: usize = 100;

// --- jobs
// ----------------------------------------------------------------------------------------------------------

pub(super) async fn add(call: Call) -> Answer {
    let (client, jobtype) = (call.param(0).to_owned(), call.param(1).to_owned());
    add_jobs(call, &client, &jobtype).await
}

/// Same as `add`, with client and job type in the query.
pub(super) async fn add_by_query(call: Call) -> Answer {
    let (client, jobtype) = (call.query_value("client"), call.query_value("jobtype"));
    add_jobs(call, &client.unwrap_or_default(), &jobtype.unwrap_or_default()).await
}

/// Refuses a path without client or type.
pub(super) async fn nameless(_: Call) -> Answer {
    Err(wire::BadLine::Jobtype(String::new()).into())
}

async fn add_jobs(mut call: Call, client: &str, jobtype: &str) -> Answer {
    let client = whose(&call, client)?;
    let (queue, jobtype) = (commands::queue(), wire::jobtype(jobtype)?);
    call.engine.check_reach(&queue, &jobtype)?;
    let now = call.engine.now();
    let run_at = wire::when(call.query_value("delay").as_deref(), call.query_value("dt").as_deref(), now)?;
    let body = call.read_body().await?;
    let payloads = wire::payloads(&body)?;
    let max = call.engine.options().payload_bytes_max;
    if let Some(large) = payloads.iter().find(|payload| payload.len() > max) {
        let message = format!("a line is {} bytes long; the maximum is {max}", large.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    let coming = payloads.iter().map(|payload| (&queue, &jobtype, payload.len()));
    call.engine.admit_jobs(&client, coming).await?;
    let ids = state(&call).add(&client, &jobtype, &payloads, run_at).await?;
    Ok(json_response(StatusCode::OK, &json!({"ok": true, "count": ids.len(), "ids": ids})))
}

pub(super) async fn get(call: Call) -> Answer {
    let job = find(&call).await?;
    Ok(json_response(StatusCode::OK, &Value::Object(commands::job_row(&job, call.hides_payloads()))))
}

/// Bytes of the result, once the job has one.
pub(super) async fn result(call: Call) -> Answer {
    let wait_s = match call.query_value("wait") {
        None => 0,
        Some(text) => text
            .parse::<u64>()
            .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "`wait` must be a whole number of seconds"))?
            .min(WAIT_S_MAX),
    };
    let mut job = find(&call).await?;
    if wait_s > 0 && !job.state().is_settled() {
        let client = job.spec.tenant.clone();
        let waited = tokio::select! {
            biased;
            waited = call.engine.wait_settled(&client, job.id, wait_s * 1_000) => waited?,
            () = call.wait_until_ended() => Waited::NotYet(Arc::clone(&job)),
        };
        job = match waited {
            Waited::Settled(job) | Waited::NotYet(job) => job,
            Waited::Unknown => return Err(no_such_job()),
        };
    }
    if !job.state().is_settled() {
        return Err(Problem::new(
            StatusCode::ACCEPTED,
            "the job is not finished; retry, or wait for it with ?wait=SECONDS",
        ));
    }
    if call.hides_payloads() {
        return Err(Problem::new(StatusCode::FORBIDDEN, "viewers may not see results on this server"));
    }
    let bytes = job.result().map(|result| Bytes::from_owner(Arc::clone(&result.bytes))).unwrap_or_default();
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Some((status, code, exitcode)) = commands::last_status(&job) {
        let exitcode = exitcode.unwrap_or(0).to_string();
        for (name, value) in
            [("x-status", status), ("x-code", code.as_str()), ("x-exitcode", exitcode.as_str())]
        {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
    }
    Ok(response)
}

/// Settled jobs of one type, newest first.
pub(super) async fn archive(call: Call) -> Answer {
    let (client, jobtype) = named(&call)?;
    let number = |key: &str| {
        let bad = || Problem::new(StatusCode::BAD_REQUEST, format!("`{key}` must be a whole number"));
        call.query_value(key).map(|text| text.parse::<u64>().map_err(|_| bad())).transpose()
    };
    let limit = number("limit")?.map_or(PAGE_DEFAULT, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let states = StateName::ALL.into_iter().filter(|state| state.is_settled()).collect();
    let filter = Filter {
        tenant: Some(client),
        states,
        queue: Some(commands::queue()),
        names: NameMatch::Exact(jobtype.as_str().into()),
        before: number("before")?.and_then(JobId::new),
        limit,
        ..Filter::default()
    };
    let page = call.engine.list(filter).await?;
    let hides = call.hides_payloads();
    let jobs: Vec<Map<String, Value>> = page.jobs.iter().map(|job| commands::job_row(job, hides)).collect();
    Ok(json_response(StatusCode::OK, &json!({"jobs": jobs, "next": page.next.map(JobId::get)})))
}

/// Types with jobs that can run now, and their number.
pub(super) async fn waiting(call: Call) -> Answer {
    let client = whose(&call, call.param(0))?;
    let waiting = call.engine.waiting(&commands::queue()).await?;
    let own = waiting.into_iter().filter(|one| one.tenant == client);
    let counts: Map<String, Value> = own.map(|one| (one.name.to_string(), one.ready.into())).collect();
    Ok(json_response(StatusCode::OK, &Value::Object(counts)))
}

// --- handlers ------------------------------------------------------------------------------------------------------

pub(super) async fn add_handler(mut call: Call) -> Answer {
    let (client, jobtype) = named(&call)?;
    let method = call.query_value("method");
    let body = call.read_body().await?;
    let handler = wire::handler(&body, method.as_deref())?;
    if let Some(next) = handler.next() {
        wire::jobtype(next)?;
    }
    let engine = &call.engine;
    let (types, max) = (handlers::types(engine, &client).await?, engine.quota(&client).handlers);
    if types.len() as u64 >= max && !types.iter().any(|known| **known == *jobtype) {
        return Err(EngineError::Quota { what: "handlers", max }.into());
    }
    let state = state(&call);
    let id = state.journal.make_ids(1, engine.now()).pop().unwrap_or_default();
    // Stored all the same: the missing interpreter may be installed later.
    let trouble = state.runners.as_ref().and_then(|runners| runners.check(&handler).err());
    handlers::add(engine, &client, &jobtype, &id, &handler).await?;
    state.again.notify_one();
    let mut answer = json!({"ok": true, "version": id});
    if let Some(trouble) = trouble {
        answer["warning"] = trouble.into();
    }
    Ok(json_response(StatusCode::OK, &answer))
}

pub(super) async fn get_handler(call: Call) -> Answer {
    let (client, jobtype) = named(&call)?;
    let newest = handlers::newest(&call.engine, &client, &jobtype, None).await?;
    let version = newest.ok_or_else(|| no_handler(&client, &jobtype))?;
    // A handler's text may reveal payloads, so it is hidden with them.
    let mut value = match call.hides_payloads() {
        true => json!({}),
        false => serde_json::to_value(&*version.handler).unwrap_or_default(),
    };
    value["version"] = version.id.into();
    let runners = state(&call).runners.as_ref();
    if let Some(trouble) = runners.and_then(|runners| runners.check(&version.handler).err()) {
        value["warning"] = trouble.into();
    }
    Ok(json_response(StatusCode::OK, &value))
}

pub(super) async fn delete_handler(call: Call) -> Answer {
    let (client, jobtype) = named(&call)?;
    match handlers::delete(&call.engine, &client, &jobtype).await? {
        0 => Err(no_handler(&client, &jobtype)),
        count => Ok(json_response(StatusCode::OK, &json!({"ok": true, "count": count}))),
    }
}

pub(super) async fn list_handlers(call: Call) -> Answer {
    let client = whose(&call, call.param(0))?;
    let mut types = handlers::types(&call.engine, &client).await?;
    types.retain(|jobtype| call.engine.reaches(QUEUE, jobtype));
    Ok(json_response(StatusCode::OK, &json!({"types": types})))
}

fn no_handler(client: &Tenant, jobtype: &Name) -> Problem {
    Problem::not_found(format!("no handler for {}", wire::full_type(client, jobtype)))
}

// --- operations ----------------------------------------------------------------------------------------------------

pub(super) async fn start(call: Call) -> Answer {
    state(&call).set_started(true);
    Ok(plain("Started.\n"))
}

pub(super) async fn stop(call: Call) -> Answer {
    state(&call).set_started(false);
    Ok(plain("Stopped.\n"))
}

pub(super) async fn quit(call: Call) -> Answer {
    tracing::info!("shutdown requested by /quit");
    call.server.quit.notify_one();
    Ok(plain("Quit.\n"))
}

fn plain(text: &'static str) -> Response {
    answer(StatusCode::OK, TEXT, text)
}

// --- shared helpers
// ------------------------------------------------------------------------------------------------

fn state(call: &Call) -> &State {
    call.server.state()
}

/// Client of the call: the caller's own tenant, or any tenant for an admin.
fn whose(call: &Call, client: &str) -> Result<Tenant, Problem> {
    let client = wire::client(client)?;
    Ok(call.caller.tenant_for(Some(&client))?)
}

fn named(call: &Call) -> Result<(Tenant, Name), Problem> {
    let (client, jobtype) = (whose(call, call.param(0))?, wire::jobtype(call.param(1))?);
    call.engine.check_reach(&commands::queue(), &jobtype)?;
    Ok((client, jobtype))
}

fn no_such_job() -> Problem {
    Problem::not_found("job not found")
}

/// Finds the job of the path. Waits a moment for a job that was just added and may not be in the store yet.
async fn find(call: &Call) -> Result<Arc<Job>, Problem> {
    let (client, jobtype) = named(call)?;
    let (engine, id) = (&call.engine, call.param(2));
    let is_fresh = ids::made_at_ms(id).is_some_and(|ms| engine.now().as_millis() - ms < FRESH_MS);
    let started = Instant::now();
    loop {
        let number = match engine.find_alias(&client, id).await? {
            Some(number) => Some(number),
            None => id.parse().ok().and_then(JobId::new),
        };
        let job = match number {
            Some(number) => engine.get_one(&client, number).await?,
            None => None,
        };
        // An alias may be known a moment before its job can be read.
        if job.is_some() {
            let is_it = |job: &Arc<Job>| {
                job.spec.queue.as_str() == QUEUE && job.spec.name == jobtype && commands::job_id(job) == id
            };
            return job.filter(is_it).ok_or_else(no_such_job);
        }
        let patience = match (is_fresh, call.server.journal.has_lines()) {
            (false, _) => Duration::ZERO,
            (true, true) => OUR_JOURNAL,
            (true, false) => ANOTHERS_JOURNAL,
        };
        if started.elapsed() >= patience {
            return Err(no_such_job());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
