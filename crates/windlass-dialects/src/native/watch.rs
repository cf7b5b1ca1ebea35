//! The calls of someone who looks on: who am I, who works, what repeats, what was.

use super::calls::{Answer, answer, param, params, reply_encoding};
use super::errors::ApiError;
use super::views;
use super::wire::PAGE_MAX;
use crate::codec::Out;
use crate::query::Filter;
use crate::route::Call;
use crate::staff::Staff;
use ::http::StatusCode;
use axum::response::Response;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::repeat::Moments;
use windlass_core::{Job, StateName, Tenant, Timestamp};
use windlass_engine::Engine;

/// Leases looked at for the list of workers. More would be a long list for people and a long look for the server.
const LEASES_MAX: usize = 5_000;
/// Jobs named per worker.
const HELD_NAMED_MAX: usize = 20;
/// Runs that are foretold per repeating job.
const RUNS_FORETOLD: usize = 10;

pub async fn me(call: Call) -> Answer {
    params(&call, &[])?;
    let mut out = Out::new(reply_encoding(&call), 128);
    out.begin_map();
    for (key, text) in [
        ("tenant", call.caller.tenant.as_str()),
        ("role", call.caller.role.as_str()),
        ("version", call.server.version),
    ] {
        out.key(key);
        out.str(text);
    }
    out.key("open");
    out.bool(call.server.tokens.is_open());
    out.key("payloads");
    out.bool(!call.hides_payloads());
    let listed = call.caller.token.as_ref().and_then(|prefix| call.server.tokens.get(prefix));
    super::tokens::queues(&mut out, listed.as_ref().map_or(&[], |listed| &listed.record.queues));
    out.key("doors");
    out.begin_map();
    for (dialect, address) in &call.server.doors {
        out.key(dialect);
        out.str(&address.to_string());
    }
    out.end_map();
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

/// Who holds jobs now, who has registered to be given some, and who waits for some.
pub async fn workers(call: Call) -> Answer {
    let params = params(&call, &["tenant"])?;
    let tenant = call.caller.tenants_for(param(&params, "tenant"))?;
    let engine = &call.engine;
    let (workers, more) = holders(engine, tenant.as_ref()).await?;
    let mut out = Out::new(reply_encoding(&call), 64 + workers.len() * 160);
    out.begin_map();
    out.key("workers");
    out.begin_array();
    for ((tenant, worker, origin), held) in &workers {
        held.write(&mut out, tenant, worker.as_deref(), origin);
    }
    out.end_array();
    out.key("more");
    out.bool(more);
    // Which jobs they would be given is not known.
    let are_shown = engine.check_all().is_ok();
    write_registered(&mut out, &call, tenant.as_ref(), are_shown);
    write_waiting(&mut out, engine, tenant.as_ref(), are_shown);
    if tenant.is_none() {
        out.key("waiting_claims");
        out.uint(engine.waiters() as u64);
    }
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

/// Workers that a dialect pushes jobs to, with or without jobs.
fn write_registered(out: &mut Out, call: &Call, tenant: Option<&Tenant>, are_shown: bool) {
    out.key("registered");
    out.begin_array();
    let members = call.server.staffs().into_iter().flat_map(Staff::members).filter(|_| are_shown);
    for member in members.filter(|member| tenant.is_none_or(|tenant| *tenant == member.tenant)).take(PAGE_MAX)
    {
        out.begin_map();
        for (key, text) in [("worker", &*member.id), ("tenant", &*member.tenant), ("dialect", member.dialect)]
        {
            out.key(key);
            out.str(text);
        }
        out.opt_str("address", member.address.as_deref());
        out.key("slots");
        out.uint(member.slots.into());
        out.key("running");
        out.uint(member.running.into());
        out.key("quiet");
        out.bool(member.is_quiet);
        out.key("fixed");
        out.bool(member.is_fixed);
        out.opt_int("last_sign", member.last_sign.map(Timestamp::as_millis));
        out.end_map();
    }
    out.end_array();
}

/// Workers whose claims wait, by the name they gave.
fn write_waiting(out: &mut Out, engine: &Engine, tenant: Option<&Tenant>, are_shown: bool) {
    out.key("waiting");
    out.begin_array();
    for ((whose, worker), claims) in engine.waiting_workers().iter().filter(|_| are_shown).take(PAGE_MAX) {
        if tenant.is_some_and(|tenant| tenant != whose) {
            continue;
        }
        out.begin_map();
        out.key("worker");
        out.str(worker);
        out.key("tenant");
        out.str(whose);
        out.key("claims");
        out.uint(*claims as u64);
        out.end_map();
    }
    out.end_array();
}

pub async fn quiet_worker(call: Call) -> Answer {
    set_quiet(call, true)
}

pub async fn wake_worker(call: Call) -> Answer {
    set_quiet(call, false)
}

fn set_quiet(call: Call, quiet: bool) -> Answer {
    let params = params(&call, &["tenant"])?;
    let tenant = call.caller.tenant_for(param(&params, "tenant"))?;
    call.engine.check_all()?;
    let worker = call.param(0);
    if !call.server.staffs().into_iter().any(|staff| staff.set_quiet(&tenant, worker, quiet)) {
        return Err(not_registered());
    }
    Ok(worker_is(&call, worker, if quiet { "quiet" } else { "active" }))
}

pub async fn dismiss_worker(call: Call) -> Answer {
    let params = params(&call, &["tenant"])?;
    let tenant = call.caller.tenant_for(param(&params, "tenant"))?;
    call.engine.check_all()?;
    for staff in call.server.staffs() {
        if staff.dismiss(&tenant, call.param(0), &call.caller.who).await {
            return Ok(worker_is(&call, call.param(0), "gone"));
        }
    }
    Err(not_registered())
}

fn not_registered() -> ApiError {
    let message =
        "no worker of this name has registered; one that asks for jobs by itself is stopped where it runs";
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

fn worker_is(call: &Call, worker: &str, state: &str) -> Response {
    let mut out = Out::new(reply_encoding(call), 64);
    out.begin_map();
    out.key("worker");
    out.str(worker);
    out.key("state");
    out.str(state);
    out.end_map();
    answer(StatusCode::OK, out)
}

type Hand = (Tenant, Option<Arc<str>>, String);

#[derive(Default)]
struct Held {
    jobs: Vec<Arc<Job>>,
    count: u64,
    since: Timestamp,
    last_sign: Timestamp,
}

async fn holders(engine: &Engine, tenant: Option<&Tenant>) -> Result<(BTreeMap<Hand, Held>, bool), ApiError> {
    let mut workers: BTreeMap<Hand, Held> = BTreeMap::new();
    let mut filter = Filter {
        tenant: tenant.cloned(),
        states: vec![StateName::Running],
        limit: PAGE_MAX,
        ..Filter::default()
    };
    let mut seen = 0;
    loop {
        let page = engine.list(filter.clone()).await?;
        seen += page.jobs.len();
        for job in page.jobs {
            let Some(lease) = job.state().lease() else { continue };
            let hand = (job.spec.tenant.clone(), lease.worker.clone(), views::origin(&job).to_owned());
            let (granted, sign) = (lease.granted_at, job.progress.updated_at.max(lease.granted_at));
            let held = workers.entry(hand).or_default();
            held.since = if held.count == 0 { granted } else { held.since.min(granted) };
            held.last_sign = held.last_sign.max(sign);
            held.count += 1;
            if held.jobs.len() < HELD_NAMED_MAX {
                held.jobs.push(job);
            }
        }
        filter.before = page.next;
        if filter.before.is_none() || seen >= LEASES_MAX {
            return Ok((workers, filter.before.is_some()));
        }
    }
}

impl Held {
    fn write(&self, out: &mut Out, tenant: &Tenant, worker: Option<&str>, origin: &str) {
        out.begin_map();
        out.opt_str("worker", worker);
        out.key("tenant");
        out.str(tenant);
        out.key("origin");
        out.str(origin);
        out.key("holds");
        out.uint(self.count);
        out.key("since");
        out.int(self.since.calendar_ms());
        out.key("last_sign");
        out.int(self.last_sign.calendar_ms());
        out.key("jobs");
        out.begin_array();
        for job in &self.jobs {
            out.begin_map();
            out.key("id");
            out.uint(job.id.get());
            out.key("name");
            out.str(&job.spec.name);
            out.opt_int("until", job.state().lease().and_then(|lease| lease.until).map(Timestamp::as_millis));
            out.end_map();
        }
        out.end_array();
        out.end_map();
    }
}

/// Jobs with a repeat rule that have not ended, and when each runs next.
pub async fn schedules(call: Call) -> Answer {
    let params = params(&call, &["tenant", "limit", "cursor"])?;
    let filter = Filter {
        tenant: call.caller.tenants_for(param(&params, "tenant"))?,
        repeating: true,
        before: super::calls::cursor(&params)?,
        limit: super::calls::page_limit(&params)?,
        ..Filter::default()
    };
    let engine = &call.engine;
    let (page, now) = (engine.list(filter).await?, engine.now());
    let mut out = Out::new(reply_encoding(&call), 32 + page.jobs.len() * 2 * views::JOB_BYTES_GUESS);
    out.begin_map();
    out.key("jobs");
    out.begin_array();
    for job in &page.jobs {
        out.begin_map();
        views::job_fields(&mut out, job, None, call.hides_payloads());
        next_runs(&mut out, job, now);
        out.end_map();
    }
    out.end_array();
    super::calls::write_next(&mut out, page.next);
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

/// If each run begins on time and takes none. Not for a job that will not run again.
pub(super) fn next_runs(out: &mut Out, job: &Job, now: Timestamp) {
    let Some(repeat) = job.spec.policy.repeat.as_ref().filter(|_| !job.state().is_settled()) else { return };
    let mut runs = Vec::new();
    let waiting = job.state().claimable_at();
    runs.extend(waiting);
    let began = waiting.unwrap_or(job.progress.due_at);
    let moments = Moments { scheduled: began, started: Some(began.max(now)), finished: began.max(now) };
    runs.extend(repeat.upcoming(&moments, RUNS_FORETOLD - runs.len()));
    out.key("next_runs");
    out.begin_array();
    runs.into_iter().for_each(|run| out.int(run.calendar_ms()));
    out.end_array();
}
