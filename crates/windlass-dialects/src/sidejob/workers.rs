//! Calls of workers: register, claim, finish, heartbeat. Also locks, which keep workers from a job.

use super::calls::{Answer, CommonFields, ask_of, job_id, run_op, run_with_others};
use super::errors::{Problem, json};
use super::family::find;
use super::ports::{check_run, end_iteration};
use super::registry::Classes;
use super::runs;
use super::state_of;
use super::tx::{self, Op, Reply, Stop, Tx};
use super::wire::{Ask, OF_ANY_CALL, Write};
use super::{log, views};
use crate::listener::TakenBody;
use crate::route::Call;
use ::http::StatusCode;
use axum::body::Body;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::event::{Patch, RetryWish};
use windlass_core::{Event, Holder, Job, JobId, NameMatch, Outcome, Queue, Tenant, Timestamp, Token};
use windlass_engine::{Claim, Delivery, Extend, JobEvent};

/// Longest wait of a claim; proxies and clients time out around then.
const WAIT_MS_MAX: i64 = 300_000;
/// Delay before a locked job is claimed again.
const LOCKED_RETRY_MS: i64 = 1_000;
/// Attempts to take a lock, with a random pause of up to [`LOCK_PAUSE_MS`] between them.
const LOCK_TRIES: usize = 3;
const LOCK_PAUSE_MS: f64 = 200.0;
/// Longest lock, lease or extension; a longer need renews it.
const TTL_MS_MAX: i64 = 24 * 3_600_000;
/// Fact with the token of the lock and its expiry.
const LOCK: &str = "sidejob.lock";

pub(super) async fn register(mut call: Call) -> Answer {
    let tenant = call.tenant()?;
    let queue = Queue::new(call.param(0))?;
    let body = call.read_body().await?;
    if body.trim_ascii().is_empty() {
        let message = "Missing classes: send all classes of the queue; {} unregisters all";
        return Err(Problem::new(StatusCode::BAD_REQUEST, message));
    }
    let classes = Classes::read(&body)?;
    call.engine.check_queue(&queue)?;
    state_of(&call.server).registry.register(&call.engine, &tenant, &queue, classes).await?;
    Ok(json("null"))
}

pub(super) async fn registered(call: Call) -> Answer {
    let tenant = call.tenant()?;
    call.engine.check_queue(&Queue::new(call.param(0))?)?;
    let queues = state_of(&call.server).registry.queues(&call.engine, &tenant).await?;
    Ok(json(queues.queue(call.param(0)).map_or_else(|| "{}".to_owned(), |classes| classes.text.clone())))
}

/// Claims one run; `{}`: there is none.
pub(super) async fn claim(mut call: Call) -> Answer {
    let tenant = call.tenant()?;
    let queue = Queue::new(call.param(0))?;
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    ask.only(&["wait", "worker", "lease", "classes"], OF_ANY_CALL)?;
    let lease_ms = positive(&ask, "lease")?;
    let wait_ms = ask.seconds("wait")?.unwrap_or(0).clamp(0, WAIT_MS_MAX);
    let names = match ask.texts("classes")? {
        None => NameMatch::Any,
        Some(classes) => NameMatch::OneOf(classes.into_iter().map(Box::from).collect()),
    };
    let worker = ask.text("worker")?.map(Arc::from);
    let engine = &call.engine;
    let until = engine.now().plus_ms(wait_ms);
    loop {
        let wait_ms = until.since_ms(engine.now()).unsigned_abs();
        let claim = Claim {
            tenant: tenant.clone(),
            queues: vec![queue.clone()],
            names: names.clone(),
            priority: None,
            limit: 1,
            wait_ms,
            lease_ms,
            worker: worker.clone(),
        };
        let delivery = tokio::select! {
            biased;
            delivery = engine.claim(claim) => delivery?,
            () = call.wait_until_ended() => return Ok(json("{}")),
        };
        let Some(job) = delivery.jobs.first().cloned() else { return Ok(json("{}")) };
        if lock_of(&job, engine.now()).is_some() {
            put_off(&call, &tenant, &job).await?;
            drop(delivery.accept());
            continue;
        }
        if job.runs_too_often() {
            log_of_rapid_runs(&call, &tenant, &job).await?;
        }
        // The lease belongs to the worker once the response is read; otherwise it is released.
        let bytes = Bytes::from(views::run(&job));
        let body = Body::new(TakenBody::new(bytes, delivery, |delivery: Delivery| drop(delivery.accept())));
        return Ok(json(body));
    }
}

/// Releases the claim of a locked job and retries it later.
async fn put_off(call: &Call, tenant: &Tenant, job: &Job) -> Result<(), Problem> {
    let Some(lease) = job.state().lease() else { return Ok(()) };
    let run_at = call.engine.now().plus_ms(LOCKED_RETRY_MS);
    let event = Event::Release { by: Holder::Token(lease.token), run_at, counts: false };
    let entry = JobEvent { id: job.id, event };
    call.engine.settle(tenant, vec![entry]).await?;
    Ok(())
}

