//! Limits across servers. Their state is in the database: running jobs in the tallies, token buckets in their
//! own table. A claim that touches a limit holds an advisory lock on its key from before the count until its
//! commit.
//!
//! The time used for a rate is read from the database while the lock is held, so that it never goes back from
//! one holder to the next. The time of the request would be wrong: a claim that waited for the lock would
//! earn tokens for the same time span again.

use super::connection::{Connection, Params, Trouble};
use super::lanes::{LaneId, LaneKey, Seen};
use super::notifications::Notification;
use super::rows;
use super::shared::Shared;
use super::statements as sql;
use super::transaction::{Sending, all};
use crate::change::{Gate, LimitUse};
use crate::error::StoreError;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_postgres::Row;
use windlass_core::{Tenant, Timestamp};

/// Keys locked by this transaction.
#[derive(Default)]
pub(super) struct Limits {
    taken: FxHashSet<(Tenant, Arc<str>)>,
    now: Timestamp,
}

impl Limits {
    /// Locks the keys of these lanes and passes their state to the gate. Keys are locked in sorted order,
    /// which prevents deadlocks.
    pub(super) async fn take(
        &mut self,
        shared: &Shared,
        connection: &Connection,
        tenant: &Tenant,
        lanes: impl Iterator<Item = LaneId>,
        gate: &dyn Gate,
    ) -> Result<(), Trouble> {
        let mut keys: BTreeMap<Vec<u8>, Arc<str>> = BTreeMap::new();
        for lane in lanes {
            let Some(words) = shared.lanes().words(lane) else { continue };
            for key in &words.limit_keys {
                if !self.taken.contains(&(tenant.clone(), Arc::clone(key))) {
                    keys.insert(rows::limit_ref(tenant, key), Arc::clone(key));
                }
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        let refs: Vec<&[u8]> = keys.keys().map(Vec::as_slice).collect();
        let mut locks: Vec<i64> = refs.iter().map(|bytes| rows::lock_number(bytes)).collect();
        locks.sort_unstable();
        locks.dedup();
        let Seen { before, at_us, history } = shared.lanes().seen();
        let (locks, before, at_us, history, refs) = (&locks, &before, &at_us, &history, &refs);
        let sending: Sending<'_> = vec![
            Box::pin(async move { connection.query(sql::LOCK_KEYS, &[locks]).await }),
            Box::pin(async move { connection.query(sql::LANES_SINCE, &[before, at_us, history]).await }),
            Box::pin(async move { connection.query(sql::BUCKETS, &[refs]).await }),
            // After the buckets: a bucket whose row is gone was full before this time.
            Box::pin(async { connection.query(sql::CLOCK, &[]).await }),
        ];
        let mut answers = all(sending).await?.into_iter().skip(1);
        // Jobs may run in lanes that another server has just created.
        shared.learn_since(&answers.next().unwrap_or_default()).map_err(Trouble::Refused)?;
        let buckets = answers.next().unwrap_or_default();
        let clock = answers.next().unwrap_or_default();
        if let Some(row) = clock.first() {
            self.now = self.now.max(Timestamp::from_millis(row.get(0)));
        }
        let buckets: FxHashMap<&[u8], &[u8]> = buckets.iter().map(|row| (row.get(0), row.get(1))).collect();
        let running = running(shared, connection, tenant, keys.values()).await?;
        for (reference, key) in &keys {
            let running = running.get(key).copied().unwrap_or_default();
            let bucket = buckets.get(reference.as_slice()).copied();
            gate.adopt(tenant, key, u32::try_from(running).unwrap_or(u32::MAX), bucket, self.now);
            self.taken.insert((tenant.clone(), Arc::clone(key)));
        }
        Ok(())
    }

    /// Time of the last lock; used for all questions to the gate.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Buckets after this claim, to be written with it.
    pub(super) fn buckets(&self, gates: &FxHashMap<Tenant, Arc<dyn Gate>>) -> Buckets {
        let mut buckets = Buckets::default();
        for (tenant, key) in &self.taken {
            let reference = rows::limit_ref(tenant, key);
            match gates.get(tenant).and_then(|gate| gate.bucket(tenant, key, self.now)) {
                Some((bytes, full_at)) => {
                    buckets.refs.push(reference);
                    buckets.bytes.push(bytes);
                    buckets.full_at.push(full_at.as_millis());
                }
                None => buckets.full.push(reference),
            }
        }
        buckets
    }
}

#[derive(Default)]
pub(super) struct Buckets {
    pub refs: Vec<Vec<u8>>,
    pub bytes: Vec<Vec<u8>>,
    pub full_at: Vec<i64>,
    pub full: Vec<Vec<u8>>,
}

/// Use of the limits as a claim would find it now; answers why a job waits.
pub(super) async fn in_use(
    shared: &Shared,
    tenant: &Tenant,
    keys: &[Arc<str>],
) -> Result<Vec<LimitUse>, StoreError> {
    shared.open()?;
    shared.learn_lanes().await?;
    let lanes = lanes_under(shared, tenant, keys.iter());
    let running = by_key(shared, &shared.pool.read(sql::LIMIT_USE, &[&lanes]).await?);
    let refs: Vec<Vec<u8>> = keys.iter().map(|key| rows::limit_ref(tenant, key)).collect();
    let buckets = shared.pool.read(sql::BUCKETS, &[&refs]).await?;
    let buckets: FxHashMap<&[u8], &[u8]> = buckets.iter().map(|row| (row.get(0), row.get(1))).collect();
    let used = keys.iter().zip(&refs).map(|(key, reference)| LimitUse {
        key: Arc::clone(key),
        running: running.get(key).map_or(0, |running| u32::try_from(*running).unwrap_or(u32::MAX)),
        bucket: buckets.get(reference.as_slice()).map(|bytes| bytes.to_vec()),
    });
    Ok(used.collect())
}

/// Tries before a token is given up: each lost try means that a claim used the same key meanwhile.
const REFUNDS_MAX: usize = 100;

/// Returns a token to the bucket of each key.
pub(super) async fn refund(
    shared: &Shared,
    tenant: &Tenant,
    keys: &[Arc<str>],
    gate: &dyn Gate,
) -> Result<(), StoreError> {
    shared.open()?;
    for key in keys {
        refund_one(shared, tenant, key, gate).await?;
    }
    // Other servers may have been notified of the free slot before the token was back; one lane names all
    // limits of its jobs.
    let lanes = lanes_under(shared, tenant, keys.iter());
    let with = |key: &Arc<str>| {
        let known = shared.lanes();
        let is_under =
            |lane: &&LaneId| known.words(**lane).is_some_and(|words| words.limit_keys.contains(key));
        lanes.iter().find(is_under).copied()
    };
    shared.outbox.put(keys.iter().filter_map(with).map(Notification::Freed).collect());
    Ok(())
}

async fn refund_one(
    shared: &Shared,
    tenant: &Tenant,
    key: &Arc<str>,
    gate: &dyn Gate,
) -> Result<(), StoreError> {
    let reference = rows::limit_ref(tenant, key);
    let lock = rows::lock_number(&reference);
    let mut tried: Option<Vec<u8>> = None;
    for _ in 0..REFUNDS_MAX {
        let found = shared.pool.read(sql::BUCKETS, &[&vec![reference.as_slice()]]).await?;
        // Without a row the bucket is full. An unchanged bucket after a try: the write succeeded, and its
        // reply was lost.
        let Some(bucket) = found.first().map(|row| row.get::<_, Vec<u8>>(1)) else { return Ok(()) };
        if tried.as_ref() == Some(&bucket) {
            return Ok(());
        }
        let clock = shared.pool.read(sql::CLOCK, &[]).await?;
        let now = Timestamp::from_millis(clock.first().map_or(0, |row| row.get(0)));
        let written = match gate.refunded(tenant, key, &bucket, now) {
            Some((bytes, full_at)) => {
                let full_at = full_at.as_millis();
                let params: Params<'_> = &[&lock, &reference, &bucket, &bytes, &full_at];
                let written = shared.pool.write(sql::REFUND_BUCKET, params).await?;
                tried = Some(bytes);
                written
            }
            None => shared.pool.write(sql::REFUND_FULL, &[&lock, &reference, &bucket]).await?,
        };
        if !written.is_empty() {
            return Ok(());
        }
    }
    Err(StoreError::Unavailable(format!("limit {key:?} is changed concurrently by claims; retry")))
}

/// Running jobs by limit key.
async fn running(
    shared: &Shared,
    connection: &Connection,
    tenant: &Tenant,
    keys: impl Iterator<Item = &Arc<str>>,
) -> Result<FxHashMap<Arc<str>, i64>, Trouble> {
    let lanes = lanes_under(shared, tenant, keys);
    let lanes = &lanes;
    let counted =
        all(vec![Box::pin(async move { connection.query(sql::LIMIT_USE, &[lanes]).await })]).await?;
    Ok(counted.first().map(|rows| by_key(shared, rows)).unwrap_or_default())
}

fn lanes_under<'a>(
    shared: &Shared,
    tenant: &Tenant,
    keys: impl Iterator<Item = &'a Arc<str>>,
) -> Vec<LaneId> {
    let wanted: FxHashSet<&Arc<str>> = keys.collect();
    let is_under = |words: &LaneKey| words.limit_keys.iter().any(|key| wanted.contains(key));
    shared.lanes().fitting(|words| words.tenant == *tenant && is_under(words))
}

fn by_key(shared: &Shared, counted: &[Row]) -> FxHashMap<Arc<str>, i64> {
    let mut running: FxHashMap<Arc<str>, i64> = FxHashMap::default();
    for row in counted {
        let Some(words) = shared.lanes().words(row.get(0)) else { continue };
        for key in &words.limit_keys {
            *running.entry(Arc::clone(key)).or_default() += row.get::<_, i64>(1);
        }
    }
    running
}
