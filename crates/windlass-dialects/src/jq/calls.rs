//! The calls: parse the request, call the engine, write the response.

use super::errors::{JqError, no_content};
use super::notes::WorkerNote;
use super::tenant_dispatcher::{self, TenantDispatcher, token_of, worker_of};
use super::wire::{self, Place};
use super::worker_connection::{self, WorkerConnection};
use super::{Dispatchers, QUEUE, USUAL_PORT, commands, views};
use crate::answer::respond;
use crate::auth::Role;
use crate::codec::{self, Encoding, Out};
use crate::listener::Peer;
use crate::route::Call;
use ::http::{HeaderName, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use std::sync::Arc;
use windlass_core::event::CancelRunning;
use windlass_core::limits::Limit;
use windlass_core::{Event, Holder, Job, JobId, Tenant, Token};
use windlass_engine::{JobEvent, Pushed, VerbError, Waited};

pub(super) type Answer = Result<Response, JqError>;

/// Header with the id of the calling worker.
const WORKER_ID: HeaderName = HeaderName::from_static("worker-id");

fn reply_encoding(call: &Call) -> Encoding {
    call.reply_encoding(Encoding::Msgpack)
}

/// Encoding of the body: MessagePack without a `Content-Type`.
fn body_encoding(call: &Call) -> Result<Encoding, JqError> {
    match call.body_encoding() {
        Ok(encoding) => Ok(encoding.unwrap_or(Encoding::Msgpack)),
        Err(wrong) if wrong.is_empty => Ok(Encoding::Msgpack),
        Err(_) => Err(JqError::wrong_type()),
    }
}

async fn body(call: &mut Call) -> Result<(Encoding, Bytes), JqError> {
    Ok((body_encoding(call)?, call.read_body().await?))
}

fn answer(status: StatusCode, out: Out) -> Response {
    let encoding = out.encoding();
    respond(status, encoding, out.into_bytes())
}

fn one_text(call: &Call, status: StatusCode, key: &str, text: &str) -> Response {
    let mut out = Out::new(reply_encoding(call), 64);
    out.begin_map();
    out.key(key);
    out.str(text);
    out.end_map();
    answer(status, out)
}

// --- jobs
// ----------------------------------------------------------------------------------------------------------

pub(super) async fn push(mut call: Call) -> Answer {
    let (encoding, body) = body(&mut call).await?;
    let asked = wire::job(encoding, &body)?;
    let push = commands::push(&asked, &call.server.state::<Dispatchers>().settings)?;
    let pushed = call.engine.push(&call.caller.tenant, vec![push]).await?.pop();
    // A push without idempotency key, alias and parent is never refused as a duplicate.
    let id = pushed.and_then(Pushed::id).ok_or_else(JqError::no_such_job)?;
    Ok(one_text(&call, StatusCode::CREATED, "job_id", &id.to_string()))
}

pub(super) async fn get(call: Call) -> Answer {
    let id = asked_id(&call)?;
    let job = find(&call, id).await?;
    let job = if job.state().is_settled() { read_result(&call, job).await? } else { job };
    show(&call, &job).await
}

pub(super) async fn polling(call: Call) -> Answer {
    let timeout_s = match call.query_value("timeout") {
        None => wire::POLL_S_DEFAULT,
        Some(text) => text
            .parse::<u64>()
            .map_err(|_| JqError::bad_request("`timeout` must be a whole number of seconds"))?
            .min(wire::POLL_S_MAX),
    };
    let id = asked_id(&call)?;
    let job = find(&call, id).await?;
    let waited = tokio::select! {
        biased;
        waited = call.engine.wait_settled(&call.caller.tenant, id, timeout_s * 1_000) => waited?,
        () = call.wait_until_ended() => Waited::NotYet(job),
    };
    match waited {
        Waited::Settled(job) => show(&call, &*read_result(&call, job).await?).await,
        Waited::NotYet(_) => {
            let message = format!("the job is not finished after {timeout_s} s; poll again");
            Err(JqError::coded(StatusCode::REQUEST_TIMEOUT, "not_ended", message))
        }
        Waited::Unknown => Err(JqError::no_such_job()),
    }
}

pub(super) async fn delete(call: Call) -> Answer {
    let id = asked_id(&call)?;
    find(&call, id).await?;
    let cancel = Event::Cancel { running: CancelRunning::Refuse, failed_too: false };
    let mut answers = call.engine.apply(&call.caller.tenant, vec![id], cancel).await?;
    answers.pop().unwrap_or(Err(VerbError::NotFound))?;
    Ok(no_content())
}

fn asked_id(call: &Call) -> Result<JobId, JqError> {
    wire::job_id(call.param(0)).ok_or_else(JqError::no_such_job)
}

/// Finds a job of the queue `jq`. States that JQ does not have count as not found.
async fn find(call: &Call, id: JobId) -> Result<Arc<Job>, JqError> {
    let job = call.engine.get_one(&call.caller.tenant, id).await?;
    job.filter(|job| job.spec.queue.as_str() == QUEUE && views::status(job).is_some())
        .ok_or_else(JqError::no_such_job)
}

/// Returns the job with its result, and removes the result, unless the caller peeks or has no worker role.
async fn read_result(call: &Call, job: Arc<Job>) -> Result<Arc<Job>, JqError> {
    let peeks = call.query().any(|(key, value)| key == "peek" && value == "true");
    if peeks || call.caller.role < Role::Worker || job.result().is_none() {
        return Ok(job);
    }
    let taken = call.engine.take_result(&call.caller.tenant, job.id).await?;
    // A job deleted at its end is still returned by the wait.
    Ok(taken.unwrap_or(job))
}

async fn show(call: &Call, job: &Job) -> Answer {
    let status = views::status(job).ok_or_else(JqError::no_such_job)?;
    let held_by = call.engine.held_by(job).await?;
    let mut out = Out::new(reply_encoding(call), 512);
    let around = views::Around { held_by: held_by.as_ref(), hides_payloads: call.hides_payloads() };
    views::job(&mut out, job, status, &around);
    Ok(answer(StatusCode::OK, out))
}

// --- workers -------------------------------------------------------------------------------------------------------

pub(super) async fn register(mut call: Call) -> Answer {
    let (encoding, body) = body(&mut call).await?;
    let asked = wire::worker(encoding, &body)?;
    // A worker gets jobs of every name in the queue.
    call.engine.check_queue(&tenant_dispatcher::queue())?;
    let dispatchers = call.server.state::<Dispatchers>();
    let url = match asked.place {
        Place::Url(url) => url,
        Place::Port(port) => at_peer(&call, port)?,
        Place::Usual => at_peer(&call, USUAL_PORT)?,
    };
    let target = worker_connection::parse_url(&url).map_err(JqError::bad_request)?;
    let allowed = dispatchers.settings.addresses.clone();
    worker_connection::check(&target, &allowed).await.map_err(JqError::bad_request)?;
    let id = super::new_id("w-")
        .map_err(|e| JqError::coded(StatusCode::SERVICE_UNAVAILABLE, "no_chance", e.to_string()))?;
    let tenant = call.caller.tenant.clone();
    let server = dispatchers.server.clone();
    let note =
        WorkerNote { name: asked.name, url, max_jobs: asked.max_jobs, pings: false, leaving: false, server };
    // Stored before the worker gets a job, so that its reports are accepted after a restart and at other
    // servers.
    dispatchers.notes.put(&tenant, &id, &note).await?;
    let connection =
        Arc::new(WorkerConnection::new(&id, target, allowed, dispatchers.signer.as_ref(), &tenant));
    dispatchers.dispatcher_for(&tenant).register(id.clone(), asked.max_jobs, connection, false);
    tracing::info!(worker = %id, name = note.name, url = note.url, "worker registered");
    Ok(one_text(&call, StatusCode::CREATED, "worker_id", &id))
}

fn at_peer(call: &Call, port: u16) -> Result<String, JqError> {
    let peer = call.parts.extensions.get::<Peer>().map(|peer| peer.0.ip().to_canonical());
    match peer {
        Some(std::net::IpAddr::V4(ip)) => Ok(format!("http://{ip}:{port}")),
        Some(std::net::IpAddr::V6(ip)) => Ok(format!("http://[{ip}]:{port}")),
        None => Err(JqError::bad_request("`url` is required: the address of the client is unknown")),
    }
}

/// Worker of the header, and its dispatcher. `None`: another server on the same store sends jobs to it.
async fn worker(call: &Call) -> Result<(String, Option<Arc<TenantDispatcher>>), JqError> {
    call.engine.check_queue(&tenant_dispatcher::queue())?;
    let id = call
        .headers()
        .get(WORKER_ID)
        .ok_or_else(|| JqError::bad_request("the header worker-id is missing"))?;
    let id = id.to_str().map_err(|_| JqError::no_such_worker())?.to_owned();
    let (dispatchers, tenant) = (call.server.state::<Dispatchers>(), &call.caller.tenant);
    if let Some(dispatcher) = dispatchers.dispatcher_of(tenant, &id) {
        return Ok((id, Some(dispatcher)));
    }
    if dispatchers.is_served_elsewhere(tenant, &id).await? {
        Ok((id, None))
    } else {
        Err(JqError::no_such_worker())
    }
}

pub(super) async fn unregister(call: Call) -> Answer {
    let (id, dispatcher) = worker(&call).await?;
    let (dispatchers, tenant) = (call.server.state::<Dispatchers>(), &call.caller.tenant);
    let is_gone = if drains(&call)? {
        // Stored first, so that the worker gets no jobs after a restart either.
        let is_written = dispatchers.notes.change(tenant, &id, |note| note.leaving = true).await?;
        match dispatcher {
            Some(dispatcher) => dispatcher.leaving(&id).await,
            None => is_written,
        }
    } else {
        dispatchers.remove_worker(tenant, &id, "the worker unregistered").await?
    };
    if is_gone { Ok(no_content()) } else { Err(JqError::no_such_worker()) }
}

/// Parses `drain`: the worker finishes its running jobs before it is removed.
fn drains(call: &Call) -> Result<bool, JqError> {
    match call.query_value("drain").as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(JqError::bad_request("`drain` must be true or false")),
    }
}

