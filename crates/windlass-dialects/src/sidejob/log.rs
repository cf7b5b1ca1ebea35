//! Log of values that went through ports, and of errors.
//!
//! Entries are stored in order in notes, written in the same commit as the change they describe. The number
//! of notes is bounded, and the oldest are dropped: a client that wants all entries must read and clear them
//! in time.

use super::errors::Problem;
use super::wire::Context;
use crate::codec::{Encoding, Out};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::{HashMap, VecDeque};
use windlass_core::ports::{RawJson, Side};
use windlass_core::{JobId, Tenant, Timestamp};
use windlass_engine::{Engine, EngineError, Transaction};

#[cfg(test)]
mod tests;

/// Notes kept per tenant; each holds the entries of one commit, at least one.
const NOTES_MAX: usize = 10_000;
/// Notes beyond the bound before the oldest are deleted, since deleting in batches is cheaper.
const NOTES_SLACK: usize = 500;
/// Bytes kept per tenant, because all notes are read at once.
const BYTES_MAX: usize = 32 << 20;
/// Number of recent notes that are searched for a note shared by several calls, whose commit is reported to
/// them at the same time.
const SHARED_LOOKS: usize = 64;
/// Longest value that is copied into the log, which shows the flow of values and does not store them.
const VALUE_BYTES_MAX: usize = 16 << 10;
/// Bytes of values in one list of an entry, for the same reason.
const LIST_BYTES_MAX: usize = 256 << 10;

/// Values that went through ports in one call or group.
#[derive(Clone, Debug, Default)]
pub(super) struct PortEvents {
    reads: Flows,
    writes: Flows,
}

/// Values by port, in the order in which the ports were first used.
#[derive(Clone, Debug, Default)]
struct Flows {
    list: Vec<Flow>,
    places: HashMap<(JobId, Side, String), usize>,
}

#[derive(Clone, Debug)]
struct Flow {
    job: JobId,
    side: Side,
    port: String,
    data: Vec<RawJson>,
}

impl PortEvents {
    pub(super) fn read(&mut self, job: JobId, (side, port): (Side, &str), data: Vec<RawJson>) {
        self.reads.add(job, (side, port), data);
    }

    pub(super) fn wrote(&mut self, job: JobId, (side, port): (Side, &str), data: Vec<RawJson>) {
        self.writes.add(job, (side, port), data);
    }

    /// Formats the log entry; `None`: no value moved.
    pub(super) fn entry(&self, context: &Context, now: Timestamp) -> Option<String> {
        if self.reads.list.is_empty() && self.writes.list.is_empty() {
            return None;
        }
        let flows = |flows: &[Flow]| {
            let mut out = Out::new(Encoding::Json, 128);
            out.begin_array();
            flows.iter().for_each(|flow| flow.write(&mut out));
            out.end_array();
            text(out)
        };
        let (reads, writes) = (flows(&self.reads.list), flows(&self.writes.list));
        Some(entry(context, now, &[("read", &reads), ("write", &writes)]))
    }
}

impl Flows {
    fn add(&mut self, job: JobId, (side, port): (Side, &str), data: Vec<RawJson>) {
        if data.is_empty() {
            return;
        }
        let place = *self.places.entry((job, side, port.to_owned())).or_insert(self.list.len());
        match self.list.get_mut(place) {
            Some(flow) => flow.data.extend(data),
            None => self.list.push(Flow { job, side, port: port.to_owned(), data }),
        }
    }
}

impl Flow {
    fn write(&self, out: &mut Out) {
        out.begin_map();
        out.key("job");
        out.uint(self.job.get());
        out.key("data");
        out.begin_array();
        let mut bytes = 0;
        for (place, value) in self.data.iter().enumerate() {
            let text = value.as_str();
            bytes += text.len().min(VALUE_BYTES_MAX);
            if bytes > LIST_BYTES_MAX {
                out.str(&format!("(and {} more values)", self.data.len() - place));
                break;
            }
            match text.len() {
                0..=VALUE_BYTES_MAX => out.json(text),
                long => out.str(&format!("(a value of {long} bytes)")),
            }
        }
        out.end_array();
        out.key(match self.side {
            Side::In => "inport",
            Side::Out => "outport",
        });
        out.str(&self.port);
        out.end_map();
    }
}

/// Formats an entry: the context, the time, then its own members. Of duplicate keys the last value wins.
pub(super) fn entry(context: &Context, now: Timestamp, own: &[(&str, &str)]) -> String {
    let time = format!("\"{now}\"");
    let context = context.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let mut fields: Vec<(&str, &str)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (key, value) in
        context.chain(std::iter::once(("timestamp", time.as_str()))).chain(own.iter().copied())
    {
        let place = *places.entry(key).or_insert(fields.len());
        match fields.get_mut(place) {
            Some(field) => field.1 = value,
            None => fields.push((key, value)),
        }
    }
    let mut out = Out::new(Encoding::Json, 256);
    out.begin_map();
    for (key, value) in fields {
        out.key(key);
        out.json(value);
    }
    out.end_map();
    text(out)
}

fn text(out: Out) -> String {
    // JSON output is valid UTF-8.
    String::from_utf8(out.into_bytes()).unwrap_or_default()
}

/// Entries stored in a note.
#[derive(Clone, Debug)]
pub(super) struct Noted {
    key: String,
    bytes: usize,
}

/// Cached index of the notes in the store.
#[derive(Default)]
pub(super) struct Log {
    tenants: Mutex<HashMap<Tenant, Known>>,
}

#[derive(Default)]
struct Known {
    notes: VecDeque<(String, usize)>,
    bytes: usize,
    /// Sequence number of the next key.
    last: u64,
}

