//! miniq: jobs of many clients, added as lines, journaled, run by handlers in warm contexts, archived. See
//! README.md.
//!
//! | file | holds |
//! |---|---|
//! | `routes.rs` | every call: method, path, role |
//! | `wire.rs` | parsing of requests and journal lines |
//! | `commands.rs` | requests as engine commands; jobs in responses |
//! | `calls.rs` | the calls |
//! | `errors.rs` | error responses |
//! | `settings.rs` | configuration keys and settings |
//! | `handlers.rs` | handlers and their versions |
//! | `sysid.rs`, `naming.rs` | reservation of this server's name; finding a free name at start |
//! | `schedule.rs` | fair choice of the next client and type: a plain table |
//! | `run_loop.rs`, `round.rs` | the loop that starts batches; batches that are chosen and claimed together |
//! | `batch_run.rs` | one batch from its claim to its end |
//! | `log.rs`, `times.rs` | job log; dates |

mod batch_run;
mod calls;
pub mod commands;
mod errors;
pub mod handlers;
pub mod log;
mod naming;
mod round;
pub mod routes;
mod run_loop;
pub mod schedule;
mod settings;
pub mod sysid;
pub mod times;
pub mod wire;

use crate::codec::Encoding;
use crate::dialect::{Context, Dialect, Running, Soon, Starting};
use crate::ingest::Reader;
use crate::registered_handlers::RegisteredHandler;
use crate::route::{Refusal, Route};
use crate::runners::Runners;
use crate::settings::{BadConfig, DialectSettings, Key, Values};
use axum::response::Response;
use log::{Info, JobLog, LogLines};
use parking_lot::{Mutex, MutexGuard};
use schedule::Scheduler;
pub use settings::Settings;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use windlass_core::{Name, Policy, Tenant, Timestamp};
use windlass_engine::journal::ids;
use windlass_engine::journal::{Journal, JournalError, NewLine};
use windlass_engine::{Engine, EngineError};
use wire::LineKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miniq;

impl Dialect for Miniq {
    fn name(&self) -> &'static str {
        "miniq"
    }

    fn routes(&self) -> &'static [Route] {
        routes::ROUTES
    }

    fn refuse(&self, refusal: &Refusal) -> Response {
        errors::Problem::from(refusal).response(Encoding::Json)
    }

    fn settings(&self) -> &'static [Key] {
        settings::KEYS
    }

    fn configure(&self, values: &Values, settings: &mut DialectSettings) -> Result<(), BadConfig> {
        settings.put(Settings::from_values(values));
        Ok(())
    }

    fn start(&self, context: Context) -> Starting<'static> {
        Box::pin(async move {
            let Context { engine, journal, runners, .. } = context;
            let settings: Settings = context.settings.get();
            let sysid = naming::find_name(&engine, &settings.host).await?;
            Ok(State::start(engine, journal, settings, sysid, runners)? as Arc<dyn Running>)
        })
    }
}

/// State shared by calls and runs.
pub struct State {
    engine: Engine,
    journal: Journal,
    settings: Settings,
    policy: Arc<Policy>,
    /// Wakes the task that reserves this server's name. Ids contain a name from the beginning; it is reserved
    /// in the store as soon as possible.
    sysid_wanted: Notify,
    asked_for_name: AtomicBool,
    sysid_state: watch::Sender<SysidState>,
    log: JobLog,
    runners: Option<Arc<dyn Runners>>,
    scheduler: Mutex<Scheduler>,
    /// True while jobs are started.
    is_started: watch::Sender<bool>,
    /// Wakes the run loop.
    again: Notify,
    stop: watch::Sender<bool>,
    /// State of this server's name at a stop.
    leave: watch::Sender<Option<Leaving>>,
    /// Tasks that run until the stop.
    master: Mutex<Option<JoinHandle<()>>>,
    keeper: Mutex<Option<JoinHandle<()>>>,
    /// Cloned by every task in flight; the channel closes when all have ended.
    under_way: Mutex<Option<mpsc::Sender<()>>>,
    over: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SysidState {
    Unreserved,
    Reserved,
    /// Every name that was tried is taken. Tried again later.
    Refused(String),
}

/// End of this server's use of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// No lease holds the name: it is free.
    Over,
    /// Leases may still hold the name.
    Abandoned,
}

