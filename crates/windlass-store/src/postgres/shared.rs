//! State shared by the writers, the readers and the callers.

use super::connection::{Connector, Pool};
use super::lanes::{LaneId, LaneKey, Lanes, Seen};
use super::notifications::Outbox;
use super::options::PostgresOptions;
use super::rows;
use super::statements as sql;
use crate::error::StoreError;
use crate::meters::Meters;
use crate::row::Sharing;
use crate::{Listener, Result};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use tokio_postgres::Row;
use windlass_core::{Job, JobSpec, Name, Queue, Tenant, Timestamp};

pub(super) struct Shared {
    pub connector: Arc<Connector>,
    /// Connections for reads, and for small writes that need no plan.
    pub pool: Pool,
    pub listener: OnceLock<Arc<dyn Listener>>,
    pub meters: Arc<Meters>,
    /// Name of this server, unique among the servers of the database.
    pub server: String,
    /// Notifications to send to the other servers.
    pub outbox: Outbox,
    /// Offset of the database's clock from this machine's, in ms.
    pub clock_ahead_ms: Arc<AtomicI64>,
    /// Last sign of life of any server before this one's first.
    pub seen_before: OnceLock<Option<Timestamp>>,
    /// Rows left in the tallies after this server last summed them up.
    pub tallies_left: AtomicI64,
    /// See [`super::PostgresOptions`].
    pub follows_clock: bool,
    pub clock_error_ms: i64,
    pub clock: super::clock::Watched,
    lanes: Mutex<Lanes>,
}

impl Shared {
    pub(super) fn new(connector: Arc<Connector>, readers: usize, options: &PostgresOptions) -> Shared {
        let pool = Pool::new(Arc::clone(&connector), readers);
        Shared {
            connector,
            pool,
            listener: OnceLock::new(),
            meters: Arc::default(),
            server: server_name(),
            outbox: Outbox::default(),
            clock_ahead_ms: Arc::default(),
            seen_before: OnceLock::new(),
            tallies_left: AtomicI64::default(),
            follows_clock: options.follow_clock,
            clock_error_ms: options.clock_error_ms,
            clock: super::clock::Watched::default(),
            lanes: Mutex::default(),
        }
    }

