//! Workers that hold a connection. When it closes and no other takes its place within the grace period, the
//! leases held under the worker's name expire, with the usual effects of an expired lease.
//!
//! On a store shared by several servers, a worker may reconnect to another server. The server with its newest
//! connection writes a note, and only the server that wrote the note ends the worker's leases.

use super::ORIGIN;
use super::calls::{Answer, ask_of};
use super::errors::Problem;
use super::state_of;
use super::wire::OF_ANY_CALL;
use crate::answer::JSON;
use crate::auth::Caller;
use crate::query::Filter;
use crate::route::Call;
use crate::server::Server;
use ::http::{HeaderValue, header};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass_core::{Holder, Scope, StateName, Tenant};
use windlass_engine::{Engine, EngineError, Renew};

/// Interval of the bytes by which both sides detect a broken connection.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Bytes of a worker's name.
const NAME_BYTES_MAX: usize = 255;
/// Running jobs per page.
const PAGE: usize = 1_000;
/// Age after which the note of a worker is deleted, for workers that ended while no server ran. A missing
/// note counts as one's own.
const NOTE_KEPT_MS: i64 = 24 * 3_600_000;
/// Interval of the search for old notes.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);

/// Tenant, worker, and the scope of the jobs it may hold.
type Key = (Tenant, Arc<str>, Scope);

#[derive(Default)]
pub(super) struct Presences {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    open: HashMap<Key, Open>,
    /// Workers whose last connection ended, in that order.
    gone: Vec<Gone>,
    /// A task is sweeping the workers in `gone`.
    is_swept: bool,
    pruned: HashMap<Tenant, Instant>,
}

struct Open {
    connections: usize,
    /// Note written by the newest connection.
    stamp: String,
}

struct Gone {
    key: Key,
    stamp: String,
    at: Instant,
}

impl Table {
    fn came(&mut self, key: &Key, stamp: &str) {
        self.gone.retain(|gone| gone.key != *key);
        let open = self.open.entry(key.clone()).or_insert(Open { connections: 0, stamp: String::new() });
        open.connections += 1;
        stamp.clone_into(&mut open.stamp);
    }

    /// Removes a connection; true: the caller must start the sweep.
    fn left(&mut self, key: &Key, now: Instant) -> bool {
        let Some(open) = self.open.get_mut(key) else { return false };
        open.connections -= 1;
        if open.connections > 0 {
            return false;
        }
        if let Some(Open { stamp, .. }) = self.open.remove(key) {
            self.gone.push(Gone { key: key.clone(), stamp, at: now });
        }
        !std::mem::replace(&mut self.is_swept, true)
    }

    /// Returns workers whose grace period is over, or the time of the next check. `None`: `gone` is empty,
    /// and the sweep ends.
    fn due(&mut self, grace: Duration, now: Instant) -> Option<Result<Vec<Gone>, Instant>> {
        let Some(first) = self.gone.first() else {
            self.is_swept = false;
            return None;
        };
        if first.at + grace > now {
            return Some(Err(first.at + grace));
        }
        let count = self.gone.iter().take_while(|gone| gone.at + grace <= now).count();
        Some(Ok(self.gone.drain(..count).collect()))
    }
}

impl Presences {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }
}

