//! `GET /api/v1/workers`, and `POST …/{worker}/quiet`, `…/wake`, `…/dismiss`.

use crate::native::errors::ApiError;
use crate::native::reply::{Answer, ok, reply};
use crate::native::request::{one_tenant, seen_tenant};
use crate::native::views::origin;
use crate::native::wire::{Id, PAGE_MAX, Time};
use crate::query::Filter;
use crate::registered_workers::RegisteredWorker;
use crate::route::Call;
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::{Job, StateName, Tenant, Timestamp};
use windlass_engine::Engine;

/// Leases looked at for the list of workers. More would be a long list for people and a long look for the server.
const LEASES_MAX: usize = 5_000;
/// Jobs named per worker.
const HELD_NAMED_MAX: usize = 20;
/// Who holds jobs now.
#[derive(Serialize, JsonSchema)]
pub(super) struct Workers<'a> {
    /// By tenant and name.
    workers: Vec<WorkerView<'a>>,
    /// There are more leases than were looked at.
    more: bool,
    /// Workers that jobs are pushed to.
    registered: Vec<Registered<'a>>,
    /// Workers whose claims wait, by the name they gave.
    waiting: Vec<Waiting<'a>>,
    /// Claims that wait for jobs, on the whole server.
    waiting_claims: Option<usize>,
}

/// A worker, by the jobs it holds.
#[derive(Serialize, JsonSchema)]
struct WorkerView<'a> {
    /// As it named itself; those that did not are one.
    worker: Option<&'a str>,
    /// Whose jobs it works on.
    tenant: &'a str,
    /// The dialect its jobs came by.
    origin: &'a str,
    /// How many jobs it holds.
    holds: u64,
    /// When it was given the oldest of them.
    since: Time,
    /// Its last claim, heartbeat or report on one of them.
    last_sign: Time,
    /// The newest of them.
    jobs: Vec<HeldJob<'a>>,
}

/// A job it holds.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct HeldJob<'a> {
    /// The job.
    id: Id,
    /// Its kind.
    name: &'a str,
    /// When its lease ends without a heartbeat.
    until: Option<Time>,
}

/// A worker that has registered, with or without jobs.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Registered<'a> {
    /// Its id: what its jobs name as their holder.
    worker: &'a str,
    /// Whose jobs it works on.
    tenant: &'a str,
    /// What it registered by.
    dialect: &'static str,
    /// Where it is reached.
    address: Option<&'a str>,
    /// Jobs it takes at once.
    slots: u32,
    /// Jobs it has.
    running: u32,
    /// It is given no more jobs.
    quiet: bool,
    /// It stands in the configuration.
    fixed: bool,
    /// Its last word beside its jobs.
    last_sign: Option<Time>,
}

/// A worker that waits for jobs.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Waiting<'a> {
    /// As it named itself.
    worker: &'a str,
    /// Whose jobs it works on.
    tenant: &'a str,
    /// How many claims of its wait.
    claims: usize,
}

/// What became of a worker.
#[derive(Serialize, JsonSchema)]
pub(super) struct WorkerIs<'a> {
    /// Its id.
    worker: &'a str,
    /// What it is now.
    state: WorkerWord,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum WorkerWord {
    Active,
    Quiet,
    Gone,
}

pub(super) async fn workers(call: Call) -> Answer {
    let tenant = seen_tenant(&call)?;
    let engine = &call.engine;
    // Which jobs they would be given is not known to a caller who reaches only some.
    let are_shown = engine.check_all().is_ok();
    let is_shown = |whose: &Tenant| are_shown && tenant.as_ref().is_none_or(|tenant| tenant == whose);
    let (holders, more) = holders(engine, tenant.as_ref()).await?;
    let members: Vec<RegisteredWorker> =
        call.server.running().flat_map(|(_, running)| running.workers()).collect();
    let members = members.iter().filter(|member| is_shown(&member.tenant)).take(PAGE_MAX);
    let waiting = engine.waiting_workers();
    let waiting = waiting.iter().filter(|((whose, _), _)| is_shown(whose)).take(PAGE_MAX);
    let answer = Workers {
        workers: holders.iter().map(WorkerView::new).collect(),
        more,
        registered: members.map(Registered::new).collect(),
        waiting: waiting
            .map(|((tenant, worker), claims)| Waiting { worker, tenant, claims: *claims })
            .collect(),
        waiting_claims: tenant.is_none().then(|| engine.waiters()),
    };
    reply(&call, StatusCode::OK, 64 + holders.len() * 160, &answer)
}

impl<'a> Registered<'a> {
    fn new(member: &'a RegisteredWorker) -> Registered<'a> {
        Registered {
            worker: &member.id,
            tenant: &member.tenant,
            dialect: member.dialect,
            address: member.address.as_deref(),
            slots: member.slots,
            running: member.running,
            quiet: member.is_quiet,
            fixed: member.is_fixed,
            last_sign: member.last_sign.map(Time::from),
        }
    }
}

pub(super) async fn quiet(call: Call) -> Answer {
    set_quiet(call, true)
}

pub(super) async fn wake(call: Call) -> Answer {
    set_quiet(call, false)
}

fn set_quiet(call: Call, quiet: bool) -> Answer {
    let tenant = one_tenant(&call)?;
    call.engine.check_all()?;
    let worker = call.param(0);
    if !call.server.running().any(|(_, running)| running.set_quiet(&tenant, worker, quiet)) {
        return Err(not_registered());
    }
    ok(&call, &WorkerIs { worker, state: if quiet { WorkerWord::Quiet } else { WorkerWord::Active } })
}

pub(super) async fn dismiss(call: Call) -> Answer {
    let (tenant, worker) = (one_tenant(&call)?, call.param(0));
    call.engine.check_all()?;
    for (_, running) in call.server.running() {
        if running.dismiss(&tenant, worker, &call.caller.who).await {
            return ok(&call, &WorkerIs { worker, state: WorkerWord::Gone });
        }
    }
    Err(not_registered())
}

fn not_registered() -> ApiError {
    let message =
        "no worker of this name has registered; one that asks for jobs by itself is stopped where it runs";
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
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
            let hand = (job.spec.tenant.clone(), lease.worker.clone(), origin(&job).to_owned());
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

impl<'a> WorkerView<'a> {
    fn new(((tenant, worker, origin), held): (&'a Hand, &'a Held)) -> WorkerView<'a> {
        let until = |job: &Job| job.state().lease().and_then(|lease| lease.until).map(Time::from);
        let jobs = held.jobs.iter();
        WorkerView {
            worker: worker.as_deref(),
            tenant,
            origin,
            holds: held.count,
            since: held.since.into(),
            last_sign: held.last_sign.into(),
            jobs: jobs
                .map(|job| HeldJob { id: Id(job.id), name: &job.spec.name, until: until(job) })
                .collect(),
        }
    }
}
