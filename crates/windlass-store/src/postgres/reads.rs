//! Reads, and small writes that need no plan.

use super::lanes::LaneId;
use super::rows;
use super::shared::Shared;
use super::statements as sql;
use crate::Result;
use crate::change::{Due, UnderLimits, summed};
use crate::error::StoreError;
use crate::query::{Filter, PAGE_BYTES_MAX, PAGE_MAX, Page, PageBuilder, QueueCounts, SCAN_MAX, WaitingName};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_postgres::Row;
use windlass_core::{Job, JobId, Name, NameMatch, Queue, StateName, Tenant, Timestamp};

pub(super) async fn load(shared: &Shared, ids: Vec<JobId>) -> Result<Vec<Option<Arc<Job>>>> {
    shared.open()?;
    let numbers: Vec<i64> = ids.iter().map(|id| rows::number(*id)).collect();
    let found = shared.pool.read(sql::LOAD, &[&numbers]).await?;
    let jobs: FxHashMap<JobId, Arc<Job>> =
        shared.jobs(&found).await?.into_iter().map(|job| (job.id, job)).collect();
    Ok(ids.iter().map(|id| jobs.get(id).cloned()).collect())
}

pub(super) async fn children(shared: &Shared, parent: JobId) -> Result<Vec<JobId>> {
    shared.open()?;
    let found = shared.pool.read(sql::CHILDREN, &[&rows::number(parent)]).await?;
    found.iter().map(|row| rows::id_of(row.get(0))).collect()
}

pub(super) async fn find_alias(shared: &Shared, tenant: &Tenant, alias: &str) -> Result<Option<JobId>> {
    shared.open()?;
    let found = shared.pool.read(sql::FIND_ALIAS, &[&rows::alias_ref(tenant, alias)]).await?;
    found.first().and_then(|row| row.get::<_, Option<i64>>(0)).map(rows::id_of).transpose()
}

pub(super) async fn find_aliases(shared: &Shared, tenants: &[Tenant], alias: &str) -> Result<Vec<JobId>> {
    shared.open()?;
    let refs: Vec<rows::Ref> = tenants.iter().map(|tenant| rows::alias_ref(tenant, alias)).collect();
    let found = shared.pool.read(sql::FIND_ALIASES, &[&refs]).await?;
    found.iter().map(|row| rows::id_of(row.get(0))).collect()
}

/// Jobs pushed by SQL whose limit keys have not been computed.
pub(super) async fn unchecked(shared: &Shared, limit: usize) -> Result<Vec<JobId>> {
    shared.open()?;
    let lanes = shared.lanes().unchecked();
    if lanes.is_empty() {
        return Ok(Vec::new());
    }
    let found = shared.pool.read(sql::UNCHECKED, &[&lanes, &(limit as i64)]).await?;
    found.iter().map(|row| rows::id_of(row.get(0))).collect()
}

// --- time --------------------------------------------------------------------------------------------------

pub(super) async fn due(shared: &Shared, now: Timestamp, limit: usize) -> Result<Due> {
    shared.open()?;
    let since = {
        let mut lanes = shared.lanes();
        lanes.unpark(|held| held.until.is_some_and(|until| until <= now));
        let since = lanes.looked_at().map_or(i64::MIN, Timestamp::as_millis);
        lanes.look_at(now);
        since
    };
    let (now_ms, one_more) = (now.as_millis(), i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1));
    // The clock may go back.
    let starts = async {
        let starts = shared.pool.read(sql::STARTS, &[&since.min(now_ms), &now_ms]).await?;
        shared.learn_unknown(starts.iter().map(|row| row.get(0))).await?;
        Ok(starts)
    };
    let starts: Vec<Row> = starts.await.inspect_err(|_: &StoreError| {
        // Resets the position, so that the next call notifies of the jobs that this call missed.
        if since == i64::MIN {
            shared.lanes().forget_look()
        } else {
            shared.lanes().look_at(Timestamp::from_millis(since))
        }
    })?;
    let mut next = None;
    {
        let mut lanes = shared.lanes();
        for row in &starts {
            let (lane, since, later): (LaneId, Option<i64>, Option<i64>) =
                (row.get(0), row.get(1), row.get(2));
            if since.is_some_and(|at| at <= now_ms) {
                lanes.tell(lane, None);
            }
            next = earlier(next, later);
        }
        next = earlier(next, lanes.next_unparked(now).map(Timestamp::as_millis));
    }
    let mut overdue = shared.pool.read(sql::OVERDUE, &[&now_ms, &one_more]).await?;
    if overdue.len() > limit {
        next = overdue.last().map(|row| row.get(11));
        overdue.truncate(limit);
    } else {
        let moment = shared.pool.read(sql::NEXT_MOMENT, &[&now_ms]).await?;
        next = earlier(next, moment.first().and_then(|row| row.get(0)));
    }
    let jobs = shared.jobs(&overdue).await?;
    shared.tell_news();
    Ok(Due { jobs, next: next.map(Timestamp::from_millis) })
}

fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.into_iter().chain(other).min()
}

// --- lists -------------------------------------------------------------------------------------------------

pub(super) async fn list(shared: &Shared, filter: Filter) -> Result<Page> {
    shared.open()?;
    let limit = filter.limit.clamp(1, PAGE_MAX);
    let lanes = lanes_of(shared, &filter).await?;
    let asks_for = |state: StateName| filter.states.is_empty() || filter.states.contains(&state);
    // Retried jobs have an index of their own, and so a part of their own in the query.
    let retried = filter.retried && asks_for(StateName::Ready);
    let states = |settled: bool| -> Option<Vec<i16>> {
        let of_table = StateName::ALL.into_iter().filter(|state| state.is_settled() == settled);
        let asked = of_table.filter(|state| asks_for(*state) && !(retried && *state == StateName::Ready));
        Some(asked.map(|state| state as i16).collect::<Vec<_>>()).filter(|states| !states.is_empty())
    };
    let (living, done) = (states(false), states(true));
    let text: Option<Vec<u8>> = filter.text.as_ref().map(|text| text.as_bytes().to_vec());
    let mut cursor = filter.before.map_or(i64::MAX, rows::number);
    let (mut page, mut scanned) = (PageBuilder::new(limit), 0);
    let room = PAGE_BYTES_MAX as i64;
    loop {
        let wanted = (limit + 1).max(if filter.tag.is_some() { PAGE_MAX } else { 0 });
        let most = wanted as i64;
        // Both tables in one query: a job that is settled between two queries would appear in both, or in
        // neither.
        let mut found = match (&living, &done) {
            _ if retried => {
                shared
                    .pool
                    .read(sql::LIST_RETRIED, &[&cursor, &living, &lanes, &text, &most, &done, &room])
                    .await?
            }
            (None, None) => Vec::new(),
            (Some(_), None) => {
                shared.pool.read(sql::LIST_JOBS, &[&cursor, &living, &lanes, &text, &most, &room]).await?
            }
            (None, Some(_)) => {
                shared.pool.read(sql::LIST_DONE, &[&cursor, &done, &lanes, &text, &most, &room]).await?
            }
            (Some(_), Some(_)) => {
                shared
                    .pool
                    .read(sql::LIST_ALL, &[&cursor, &living, &lanes, &text, &most, &done, &room])
                    .await?
            }
        };
        let has_parts = retried || (living.is_some() && done.is_some());
        let horizon = horizon_of(&found, wanted, |row| if has_parts { row.get(PART) } else { 0 });
        scanned += found.len();
        found.retain(|row| horizon.is_none_or(|horizon| row.get::<_, i64>(0) >= horizon));
        found.sort_unstable_by_key(|row| std::cmp::Reverse(row.get::<_, i64>(0)));
        for job in shared.jobs(&found).await?.into_iter().filter(|job| filter.fits(job)) {
            if page.is_full() {
                return Ok(page.end_here());
            }
            page.push(job);
        }
        match horizon {
            None => return Ok(page.end_at(None)),
            Some(id) if scanned >= SCAN_MAX || page.is_full() => {
                return Ok(page.end_at(Some(rows::id_of(id)?)));
            }
            Some(id) => cursor = id,
        }
    }
}

