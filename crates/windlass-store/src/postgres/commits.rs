//! Commits: requests that arrive during a transaction form the next one (group commit). A few writers run in
//! parallel; a group of any size costs the same number of statements.
//!
//! Each transaction takes its locks in the same order, which prevents deadlocks: keys (sorted), jobs (by id),
//! settled jobs (by id).

use super::connection::{Connection, Trouble};
use super::lanes::{LaneId, LaneKey};
use super::notifications::Notification;
use super::plan::{self, Found, Needs, Plan};
use super::rows::{self, MovedRows, NewRows, SpecRows};
use super::shared::{Shared, is_same_lane};
use super::statements as sql;
use super::tally::Tally;
use super::transaction::{End, Name, Sending, Slot, TRIES_MAX, all, all_within, patience, said};
use crate::change::{Step, Verdict};
use crate::error::StoreError;
use crate::group::GroupLimits;
use crate::keys::Key;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex, oneshot};
use windlass_core::{JobId, JobSpec, Timestamp};

/// Bounds on a group, so that a transaction does not hold its locks for long.
const GROUP: GroupLimits = GroupLimits { requests: 1_000, jobs: 5_000 };

pub(super) struct Request {
    pub steps: Vec<Step>,
    pub now: Timestamp,
    pub reply: oneshot::Sender<Result<Vec<Verdict>, StoreError>>,
}

impl Request {
    fn jobs(&self) -> usize {
        self.steps.iter().map(|step| step.changes.len() + step.inserts.len() + step.settings.len()).sum()
    }
}

/// Queue of requests, from which each free writer takes a group.
pub(super) type Inbox = Arc<Mutex<UnboundedReceiver<Request>>>;

/// Main loop of a writer; ends when the store is dropped.
pub(super) async fn write(shared: Arc<Shared>, inbox: Inbox) {
    let mut slot = Slot::new(Arc::clone(&shared.connector));
    loop {
        let group = {
            let mut inbox = inbox.lock().await;
            let Some(first) = inbox.recv().await else { return };
            let mut group = Vec::new();
            GROUP.gather(&mut group, first, Request::jobs, || inbox.try_recv().ok());
            group
        };
        Box::pin(answer(&shared, &mut slot, group)).await;
    }
}