impl State {
    fn start(
        engine: Engine,
        journal: Journal,
        settings: Settings,
        sysid: Option<Arc<str>>,
        runners: Option<Arc<dyn Runners>>,
    ) -> io::Result<Arc<State>> {
        let log = JobLog::start(settings.log.clone())?;
        let any_name = || ids::new_sysid(&settings.host, engine.random_u64()).into();
        journal.rename(sysid.unwrap_or_else(any_name));
        let (under_way, over) = mpsc::channel(1);
        let state = Arc::new(State {
            policy: Arc::new(commands::policy(&settings)),
            engine,
            journal,
            settings,
            sysid_wanted: Notify::new(),
            asked_for_name: AtomicBool::new(false),
            sysid_state: watch::Sender::new(SysidState::Unreserved),
            log,
            runners: runners.clone(),
            scheduler: Mutex::default(),
            is_started: watch::Sender::new(true),
            again: Notify::new(),
            stop: watch::Sender::new(false),
            leave: watch::Sender::new(None),
            master: Mutex::default(),
            keeper: Mutex::default(),
            under_way: Mutex::new(Some(under_way)),
            over: tokio::sync::Mutex::new(over),
        });
        *locked(&state.keeper) = Some(tokio::spawn(run_loop::keep_sysid(Arc::clone(&state))));
        if let Some(runners) = runners {
            *locked(&state.master) = Some(tokio::spawn(run_loop::run(Arc::clone(&state), runners)));
        }
        Ok(state)
    }

    /// Appends admitted jobs to the journal; returns their ids once they are durable. An error returns their
    /// reservations, also if the outcome is unknown: such lines are not read before the next start.
    async fn add(
        &self,
        client: &Tenant,
        jobtype: &Name,
        payloads: &[&[u8]],
        run_at: Option<Timestamp>,
    ) -> Result<Vec<String>, JournalError> {
        let added = self.append(client, jobtype, payloads, run_at).await;
        if added.is_err() {
            let bytes: usize = payloads.iter().map(|payload| payload.len()).sum();
            self.engine.return_reservations(client, payloads.len() as u64, bytes as u64);
        }
        added
    }

    async fn append(
        &self,
        client: &Tenant,
        jobtype: &Name,
        payloads: &[&[u8]],
        run_at: Option<Timestamp>,
    ) -> Result<Vec<String>, JournalError> {
        self.named().await;
        if let SysidState::Refused(why) = &*self.sysid_state.borrow() {
            return Err(JournalError::Write(why.clone()));
        }
        let now = self.engine.now();
        let sysid = self.sysid();
        let ids = self.journal.make_ids(payloads.len(), now);
        if ids.is_empty() {
            return Ok(ids);
        }
        let plain = LineKind { client: client.clone(), jobtype: jobtype.clone(), run_at, is_base64: false };
        let packed = LineKind { is_base64: true, ..plain.clone() }.text();
        let plain = plain.text();
        let texts: Vec<Option<Vec<u8>>> = payloads.iter().map(|payload| wire::journaled(payload)).collect();
        let line = |((id, payload), text)| match text {
            None => NewLine { id, kind: &plain, payload },
            Some(text) => NewLine { id, kind: &packed, payload: text },
        };
        let lines = ids
            .iter()
            .map(String::as_str)
            .zip(payloads.iter().copied())
            .zip(texts.iter().map(Option::as_deref));
        let lines: Vec<NewLine<'_>> = lines.map(line).collect();
        // Logged before any of them can start, so that the log is in order.
        self.tell_added(&wire::full_type(client, jobtype), &ids, payloads, now);
        let kept = async { self.journal.wsync(self.journal.write(&lines)?).await };
        if let Err(error) = kept.await {
            let mut lines = LogLines::new(now, &sysid);
            lines.warn(&format!("{} jobs starting with {} were not stored: {error}", ids.len(), ids[0]));
            self.log.write(lines);
            return Err(error);
        }
        Ok(ids)
    }

