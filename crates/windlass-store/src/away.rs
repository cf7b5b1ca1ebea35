//! Stand-in for a database that could not be opened yet: every call fails as if the connection were lost. It
//! lets a server start and accept the requests that it can write to its journal.

use crate::blobs::{BlobStore, NoBlobs};
use crate::calendar::Kept;
use crate::change::{ClaimAsk, Due, Gate, KeyRule, LimitUse, Step, UnderLimits, Verdict};
use crate::error::StoreError;
use crate::meters::Meters;
use crate::query::{Filter, Page, QueueCounts, WaitingName};
use crate::{
    AuditBounds, AuditEntry, AuditFilter, AuditLog, Listener, Lookup, Restore, Result, Settings, SharedStore,
    Store,
};
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use windlass_core::{Job, JobId, Name, Queue, Tenant, Timestamp};

pub struct AwayStore {
    why: String,
    /// Key prefixes of the settings that a server reads at startup; these reads return an empty list instead
    /// of an error.
    read_at_start: &'static [&'static str],
    meters: Arc<Meters>,
}

impl AwayStore {
    pub fn new(why: impl Into<String>, read_at_start: &'static [&'static str]) -> AwayStore {
        AwayStore { why: why.into(), read_at_start, meters: Arc::default() }
    }

    fn away<T>(&self) -> Result<T> {
        Err(StoreError::Unavailable(self.why.clone()))
    }
}

#[async_trait]
impl Store for AwayStore {
    async fn commit(&self, _: Vec<Step>, _: Timestamp) -> Result<Vec<Verdict>> {
        self.away()
    }

    async fn claim(&self, _: ClaimAsk, _: Timestamp) -> Result<Vec<Arc<Job>>> {
        self.away()
    }

    async fn load(&self, _: Vec<JobId>) -> Result<Vec<Option<Arc<Job>>>> {
        self.away()
    }

    async fn due(&self, _: Timestamp, _: usize) -> Result<Due> {
        self.away()
    }

    async fn set_paused(&self, _: &Tenant, _: &Queue, _: bool) -> Result<()> {
        self.away()
    }

    fn reopen(&self, _: &str) {}

    fn blobs(&self) -> Arc<dyn BlobStore> {
        Arc::new(NoBlobs)
    }

    fn listen(&self, _: Arc<dyn Listener>) {}

    fn shared(&self) -> Option<&dyn SharedStore> {
        Some(self)
    }

    async fn health(&self) -> Result<()> {
        self.away()
    }

    fn meters(&self) -> Arc<Meters> {
        self.meters.clone()
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Lookup for AwayStore {
    async fn find_alias(&self, _: &Tenant, _: &str) -> Result<Option<JobId>> {
        self.away()
    }

    async fn find_named(&self, _: &Tenant, _: &Queue, _: &Name) -> Result<Option<JobId>> {
        self.away()
    }

    async fn children(&self, _: JobId) -> Result<Vec<JobId>> {
        self.away()
    }

    async fn list(&self, _: Filter) -> Result<Page> {
        self.away()
    }

    async fn next_id(&self) -> Result<JobId> {
        self.away()
    }

    async fn payload_bytes(&self, _: &Tenant) -> Result<u64> {
        self.away()
    }

    async fn counts(&self, _: Option<&Tenant>, _: Timestamp) -> Result<Vec<QueueCounts>> {
        self.away()
    }

    async fn waiting(&self, _: &Queue, _: Timestamp) -> Result<Vec<WaitingName>> {
        self.away()
    }

    async fn under_limits(&self, _: &Tenant, _: Timestamp) -> Result<Vec<UnderLimits>> {
        self.away()
    }
}

#[async_trait]
impl AuditLog for AwayStore {
    async fn append_audit(&self, _: Vec<AuditEntry>, _: AuditBounds) -> Result<()> {
        self.away()
    }

    async fn list_audit(&self, _: AuditFilter) -> Result<Vec<AuditEntry>> {
        self.away()
    }
}

#[async_trait]
impl Settings for AwayStore {
    async fn put_setting(&self, _: &str, _: Option<Vec<u8>>) -> Result<()> {
        self.away()
    }

    async fn settings(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
        match self.read_at_start.contains(&prefix) {
            true => Ok(Vec::new()),
            false => self.away(),
        }
    }

    async fn setting_keys(&self, _: &str) -> Result<Vec<String>> {
        self.away()
    }
}

#[async_trait]
impl Restore for AwayStore {
    async fn restore(&self, _: Vec<Arc<Job>>, _: JobId, _: KeyRule) -> Result<()> {
        self.away()
    }
}

#[async_trait]
impl SharedStore for AwayStore {
    async fn limit_use(&self, _: &Tenant, _: &[Arc<str>]) -> Result<Vec<LimitUse>> {
        self.away()
    }

    async fn refund(&self, _: &Tenant, _: &[Arc<str>], _: Arc<dyn Gate>) -> Result<()> {
        self.away()
    }

    async fn swap_setting(&self, _: &str, _: Option<Vec<u8>>, _: Vec<u8>) -> Result<bool> {
        self.away()
    }

    /// No error: an engine asks every second, and would log every time.
    async fn unchecked(&self, _: usize) -> Result<Vec<JobId>> {
        Ok(Vec::new())
    }

    fn clock_ahead_ms(&self) -> Option<Arc<AtomicI64>> {
        None
    }

    fn seen_before(&self) -> Option<Timestamp> {
        None
    }

    fn calendar(&self) -> Option<Kept> {
        None
    }
}