impl Known {
    fn add(&mut self, key: String, bytes: usize) {
        self.bytes += bytes;
        match self.notes.iter_mut().rev().take(SHARED_LOOKS).find(|(known, _)| *known == key) {
            Some((_, known)) => *known += bytes,
            None => self.notes.push_back((key, bytes)),
        }
    }

    /// Removes the oldest notes from the cache, if there are too many, and returns their keys.
    fn excess(&mut self) -> Vec<String> {
        let mut gone = Vec::new();
        if self.notes.len() <= NOTES_MAX + NOTES_SLACK && self.bytes <= BYTES_MAX {
            return gone;
        }
        while self.notes.len() > NOTES_MAX || self.bytes > BYTES_MAX / 2 {
            let Some((key, bytes)) = self.notes.pop_front() else { break };
            self.bytes -= bytes;
            gone.push(key);
        }
        gone
    }
}

impl Log {
    /// Adds entries to the commit that they describe; all calls that share the commit share one note.
    pub(super) fn note(
        &self,
        engine: &Engine,
        tenant: &Tenant,
        tx: &mut Transaction<'_>,
        entries: &[String],
    ) -> Option<Noted> {
        if entries.is_empty() {
            return None;
        }
        let mut text = entries.join(",").into_bytes();
        let bytes = text.len();
        let (key, mut value) = match tx.noted(&prefix(tenant)) {
            Some((key, [others @ .., b']'])) => (key.to_owned(), [others, b","].concat()),
            _ => (self.next_key(engine, tenant), b"[".to_vec()),
        };
        value.append(&mut text);
        value.push(b']');
        tx.note(&key, Some(value));
        Some(Noted { key, bytes })
    }

    /// Key of a new note: time, sequence number, and a random part that distinguishes servers on one store.
    fn next_key(&self, engine: &Engine, tenant: &Tenant) -> String {
        let mut tenants = self.tenants();
        let known = tenants.entry(tenant.clone()).or_default();
        known.last += 1;
        let (ms, number, roll) = (engine.now().as_millis(), known.last, engine.random_u64() as u32);
        format!("{}{ms:014}-{number:012}-{roll:08x}", prefix(tenant))
    }

    /// Records a committed note, and deletes the oldest notes beyond the bound.
    pub(super) async fn record_committed(&self, engine: &Engine, tenant: &Tenant, noted: Noted) {
        let gone = {
            let mut tenants = self.tenants();
            let known = tenants.entry(tenant.clone()).or_default();
            known.add(noted.key, noted.bytes);
            known.excess()
        };
        if gone.is_empty() {
            return;
        }
        let count = gone.len();
        if let Err(error) = forget(engine, tenant, gone).await {
            tracing::warn!(%error, "cannot delete {count} old log entries");
        }
    }

    /// Loads the notes written before this server started, once.
    pub(super) async fn recall(&self, engine: &Engine, tenant: &Tenant) -> Result<(), Problem> {
        if self.tenants().contains_key(tenant) {
            return Ok(());
        }
        let notes = engine.notes(&prefix(tenant)).await?;
        let mut tenants = self.tenants();
        let known = tenants.entry(tenant.clone()).or_default();
        if known.notes.is_empty() {
            notes.into_iter().for_each(|(key, value)| known.add(key, value.len()));
        }
        Ok(())
    }

    /// Appends entries that do not belong to a change.
    pub(super) async fn append(
        &self,
        engine: &Engine,
        tenant: &Tenant,
        entries: &[String],
    ) -> Result<(), Problem> {
        self.recall(engine, tenant).await?;
        let value = format!("[{}]", entries.join(",")).into_bytes();
        let noted = Noted { key: self.next_key(engine, tenant), bytes: value.len() };
        engine.put_note(&noted.key, Some(value)).await?;
        self.record_committed(engine, tenant, noted).await;
        Ok(())
    }

    /// All entries, oldest first.
    pub(super) async fn read(&self, engine: &Engine, tenant: &Tenant) -> Result<Vec<String>, Problem> {
        let notes = engine.notes(&prefix(tenant)).await?;
        Ok(notes.iter().flat_map(|(_, value)| entries_of(value)).collect())
    }

    /// Returns all entries and deletes exactly those.
    pub(super) async fn take(&self, engine: &Engine, tenant: &Tenant) -> Result<Vec<String>, Problem> {
        let notes = engine.notes(&prefix(tenant)).await?;
        let entries = notes.iter().flat_map(|(_, value)| entries_of(value)).collect();
        let keys: Vec<String> = notes.into_iter().map(|(key, _)| key).collect();
        forget(engine, tenant, keys.clone()).await?;
        if let Some(known) = self.tenants().get_mut(tenant) {
            let gone: std::collections::HashSet<String> = keys.into_iter().collect();
            known.notes.retain(|(key, _)| !gone.contains(key));
            known.bytes = known.notes.iter().map(|(_, bytes)| bytes).sum();
        }
        Ok(entries)
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<Tenant, Known>> {
        self.tenants.lock()
    }
}

async fn forget(engine: &Engine, tenant: &Tenant, keys: Vec<String>) -> Result<(), EngineError> {
    let all = |tx: &mut Transaction<'_>| {
        keys.iter().for_each(|key| tx.note(key, None));
        Ok(())
    };
    engine.transact(tenant, Vec::new(), all).await
}

fn prefix(tenant: &Tenant) -> String {
    format!("sidejob/log/{tenant}/")
}

fn entries_of(note: &[u8]) -> Vec<String> {
    let mut from = serde_json::Deserializer::from_slice(note);
    let entries = Vec::<Box<RawValue>>::deserialize(&mut from).unwrap_or_default();
    entries.into_iter().map(|entry| entry.get().to_owned()).collect()
}
