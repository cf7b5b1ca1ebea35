//! JQ: MessagePack jobs that the server pushes to registered workers, with results and constraints. See
//! README.md.
//!
//! | file | holds |
//! |---|---|
//! | `routes.rs` | every call: method, path, role |
//! | `wire.rs` | parsing of request bodies |
//! | `commands.rs` | requests as engine commands |
//! | `calls.rs` | the calls |
//! | `views.rs` | jobs and constraints in responses, and the request to a worker |
//! | `errors.rs` | error responses |
//! | `workers.rs` | table of the workers: slots, refused names, running jobs |
//! | `tenant_dispatcher.rs`, `delivery.rs` | the workers of a tenant; claiming jobs and delivering them |
//! | `worker_connection.rs` | HTTP connections to one worker |
//! | `notes.rs`, `peers.rs` | stored registrations; several servers on one store |
//! | `openapi.rs`, `openapi.json` | OpenAPI document |

mod calls;
pub mod commands;
mod delivery;
pub mod errors;
mod notes;
pub mod openapi;
mod peers;
pub mod routes;
mod tenant_dispatcher;
pub mod views;
pub mod wire;
mod worker_connection;
mod workers;

use crate::codec::Encoding;
use crate::dialect::{Context, Dialect, Running, Soon, StartError, Starting};
use crate::registered_workers::RegisteredWorker;
use crate::route::{Refusal, Route};
use crate::settings::{BadConfig, DialectSettings, Key, SECONDS, ValueKind, Values, whole};
use axum::response::Response;
use notes::{Noted, Notes, WorkerNote};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tenant_dispatcher::{DISPATCHER_NAME, TenantDispatcher};
use tokio::sync::watch;
use windlass_core::{Event, Holder, Job, Tenant};
use windlass_engine::{Engine, EngineError, JobEvent};
use windlass_http::{Allowed, Signer, Target};
use worker_connection::{WorkerConnection, parse_url};
use workers::WorkerId;

/// Queue of all JQ jobs.
pub const QUEUE: &str = "jq";
const ORIGIN: &str = "jq";
/// Port of a worker that registers with neither URL nor port.
const USUAL_PORT: u16 = 6401;
/// Time a stop waits for jobs in delivery: slightly longer than the time a worker has to answer.
const DELIVERY_WAIT_MAX: Duration = Duration::from_secs(6);

/// Age at which a lease of `jq dispatcher` on a shared store counts as abandoned. Assigning a worker takes
/// milliseconds; a slower dispatcher loses the lease and does not send the job.
const UNSENT_MS: i64 = 3_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jq;

impl Dialect for Jq {
    fn name(&self) -> &'static str {
        "jq"
    }

    fn routes(&self) -> &'static [Route] {
        routes::ROUTES
    }

    fn refuse(&self, refusal: &Refusal) -> Response {
        errors::JqError::from(refusal).response(Encoding::Msgpack)
    }

    fn settings(&self) -> &'static [Key] {
        KEYS
    }

    fn configure(&self, values: &Values, settings: &mut DialectSettings) -> Result<(), BadConfig> {
        settings.put(Settings::from_values(values)?);
        Ok(())
    }

    fn start(&self, context: Context) -> Starting<'static> {
        Box::pin(async move { Ok(Dispatchers::start(context).await? as Arc<dyn Running>) })
    }
}

const KEYS: &[Key] = &[
    Key::new(
        "jq.backoff_base_ms",
        whole(0, 86_400_000),
        "1000",
        "delay before the first retry of a JQ job; it doubles with each retry",
    ),
    Key::new("jq.backoff_cap_s", SECONDS, "3600", "maximum delay between two attempts of a JQ job"),
    Key::new("jq.result_ttl_s", SECONDS, "3600", "how long the result of a JQ job is kept"),
    Key::new("jq.record_ttl_s", SECONDS, "604800", "how long a finished JQ job is kept"),
    Key::new(
        "jq.worker_addresses",
        ValueKind::List,
        "",
        "addresses to which the server may send JQ jobs: loopback, private, any, IP addresses, CIDR \
         blocks; default: loopback, also private if the server listens on a non-loopback address, \
         and none if tokens are configured",
    ),
    Key::new(
        "jq.workers",
        ValueKind::List,
        "",
        "JQ workers that do not have to register, each as NAME URL MAX_JOBS",
    ),
];