/// Column of `LIST_ALL` and `LIST_RETRIED` that numbers the parts of the query, each with a limit of its own.
const PART: usize = 11;

/// Id below which one of the parts may have more rows than it returned: a part ends by its rows or by their bytes.
fn horizon_of(found: &[Row], wanted: usize, part: impl Fn(&Row) -> i32) -> Option<i64> {
    let mut parts: BTreeMap<i32, (usize, usize, i64)> = BTreeMap::new();
    for row in found {
        let (rows, bytes, last) = parts.entry(part(row)).or_insert((0, 0, i64::MAX));
        *rows += 1;
        *bytes += rows::large_bytes(row);
        *last = row.get::<_, i64>(0).min(*last);
    }
    let may_have_more = |(rows, bytes, _): &(usize, usize, i64)| *rows == wanted || *bytes >= PAGE_BYTES_MAX;
    parts.into_values().filter(may_have_more).map(|(_, _, last)| last).max()
}

/// Lanes that match the filter; `None`: any lane.
async fn lanes_of(shared: &Shared, filter: &Filter) -> Result<Option<Vec<LaneId>>> {
    let is_any = filter.tenant.is_none() && filter.queue.is_none() && filter.names == NameMatch::Any;
    if is_any && filter.scope.is_everything() {
        return Ok(None);
    }
    shared.learn_lanes().await?;
    let fitting = shared.lanes().fitting(|words| {
        filter.tenant.as_ref().is_none_or(|tenant| *tenant == words.tenant)
            && filter.queue.as_ref().is_none_or(|queue| *queue == words.queue)
            && filter.names.matches(&words.name)
            && filter.scope.allows(&words.queue, &words.name)
    });
    Ok(Some(fitting))
}

// --- counts ------------------------------------------------------------------------------------------------

pub(super) async fn payload_bytes(shared: &Shared, tenant: &Tenant) -> Result<u64> {
    shared.open()?;
    let sums = shared.pool.read(sql::PAYLOAD_BYTES, &[]).await?;
    shared.learn_unknown(sums.iter().map(|row| row.get(0))).await?;
    let lanes = shared.lanes();
    let is_own = |lane: LaneId| lanes.words(lane).is_some_and(|words| words.tenant == *tenant);
    let own = sums.iter().filter(|row| is_own(row.get(0)));
    Ok(own.map(|row| u64::try_from(row.get::<_, i64>(1)).unwrap_or(0)).sum())
}