/// Responds with a stream that lasts as long as the connection.
pub(super) async fn attend(mut call: Call) -> Answer {
    let tenant = call.tenant()?;
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    ask.only(&["worker"], OF_ANY_CALL)?;
    let worker = ask.text("worker")?.ok_or_else(|| Problem::refused("Missing worker"))?;
    if worker.is_empty() || worker.len() > NAME_BYTES_MAX {
        return Err(Problem::refused(format!("worker must be a string of 1 to {NAME_BYTES_MAX} bytes")));
    }
    let key: Key = (tenant, Arc::from(worker), call.caller.scope.clone());
    let server = Arc::clone(&call.server);
    come(&server, &key).await?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(stay(server, call.caller.clone(), key, sender));
    let pieces = futures_util::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|piece: Bytes| (Ok::<_, Infallible>(piece), receiver))
    });
    let mut response = Response::new(Body::from_stream(pieces.boxed()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    Ok(response)
}

async fn come(server: &Server, key: &Key) -> Result<(), Problem> {
    let engine = &server.engine;
    let stamp = format!("{} {:016x}", engine.now().as_millis(), engine.random_u64());
    // Written before the connection counts here, so that a concurrent sweep of another server finds a note
    // that is not its own.
    engine.put_note(&note_of(key), Some(stamp.clone().into_bytes())).await?;
    let presences = &state_of(server).presences;
    let is_time_to_prune = {
        let mut table = presences.table();
        table.came(key, &stamp);
        let now = Instant::now();
        let pruned = table.pruned.entry(key.0.clone()).or_insert(now);
        let is_time = now.duration_since(*pruned) > PRUNE_EVERY;
        if is_time {
            *pruned = now;
        }
        is_time
    };
    if is_time_to_prune && let Err(error) = prune(engine, &key.0).await {
        tracing::debug!(%error, "cannot delete old records of workers; retrying later");
    }
    Ok(())
}

async fn stay(server: Arc<Server>, caller: Caller, key: Key, sender: mpsc::Sender<Bytes>) {
    let mut piece = Bytes::from(format!("{{\"grace\":{}}}\n", grace(&server).as_secs_f64()));
    while sender.send(piece).await.is_ok() {
        tokio::select! {
            () = tokio::time::sleep(HEARTBEAT) => {}
            () = sender.closed() => break,
            // A worker whose token is revoked counts as disconnected.
            () = server.wait_until_ended_for(&caller) => break,
        }
        piece = Bytes::from_static(b"\n");
    }
    if server.is_stopping() {
        // The server stops; the workers are still alive.
        return;
    }
    let begins = state_of(&server).presences.table().left(&key, Instant::now());
    if begins {
        sweep(&server).await;
    }
}

fn grace(server: &Server) -> Duration {
    Duration::from_millis(state_of(server).settings.grace_ms.unsigned_abs())
}

/// Ends the leases of disconnected workers, until none is left.
async fn sweep(server: &Server) {
    loop {
        let due = state_of(server).presences.table().due(grace(server), Instant::now());
        match due {
            None => return,
            Some(Err(at)) => tokio::time::sleep_until(at).await,
            Some(Ok(gone)) if server.is_stopping() => drop(gone),
            Some(Ok(gone)) => {
                let mut by_reach: HashMap<(Tenant, Scope), Vec<Gone>> = HashMap::new();
                for gone in gone {
                    let reach = (gone.key.0.clone(), gone.key.2.clone());
                    by_reach.entry(reach).or_default().push(gone);
                }
                for ((tenant, scope), gone) in by_reach {
                    if let Err(error) = end_runs(&server.engine.within(&scope), &tenant, gone).await {
                        tracing::warn!(%error, "cannot end the runs of lost workers; they end when their leases expire");
                    }
                }
            }
        }
    }
}

async fn end_runs(engine: &Engine, tenant: &Tenant, gone: Vec<Gone>) -> Result<(), EngineError> {
    let mut names: BTreeSet<Arc<str>> = BTreeSet::new();
    for Gone { key, stamp, .. } in gone {
        let note = note_of(&key);
        let found = engine.notes(&note).await?.into_iter().find(|(known, _)| *known == note);
        // The worker has connected to another server since.
        if found.is_some_and(|(_, value)| value != stamp.as_bytes()) {
            continue;
        }
        engine.put_note(&note, None).await?;
        names.insert(key.1);
    }
    if names.is_empty() {
        return Ok(());
    }
    let mut pages = engine.pages(Filter {
        tenant: Some(tenant.clone()),
        states: vec![StateName::Running],
        limit: PAGE,
        ..Filter::default()
    });
    while let Some(jobs) = pages.next().await? {
        let ended = jobs.iter().filter_map(|job| {
            // Workers of other dialects may have the same name.
            job.spec.extras.as_ref().filter(|extras| extras.origin.as_deref() == Some(ORIGIN))?;
            let lease = job.state().lease()?;
            let worker = lease.worker.as_ref().filter(|worker| names.contains(*worker))?;
            tracing::info!(job.id = %job.id, %worker, "the worker of job {} was lost; its lease is expired", job.id);
            Some(Renew { id: job.id, by: Holder::Token(lease.token), lease_ms: Some(0), worker: None })
        });
        let ended: Vec<Renew> = ended.collect();
        for some in ended.chunks(engine.options().batch_max) {
            // Refused if the run has ended by itself.
            engine.renew(tenant, some.to_vec()).await?;
        }
    }
    Ok(())
}

async fn prune(engine: &Engine, tenant: &Tenant) -> Result<(), EngineError> {
    let oldest = engine.now().as_millis() - NOTE_KEPT_MS;
    for (note, value) in engine.notes(&prefix(tenant)).await? {
        let text = String::from_utf8_lossy(&value);
        let written: Option<i64> = text.split(' ').next().and_then(|ms| ms.parse().ok());
        if written.is_none_or(|ms| ms < oldest) {
            engine.put_note(&note, None).await?;
        }
    }
    Ok(())
}

fn prefix(tenant: &Tenant) -> String {
    format!("sidejob/presence/{tenant}/")
}

fn note_of((tenant, worker, _): &Key) -> String {
    format!("{}{worker}", prefix(tenant))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(gone: Vec<Gone>) -> Vec<String> {
        gone.into_iter().map(|gone| format!("{} {}", gone.key.1, gone.stamp)).collect()
    }

    #[test]
    fn a_worker_is_gone_when_its_last_connection_is_and_none_takes_its_place() {
        let mut table = Table::default();
        let key = |name: &str| (Tenant::default(), Arc::from(name), Scope::default());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let grace = Duration::from_secs(10);
        let (one, two) = (key("one"), key("two"));
        table.came(&one, "a");
        table.came(&one, "b");
        table.came(&two, "c");
        assert!(!table.left(&one, at(0)), "one of two connections");
        assert!(table.left(&one, at(1)));
        assert!(!table.left(&two, at(2)), "somebody sees to it already");
        assert_eq!(table.due(grace, at(10)).unwrap().err(), Some(at(11)));
        assert_eq!(names(table.due(grace, at(11)).unwrap().ok().unwrap()), ["one b"]);
        table.came(&two, "d");
        assert!(table.due(grace, at(20)).is_none(), "it has come back");
        assert!(table.left(&two, at(21)), "and nobody sees to it any more");
        assert_eq!(names(table.due(grace, at(31)).unwrap().ok().unwrap()), ["two d"]);
        assert!(!table.left(&two, at(32)), "once");
    }
}
