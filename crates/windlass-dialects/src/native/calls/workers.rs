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

/// Leases read for the list of workers, to bound the list and the time it takes.
const LEASES_MAX: usize = 5_000;
/// Jobs listed per worker.
const HELD_NAMED_MAX: usize = 20;
/// Workers.
#[derive(Serialize, JsonSchema)]
pub(super) struct Workers<'a> {
    /// Workers that hold jobs, by tenant and name.
    workers: Vec<WorkerView<'a>>,
    /// True if there are more leases than were read.
    more: bool,
    /// Registered workers, to which jobs are pushed.
    registered: Vec<Registered<'a>>,
    /// Workers with waiting claims, by the name they sent.
    waiting: Vec<Waiting<'a>>,
    /// Number of waiting claims on the whole server.
    waiting_claims: Option<usize>,
}

/// Worker that holds jobs.
#[derive(Serialize, JsonSchema)]
struct WorkerView<'a> {
    /// Name, as the worker sent it; workers without a name are listed as one.
    worker: Option<&'a str>,
    /// Tenant whose jobs it works on.
    tenant: &'a str,
    /// Dialect that created its jobs.
    origin: &'a str,
    /// Number of jobs it holds.
    holds: u64,
    /// Start of its oldest lease.
    since: Time,
    /// Time of its last claim, heartbeat or report on these jobs.
    last_sign: Time,
    /// Newest jobs it holds.
    jobs: Vec<HeldJob<'a>>,
}

/// Job held by a worker.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct HeldJob<'a> {
    /// Id of the job.
    id: Id,
    /// Kind of job.
    name: &'a str,
    /// Expiry of the lease without a heartbeat.
    until: Option<Time>,
}

/// Registered worker, with or without jobs.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Registered<'a> {
    /// Id, which is also the holder in the leases of its jobs.
    worker: &'a str,
    /// Tenant whose jobs it works on.
    tenant: &'a str,
    /// Dialect by which it registered.
    dialect: &'static str,
    /// Network address.
    address: Option<&'a str>,
    /// Number of jobs it runs concurrently.
    slots: u32,
    /// Number of jobs it holds.
    running: u32,
    /// True if it gets no more jobs.
    quiet: bool,
    /// True if it is defined in the configuration.
    fixed: bool,
    /// Time of its last heartbeat that was not about a job.
    last_sign: Option<Time>,
}

/// Worker that waits for jobs.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Waiting<'a> {
    /// Name, as the worker sent it.
    worker: &'a str,
    /// Tenant whose jobs it works on.
    tenant: &'a str,
    /// Number of its waiting claims.
    claims: usize,
}

/// Result of an action on a worker.
#[derive(Serialize, JsonSchema)]
pub(super) struct WorkerIs<'a> {
    /// Id of the worker.
    worker: &'a str,
    /// New state.
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
    // A caller with a restricted scope sees no registered or waiting workers: the jobs they would get may be
    // outside its scope.
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
    let message = "no registered worker of this name; workers that claim jobs themselves cannot be controlled \
         from here";
    ApiError::not_found(message)
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
    let filter = Filter {
        tenant: tenant.cloned(),
        states: vec![StateName::Running],
        limit: PAGE_MAX,
        ..Filter::default()
    };
    let mut seen = 0;
    let mut pages = engine.pages(filter);
    while let Some(jobs) = pages.next().await? {
        seen += jobs.len();
        for job in jobs {
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
        if seen >= LEASES_MAX {
            break;
        }
    }
    Ok((workers, pages.has_more()))
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
