//! The calls on jobs: parse the request, call the engine, write the response.

use super::State;
use super::commands::{self, QUEUE};
use super::errors::Problem;
use super::ids::Uuid;
use super::wire::{self, BadRequest};
use crate::answer::{JSON, TEXT, answer};
use crate::listener::TakenBody;
use crate::route::Call;
use ::http::{StatusCode, header};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use std::sync::Arc;
use windlass_core::state::JobState;
use windlass_core::{Event, Holder, Job, JobId, Tenant};
use windlass_engine::{Delivery, Extend, Pushed, Stop, Transaction, VerbError};

pub(super) type Answer = Result<Response, Problem>;

pub(super) async fn ping(_: Call) -> Answer {
    Ok(answer(StatusCode::OK, TEXT, "pong"))
}

pub(super) async fn create(mut call: Call) -> Answer {
    let tenant = call.tenant()?;
    let body = json_body(&mut call).await?;
    let ask = wire::create(&body)?;
    let engine = &call.engine;
    loop {
        let asked_at = engine.now();
        let uuid = Uuid::new(asked_at.as_millis(), [engine.random_u64(), engine.random_u64()]);
        let push = commands::push(&ask, uuid, &call.server.state::<State>().policy)?;
        match engine.push(&tenant, vec![push]).await?.pop() {
            Some(Pushed::New(id)) => {
                // A runner may have claimed or even completed the job already; the response shows the job as
                // created.
                let job = engine.get_one(&tenant, id).await?;
                let made_at = job.map_or(asked_at, |job| job.spec.created_at);
                return Ok(json(commands::new_job_view(&ask, uuid, made_at)));
            }
            // UUID collision: try another one.
            Some(Pushed::Existing(_)) => {}
            Some(Pushed::Refused(_)) | None => {
                return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the job was not created"));
            }
        }
    }
}

pub(super) async fn get(call: Call) -> Answer {
    let tenant = call.tenant()?;
    let id = job_id(&call)?;
    look(&call, &tenant).await?;
    let job = find(&call, &tenant, id).await?;
    let shown = commands::job_view(&job);
    Ok(json(if call.hides_payloads() { shown.without_addresses() } else { shown }))
}

pub(super) async fn claim(mut call: Call) -> Answer {
    let tenant = call.tenant()?;
    let body = json_body(&mut call).await?;
    let ask = wire::claim(&body)?;
    look(&call, &tenant).await?;
    let claim = commands::claim(tenant, ask.runner, &call.server.state::<State>().settings)?;
    let delivery = call.engine.claim(claim).await?;
    let Some(job) = delivery.jobs.first() else {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    };
    // The claim is final once the client has taken the response; otherwise the job is returned.
    let bytes = Bytes::from(serde_json::to_vec(&commands::job_view(job)).unwrap_or_default());
    let body = Body::new(TakenBody::new(bytes, delivery, |delivery: Delivery| drop(delivery.accept())));
    Ok(json_response(body))
}

pub(super) async fn tickle(mut call: Call) -> Answer {
    let tenant = call.tenant()?;
    let id = job_id(&call)?;
    let is_json = is_json(&call);
    let ask = wire::tickle(&call.read_body().await?, is_json)?;
    look(&call, &tenant).await?;
    let job = find(&call, &tenant, id).await?;
    let Some(lease) = job.state().lease() else { return Err(not_active(&job)) };
    check_holder(lease.worker.as_deref(), ask.runner)?;
    let lease_ms = Some(commands::lease_ms(&call.server.state::<State>().settings));
    // By its token, so that a lease granted since the read is not extended.
    let entry = Extend { id: job.id, by: Holder::Token(lease.token), lease_ms };
    match call.engine.extend(&tenant, vec![entry]).await?.pop() {
        Some(Ok(_)) => Ok(json(serde_json::Map::new())),
        Some(Err(VerbError::NotFound)) | None => Err(no_such_job()),
        Some(Err(_)) => Err(not_active(&job)),
    }
}

