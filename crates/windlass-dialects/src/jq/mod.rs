//! JQ: MessagePack jobs that the server pushes to registered workers, with kept results and constraints. See README.md.
//!
//! | file | holds |
//! |---|---|
//! | `routes.rs` | every call: method, path, role |
//! | `wire.rs` | bytes to what is asked |
//! | `commands.rs` | what is asked, in the engine's words |
//! | `calls.rs` | the calls |
//! | `views.rs` | how jobs and constraints look, and what a worker is sent |
//! | `errors.rs` | the one shape of all errors |
//! | `workers.rs` | who has registered, what each is given and refuses: a plain table |
//! | `dispatcher.rs`, `line.rs` | takes jobs and pushes them; the connections to one worker |
//! | `openapi.rs`, `openapi.json` | the API's description |

mod calls;
pub mod commands;
mod dispatcher;
pub mod errors;
mod line;
pub mod openapi;
pub mod routes;
pub mod views;
pub mod wire;
mod workers;

use crate::Dialect;
use crate::codec::Encoding;
use crate::outgoing::Allowed;
use crate::route::{Refusal, Route};
use crate::signature::Signer;
use crate::staff::{Dismissing, Member, Staff};
use axum::response::Response;
use dispatcher::Yard;
use line::{Line, Target};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use windlass_core::Tenant;
use windlass_engine::{Engine, EngineError};

/// Where JQ's jobs are.
pub const QUEUE: &str = "jq";
const ORIGIN: &str = "jq";
/// Where a worker listens that does not say.
const USUAL_PORT: u16 = 6401;
/// How long a stop waits for jobs on their way: a little longer than a worker may take to answer.
const FAREWELL: Duration = Duration::from_secs(6);

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
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub backoff_base_ms: i64,
    pub backoff_cap_ms: i64,
    pub result_ttl_ms: i64,
    pub record_ttl_ms: i64,
    /// What may be called.
    pub addresses: Arc<Allowed>,
    /// Workers that need not register.
    pub workers: Vec<FixedWorker>,
    /// Signs what workers are sent.
    pub signer: Option<Signer>,
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
            signer: None,
        }
    }
}

/// A worker from the configuration, of the tenant `default`. Its id is its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWorker {
    pub name: String,
    pub url: String,
    pub max_jobs: u32,
}

impl FixedWorker {
    /// `NAME URL MAX_JOBS`, with blanks in between.
    pub fn parse(text: &str) -> Result<FixedWorker, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [name, url, max_jobs] = words[..] else {
            return Err(format!("{text:?} is not a worker; write it as NAME URL MAX_JOBS"));
        };
        Target::parse(url)?;
        let max_jobs =
            max_jobs.parse().ok().filter(|max_jobs| (1..=wire::MAX_JOBS_MAX).contains(&i64::from(*max_jobs)));
        let max_jobs = max_jobs.ok_or_else(|| format!("{text:?}: MAX_JOBS must be a positive number"))?;
        Ok(FixedWorker { name: name.to_owned(), url: url.to_owned(), max_jobs })
    }
}

/// What is written down of a worker, to be known after a restart.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct WorkerNote {
    name: String,
    url: String,
    max_jobs: u32,
    pings: bool,
    /// Ends what it has, and gets nothing more.
    #[serde(default)]
    leaving: bool,
}

const NOTES: &str = "jq/worker/";

fn note_key(tenant: &Tenant, worker: &str) -> String {
    format!("{NOTES}{tenant}/{worker}")
}

fn new_worker_id() -> Result<Arc<str>, getrandom::Error> {
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random)?;
    Ok(random
        .iter()
        .fold(String::from("w-"), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
        .into())
}

/// Who pushes jobs to workers: a yard per tenant that has some.
pub struct Master {
    engine: Engine,
    settings: Arc<Settings>,
    yards: Mutex<HashMap<Tenant, Arc<Yard>>>,
    stop: watch::Sender<bool>,
}

impl Master {
    /// With the workers that had registered before, and the jobs they had.
    pub async fn start(engine: Engine, settings: Settings) -> Result<Master, EngineError> {
        let settings = Arc::new(settings);
        let master = Master { engine, settings, yards: Mutex::default(), stop: watch::Sender::new(false) };
        for fixed in &master.settings.workers {
            let Ok(target) = Target::parse(&fixed.url) else { continue };
            // Named by whoever runs the server, so it may be called wherever it is.
            let line = Arc::new(
                Line::new(&fixed.name, target, Arc::new(Allowed::any()))
                    .signed(master.settings.signer.as_ref(), &Tenant::default()),
            );
            let yard = master.yard_for(&Tenant::default());
            yard.register(fixed.name.as_str().into(), fixed.max_jobs, line, true);
        }
        let mut leaving = Vec::new();
        for (key, value) in master.engine.notes(NOTES).await? {
            leaving.extend(master.welcome_back(&key, &value));
        }
        for yard in master.all_yards() {
            yard.adopt_running().await?;
        }
        // With what they have: one that has nothing is gone.
        for (yard, id) in leaving {
            yard.leaving(&id).await;
        }
        Ok(master)
    }

