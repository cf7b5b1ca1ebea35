//! Several servers on one store: each worker gets its jobs from one server.
//!
//! A worker's note names its server, at first the server it registered with. Each server writes a heartbeat
//! once a second. When a server stops or its heartbeat is missing, the others take over its workers and their
//! running jobs by compare-and-swap on the note: the first swap wins. A server that finds another server in
//! the note of its worker stops sending to that worker. The worker is not involved: any server accepts its
//! reports, its pings and its leaving.

use super::notes::Noted;
use super::workers::WorkerId;
use super::{Dispatchers, WorkerToAdd};
use std::collections::{HashMap, HashSet};
use std::sync::Weak;
use std::time::Duration;
use tokio::sync::watch;
use windlass_core::{Tenant, Timestamp};
use windlass_engine::EngineError;

/// Interval of heartbeats and of polls for the heartbeats of others.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Polls without a new heartbeat after which a server counts as dead. Counted in polls, not in seconds: while
/// the store is out of reach, no server can write a heartbeat, and none polls.
const SILENT_LOOKS: u32 = 5;

type Whose = (Tenant, WorkerId);

/// Last heartbeat of each server, with the number of polls since.
#[derive(Default)]
struct Heartbeats {
    seen: HashMap<String, (Vec<u8>, u32)>,
}

impl Heartbeats {
    /// Records the heartbeats of a poll; returns the servers that count as dead.
    fn silent(&mut self, signs: Vec<(String, Vec<u8>)>) -> HashSet<String> {
        let mut seen = HashMap::with_capacity(signs.len());
        for (server, sign) in signs {
            let looks = match self.seen.remove(&server) {
                Some((before, looks)) if before == sign => looks + 1,
                _ => 0,
            };
            seen.insert(server, (sign, looks));
        }
        self.seen = seen;
        let silent = self.seen.iter().filter(|(_, (_, looks))| *looks >= SILENT_LOOKS);
        silent.map(|(server, _)| server.clone()).collect()
    }

    fn is_there(&self, server: &str) -> bool {
        self.seen.get(server).is_some_and(|(_, looks)| *looks < SILENT_LOOKS)
    }
}

/// Relation of this server to a worker's note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    /// Owned and served by this server.
    Ours,
    /// Owned by this server, not served: another write is under way, or a reply was lost.
    OursToServe,
    /// Owned by no live server.
    Free,
    /// Owned by another live server.
    Theirs,
}

fn meaning(server: Option<&str>, me: &str, is_served: bool, is_there: impl Fn(&str) -> bool) -> Ownership {
    match server {
        Some(server) if server == me && is_served => Ownership::Ours,
        Some(server) if server == me => Ownership::OursToServe,
        Some(server) if is_there(server) => Ownership::Theirs,
        _ => Ownership::Free,
    }
}