async fn answer(shared: &Arc<Shared>, slot: &mut Slot, group: Vec<Request>) {
    let began = Instant::now();
    let mut steps = Vec::new();
    let mut replies = Vec::with_capacity(group.len());
    let mut now = Timestamp::from_millis(i64::MIN);
    for request in group {
        now = now.max(request.now);
        replies.push((request.steps.len(), request.reply));
        steps.extend(request.steps);
    }
    let done = commit_steps(shared, slot, steps, now).await;
    shared.meters.commit_size.record(replies.len() as u64);
    shared.meters.commit_us.record_time(began.elapsed());
    match done {
        Ok(verdicts) => {
            let mut verdicts = verdicts.into_iter();
            for (count, reply) in replies {
                // The caller may have gone away.
                let _ = reply.send(Ok(verdicts.by_ref().take(count).collect()));
            }
        }
        Err(error) => {
            for (_, reply) in replies {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
    shared.tell_news();
}

async fn commit_steps(
    shared: &Arc<Shared>,
    slot: &mut Slot,
    steps: Vec<Step>,
    now: Timestamp,
) -> Result<Vec<Verdict>, StoreError> {
    shared.open()?;
    shared.make_lanes(missing_lanes(shared, &steps)).await?;
    let mut lost = 0;
    for _ in 0..TRIES_MAX {
        let was_used = slot.is_used();
        match Attempt::new(shared, now).run(slot, &steps).await {
            Ok(verdicts) => return Ok(verdicts),
            Err(Failed::Unknown(why)) => return Err(StoreError::Unknown(why)),
            Err(Failed::Undone(Trouble::Conflict(_))) => {}
            // An idle connection may have been lost long ago.
            Err(Failed::Undone(Trouble::Lost(_))) if was_used && lost == 0 => lost += 1,
            Err(Failed::Undone(trouble)) => return Err(trouble.not_done()),
        }
    }
    Err(StoreError::Unavailable("too many conflicts with other transactions; retry".to_owned()))
}

fn missing_lanes(shared: &Shared, steps: &[Step]) -> BTreeSet<LaneKey> {
    let inserts = steps.iter().flat_map(|step| step.inserts.iter().map(|new| &new.spec));
    let changes = steps.iter().flat_map(|step| &step.changes);
    let changed = changes.filter_map(|change| change.after.as_ref()).map(|job| &job.spec);
    shared.missing_lanes(inserts.chain(changed))
}

enum Failed {
    Undone(Trouble),
    Unknown(String),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed::Undone(Trouble::Refused(error))
    }
}

struct Attempt<'a> {
    shared: &'a Arc<Shared>,
    now: Timestamp,
}

/// Results of the first half of the transaction: locks and reads.
struct Asked {
    name: Name,
    found: FxHashMap<JobId, Found>,
    claimants: FxHashMap<Key, BTreeSet<JobId>>,
    ids: Vec<JobId>,
}

impl<'a> Attempt<'a> {
    fn new(shared: &'a Arc<Shared>, now: Timestamp) -> Attempt<'a> {
        Attempt { shared, now }
    }

    async fn run(&self, slot: &mut Slot, steps: &[Step]) -> Result<Vec<Verdict>, Failed> {
        let connection = slot.connection().await?;
        let asked = match ask(connection, steps).await {
            Ok(asked) => asked,
            Err(trouble) => return Err(Failed::Undone(slot.undo(trouble).await)),
        };
        let Asked { name, found, claimants, mut ids } = asked;
        let plan = plan::plan(steps, &found, claimants);
        if plan.writes.is_empty() && plan.inserts.is_empty() && plan.settings.is_empty() {
            slot.roll_back().await;
            return Ok(plan::with_ids(plan.verdicts, &[]));
        }
        if ids.len() != plan.inserts.len() {
            ids = match new_ids(connection, plan.inserts.len()).await {
                Ok(ids) => ids,
                Err(trouble) => return Err(Failed::Undone(slot.undo(trouble).await)),
            };
        }
        let rows = match Rows::of(self.shared, &plan, &ids) {
            Ok(rows) => rows,
            Err(error) => return Err(Failed::Undone(slot.undo(Trouble::Refused(error)).await)),
        };
        let began = Instant::now();
        let sent = all_within(rows.patience(), rows.send(connection)).await;
        self.shared.meters.sync_us.record_time(began.elapsed());
        if let Err(trouble) = sent {
            match slot.find_out(&name, trouble).await {
                End::Undone(trouble) => return Err(Failed::Undone(trouble)),
                End::Unknown(why) => {
                    // Jobs may exist, and a claim that finds none does no harm.
                    self.note(&plan, &ids, &rows);
                    return Err(Failed::Unknown(why));
                }
            }
        }
        self.note(&plan, &ids, &rows);
        Ok(plan::with_ids(plan.verdicts, &ids))
    }

    /// Records jobs that are claimable after a commit, or a commit of unknown outcome, in the lanes, before
    /// any reply is sent.
    fn note(&self, plan: &Plan, ids: &[JobId], rows: &Rows) {
        let mut outbox = Vec::new();
        let mut lanes = self.shared.lanes();
        let inserted = plan.inserts.iter().zip(ids).map(|(job, id)| (job, *id));
        let written = plan.writes.iter().filter_map(|write| write.after.as_deref()).map(|job| (job, job.id));
        for ((job, id), lane) in inserted.chain(written).zip(&rows.lanes_after) {
            if let Some(run_at) = job.state().claimable_at() {
                let place = (run_at.as_millis(), rows::number(id));
                lanes.entered(*lane, place, self.now, Some(1));
                outbox.push(Notification::Entered(*lane, place));
            }
        }
        drop(lanes);
        // A limit freed here may allow jobs on other servers to start.
        for write in &plan.writes {
            let is_limited =
                write.before.state().lease().is_some() && !write.before.spec.limit_keys().is_empty();
            if is_limited && write.after.as_ref().is_none_or(|after| after.state().lease().is_none()) {
                outbox.push(Notification::Freed(write.lane));
            }
        }
        self.shared.outbox.put(outbox);
    }
}

/// Locks the keys and the jobs, and reads the data for the plan, in one pipelined round trip.
async fn ask(connection: &Connection, steps: &[Step]) -> Result<Asked, Trouble> {
    let needs = Needs::of(steps);
    let keys: Vec<Key> = needs.keys.iter().cloned().collect();
    let refs: Vec<Vec<u8>> = keys.iter().map(ref_of).collect();
    let mut locks: Vec<i64> = refs.iter().map(|bytes| rows::lock_number(bytes)).collect();
    locks.sort_unstable();
    locks.dedup();
    let ids: Vec<i64> = needs.ids.iter().map(|id| rows::number(*id)).collect();
    let inserts: usize = steps.iter().map(|step| step.inserts.len()).sum();
    // If no step can be refused, every insert creates a job, so its id can be drawn at once.
    let is_certain =
        keys.is_empty() && steps.iter().all(|step| step.inserts.is_empty() || step.changes.is_empty());
    let wanted_ids = if is_certain { inserts as i64 } else { 0 };

    let (locks, refs, ids) = (&locks, &refs, &ids);
    let mut sending: Sending<'_> =
        vec![said(connection, "BEGIN"), Box::pin(async { connection.query(sql::XACT_ID, &[]).await })];
    if !keys.is_empty() {
        sending.push(Box::pin(async move { connection.query(sql::LOCK_KEYS, &[locks]).await }));
        sending.push(Box::pin(async move { connection.query(sql::CLAIMANTS, &[refs]).await }));
    }
    if !ids.is_empty() {
        sending.push(Box::pin(async move { connection.query(sql::LOCK_JOBS, &[ids]).await }));
        sending.push(Box::pin(async move { connection.query(sql::LOCK_DONE, &[ids]).await }));
    }
    if wanted_ids > 0 {
        let wanted_ids = &wanted_ids;
        sending.push(Box::pin(async move { connection.query(sql::NEW_IDS, &[wanted_ids]).await }));
    }
    let mut answers = all(sending).await?.into_iter().skip(1);
    let mut next = || answers.next().unwrap_or_default();
    let name =
        Name::of(&next()).ok_or_else(|| Trouble::Lost("PostgreSQL returned no transaction id".to_owned()))?;
    let mut claimants: FxHashMap<Key, BTreeSet<JobId>> = FxHashMap::default();
    if !keys.is_empty() {
        next();
        let by_ref: FxHashMap<&[u8], &Key> = refs.iter().map(Vec::as_slice).zip(&keys).collect();
        claimants = keys.iter().map(|key| (key.clone(), BTreeSet::new())).collect();
        for row in next() {
            let key = by_ref.get(row.get::<_, &[u8]>(0)).and_then(|key| claimants.get_mut(*key));
            let id = rows::id_of(row.get(1)).map_err(Trouble::Refused)?;
            if let Some(claimants) = key {
                claimants.insert(id);
            }
        }
    }
    let mut found = FxHashMap::default();
    if !ids.is_empty() {
        for is_done in [false, true] {
            for row in next() {
                let id = rows::id_of(row.get(0)).map_err(Trouble::Refused)?;
                let (version, lane) = (row.get::<_, i64>(1) as u64, row.get(2));
                found.insert(id, Found { version, lane, is_done });
            }
        }
    }
    let ids = next()
        .iter()
        .map(|row| rows::id_of(row.get(0)))
        .collect::<Result<_, _>>()
        .map_err(Trouble::Refused)?;
    Ok(Asked { name, found, claimants, ids })
}

async fn new_ids(connection: &Connection, count: usize) -> Result<Vec<JobId>, Trouble> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let count = count as i64;
    let count = &count;
    let rows = all(vec![Box::pin(async move { connection.query(sql::NEW_IDS, &[count]).await })]).await?;
    rows.iter()
        .flatten()
        .map(|row| rows::id_of(row.get(0)))
        .collect::<Result<_, _>>()
        .map_err(Trouble::Refused)
}

fn ref_of(key: &Key) -> Vec<u8> {
    match key {
        Key::Unique(tenant, key) => rows::unique_ref(tenant, key),
        Key::Alias(tenant, alias) => rows::alias_ref(tenant, alias),
    }
}

/// Rows to write, by statement.
#[derive(Default)]
struct Rows {
    new_ids: Vec<i64>,
    new: NewRows,
    respec_jobs: SpecRows,
    respec_done: SpecRows,
    update_jobs: MovedRows,
    update_done: MovedRows,
    archive: MovedRows,
    revive: MovedRows,
    delete_jobs: Vec<i64>,
    delete_done: Vec<i64>,
    tally_lanes: Vec<LaneId>,
    tally_states: Vec<i16>,
    tally_counts: Vec<i64>,
    /// Lanes of the inserts, then of the written jobs that were not deleted.
    lanes_after: Vec<LaneId>,
    setting_keys: Vec<String>,
    setting_values: Vec<Vec<u8>>,
    dropped_settings: Vec<String>,
}

impl Rows {
    fn of(shared: &Shared, plan: &Plan, ids: &[JobId]) -> Result<Rows, StoreError> {
        let mut rows = Rows { new_ids: ids.iter().map(|id| rows::number(*id)).collect(), ..Rows::default() };
        let mut finder = LaneFinder { shared, last: None };
        let mut tally = Tally::default();
        for job in &plan.inserts {
            let lane = finder.lane(&job.spec)?;
            rows.new.push(lane, job)?;
            rows.lanes_after.push(lane);
            tally.add(lane, job, 1);
        }
        for write in &plan.writes {
            let (before, number) = (&write.before, rows::number(write.before.id));
            tally.add(write.lane, before, -1);
            let Some(after) = &write.after else {
                if write.was_done { &mut rows.delete_done } else { &mut rows.delete_jobs }.push(number);
                continue;
            };
            let stays = Arc::ptr_eq(&before.spec, &after.spec) || is_same_lane(&before.spec, &after.spec);
            let lane = if stays { write.lane } else { finder.lane(&after.spec)? };
            tally.add(lane, after, 1);
            rows.lanes_after.push(lane);
            if !Arc::ptr_eq(&before.spec, &after.spec) && before.spec != after.spec {
                if write.was_done { &mut rows.respec_done } else { &mut rows.respec_jobs }
                    .push(lane, after)?;
            }
            match (write.was_done, after.state().is_settled()) {
                (false, false) => &mut rows.update_jobs,
                (false, true) => &mut rows.archive,
                (true, false) => &mut rows.revive,
                (true, true) => &mut rows.update_done,
            }
            .push(before, after)?;
        }
        (rows.tally_lanes, rows.tally_states, rows.tally_counts) = tally.columns();
        for (key, value) in &plan.settings {
            match value {
                Some(value) => {
                    rows.setting_keys.push(key.clone());
                    rows.setting_values.push(value.clone());
                }
                None => rows.dropped_settings.push(key.clone()),
            }
        }
        Ok(rows)
    }

    fn patience(&self) -> Duration {
        let payloads = [&self.new.payloads, &self.respec_jobs.payloads, &self.respec_done.payloads];
        let bodies =
            [&self.update_jobs, &self.update_done, &self.archive, &self.revive].map(|rows| &rows.bodies);
        let bytes = payloads.into_iter().flatten().map(|bytes| bytes.len()).sum::<usize>()
            + bodies.into_iter().flatten().flatten().chain(&self.setting_values).map(Vec::len).sum::<usize>();
        patience(self.lanes_after.len() + self.delete_jobs.len() + self.delete_done.len(), bytes)
    }

    fn send<'a>(&'a self, connection: &'a Connection) -> Sending<'a> {
        let mut sending: Sending<'a> = Vec::new();
        for (query, rows) in [(sql::RESPEC_JOBS, &self.respec_jobs), (sql::RESPEC_DONE, &self.respec_done)] {
            if !rows.ids.is_empty() {
                sending.push(Box::pin(async move {
                    let SpecRows { ids, lanes, formats, payloads, asked, alias_refs, parents } = rows;
                    let payloads: Vec<&[u8]> = payloads.iter().map(|bytes| &**bytes).collect();
                    connection
                        .query(query, &[ids, lanes, formats, &payloads, asked, alias_refs, parents])
                        .await
                }));
            }
        }
        for (query, rows, has_deadline) in [
            (sql::UPDATE_JOBS, &self.update_jobs, false),
            (sql::UPDATE_DONE, &self.update_done, true),
            (sql::ARCHIVE, &self.archive, true),
            (sql::REVIVE, &self.revive, false),
        ] {
            if !rows.is_empty() {
                sending.push(Box::pin(send_moved(connection, query, rows, has_deadline)));
            }
        }
        for (query, ids) in [(sql::DELETE_JOBS, &self.delete_jobs), (sql::DELETE_DONE, &self.delete_done)] {
            if !ids.is_empty() {
                sending.push(Box::pin(async move { connection.query(query, &[ids]).await }));
            }
        }
        if !self.new_ids.is_empty() {
            sending.push(Box::pin(self.send_new(connection)));
        }
        if !self.tally_lanes.is_empty() {
            sending.push(Box::pin(async move {
                let params: super::connection::Params<'_> =
                    &[&self.tally_lanes, &self.tally_states, &self.tally_counts];
                connection.query(sql::TALLY, params).await
            }));
        }
        if !self.setting_keys.is_empty() {
            sending.push(Box::pin(async move {
                connection.query(sql::PUT_SETTINGS, &[&self.setting_keys, &self.setting_values]).await
            }));
        }
        if !self.dropped_settings.is_empty() {
            let keys = &self.dropped_settings;
            sending.push(Box::pin(async move { connection.query(sql::DELETE_SETTINGS, &[keys]).await }));
        }
        sending.push(said(connection, "COMMIT"));
        sending
    }

    async fn send_new(&self, connection: &Connection) -> Result<Vec<tokio_postgres::Row>, Trouble> {
        let new = &self.new;
        let payloads: Vec<&[u8]> = new.payloads.iter().map(|bytes| &**bytes).collect();
        let params: super::connection::Params<'_> = &[
            &self.new_ids,
            &new.lanes,
            &new.states,
            &new.ats,
            &new.created_ats,
            &new.formats,
            &payloads,
            &new.asked,
            &new.bodies,
            &new.unique_refs,
            &new.alias_refs,
            &new.parents,
        ];
        connection.query(sql::INSERT_JOBS, params).await
    }
}

