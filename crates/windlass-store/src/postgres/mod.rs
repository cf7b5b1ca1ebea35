//! PostgreSQL store: several servers on one database.
//!
//! | file | contents |
//! |---|---|
//! | `migrations/`, `migrate` | tables and their versions |
//! | `look` | settings and figures of a database, for checks |
//! | `queries/`, `statements` | all SQL statements |
//! | `commits`, `plan` | group commit; verdicts and rows of a group |
//! | `claims`, `lanes`, `views` | claims; cache of where claimable jobs are |
//! | `transaction` | connection of a writer, and the outcome of a commit whose reply was lost |
//! | `reads` | lists, lookups, deadlines, counts, settings |
//! | `audit` | log of the actions of operators |
//! | `restore`, `blobs` | insertion of jobs unchanged; content-addressed blobs |
//! | `rows` | jobs to columns and back |
//! | `news` | notifications between servers (LISTEN and NOTIFY) |
//! | `limits` | limits across servers |
//! | `watch`, `clock` | polling for changes by other servers; the database's clock |
//! | `safety` | check that acknowledged commits are durable |
//! | `hosts` | the primary among several hosts |
//! | `connection`, `tls`, `options`, `shared` | infrastructure |

mod audit;
mod blobs;
mod claims;
mod clock;
mod commits;
mod connection;
mod durability_check;
mod hosts;
mod lanes;
mod limits;
mod look;
mod migrate;
mod notifications;
mod options;
mod plan;
mod polling;
mod reads;
mod restore;
mod rows;
mod shared;
mod statements;
mod tally;
mod tls;
mod transaction;
mod views;

pub use look::DatabaseState;
pub use migrate::Standing;
pub use options::PostgresOptions;

use crate::blobs::BlobStore;
use crate::change::{ClaimAsk, Due, Gate, KeyRule, LimitUse, Step, UnderLimits, Verdict};
use crate::error::StoreError;
use crate::meters::Meters;
use crate::query::{Filter, Page, QueueCounts, WaitingName, find_named_by_listing};
use crate::{
    AuditBounds, AuditEntry, AuditFilter, AuditLog, Listener, Lookup, Restore, Result, Settings, SharedStore,
    Store,
};
use async_trait::async_trait;
use connection::Connector;
use options::Address;
use shared::Shared;
use statements::Statements;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, oneshot};
use windlass_core::{Job, JobId, Name, Queue, Tenant, Timestamp};

/// Read connections. Reads are short; more connections would only compete for the database's CPU.
const READERS: usize = 4;

pub struct PostgresStore {
    shared: Arc<Shared>,
    commits: UnboundedSender<commits::Request>,
    claims: UnboundedSender<claims::Request>,
}

impl PostgresStore {
    /// Migrates the tables, unless disabled, and connects.
    pub async fn open(url: &str, options: &PostgresOptions) -> Result<PostgresStore> {
        let address = Address::parse(url, options)?;
        durability_check::check(&address, options.accept_unsafe).await?;
        if options.migrate {
            migrate::migrate(&address).await?;
        } else {
            refuse_old_tables(&address).await?;
        }
        let connector = Arc::new(Connector {
            statements: Arc::new(Statements::new(&address.schema)),
            hosts: address.hosts(),
            prepares: options.listen,
            closed: AtomicBool::new(false),
        });
        let shared = Arc::new(Shared::new(connector, READERS, options));
        polling::poll_once(&shared).await?;
        let (commits, inbox) = unbounded_channel();
        let inbox = Arc::new(Mutex::new(inbox));
        for _ in 0..options.writers.max(1) {
            tokio::spawn(commits::write(Arc::clone(&shared), Arc::clone(&inbox)));
        }
        let (claims, inbox) = unbounded_channel();
        tokio::spawn(claims::serve(Arc::clone(&shared), inbox));
        if options.listen {
            let channel = notifications::channel(&address.schema);
            tokio::spawn(notifications::exchange(Arc::downgrade(&shared), channel));
        }
        tokio::spawn(polling::poll(Arc::downgrade(&shared), options.poll_ms));
        Ok(PostgresStore { shared, commits, claims })
    }

    /// Reads the settings and figures of a database, and changes nothing.
    pub async fn look(url: &str, options: &PostgresOptions) -> Result<DatabaseState> {
        look::look(&Address::parse(url, options)?, options).await
    }

    /// Implements `windlass migrate`; returns the version found before.
    pub async fn migrate(url: &str, options: &PostgresOptions, only_look: bool) -> Result<Standing> {
        let address = Address::parse(url, options)?;
        if only_look { migrate::look(&address).await } else { migrate::migrate(&address).await }
    }
}

async fn refuse_old_tables(address: &Address) -> Result<()> {
    let standing = migrate::look(address).await?;
    if standing.missing.is_empty() {
        return Ok(());
    }
    Err(StoreError::Open(format!(
        "the tables have version {}, but this binary requires version {}; run `windlass migrate`",
        standing.version, standing.newest
    )))
}