pub(super) async fn counts(
    shared: &Shared,
    tenant: Option<&Tenant>,
    now: Timestamp,
) -> Result<Vec<QueueCounts>> {
    shared.open()?;
    let sums = shared.pool.read(sql::COUNTS, &[]).await?;
    shared.learn_unknown(sums.iter().map(|row| row.get(0))).await?;
    let paused = super::claims::paused(&shared.pool.read(sql::PAUSED, &[]).await?)?;
    shared.lanes().all_paused(paused);
    let mut counted = Counted { queues: BTreeMap::new(), tenant };
    let mut waiting: Vec<LaneId> = Vec::new();
    {
        let lanes = shared.lanes();
        for (tenant, queue) in lanes.paused() {
            if let Some(counts) = counted.of(tenant, queue) {
                counts.paused = true;
            }
        }
        for row in &sums {
            let (lane, state, n): (LaneId, i16, i64) = (row.get(0), row.get(1), row.get(2));
            let Some(words) = lanes.words(lane) else { continue };
            let Some(counts) = counted.of(&words.tenant, &words.queue) else { continue };
            counts.by_state[usize::try_from(state).unwrap_or(0).min(8)] += u64::try_from(n).unwrap_or(0);
            if [StateName::Ready as i16, StateName::Terminating as i16].contains(&state) {
                waiting.push(lane);
            }
        }
    }
    // A lane with both ready and terminating jobs was added twice.
    waiting.sort_unstable();
    waiting.dedup();
    let by_time = shared.pool.read(sql::COUNTS_BY_TIME, &[&waiting, &now.as_millis()]).await?;
    let later = shared.pool.read(sql::COUNTS_LATER, &[&waiting, &now.as_millis()]).await?;
    let lanes = shared.lanes();
    for row in by_time {
        let (lane, oldest, delayed): (LaneId, Option<i64>, i64) = (row.get(0), row.get(1), row.get(2));
        let Some(words) = lanes.words(lane) else { continue };
        let Some(counts) = counted.of(&words.tenant, &words.queue) else { continue };
        counts.delayed += delayed.unsigned_abs();
        counts.oldest_due = counts.oldest_due.into_iter().chain(oldest.map(Timestamp::from_millis)).min();
    }
    for row in later {
        let (lane, retrying, shutting_down): (LaneId, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let Some(words) = lanes.words(lane) else { continue };
        let Some(counts) = counted.of(&words.tenant, &words.queue) else { continue };
        counts.retrying += retrying.unsigned_abs();
        counts.delayed = counts.delayed.saturating_sub((retrying + shutting_down).unsigned_abs());
    }
    Ok(counted.queues.into_values().collect())
}

/// Names of this queue with claimable jobs.
pub(super) async fn waiting(shared: &Shared, queue: &Queue, now: Timestamp) -> Result<Vec<WaitingName>> {
    shared.open()?;
    let sums = shared.pool.read(sql::COUNTS, &[]).await?;
    shared.learn_unknown(sums.iter().map(|row| row.get(0))).await?;
    let mut ready: BTreeMap<LaneId, i64> = BTreeMap::new();
    {
        let lanes = shared.lanes();
        let paused: Vec<&Tenant> =
            lanes.paused().filter(|(_, paused)| *paused == *queue).map(|(tenant, _)| tenant).collect();
        for row in &sums {
            let (lane, state, n): (LaneId, i16, i64) = (row.get(0), row.get(1), row.get(2));
            let waits = [StateName::Ready as i16, StateName::Terminating as i16].contains(&state);
            let Some(words) = lanes.words(lane).filter(|_| waits) else { continue };
            if words.queue == *queue && !paused.contains(&&words.tenant) {
                *ready.entry(lane).or_default() += n;
            }
        }
    }
    if ready.is_empty() {
        return Ok(Vec::new());
    }
    let asked: Vec<LaneId> = ready.keys().copied().collect();
    for row in shared.pool.read(sql::COUNTS_BY_TIME, &[&asked, &now.as_millis()]).await? {
        let (lane, delayed): (LaneId, i64) = (row.get(0), row.get(2));
        if let Some(ready) = ready.get_mut(&lane) {
            *ready -= delayed;
        }
    }
    let lanes = shared.lanes();
    let mut names: BTreeMap<(Tenant, Name), u64> = BTreeMap::new();
    for (lane, ready) in ready.into_iter().filter(|(_, ready)| *ready > 0) {
        let Some(words) = lanes.words(lane) else { continue };
        *names.entry((words.tenant.clone(), words.name.clone())).or_default() += ready.unsigned_abs();
    }
    Ok(names.into_iter().map(|((tenant, name), ready)| WaitingName { tenant, name, ready }).collect())
}

/// Due jobs of the lanes with limits: the tallies minus the delayed jobs.
pub(super) async fn under_limits(
    shared: &Shared,
    tenant: &Tenant,
    now: Timestamp,
) -> Result<Vec<UnderLimits>> {
    shared.open()?;
    let sums = shared.pool.read(sql::COUNTS, &[]).await?;
    shared.learn_unknown(sums.iter().map(|row| row.get(0))).await?;
    let mut waiting: BTreeMap<LaneId, i64> = BTreeMap::new();
    for row in &sums {
        let (lane, state, n): (LaneId, i16, i64) = (row.get(0), row.get(1), row.get(2));
        let is_ours =
            shared.lanes().words(lane).is_some_and(|words| words.tenant == *tenant && words.has_limits());
        if is_ours && [StateName::Ready as i16, StateName::Terminating as i16].contains(&state) {
            *waiting.entry(lane).or_default() += n;
        }
    }
    let ids: Vec<LaneId> = waiting.keys().copied().collect();
    let by_time = shared.pool.read(sql::COUNTS_BY_TIME, &[&ids, &now.as_millis()]).await?;
    for row in by_time {
        let (lane, delayed): (LaneId, i64) = (row.get(0), row.get(2));
        waiting.entry(lane).and_modify(|waits| *waits -= delayed);
    }
    let lanes = shared.lanes();
    let group = |(lane, due): (LaneId, i64)| {
        let due = u64::try_from(due).ok().filter(|due| *due > 0)?;
        Some(UnderLimits { keys: lanes.words(lane)?.limit_keys.clone(), due, held: lanes.held_by(lane, now) })
    };
    Ok(summed(waiting.into_iter().filter_map(group)))
}

struct Counted<'a> {
    queues: BTreeMap<(Tenant, Queue), QueueCounts>,
    tenant: Option<&'a Tenant>,
}