pub(super) async fn complete(mut call: Call) -> Answer {
    let tenant = call.tenant()?;
    let id = job_id(&call)?;
    let body = json_body(&mut call).await?;
    let ask = wire::complete(&body)?;
    let number = number_of(&call, &tenant, id).await?;
    let decide = |tx: &mut Transaction<'_>| {
        let job = tx.job(number)?.filter(|job| is_named(job, id)).ok_or_else(no_such_job)?;
        let (token, worker) = run_of(&call, &tenant, &job)?;
        check_holder(worker.as_deref(), ask.runner)?;
        let remembering = Event::Update(Box::new(commands::save_run(&job)));
        for event in [remembering, commands::end_event(&ask, Holder::Token(token), worker)] {
            tx.apply(number, event)?.map_err(|_| not_active(&job))?;
        }
        Ok::<_, Stop<Problem>>(tx.job(number)?)
    };
    // Not kept: there is nothing to show.
    let after = call.engine.transact(&tenant, vec![number], decide).await?;
    Ok(after.map_or_else(|| json(serde_json::Map::new()), |job| json(commands::job_view(&job))))
}

/// Lease token and runner of the run that a completion would end. An expired lease counts until the next get,
/// claim or tickle: in this protocol a completion alone does not detect an abandonment.
fn run_of(
    call: &Call,
    tenant: &Tenant,
    job: &Job,
) -> Result<(windlass_core::Token, Option<Arc<str>>), Problem> {
    match job.state() {
        JobState::Running(lease) => Ok((lease.token, lease.worker.clone())),
        JobState::Ready { lapsed: Some(token), .. }
            if !call.server.state::<State>().looks.checked_since(tenant, job.progress.updated_at) =>
        {
            Ok((*token, commands::outcome(job).and_then(|outcome| outcome.worker.clone())))
        }
        _ => Err(not_active(job)),
    }
}

/// Applies expired leases before the call is answered.
async fn look(call: &Call, tenant: &Tenant) -> Result<(), Problem> {
    let engine = &call.engine;
    let now = engine.now();
    engine.catch_up().await?;
    call.server.state::<State>().looks.record(tenant, now);
    Ok(())
}

/// Finds a job of this tenant in the queue of this dialect. Jobs in other queues are protected by lease
/// tokens, which this protocol does not have.
async fn find(call: &Call, tenant: &Tenant, id: Uuid) -> Result<Arc<Job>, Problem> {
    let number = number_of(call, tenant, id).await?;
    let job = call.engine.get_one(tenant, number).await?;
    job.filter(|job| is_named(job, id)).ok_or_else(no_such_job)
}

async fn number_of(call: &Call, tenant: &Tenant, id: Uuid) -> Result<JobId, Problem> {
    let number = match call.engine.find_alias(tenant, &id.to_string()).await? {
        Some(number) => Some(number),
        None => commands::job_number(id),
    };
    number.ok_or_else(no_such_job)
}

fn is_named(job: &Job, id: Uuid) -> bool {
    job.spec.queue.as_str() == QUEUE && commands::job_id(job) == id
}

fn check_holder(worker: Option<&str>, says: Option<Uuid>) -> Result<(), Problem> {
    match says {
        Some(runner) if worker.and_then(Uuid::parse) != Some(runner) => {
            Err(Problem::new(StatusCode::CONFLICT, "Job is held by another runner"))
        }
        _ => Ok(()),
    }
}

fn no_such_job() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "Job does not exist")
}

fn not_active(job: &Job) -> Problem {
    Problem::bad_request(format!("Job is not active: it is {}", commands::job_view(job).status))
}

fn job_id(call: &Call) -> Result<Uuid, Problem> {
    Uuid::parse(call.param(0)).ok_or_else(|| Problem::bad_request("the job id must be a UUID"))
}

fn is_json(call: &Call) -> bool {
    let content_type = call.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(wire::is_json)
}

async fn json_body(call: &mut Call) -> Result<Bytes, Problem> {
    if !is_json(call) {
        return Err(BadRequest::ContentType.into());
    }
    Ok(call.read_body().await?)
}

fn json(value: impl serde::Serialize) -> Response {
    json_response(Body::from(serde_json::to_vec(&value).unwrap_or_default()))
}

fn json_response(body: Body) -> Response {
    answer(StatusCode::OK, JSON, body)
}