    fn tell_added(&self, full: &str, ids: &[String], payloads: &[&[u8]], now: Timestamp) {
        if !self.log.is_on() {
            return;
        }
        let sysid = self.sysid();
        let mut lines = LogLines::new(now, &sysid);
        for (id, payload) in ids.iter().zip(payloads) {
            let bytes = Some(payload.len());
            lines.push(log::ADDED, Info { id, jobtype: full, bytes, ..Info::default() });
        }
        self.log.write(lines);
    }

    /// The first call that needs a name waits briefly for its reservation. Without the store, a random name
    /// that is almost certainly unique is used until the store is back.
    async fn named(&self) {
        if *self.sysid_state.borrow() != SysidState::Unreserved
            || self.asked_for_name.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let mut known = self.sysid_state.subscribe();
        self.sysid_wanted.notify_one();
        let _ = tokio::time::timeout(NAMING, known.wait_for(|known| *known != SysidState::Unreserved)).await;
    }

    /// Name of this server, reserved or not.
    pub fn sysid(&self) -> Arc<str> {
        self.journal.sysid()
    }

    /// Starts or stops claiming; running jobs continue.
    fn set_started(&self, is_started: bool) {
        self.is_started.send_replace(is_started);
    }

    fn scheduler(&self) -> MutexGuard<'_, Scheduler> {
        locked(&self.scheduler)
    }

    /// Spawns a task that a stop waits for.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let under_way = locked(&self.under_way).clone();
        let Some(under_way) = under_way else { return };
        tokio::spawn(async move {
            work.await;
            drop(under_way);
        });
    }

    /// Stops claiming; runs may end within `grace`, then they are returned. Releases the name afterwards.
    async fn end_runs(&self, grace: Duration) {
        self.stop.send_replace(true);
        // A batch that the run loop is starting may still start, so that it is returned.
        let master = locked(&self.master).take();
        let (is_idle, ()) = tokio::join!(ended(master, grace + FAREWELL), async {
            if let Some(runners) = &self.runners {
                runners.stop(grace).await;
            }
        });
        drop(locked(&self.under_way).take());
        // Only commits are still in flight.
        let over = async { while self.over.lock().await.recv().await.is_some() {} };
        let is_over = is_idle && tokio::time::timeout(FAREWELL, over).await.is_ok();
        if !is_over {
            tracing::warn!("shutting down before the outcomes of all runs are stored; these jobs run again");
        }
        self.leave.send_replace(Some(if is_over { Leaving::Over } else { Leaving::Abandoned }));
        let keeper = locked(&self.keeper).take();
        ended(keeper, FAREWELL).await;
        self.log.close().await;
    }
}

impl Running for State {
    fn journal_reader(&self) -> Option<Arc<dyn Reader>> {
        Some(Arc::new(commands::Lines { policy: Arc::clone(&self.policy) }))
    }

    fn drain(&self) {
        self.set_started(false);
    }

    fn stop(&self, grace: Duration) -> Soon<'_, ()> {
        Box::pin(self.end_runs(grace))
    }

    /// Stops without waiting for runs: the process is about to end.
    fn abandon(&self) {
        self.stop.send_replace(true);
        self.leave.send_if_modified(|leave| leave.is_none() && leave.replace(Leaving::Abandoned).is_none());
    }

    fn handlers<'a>(
        &'a self,
        tenant: Option<&'a Tenant>,
        limit: usize,
    ) -> Soon<'a, Result<Vec<RegisteredHandler>, EngineError>> {
        Box::pin(handlers::registered(self, tenant, limit))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// True if the task ended in time.
async fn ended(task: Option<JoinHandle<()>>, within: Duration) -> bool {
    match task {
        Some(task) => tokio::time::timeout(within, task).await.is_ok(),
        None => true,
    }
}

/// Time the first add waits for the reservation of the name.
const NAMING: Duration = Duration::from_secs(1);
/// Time for commits in flight at a stop.
const FAREWELL: Duration = Duration::from_secs(5);