#[derive(Clone, Debug)]
pub struct Settings {
    pub backoff_base_ms: i64,
    pub backoff_cap_ms: i64,
    pub result_ttl_ms: i64,
    pub record_ttl_ms: i64,
    /// Addresses that registered workers may have.
    pub addresses: Arc<Allowed>,
    /// Workers from the configuration.
    pub workers: Vec<FixedWorker>,
}

impl Settings {
    fn from_values(values: &Values) -> Result<Settings, BadConfig> {
        let workers = values.list("jq.workers");
        let workers = workers.iter().map(|text| FixedWorker::parse(text)).collect::<Result<_, _>>();
        Ok(Settings {
            backoff_base_ms: values.whole("jq.backoff_base_ms"),
            backoff_cap_ms: values.seconds_ms("jq.backoff_cap_s"),
            result_ttl_ms: values.seconds_ms("jq.result_ttl_s"),
            record_ttl_ms: values.seconds_ms("jq.record_ttl_s"),
            addresses: Arc::new(values.allowed("jq.worker_addresses")?),
            workers: workers.map_err(|why| values.bad("jq.workers", why))?,
        })
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            backoff_base_ms: 1_000,
            backoff_cap_ms: 3_600_000,
            result_ttl_ms: 3_600_000,
            record_ttl_ms: 7 * 86_400_000,
            addresses: Arc::new(Allowed::default_for(true)),
            workers: Vec::new(),
        }
    }
}

/// Worker from the configuration, of the tenant `default`. Its id is its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWorker {
    pub name: String,
    pub url: String,
    pub max_jobs: u32,
}

impl FixedWorker {
    /// Parses `NAME URL MAX_JOBS`, separated by blanks.
    pub fn parse(text: &str) -> Result<FixedWorker, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [name, url, max_jobs] = words[..] else {
            return Err(format!("{text:?} is not a worker; expected NAME URL MAX_JOBS"));
        };
        parse_url(url).map_err(|why| format!("{text:?}: {why}"))?;
        let most = wire::MAX_JOBS_MAX;
        let number = max_jobs.parse().ok().filter(|number| (1..=most).contains(&i64::from(*number)));
        let max_jobs = number.ok_or_else(|| {
            format!("{text:?}: MAX_JOBS is {max_jobs:?} and must be a whole number from 1 to {most}")
        })?;
        Ok(FixedWorker { name: name.to_owned(), url: url.to_owned(), max_jobs })
    }
}

fn new_id(prefix: &str) -> Result<Arc<str>, getrandom::Error> {
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random)?;
    Ok(random
        .iter()
        .fold(String::from(prefix), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
        .into())
}

/// Worker to which this server starts sending jobs.
struct WorkerToAdd {
    tenant: Tenant,
    id: WorkerId,
    target: Target,
    max_jobs: u32,
    is_fixed: bool,
    pings: bool,
    is_leaving: bool,
}

impl WorkerToAdd {
    fn from_note(noted: &Noted, has_pinged: bool) -> Option<WorkerToAdd> {
        let WorkerNote { max_jobs, pings, leaving, .. } = noted.note;
        Some(WorkerToAdd {
            tenant: noted.tenant.clone(),
            id: noted.id.clone(),
            target: parse_url(&noted.note.url).ok()?,
            max_jobs,
            is_fixed: false,
            pings: pings || has_pinged,
            is_leaving: leaving,
        })
    }

    fn fixed(worker: &FixedWorker) -> Option<WorkerToAdd> {
        Some(WorkerToAdd {
            tenant: Tenant::default(),
            id: worker.name.as_str().into(),
            target: parse_url(&worker.url).ok()?,
            max_jobs: worker.max_jobs,
            is_fixed: true,
            pings: false,
            is_leaving: false,
        })
    }
}

/// Dispatchers of all tenants that have workers.
struct Dispatchers {
    engine: Engine,
    notes: Notes,
    settings: Settings,
    /// Signs the requests to workers.
    signer: Option<Signer>,
    /// Id of this server on a shared store; `None` on a store of its own.
    server: Option<String>,
    dispatchers: Mutex<HashMap<Tenant, Arc<TenantDispatcher>>>,
    stop: watch::Sender<bool>,
}