#[async_trait]
impl Store for PostgresStore {
    async fn commit(&self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Verdict>> {
        let (reply, answer) = oneshot::channel();
        self.commits.send(commits::Request { steps, now, reply }).map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    async fn claim(&self, ask: ClaimAsk, now: Timestamp) -> Result<Vec<Arc<Job>>> {
        let (reply, answer) = oneshot::channel();
        self.claims.send(claims::Request { ask, now, reply }).map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    async fn load(&self, ids: Vec<JobId>) -> Result<Vec<Option<Arc<Job>>>> {
        reads::load(&self.shared, ids).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Due> {
        reads::due(&self.shared, now, limit).await
    }

    async fn set_paused(&self, tenant: &Tenant, queue: &Queue, paused: bool) -> Result<()> {
        reads::set_paused(&self.shared, tenant, queue, paused).await
    }

    fn reopen(&self, limit_key: &str) {
        self.shared.lanes().unpark(|held| *held.key == *limit_key);
        self.shared.tell_news();
    }

    fn blobs(&self) -> Arc<dyn BlobStore> {
        Arc::new(blobs::PostgresBlobs::new(Arc::clone(&self.shared)))
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        let _ = self.shared.listener.set(listener);
    }

    fn shared(&self) -> Option<&dyn SharedStore> {
        Some(self)
    }

    async fn health(&self) -> Result<()> {
        self.shared.open()?;
        self.shared.pool.read(statements::PAUSED, &[]).await.map(drop)
    }

    fn meters(&self) -> Arc<Meters> {
        Arc::clone(&self.shared.meters)
    }

    async fn close(&self) -> Result<()> {
        self.shared.open()?;
        polling::leave(&self.shared).await;
        self.shared.connector.closed.store(true, Ordering::Release);
        self.shared.pool.forget_idle();
        Ok(())
    }
}

#[async_trait]
impl Lookup for PostgresStore {
    async fn find_alias(&self, tenant: &Tenant, alias: &str) -> Result<Option<JobId>> {
        reads::find_alias(&self.shared, tenant, alias).await
    }

    async fn find_aliases(&self, tenants: &[Tenant], alias: &str) -> Result<Vec<JobId>> {
        reads::find_aliases(&self.shared, tenants, alias).await
    }

    async fn find_named(&self, tenant: &Tenant, queue: &Queue, name: &Name) -> Result<Option<JobId>> {
        find_named_by_listing(self, tenant, queue, name, Vec::new()).await
    }

    async fn children(&self, parent: JobId) -> Result<Vec<JobId>> {
        reads::children(&self.shared, parent).await
    }

    async fn list(&self, filter: Filter) -> Result<Page> {
        reads::list(&self.shared, filter).await
    }

    async fn next_id(&self) -> Result<JobId> {
        restore::next_id(&self.shared).await
    }

    async fn payload_bytes(&self, tenant: &Tenant) -> Result<u64> {
        reads::payload_bytes(&self.shared, tenant).await
    }

    async fn counts(&self, tenant: Option<&Tenant>, now: Timestamp) -> Result<Vec<QueueCounts>> {
        reads::counts(&self.shared, tenant, now).await
    }

    async fn waiting(&self, queue: &Queue, now: Timestamp) -> Result<Vec<WaitingName>> {
        reads::waiting(&self.shared, queue, now).await
    }

    async fn under_limits(&self, tenant: &Tenant, now: Timestamp) -> Result<Vec<UnderLimits>> {
        reads::under_limits(&self.shared, tenant, now).await
    }
}

#[async_trait]
impl Settings for PostgresStore {
    async fn put_setting(&self, key: &str, value: Option<Vec<u8>>) -> Result<()> {
        reads::put_setting(&self.shared, key, value).await
    }

    async fn settings(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
        reads::settings(&self.shared, prefix).await
    }

    async fn setting_keys(&self, prefix: &str) -> Result<Vec<String>> {
        reads::setting_keys(&self.shared, prefix).await
    }
}

#[async_trait]
impl Restore for PostgresStore {
    async fn restore(&self, jobs: Vec<Arc<Job>>, next: JobId, keys: KeyRule) -> Result<()> {
        restore::restore(&self.shared, jobs, next, keys).await
    }
}

#[async_trait]
impl AuditLog for PostgresStore {
    async fn append_audit(&self, entries: Vec<AuditEntry>, bounds: AuditBounds) -> Result<()> {
        audit::append(&self.shared, &entries, bounds).await
    }

    async fn list_audit(&self, filter: AuditFilter) -> Result<Vec<AuditEntry>> {
        audit::list(&self.shared, &filter).await
    }
}

#[async_trait]
impl SharedStore for PostgresStore {
    async fn limit_use(&self, tenant: &Tenant, keys: &[Arc<str>]) -> Result<Vec<LimitUse>> {
        limits::in_use(&self.shared, tenant, keys).await
    }

    async fn refund(&self, tenant: &Tenant, keys: &[Arc<str>], gate: Arc<dyn Gate>) -> Result<()> {
        limits::refund(&self.shared, tenant, keys, &*gate).await
    }

    async fn swap_setting(&self, key: &str, expected: Option<Vec<u8>>, value: Vec<u8>) -> Result<bool> {
        reads::swap_setting(&self.shared, key, expected, value).await
    }

    async fn unchecked(&self, limit: usize) -> Result<Vec<JobId>> {
        reads::unchecked(&self.shared, limit).await
    }

    fn clock_ahead_ms(&self) -> Option<Arc<AtomicI64>> {
        Some(Arc::clone(&self.shared.clock_ahead_ms))
    }

    fn seen_before(&self) -> Option<Timestamp> {
        self.shared.seen_before.get().copied().flatten()
    }

    fn calendar(&self) -> Option<crate::calendar::Kept> {
        Some(self.shared.calendar())
    }
}