pub(super) async fn send_moved(
    connection: &Connection,
    query: sql::Query,
    rows: &MovedRows,
    has_deadline: bool,
) -> Result<Vec<tokio_postgres::Row>, Trouble> {
    let params: super::connection::Params<'_> = &[
        &rows.ids,
        &rows.versions,
        &rows.states,
        &rows.ats,
        &rows.moves,
        &rows.unique_refs,
        &rows.other_bodies,
        &rows.bodies,
        &rows.deadlines,
    ];
    let count = if has_deadline { params.len() } else { params.len() - 1 };
    connection.query(query, &params[..count]).await
}

/// Caches the last lane, because neighbouring jobs mostly share one.
struct LaneFinder<'a> {
    shared: &'a Shared,
    last: Option<(Arc<JobSpec>, LaneId)>,
}

impl LaneFinder<'_> {
    fn lane(&mut self, spec: &Arc<JobSpec>) -> Result<LaneId, StoreError> {
        if let Some((last, lane)) = &self.last
            && is_same_lane(last, spec)
        {
            return Ok(*lane);
        }
        let lane = self.shared.lanes().find(&LaneKey::of(spec));
        let lane = lane.ok_or_else(|| StoreError::Unavailable("a lane vanished; try again".to_owned()))?;
        self.last = Some((Arc::clone(spec), lane));
        Ok(lane)
    }
}