impl Counted<'_> {
    fn of(&mut self, tenant: &Tenant, queue: &Queue) -> Option<&mut QueueCounts> {
        if self.tenant.is_some_and(|wanted| wanted != tenant) {
            return None;
        }
        let entry = self.queues.entry((tenant.clone(), queue.clone()));
        Some(entry.or_insert_with_key(|(tenant, queue)| QueueCounts {
            tenant: tenant.clone(),
            queue: queue.clone(),
            paused: false,
            by_state: [0; 9],
            delayed: 0,
            retrying: 0,
            oldest_due: None,
        }))
    }
}

// --- settings ----------------------------------------------------------------------------------------------

pub(super) async fn put_setting(shared: &Shared, key: &str, value: Option<Vec<u8>>) -> Result<()> {
    shared.open()?;
    match value {
        Some(value) => shared.pool.write(sql::PUT_SETTING, &[&key, &value]).await.map(drop),
        None => shared.pool.write(sql::DELETE_SETTING, &[&key]).await.map(drop),
    }
}

/// Compare-and-swap. The write is repeated after a lost reply, so `false` may also mean that the first try
/// succeeded.
pub(super) async fn swap_setting(
    shared: &Shared,
    key: &str,
    expected: Option<Vec<u8>>,
    value: Vec<u8>,
) -> Result<bool> {
    shared.open()?;
    let written = match expected {
        Some(expected) => shared.pool.write(sql::SWAP_SETTING, &[&key, &expected, &value]).await?,
        None => shared.pool.write(sql::ADD_SETTING, &[&key, &value]).await?,
    };
    Ok(!written.is_empty())
}

pub(super) async fn settings(shared: &Shared, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
    shared.open()?;
    let found = shared.pool.read(sql::SETTINGS, &[&prefix]).await?;
    Ok(found.iter().map(|row| (row.get(0), row.get(1))).collect())
}

pub(super) async fn setting_keys(shared: &Shared, prefix: &str) -> Result<Vec<String>> {
    shared.open()?;
    let found = shared.pool.read(sql::SETTING_KEYS, &[&prefix]).await?;
    Ok(found.iter().map(|row| row.get(0)).collect())
}

pub(super) async fn set_paused(shared: &Shared, tenant: &Tenant, queue: &Queue, paused: bool) -> Result<()> {
    shared.open()?;
    let query = if paused { sql::PAUSE } else { sql::UNPAUSE };
    shared.pool.write(query, &[&tenant.as_str(), &queue.as_str()]).await?;
    shared.lanes().set_paused(tenant, queue, paused);
    shared.tell_news();
    Ok(())
}