async fn log_of_rapid_runs(call: &Call, tenant: &Tenant, job: &Job) -> Result<(), Problem> {
    let context = vec![("job".to_owned(), job.id.to_string())];
    let error = ("error", "\"Job was terminated due to being called too rapidly\"");
    let entry = log::entry(&context, call.engine.now(), &[error]);
    state_of(&call.server).log.append(&call.engine, tenant, &[entry]).await
}

#[derive(Clone, Copy)]
enum End {
    Completed,
    Suspended,
    Failed,
    GivenBack,
}

/// Ends a run.
pub(super) async fn finish(mut call: Call) -> Answer {
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let mut also = CommonFields::beside(&["token", "status", "error", "backtrace", "writes"], &ask)?;
    let token = ask.token()?.ok_or_else(|| Problem::refused("Missing token"))?;
    let end = match ask.text("status")?.as_deref() {
        Some("completed") | None => End::Completed,
        Some("suspended") => End::Suspended,
        Some("failed") => End::Failed,
        Some("queued") => End::GivenBack,
        Some(other) => {
            let names = "completed, suspended, failed, or queued to release it";
            return Err(Problem::refused(format!("Invalid status: {other}; use {names}")));
        }
    };
    let writes = ask.writes("writes")?;
    if matches!(end, End::Failed | End::GivenBack) && !writes.is_empty() {
        return Err(Problem::refused(
            "writes are not allowed with this status: only a completed or suspended run may write",
        ));
    }
    let others: Vec<JobId> = writes.iter().filter_map(|write| write.to.job).collect();
    let error = ask.text("error")?.unwrap_or_default();
    let backtrace = ask.text("backtrace")?;
    also.in_run_of(id);
    let op: Op = Box::new(move |tx| {
        let (_, by) = check_run(tx, id, &token)?;
        let ran = match end {
            End::Completed | End::Suspended => end_iteration(tx, id, &writes, &also.context)?,
            End::Failed | End::GivenBack => runs::Ran::default(),
        };
        if let End::Failed = end {
            log_failure(tx, &also, &error, backtrace.as_deref());
        }
        let parent = match end {
            End::GivenBack => None,
            End::Completed | End::Suspended | End::Failed => runs::parent_to_end(tx, id)?,
        };
        let settled = tx.apply(id, event(end, by, &error, tx.now()))?;
        settled.map_err(|_| Problem::stale(id))?;
        if let Some(parent) = parent {
            runs::abandon(tx, &parent)?;
        }
        let reply = runs::status_reply(tx, id)?.with_error(ran.trouble);
        also.then_run(tx, id, reply)
    });
    run_with_others(&call, &tenant, id, others, op).await
}

fn event(end: End, by: Holder, error: &str, now: Timestamp) -> Event {
    match end {
        End::Completed => Event::finish(by, Outcome::default()),
        End::Suspended => Event::suspend(by),
        End::Failed => {
            let outcome = Outcome { message: Some(error.to_owned()), ..Outcome::default() };
            Event::fail(by, outcome, RetryWish::Never)
        }
        End::GivenBack => Event::Release { by, run_at: now, counts: false },
    }
}

fn log_failure(tx: &mut Tx<'_, '_>, also: &CommonFields, error: &str, backtrace: Option<&str>) {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let (error, backtrace) = (quoted(error), backtrace.map(quoted));
    let mut own = vec![("error", error.as_str())];
    own.extend(backtrace.as_deref().map(|text| ("backtrace", text)));
    let entry = log::entry(&also.context, tx.now(), &own);
    tx.log(entry);
}

/// Reads one value from each of several inports; ends the previous iteration.
pub(super) async fn for_inputs(mut call: Call) -> Answer {
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let mut also = CommonFields::beside(&["inports", "token", "writes"], &ask)?;
    let names = ask.texts("inports")?.ok_or_else(|| Problem::refused("Missing inports"))?;
    let (token, writes) = (ask.token()?, ask.writes("writes")?);
    let others: Vec<JobId> = writes.iter().filter_map(|write| write.to.job).collect();
    if token.is_some() {
        also.in_run_of(id);
    }
    let op: Op = Box::new(move |tx| {
        if let Some(token) = &token {
            check_run(tx, id, token)?;
        }
        let ran = end_iteration_of(tx, id, token.is_some(), &writes, &also)?;
        let reply = super::ports::for_inputs(tx, id, &names, token.is_some(), &also.context)?;
        also.then_run(tx, id, reply.with_error(ran.trouble))
    });
    run_with_others(&call, &tenant, id, others, op).await
}

/// Ends the previous iteration. Without a token there is no run, so no inputs were handed out.
fn end_iteration_of(
    tx: &mut Tx<'_, '_>,
    id: JobId,
    in_run: bool,
    writes: &[Write],
    also: &CommonFields,
) -> Result<runs::Ran, Stop> {
    if !in_run && writes.is_empty() {
        return Ok(runs::Ran::default());
    }
    end_iteration(tx, id, writes, &also.context)
}