pub(super) async fn ping(call: Call) -> Answer {
    let (id, dispatcher) = worker(&call).await?;
    let (engine, tenant) = (&call.engine, &call.caller.tenant);
    let is_news = match dispatcher {
        // From the first ping on a missing heartbeat removes the worker, also after a restart.
        Some(dispatcher) => dispatcher.pinged(&id, engine.now()).ok_or_else(JqError::no_such_worker)?,
        None => true,
    };
    if is_news {
        call.server.state::<Dispatchers>().notes.put_ping(tenant, &id, engine.now()).await?;
    }
    Ok(no_content())
}

pub(super) async fn done(mut call: Call) -> Answer {
    let (encoding, body) = body(&mut call).await?;
    let (worker, dispatcher) = worker(&call).await?;
    let done = wire::done(encoding, &body)?;
    let id = done.job_id.ok_or_else(JqError::no_such_job)?;
    let (outcome, retry) = commands::done(&done, &worker)?;
    let tenant = &call.caller.tenant;
    let Some(token) = their_token(&call, dispatcher.as_deref(), id, &worker, done.attempt).await? else {
        return late(&call, tenant, id, &worker).await;
    };
    let by = Holder::Token(token);
    let event = match retry {
        None => Event::finish(by, outcome),
        Some(retry) => Event::fail(by, outcome, retry),
    };
    match call.engine.settle(tenant, vec![JobEvent { id, event }]).await?.pop() {
        Some(Ok(_)) => Ok(no_content()),
        Some(Err(error @ VerbError::ReportTooLarge { .. })) => Err(error.into()),
        Some(Err(VerbError::NotFound | VerbError::Refused(_))) | None => {
            late(&call, tenant, id, &worker).await
        }
    }
}