    pub(super) fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock()
    }

    pub(super) fn calendar(&self) -> crate::calendar::Kept {
        self.clock.kept()
    }

    pub(super) fn open(&self) -> Result<()> {
        if self.connector.is_closed() { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// Notifies the listener of claimable jobs; never called while the mutex of the lanes is held.
    pub(super) fn tell_news(&self) {
        let news = self.lanes().take_news();
        if let Some(listener) = self.listener.get() {
            for ((tenant, queue, name), count) in &news {
                listener.became_ready(tenant, queue, name, *count);
            }
        }
    }

    // --- lanes ---------------------------------------------------------------------------------------------

    /// Lanes of these jobs that this server does not know.
    pub(super) fn missing_lanes<'a>(
        &self,
        specs: impl Iterator<Item = &'a Arc<JobSpec>>,
    ) -> BTreeSet<LaneKey> {
        let lanes = self.lanes();
        let mut missing = BTreeSet::new();
        let mut last: Option<&Arc<JobSpec>> = None;
        for spec in specs {
            if last.is_some_and(|last| is_same_lane(last, spec)) {
                continue;
            }
            last = Some(spec);
            let words = LaneKey::of(spec);
            if lanes.find(&words).is_none() {
                missing.insert(words);
            }
        }
        missing
    }

    /// Creates lanes, or finds those that other servers created. Runs in its own transaction before the
    /// commit that uses them: a lane that stays empty does no harm.
    pub(super) async fn make_lanes(&self, missing: BTreeSet<LaneKey>) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        let (mut tenants, mut queues, mut names) = (Vec::new(), Vec::new(), Vec::new());
        let (mut priorities, mut keys) = (Vec::new(), Vec::new());
        for words in &missing {
            tenants.push(words.tenant.as_str());
            queues.push(words.queue.as_str());
            names.push(words.name.as_str());
            priorities.push(words.priority);
            keys.push(rows::write_limit_keys(&words.limit_keys)?);
        }
        let entered =
            self.pool.write(sql::ENTER_LANES, &[&tenants, &queues, &names, &priorities, &keys]).await?;
        self.learn(&entered)
    }

    /// Learns lanes created by other servers since the last call; the cost does not depend on the total
    /// number of lanes.
    pub(super) async fn learn_lanes(&self) -> Result<()> {
        let Seen { before, at_us, history } = self.lanes().seen();
        let rows = self.pool.read(sql::LANES_SINCE, &[&before, &at_us, &history]).await?;
        self.learn_since(&rows)
    }

    /// Learns those of these lanes that are unknown, whenever they were created.
    pub(super) async fn learn_unknown(&self, lanes: impl Iterator<Item = LaneId>) -> Result<()> {
        let unknown: BTreeSet<LaneId> = {
            let known = self.lanes();
            lanes.filter(|lane| known.words(*lane).is_none()).collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let unknown: Vec<LaneId> = unknown.into_iter().collect();
        let rows = self.pool.read(sql::LANES_BY_ID, &[&unknown]).await?;
        self.learn(&rows)
    }

    /// Like [`Shared::learn`], and records where the next query starts; a result without new lanes is one row
    /// without a lane.
    pub(super) fn learn_since(&self, found: &[Row]) -> Result<()> {
        let Some(first) = found.first() else { return Ok(()) };
        if first.get::<_, Option<LaneId>>(0).is_some() {
            self.learn(found)?;
        }
        self.lanes().see(Seen { before: first.get(6), at_us: first.get(7), history: first.get(8) });
        Ok(())
    }

    /// Decodes `id, tenant, queue, name, priority, limit_keys`.
    pub(super) fn learn(&self, found: &[Row]) -> Result<()> {
        let mut lanes = self.lanes();
        for row in found {
            let bad = |error: windlass_core::BadName| {
                StoreError::Corrupt(format!("invalid name of a lane: {error}"))
            };
            let words = LaneKey {
                tenant: Tenant::new(row.get(1)).map_err(bad)?,
                queue: Queue::new(row.get(2)).map_err(bad)?,
                name: Name::new(row.get(3)).map_err(bad)?,
                priority: row.get(4),
                limit_keys: rows::read_limit_keys(row.get(5))?,
            };
            lanes.learn(row.get(0), words);
        }
        Ok(())
    }

    /// Reads the first job of each of these lanes.
    pub(super) async fn refresh_heads(&self, only: Vec<LaneId>, now: Timestamp) -> Result<()> {
        let entries = self.lanes().entries_of(&only);
        let heads = self.pool.read(sql::HEADS_OF, &[&only]).await?;
        let mut lanes = self.lanes();
        for row in &heads {
            let lane: LaneId = row.get(0);
            let (at, id): (Option<i64>, Option<i64>) = (row.get(1), row.get(2));
            let entries = entries.get(&lane).copied().unwrap_or_default();
            lanes.head_is(lane, entries, at.zip(id), now);
        }
        Ok(())
    }

    /// Same for all lanes; empty lanes cost the database nothing.
    pub(super) async fn refresh_all_heads(&self, now: Timestamp) -> Result<()> {
        let mut entries = self.lanes().entries();
        let heads = self.pool.read(sql::HEADS, &[]).await?;
        // Includes lanes that were missed for any reason: jobs wait in them.
        self.learn_unknown(heads.iter().map(|row| row.get(0))).await?;
        let mut lanes = self.lanes();
        for row in &heads {
            let lane: LaneId = row.get(0);
            let entries = entries.remove(&lane).unwrap_or_default();
            lanes.head_is(lane, entries, Some((row.get(1), row.get(2))), now);
        }
        for (lane, entries) in entries {
            lanes.head_is(lane, entries, None, now);
        }
        Ok(())
    }

    // --- rows ----------------------------------------------------------------------------------------------

    pub(super) async fn jobs(&self, found: &[Row]) -> Result<Vec<Arc<Job>>> {
        self.learn_unknown(found.iter().map(|row| row.get(2))).await?;
        self.jobs_of_known_lanes(found)
    }

    pub(super) fn jobs_of_known_lanes(&self, found: &[Row]) -> Result<Vec<Arc<Job>>> {
        let mut sharing = Sharing::default();
        let mut known: Option<(LaneId, Arc<LaneKey>)> = None;
        let mut jobs = Vec::with_capacity(found.len());
        for row in found {
            let lane: LaneId = row.get(2);
            if known.as_ref().is_none_or(|(id, _)| *id != lane) {
                let words = self.lanes().words(lane);
                let words = words.ok_or_else(|| StoreError::Corrupt(format!("lane {lane} is missing")))?;
                known = Some((lane, words));
            }
            if let Some((_, words)) = &known {
                jobs.push(Arc::new(rows::job(row, words, &mut sharing)?));
            }
        }
        Ok(jobs)
    }
}

/// Compares without building a lane key, which most jobs of a batch do not need.
pub(super) fn is_same_lane(one: &JobSpec, other: &JobSpec) -> bool {
    one.priority == other.priority
        && one.name == other.name
        && one.queue == other.queue
        && one.tenant == other.tenant
        && one.limit_keys() == other.limit_keys()
}

/// Unique per opened store: process id, time and counter.
fn server_name() -> String {
    static OPENED: AtomicU32 = AtomicU32::new(0);
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    format!("{}-{}-{}", std::process::id(), since.as_nanos(), OPENED.fetch_add(1, Ordering::Relaxed))
}