    /// Answers with a worker that was about to leave.
    fn welcome_back(&self, key: &str, value: &[u8]) -> Option<(Arc<Yard>, String)> {
        let (tenant, id) = key[NOTES.len()..].split_once('/').unwrap_or_default();
        let note: Option<WorkerNote> = serde_json::from_slice(value).ok();
        let (Ok(tenant), Some(note)) = (Tenant::new(tenant), note) else {
            tracing::warn!(
                "what was written down of the worker {id} cannot be read; it has to register again"
            );
            return None;
        };
        let target = Target::parse(&note.url).ok()?;
        let yard = self.yard_for(&tenant);
        yard.register(
            id.into(),
            note.max_jobs,
            Arc::new(
                Line::new(id, target, self.settings.addresses.clone())
                    .signed(self.settings.signer.as_ref(), &tenant),
            ),
            false,
        );
        if note.pings {
            yard.pinged(id);
        }
        note.leaving.then(|| (yard, id.to_owned()))
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn yard(&self, tenant: &Tenant) -> Option<Arc<Yard>> {
        self.yards().get(tenant).cloned()
    }

    fn yard_for(&self, tenant: &Tenant) -> Arc<Yard> {
        let open = || Yard::open(tenant.clone(), self.engine.clone(), self.stop.subscribe());
        Arc::clone(self.yards().entry(tenant.clone()).or_insert_with(open))
    }

    fn all_yards(&self) -> Vec<Arc<Yard>> {
        self.yards().values().cloned().collect()
    }

    async fn write_down(&self, tenant: &Tenant, id: &str, note: &WorkerNote) -> Result<(), EngineError> {
        let value = serde_json::to_vec(note).unwrap_or_default();
        self.engine.put_note(&note_key(tenant, id), Some(value)).await
    }

    async fn write_down_change(
        &self,
        tenant: &Tenant,
        id: &str,
        change: impl FnOnce(&mut WorkerNote),
    ) -> Result<(), EngineError> {
        let key = note_key(tenant, id);
        let notes = self.engine.notes(&key).await?;
        let known = notes.iter().find(|(known, _)| *known == key);
        let note: Option<WorkerNote> = known.and_then(|(_, value)| serde_json::from_slice(value).ok());
        match note {
            Some(mut note) => {
                change(&mut note);
                self.write_down(tenant, id, &note).await
            }
            // A worker from the configuration.
            None => Ok(()),
        }
    }

    /// Workers registered now, of all tenants.
    pub fn workers(&self) -> usize {
        self.all_yards().iter().map(|yard| yard.table().len()).sum()
    }

    /// Takes no more jobs; those on their way arrive or are given back.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        for yard in self.all_yards() {
            let _ = tokio::time::timeout(FAREWELL, yard.drained()).await;
        }
    }

    fn yards(&self) -> MutexGuard<'_, HashMap<Tenant, Arc<Yard>>> {
        self.yards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Staff for Master {
    fn members(&self) -> Vec<Member> {
        let mut members = Vec::new();
        for (tenant, yard) in self.yards().iter() {
            members.extend(yard.table().roster().map(|worker| Member {
                dialect: ORIGIN,
                tenant: tenant.clone(),
                id: worker.id.clone(),
                address: Some(worker.line.address()),
                slots: worker.max_jobs,
                running: worker.running,
                is_quiet: worker.is_quiet,
                last_sign: worker.pinged_at,
                is_fixed: worker.is_fixed,
            }));
        }
        members
    }

    fn set_quiet(&self, tenant: &Tenant, id: &str, quiet: bool) -> bool {
        self.yard(tenant).is_some_and(|yard| yard.set_quiet(id, quiet))
    }

    fn dismiss<'a>(&'a self, tenant: &'a Tenant, id: &'a str, who: &'a str) -> Dismissing<'a> {
        Box::pin(async move {
            let Some(yard) = self.yard(tenant) else { return false };
            if let Err(error) = self.engine.put_note(&note_key(tenant, id), None).await {
                tracing::warn!(%error, worker = id, "a worker that was let go may be taken for one after a restart");
            }
            yard.dismiss(id, &format!("{who} let it go")).await
        })
    }
}