/// Lease token of the worker's job, from this server's table or from the stored job. `None`: the job or the
/// attempt is not the worker's.
async fn their_token(
    call: &Call,
    dispatcher: Option<&TenantDispatcher>,
    id: JobId,
    worker: &str,
    attempt: Option<u32>,
) -> Result<Option<Token>, JqError> {
    let is_meant = |present: u32| attempt.is_none_or(|attempt| attempt == present);
    let held = dispatcher.and_then(|dispatcher| dispatcher.table().held(id).cloned());
    if let Some(held) = held.filter(|held| *held.worker == *worker) {
        return Ok(is_meant(held.attempt).then_some(held.token));
    }
    let job = call.engine.get_one(&call.caller.tenant, id).await?;
    let job = job.filter(|job| job.spec.queue.as_str() == QUEUE).ok_or_else(JqError::no_such_job)?;
    let is_theirs = worker_of(&job).is_some_and(|theirs| **theirs == *worker);
    Ok(token_of(&job).filter(|_| is_theirs && is_meant(job.progress.attempts)))
}

/// Handles a report on an attempt that is over: a repeated report of the same worker, or a late one.
async fn late(call: &Call, tenant: &Tenant, id: JobId, worker: &str) -> Answer {
    let job = call.engine.get_one(tenant, id).await?.ok_or_else(JqError::no_such_job)?;
    let outcome = job.body.as_ref().and_then(|body| body.outcome.as_ref());
    let is_repeated = outcome.is_some_and(|outcome| {
        outcome.worker.as_deref() == Some(worker) && outcome.code.as_deref() != Some("lease_ended")
    });
    if is_repeated { Ok(no_content()) } else { Err(JqError::not_yours()) }
}

// --- constraints ---------------------------------------------------------------------------------------------------

pub(super) async fn put_constraint(mut call: Call) -> Answer {
    let (encoding, body) = body(&mut call).await?;
    let value: serde_json::Value = codec::read(encoding, &body)?;
    let limit = Limit::parse(call.param(0), &value)?;
    call.engine.set_limit(&call.caller.tenant, limit).await?;
    show_constraint(&call).await
}

pub(super) async fn get_constraint(call: Call) -> Answer {
    show_constraint(&call).await
}

async fn show_constraint(call: &Call) -> Answer {
    let limits = call.engine.limits(&call.caller.tenant).await?;
    let found = limits.iter().find(|view| *view.limit.id == *call.param(0));
    let view = found.ok_or_else(JqError::no_such_constraint)?;
    let mut out = Out::new(reply_encoding(call), 256);
    views::constraint(&mut out, &view.limit, view.running);
    Ok(answer(StatusCode::OK, out))
}

pub(super) async fn constraints(call: Call) -> Answer {
    let limits = call.engine.limits(&call.caller.tenant).await?;
    let mut out = Out::new(reply_encoding(&call), 256);
    out.begin_map();
    out.key("constraints");
    out.begin_array();
    limits.iter().for_each(|view| views::constraint(&mut out, &view.limit, view.running));
    out.end_array();
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

pub(super) async fn delete_constraint(call: Call) -> Answer {
    match call.engine.remove_limit(&call.caller.tenant, call.param(0)).await? {
        true => Ok(no_content()),
        false => Err(JqError::no_such_constraint()),
    }
}