/// Polls until the server stops.
pub(super) async fn follow(dispatchers: Weak<Dispatchers>, mut stop: watch::Receiver<bool>) {
    let mut look =
        Poller { signs: Heartbeats::default(), sign: 1, doubtful: HashSet::new(), fixed: HashSet::new() };
    let mut was_well = true;
    loop {
        let Some(dispatchers) = dispatchers.upgrade() else { return };
        match look.poll_once(&dispatchers).await {
            Ok(()) => was_well = true,
            Err(error) if was_well => {
                tracing::warn!(%error, "cannot look for workers of servers that are gone; retrying");
                was_well = false;
            }
            Err(_) => {}
        }
        drop(dispatchers);
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            // Also returns if the sender was dropped.
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

struct Poller {
    signs: Heartbeats,
    sign: u64,
    /// Workers that the last poll found `OursToServe`; it may have fallen between two writes.
    doubtful: HashSet<Whose>,
    /// Workers of the configuration that this server serves, or served until they were dismissed.
    fixed: HashSet<String>,
}

impl Poller {
    async fn poll_once(&mut self, dispatchers: &Dispatchers) -> Result<(), EngineError> {
        let Some(me) = &dispatchers.server else { return Ok(()) };
        let notes = &dispatchers.notes;
        self.sign += 1;
        notes.put_sign(me, self.sign).await?;
        for silent in self.signs.silent(notes.servers().await?) {
            notes.forget_server(&silent).await?;
        }
        // Read before the notes: a worker in the table has its note already.
        let served = dispatchers.served_workers();
        let noted = notes.all().await?;
        let known: HashSet<(&Tenant, &WorkerId)> =
            noted.iter().map(|noted| (&noted.tenant, &noted.id)).collect();
        for (tenant, id) in served.iter().filter(|(tenant, id)| !known.contains(&(tenant, id))) {
            if let Some(dispatcher) = dispatchers.dispatcher(tenant) {
                dispatcher.dismiss(id, "the worker unregistered").await;
            }
        }
        let pings = notes.pings().await?;
        let mut newcomers = Vec::new();
        let doubtful = std::mem::take(&mut self.doubtful);
        for noted in noted {
            self.consider(dispatchers, me, noted, &pings, &doubtful, &mut newcomers).await?;
        }
        self.consider_fixed(dispatchers, me, &pings, &mut newcomers).await?;
        if newcomers.is_empty() {
            return Ok(());
        }
        let fixed = newcomers.iter().filter(|newcomer| newcomer.is_fixed);
        let fixed: Vec<String> = fixed.map(|newcomer| newcomer.id.to_string()).collect();
        dispatchers.add_workers(newcomers).await?;
        self.fixed.extend(fixed);
        Ok(())
    }

    async fn consider(
        &mut self,
        dispatchers: &Dispatchers,
        me: &str,
        noted: Noted,
        pings: &HashMap<Whose, Timestamp>,
        doubtful: &HashSet<Whose>,
        newcomers: &mut Vec<WorkerToAdd>,
    ) -> Result<(), EngineError> {
        let whose = (noted.tenant.clone(), noted.id.clone());
        let dispatcher = dispatchers.dispatcher_of(&noted.tenant, &noted.id);
        let server = noted.note.server.as_deref();
        let pinged = pings.get(&whose).copied();
        match meaning(server, me, dispatcher.is_some(), |server| self.signs.is_there(server)) {
            Ownership::Ours => {
                let Some(dispatcher) = dispatcher else { return Ok(()) };
                if let Some(at) = pinged {
                    dispatcher.pinged(&noted.id, at);
                }
                if noted.note.leaving {
                    dispatcher.leaving(&noted.id).await;
                }
            }
            Ownership::OursToServe if doubtful.contains(&whose) => {
                newcomers.extend(WorkerToAdd::from_note(&noted, pinged.is_some()));
            }
            Ownership::OursToServe => drop(self.doubtful.insert(whose)),
            Ownership::Free => {
                let is_ours = dispatchers.notes.take_over(&noted, me).await?;
                if is_ours && dispatcher.is_none() {
                    tracing::info!(worker = %noted.id, "worker {} is now served by this server", noted.id);
                    newcomers.extend(WorkerToAdd::from_note(&noted, pinged.is_some()));
                }
            }
            Ownership::Theirs => {
                if let Some(dispatcher) = dispatcher {
                    dispatcher.release(&noted.id);
                }
            }
        }
        Ok(())
    }

    /// Handles workers of the configuration. Several servers may list the same worker; one of them serves it.
    async fn consider_fixed(
        &mut self,
        dispatchers: &Dispatchers,
        me: &str,
        pings: &HashMap<Whose, Timestamp>,
        newcomers: &mut Vec<WorkerToAdd>,
    ) -> Result<(), EngineError> {
        let fixed = &dispatchers.settings.workers;
        if fixed.is_empty() {
            return Ok(());
        }
        let servers = dispatchers.notes.fixed().await?;
        let dispatcher = dispatchers.dispatcher_for(&Tenant::default());
        for worker in fixed {
            let server = servers.get(&worker.name);
            // A dismissed worker stays away until the next start.
            let is_served = self.fixed.contains(&worker.name);
            match meaning(server.map(String::as_str), me, is_served, |server| self.signs.is_there(server)) {
                Ownership::Ours => {
                    if let Some(at) = pings.get(&(Tenant::default(), worker.name.as_str().into())) {
                        dispatcher.pinged(&worker.name, *at);
                    }
                }
                Ownership::OursToServe => newcomers.extend(WorkerToAdd::fixed(worker)),
                Ownership::Free => {
                    if dispatchers.notes.take_fixed(&worker.name, server, me).await? && !is_served {
                        newcomers.extend(WorkerToAdd::fixed(worker));
                    }
                }
                Ownership::Theirs => {
                    self.fixed.remove(&worker.name);
                    dispatcher.release(&worker.name);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_gone_after_some_looks_without_a_new_sign() {
        let mut signs = Heartbeats::default();
        let said = |words: &[(&str, u8)]| {
            words.iter().map(|(server, sign)| ((*server).to_owned(), vec![*sign])).collect::<Vec<_>>()
        };
        for look in 0..SILENT_LOOKS {
            let sign = u8::try_from(look).unwrap();
            assert!(signs.silent(said(&[("a", 0), ("b", sign)])).is_empty(), "{look}");
            assert!(signs.is_there("a") && signs.is_there("b"));
        }
        assert_eq!(signs.silent(said(&[("a", 0), ("b", 9)])), HashSet::from(["a".to_owned()]));
        assert!(!signs.is_there("a") && signs.is_there("b"));
        assert!(signs.silent(said(&[("a", 1), ("b", 10)])).is_empty(), "it was only slow");
        assert!(signs.is_there("a"));
        signs.silent(said(&[("b", 11)]));
        assert!(!signs.is_there("a"), "it has said goodbye");
    }

    #[test]
    fn what_the_server_in_a_note_means() {
        let is_there = |server: &str| server == "other";
        for (server, is_served, expected) in [
            (Some("me"), true, Ownership::Ours),
            (Some("me"), false, Ownership::OursToServe),
            (Some("other"), true, Ownership::Theirs),
            (Some("other"), false, Ownership::Theirs),
            (Some("gone"), true, Ownership::Free),
            (Some("gone"), false, Ownership::Free),
            (None, false, Ownership::Free),
        ] {
            assert_eq!(meaning(server, "me", is_served, is_there), expected, "{server:?} {is_served}");
        }
    }
}