// --- locks ---------------------------------------------------------------------------------------------

/// Token of the lock, if it has not expired.
fn lock_of(job: &Job, now: Timestamp) -> Option<&str> {
    let (token, until) = job.spec.fact(LOCK)?.split_once(' ')?;
    (Timestamp::from_millis(until.parse().ok()?) > now).then_some(token)
}

fn set_lock(tx: &mut Tx<'_, '_>, id: JobId, lock: Option<(&str, i64)>) -> Result<(), Stop> {
    let until = |ttl_ms| tx.now().plus_ms(ttl_ms).as_millis();
    let fact = lock.map(|(token, ttl_ms)| Arc::from(format!("{token} {}", until(ttl_ms))));
    let patch = Patch { facts: vec![(LOCK.into(), fact)], ..Patch::default() };
    tx.apply(id, Event::Update(Box::new(patch)))?.map_err(|refused| Problem::refused(refused.to_string()))?;
    Ok(())
}

/// Parses a positive number of seconds into milliseconds.
fn positive(ask: &Ask<'_>, key: &str) -> Result<Option<i64>, Problem> {
    match ask.seconds(key)? {
        Some(ms) if ms <= 0 => Err(Problem::refused(format!("{key} must be a positive number of seconds"))),
        Some(ms) => Ok(Some(ms.min(TTL_MS_MAX))),
        None => Ok(None),
    }
}

fn ttl(ask: &Ask<'_>) -> Result<i64, Problem> {
    positive(ask, "ttl")?.ok_or_else(|| Problem::refused("Missing ttl"))
}

/// Takes the lock and responds with its token; null: the job is running, or another client holds the lock.
pub(super) async fn lock(mut call: Call) -> Answer {
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let also = CommonFields::beside(&["ttl"], &ask)?;
    let ttl_ms = ttl(&ask)?;
    let engine = &call.engine;
    let token = format!("{:016x}{:016x}", engine.random_u64(), engine.random_u64());
    for tries in 1..=LOCK_TRIES {
        let (token, mut also) = (token.clone(), also.clone());
        let op: Op = Box::new(move |tx| {
            let job = tx.job(id)?;
            if lock_of(&job, tx.now()).is_some() || job.state().lease().is_some() {
                return Ok(Reply::new("{\"token\":null}"));
            }
            set_lock(tx, id, Some((&token, ttl_ms)))?;
            also.then_run(tx, id, Reply::new(format!("{{\"token\":\"{token}\"}}")))
        });
        let reply = tx::run(&call, &tenant, id, Vec::new(), op).await?;
        if tries == LOCK_TRIES || !reply.text.ends_with("null}") {
            return super::calls::answered(reply);
        }
        // By the wall clock: the pause is between requests, not part of the job's timeline.
        tokio::time::sleep(Duration::from_millis((engine.random_fraction() * LOCK_PAUSE_MS) as u64)).await;
    }
    Ok(json("{\"token\":null}"))
}

/// Extends a lock, or the lease of a run, for the holder of the token: the heartbeat of a worker.
pub(super) async fn refresh_lock(mut call: Call) -> Answer {
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let mut also = CommonFields::beside(&["ttl", "token"], &ask)?;
    let ttl_ms = ttl(&ask)?;
    let token = ask.token()?.ok_or_else(|| Problem::refused("Missing token"))?;
    let job = find(&call.engine, &tenant, id).await?;
    if let (Some(_), Ok(number)) = (job.state().lease(), token.parse()) {
        let by = Holder::Token(Token::from_number(number));
        let entry = Extend { id, by, lease_ms: Some(ttl_ms) };
        let extended = call.engine.extend(&tenant, vec![entry]).await?.pop();
        let text = format!("{{\"refresh\":{}}}", matches!(extended, Some(Ok(_))));
        return also.run_at_last(&call, &tenant, id, text).await;
    }
    let op: Op = Box::new(move |tx| {
        let is_held = lock_of(&*tx.job(id)?, tx.now()) == Some(token.as_str());
        if is_held {
            set_lock(tx, id, Some((&token, ttl_ms)))?;
        }
        also.then_run(tx, id, Reply::new(format!("{{\"refresh\":{is_held}}}")))
    });
    run_op(&call, &tenant, id, op).await
}

pub(super) async fn unlock(mut call: Call) -> Answer {
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let mut also = CommonFields::beside(&["token"], &ask)?;
    let token = ask.token()?.ok_or_else(|| Problem::refused("Missing token"))?;
    let op: Op = Box::new(move |tx| {
        let is_held = lock_of(&*tx.job(id)?, tx.now()) == Some(token.as_str());
        if is_held {
            set_lock(tx, id, None)?;
        }
        also.then_run(tx, id, Reply::new(format!("{{\"unlock\":{is_held}}}")))
    });
    run_op(&call, &tenant, id, op).await
}
