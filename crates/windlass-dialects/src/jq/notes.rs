//! Registrations in the store, for the next start and for other servers on the same store.

use super::workers::WorkerId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use windlass_core::{Tenant, Timestamp};
use windlass_engine::{Engine, EngineError};

/// Registered workers.
const WORKERS: &str = "jq/worker/";
/// Time of a worker's last ping, where its server has to learn of it.
const PINGS: &str = "jq/ping/";
/// Running servers with their heartbeats.
const SERVERS: &str = "jq/server/";
/// Server that sends jobs to a worker of the configuration.
const FIXED: &str = "jq/fixed/";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkerNote {
    pub name: String,
    pub url: String,
    pub max_jobs: u32,
    /// The worker has pinged. Written by earlier versions, which stored no pings.
    #[serde(default)]
    pub pings: bool,
    /// Drains: finishes its jobs and gets no more.
    #[serde(default)]
    pub leaving: bool,
    /// Server that sends it jobs, on a shared store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// Note as read, with its bytes for the compare-and-swap.
#[derive(Clone, Debug)]
pub(super) struct Noted {
    pub tenant: Tenant,
    pub id: WorkerId,
    pub note: WorkerNote,
    bytes: Vec<u8>,
}

#[derive(Clone)]
pub(super) struct Notes {
    engine: Engine,
}

impl Notes {
    pub(super) fn new(engine: Engine) -> Notes {
        Notes { engine }
    }

    pub(super) async fn all(&self) -> Result<Vec<Noted>, EngineError> {
        Ok(self.engine.notes(WORKERS).await?.into_iter().filter_map(read).collect())
    }

    pub(super) async fn find(&self, tenant: &Tenant, id: &str) -> Result<Option<Noted>, EngineError> {
        let key = key(WORKERS, tenant, id);
        let found = self.engine.notes(&key).await?.into_iter().find(|(known, _)| *known == key);
        Ok(found.and_then(read))
    }

    pub(super) async fn put(&self, tenant: &Tenant, id: &str, note: &WorkerNote) -> Result<(), EngineError> {
        self.engine.put_note(&key(WORKERS, tenant, id), Some(written(note))).await
    }

    /// Changes a note by compare-and-swap, so that concurrent changes of other servers are kept. Returns
    /// false if the worker is unknown.
    pub(super) async fn change(
        &self,
        tenant: &Tenant,
        id: &str,
        change: impl Fn(&mut WorkerNote),
    ) -> Result<bool, EngineError> {
        loop {
            let Some(noted) = self.find(tenant, id).await? else { return Ok(false) };
            let mut note = noted.note.clone();
            change(&mut note);
            if note == noted.note || self.swap(&noted, &note).await? {
                return Ok(true);
            }
        }
    }

    /// Makes `server` the worker's server. Returns false if another server was first.
    pub(super) async fn take_over(&self, noted: &Noted, server: &str) -> Result<bool, EngineError> {
        let note = WorkerNote { server: Some(server.to_owned()), ..noted.note.clone() };
        self.swap(noted, &note).await
    }

    async fn swap(&self, noted: &Noted, note: &WorkerNote) -> Result<bool, EngineError> {
        let key = key(WORKERS, &noted.tenant, &noted.id);
        self.engine.swap_note(&key, Some(noted.bytes.clone()), written(note)).await
    }

    /// Deletes the notes of a removed worker.
    pub(super) async fn forget(&self, tenant: &Tenant, id: &str) -> Result<(), EngineError> {
        self.engine.put_note(&key(WORKERS, tenant, id), None).await?;
        self.engine.put_note(&key(PINGS, tenant, id), None).await
    }

    pub(super) async fn put_ping(&self, tenant: &Tenant, id: &str, at: Timestamp) -> Result<(), EngineError> {
        let value = at.as_millis().to_string().into_bytes();
        self.engine.put_note(&key(PINGS, tenant, id), Some(value)).await
    }

    pub(super) async fn pings(&self) -> Result<HashMap<(Tenant, WorkerId), Timestamp>, EngineError> {
        let found = self.engine.notes(PINGS).await?.into_iter();
        let read = |(key, value): (String, Vec<u8>)| {
            let ms: i64 = std::str::from_utf8(&value).ok()?.parse().ok()?;
            Some((whose(&key[PINGS.len()..])?, Timestamp::from_millis(ms)))
        };
        Ok(found.filter_map(read).collect())
    }

    pub(super) async fn put_sign(&self, server: &str, sign: u64) -> Result<(), EngineError> {
        self.engine.put_note(&format!("{SERVERS}{server}"), Some(sign.to_string().into_bytes())).await
    }

    pub(super) async fn forget_server(&self, server: &str) -> Result<(), EngineError> {
        self.engine.put_note(&format!("{SERVERS}{server}"), None).await
    }

    /// Heartbeats of all servers.
    pub(super) async fn servers(&self) -> Result<Vec<(String, Vec<u8>)>, EngineError> {
        let found = self.engine.notes(SERVERS).await?.into_iter();
        Ok(found.map(|(key, sign)| (key[SERVERS.len()..].to_owned(), sign)).collect())
    }

    /// Server of each worker of the configuration.
    pub(super) async fn fixed(&self) -> Result<HashMap<String, String>, EngineError> {
        let found = self.engine.notes(FIXED).await?.into_iter();
        let read = |(key, server): (String, Vec<u8>)| {
            (key[FIXED.len()..].to_owned(), String::from_utf8_lossy(&server).into_owned())
        };
        Ok(found.map(read).collect())
    }

    pub(super) async fn take_fixed(
        &self,
        worker: &str,
        from: Option<&String>,
        server: &str,
    ) -> Result<bool, EngineError> {
        let from = from.map(|from| from.clone().into_bytes());
        self.engine.swap_note(&format!("{FIXED}{worker}"), from, server.to_owned().into_bytes()).await
    }
}

fn key(kind: &str, tenant: &Tenant, worker: &str) -> String {
    format!("{kind}{tenant}/{worker}")
}

fn whose(key: &str) -> Option<(Tenant, WorkerId)> {
    let (tenant, id) = key.split_once('/')?;
    Some((Tenant::new(tenant).ok()?, id.into()))
}

fn written(note: &WorkerNote) -> Vec<u8> {
    serde_json::to_vec(note).unwrap_or_default()
}

fn read((key, bytes): (String, Vec<u8>)) -> Option<Noted> {
    let note: Option<WorkerNote> = serde_json::from_slice(&bytes).ok();
    match (whose(&key[WORKERS.len()..]), note) {
        (Some((tenant, id)), Some(note)) => Some(Noted { tenant, id, note, bytes }),
        _ => {
            tracing::warn!("cannot read the record of a worker ({key}); the worker has to register again");
            None
        }
    }
}