impl Dispatchers {
    /// Starts with the registered workers and their running jobs.
    async fn start(context: Context) -> Result<Arc<Dispatchers>, StartError> {
        let Context { engine, signer, .. } = context;
        let mut settings: Settings = context.settings.get();
        settings.addresses.while_open(context.tokens.open_check());
        if context.store_is_away {
            // Adding these workers would read their running jobs from the store.
            settings.workers.clear();
        }
        let notes = Notes::new(engine.clone());
        let server = if engine.is_shared() {
            let me =
                new_id("s-").map_err(|error| StartError(format!("cannot read random numbers: {error}")))?;
            // Written before this server owns a worker, so that no other server takes the worker over. A
            // store that is out of reach has no workers either; the first poll writes the heartbeat again.
            if let Err(error) = notes.put_sign(&me, 1).await {
                tracing::debug!(%error, "cannot register this server in the store yet");
            }
            Some(me.to_string())
        } else {
            None
        };
        let (dispatchers, stop) = (Mutex::default(), watch::Sender::new(false));
        let this = Arc::new(Dispatchers { engine, notes, settings, signer, server, dispatchers, stop });
        if this.server.is_some() {
            tokio::spawn(peers::follow(Arc::downgrade(&this), this.stop.subscribe()));
        } else {
            let pings = this.notes.pings().await?;
            let noted = this.notes.all().await?.into_iter().filter_map(|noted| {
                WorkerToAdd::from_note(&noted, pings.contains_key(&(noted.tenant.clone(), noted.id.clone())))
            });
            let fixed = this.settings.workers.iter().filter_map(WorkerToAdd::fixed);
            this.add_workers(fixed.chain(noted).collect()).await?;
        }
        Ok(this)
    }

    /// Dispatcher that sends jobs to this worker, if this server does.
    fn dispatcher_of(&self, tenant: &Tenant, worker: &str) -> Option<Arc<TenantDispatcher>> {
        self.dispatcher(tenant).filter(|dispatcher| dispatcher.table().knows(worker))
    }

    /// True if another server sends jobs to this worker.
    async fn is_served_elsewhere(&self, tenant: &Tenant, id: &str) -> Result<bool, EngineError> {
        if self.server.is_none() {
            return Ok(false);
        }
        if self.notes.find(tenant, id).await?.is_some() {
            return Ok(true);
        }
        Ok(*tenant == Tenant::default() && self.notes.fixed().await?.contains_key(id))
    }

    /// Removes a worker and fails its jobs, whichever server sends to it. Returns false if the worker is
    /// unknown.
    async fn remove_worker(&self, tenant: &Tenant, id: &str, why: &str) -> Result<bool, EngineError> {
        let served = self.dispatcher_of(tenant, id);
        let is_noted = self.server.is_some() && self.notes.find(tenant, id).await?.is_some();
        if served.is_some() || is_noted {
            self.notes.forget(tenant, id).await?;
        }
        match served {
            Some(dispatcher) => Ok(dispatcher.dismiss(id, why).await),
            None if is_noted => self.dispatcher_for(tenant).fail_all_of(id, why).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Stops claiming; jobs in delivery arrive or are returned. Other servers may take over the workers.
    async fn leave(&self) {
        self.stop.send_replace(true);
        for dispatcher in self.all_dispatchers() {
            let _ = tokio::time::timeout(DELIVERY_WAIT_MAX, dispatcher.drained()).await;
        }
        if let Some(server) = &self.server
            && let Err(error) = self.notes.forget_server(server).await
        {
            tracing::debug!(%error, "cannot unregister this server; other servers take over its workers later");
        }
    }

    fn dispatcher(&self, tenant: &Tenant) -> Option<Arc<TenantDispatcher>> {
        self.dispatchers().get(tenant).cloned()
    }

    fn dispatcher_for(&self, tenant: &Tenant) -> Arc<TenantDispatcher> {
        let open = || {
            TenantDispatcher::open(
                tenant.clone(),
                self.engine.clone(),
                self.server.clone(),
                self.stop.subscribe(),
            )
        };
        Arc::clone(self.dispatchers().entry(tenant.clone()).or_insert_with(open))
    }

    fn all_dispatchers(&self) -> Vec<Arc<TenantDispatcher>> {
        self.dispatchers().values().cloned().collect()
    }

    fn dispatchers(&self) -> MutexGuard<'_, HashMap<Tenant, Arc<TenantDispatcher>>> {
        self.dispatchers.lock()
    }

    /// Registered workers to which this server sends jobs.
    fn served_workers(&self) -> Vec<(Tenant, WorkerId)> {
        let of = |dispatcher: &Arc<TenantDispatcher>| -> Vec<(Tenant, WorkerId)> {
            let table = dispatcher.table();
            let registered = table.roster().filter(|worker| !worker.is_fixed);
            registered.map(|worker| (dispatcher.tenant.clone(), worker.id.clone())).collect()
        };
        self.all_dispatchers().iter().flat_map(of).collect()
    }

    /// Loads the running jobs of the workers before it registers them, so that no worker exceeds `max_jobs`.
    async fn add_workers(&self, newcomers: Vec<WorkerToAdd>) -> Result<(), EngineError> {
        let running = tenant_dispatcher::running(&self.engine, None).await?;
        self.return_undelivered(&running).await?;
        let mut by_tenant: BTreeMap<Tenant, Vec<WorkerToAdd>> = BTreeMap::new();
        for newcomer in newcomers {
            by_tenant.entry(newcomer.tenant.clone()).or_default().push(newcomer);
        }
        for (tenant, newcomers) in by_tenant {
            let dispatcher = self.dispatcher_for(&tenant);
            let is_new = |newcomer: &&WorkerToAdd| !dispatcher.table().knows(&newcomer.id);
            let ids = newcomers.iter().filter(is_new).map(|newcomer| newcomer.id.clone()).collect();
            let jobs: Vec<_> = running.iter().filter(|job| job.spec.tenant == tenant).cloned().collect();
            dispatcher.adopt(&jobs, &ids).await?;
            for WorkerToAdd { id, target, max_jobs, is_fixed, pings, is_leaving, .. } in newcomers {
                // The operator named this worker in the configuration, so any address is allowed.
                let allowed =
                    if is_fixed { Arc::new(Allowed::any()) } else { self.settings.addresses.clone() };
                let signer = self.signer.as_ref();
                let connection = Arc::new(WorkerConnection::new(&id, target, allowed, signer, &tenant));
                dispatcher.register(id.clone(), max_jobs, connection, is_fixed);
                if pings {
                    dispatcher.pinged(&id, self.engine.now());
                }
                if is_leaving {
                    // After its jobs are loaded: a draining worker without jobs is removed.
                    dispatcher.leaving(&id).await;
                }
            }
        }
        Ok(())
    }

    /// Returns jobs that a server had claimed but not sent when it ended.
    async fn return_undelivered(&self, running: &[Arc<Job>]) -> Result<(), EngineError> {
        let now = self.engine.now();
        let is_stuck = |job: &&Arc<Job>| {
            let lease = job.state().lease().filter(|lease| lease.worker.as_deref() == Some(DISPATCHER_NAME));
            lease.is_some_and(|lease| self.server.is_none() || now.since_ms(lease.granted_at) >= UNSENT_MS)
        };
        for job in running.iter().filter(is_stuck) {
            let Some(token) = tenant_dispatcher::token_of(job) else { continue };
            let back = JobEvent { id: job.id, event: Event::Return { by: Holder::Token(token) } };
            // A refusal means that the claiming server is alive.
            self.engine.settle(&job.spec.tenant, vec![back]).await?;
        }
        Ok(())
    }
}

impl Running for Dispatchers {
    fn stop(&self, _grace: Duration) -> Soon<'_, ()> {
        Box::pin(self.leave())
    }

    fn workers(&self) -> Vec<RegisteredWorker> {
        let mut workers = Vec::new();
        for dispatcher in self.all_dispatchers() {
            workers.extend(dispatcher.table().roster().map(|worker| RegisteredWorker {
                dialect: ORIGIN,
                tenant: dispatcher.tenant.clone(),
                id: worker.id.clone(),
                address: Some(worker.connection.address()),
                slots: worker.max_jobs,
                running: worker.running,
                is_quiet: worker.is_quiet,
                last_sign: worker.pinged_at,
                is_fixed: worker.is_fixed,
            }));
        }
        workers
    }

    fn set_quiet(&self, tenant: &Tenant, id: &str, quiet: bool) -> bool {
        self.dispatcher(tenant).is_some_and(|dispatcher| dispatcher.set_quiet(id, quiet))
    }

    fn dismiss<'a>(&'a self, tenant: &'a Tenant, id: &'a str, who: &'a str) -> Soon<'a, bool> {
        Box::pin(async move {
            let let_go = self.remove_worker(tenant, id, &format!("{who} removed it")).await;
            let_go.unwrap_or_else(|error| {
                tracing::warn!(%error, worker = id, "cannot remove a worker");
                false
            })
        })
    }
}
