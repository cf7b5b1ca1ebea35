//! Claims: one transaction for all waiting claims, one query per kind of claim. The database picks and locks
//! the rows, the rules run here, and the results are written in bulk.

use super::commits::send_moved;
use super::connection::{ANSWER_MAX, Connection, Params, Trouble, late};
use super::lanes::{LANES_PER_LOOK, LaneId, Look, Looks, NOWHERE, Place};
use super::limits::{Buckets, Limits};
use super::rows::{self, MovedRows};
use super::shared::Shared;
use super::statements as sql;
use super::tally::Tally;
use super::transaction::{End, Name, Sending, Slot, TRIES_MAX, all, all_within, patience, said};
use crate::change::{ClaimAsk, Held};
use crate::error::StoreError;
use crate::group::GroupLimits;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio_postgres::Row;
use windlass_core::event::Grant;
use windlass_core::{Event, Job, Queue, Tenant, Timestamp, apply};

const GROUP: GroupLimits = GroupLimits { requests: 1_000, jobs: 5_000 };
/// Most queries for one batch: each but the last found its lanes empty, blocked by a limit, or claimed by
/// other servers.
const LOOKS_MAX: usize = 1_000;
/// Growth of the number of lanes after a query that found nothing: many lanes may be empty.
const WIDER: usize = 8;
/// Candidates beyond the wanted number: other servers may be claiming the first ones. If they claim them all,
/// the next query examines `FURTHER` times as many.
const SPARE_CANDIDATES: i64 = 50;
const FURTHER: i64 = 16;
/// Bound on the jobs of one lane that other servers may be claiming at once: more than all their groups
/// together.
const TAKEN_BY_OTHERS_MAX: i64 = 100_000;
/// Share of time (1/10) spent on refreshing the lanes when a claim found too little, unless a refresh is
/// quick. `REFRESH_PAUSE_MAX` bounds the pause after a refresh that was slow because the database did not
/// answer.
const REFRESH_SHARE: u32 = 10;
const REFRESH_QUICK: Duration = Duration::from_millis(20);
const REFRESH_PAUSE_MAX: Duration = Duration::from_secs(2);
/// With more lanes than this, reading the heads of all lanes with jobs is cheaper than reading each.
const REFRESH_LANES_MAX: usize = 1_000;

pub(super) struct Request {
    pub ask: ClaimAsk,
    pub now: Timestamp,
    pub reply: oneshot::Sender<Result<Vec<Arc<Job>>, StoreError>>,
}

/// Main loop; ends when the store is dropped.
pub(super) async fn serve(shared: Arc<Shared>, mut inbox: UnboundedReceiver<Request>) {
    let mut server =
        Server { slot: Slot::new(Arc::clone(&shared.connector)), shared, refresh_after: Instant::now() };
    while let Some(first) = inbox.recv().await {
        let mut group = Vec::new();
        GROUP.gather(&mut group, first, |request| request.ask.limit, || inbox.try_recv().ok());
        Box::pin(server.answer(group)).await;
    }
}

struct Server {
    shared: Arc<Shared>,
    slot: Slot,
    refresh_after: Instant,
}

/// Claims that accept the same jobs.
struct Batch {
    members: Vec<usize>,
    wanted: usize,
    now: Timestamp,
}

/// Job picked for a claim.
struct Pick {
    member: usize,
    look: Look,
    before: Arc<Job>,
    after: Arc<Job>,
}

impl Server {
    async fn answer(&mut self, group: Vec<Request>) {
        let (asks, replies): (Vec<_>, Vec<_>) =
            group.into_iter().map(|request| ((request.ask, request.now), request.reply)).unzip();
        let began = Instant::now();
        let picked = self.claim(&asks).await;
        match picked {
            Ok(picks) => {
                if !picks.is_empty() {
                    self.shared.meters.commit_size.record(replies.len() as u64);
                    self.shared.meters.commit_us.record_time(began.elapsed());
                }
                let mut given: Vec<Vec<Arc<Job>>> = asks.iter().map(|_| Vec::new()).collect();
                for pick in picks {
                    given[pick.member].push(pick.after);
                }
                for (reply, jobs) in replies.into_iter().zip(given) {
                    // The caller may have gone away; the leases then expire.
                    let _ = reply.send(Ok(jobs));
                }
            }
            Err(error) => {
                for reply in replies {
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
        self.shared.tell_news();
    }

    async fn claim(&mut self, asks: &[(ClaimAsk, Timestamp)]) -> Result<Vec<Pick>, StoreError> {
        self.shared.open()?;
        let batches = batches(asks);
        if batches.iter().any(|batch| !self.may_have(asks, batch)) {
            self.refresh(asks, &batches).await?;
            if batches.iter().all(|batch| !self.may_have(asks, batch)) {
                return Ok(Vec::new());
            }
        }
        let mut lost = 0;
        for _ in 0..TRIES_MAX {
            let was_used = self.slot.is_used();
            let mut round = Round {
                asks,
                shared: Arc::clone(&self.shared),
                limits: Limits::default(),
                picks: Vec::new(),
                passed: Vec::new(),
            };
            match round.run(&mut self.slot, &batches).await {
                Ok(()) => return Ok(round.picks),
                Err(Failed::Unknown(why)) => return Err(StoreError::Unknown(why)),
                Err(Failed::Undone(trouble)) => {
                    round.give_back();
                    match trouble {
                        Trouble::Conflict(_) => {}
                        // An idle connection may have been lost long ago.
                        Trouble::Lost(_) if was_used && lost == 0 => lost += 1,
                        trouble => return Err(trouble.not_done()),
                    }
                }
            }
        }
        Err(StoreError::Unavailable("too many conflicts with other transactions; retry".to_owned()))
    }

    fn may_have(&self, asks: &[(ClaimAsk, Timestamp)], batch: &Batch) -> bool {
        let ask = &asks[batch.members[0]].0;
        batch.wanted == 0 || self.shared.lanes().may_have(ask, batch.now)
    }

    /// Refreshes the lanes before reporting that there is no job: other servers may have added jobs without a
    /// notification yet.
    async fn refresh(&mut self, asks: &[(ClaimAsk, Timestamp)], batches: &[Batch]) -> Result<(), StoreError> {
        let paused = paused(&self.shared.pool.read(sql::PAUSED, &[]).await?)?;
        self.shared.lanes().all_paused(paused);
        let began = Instant::now();
        if began < self.refresh_after {
            return Ok(());
        }
        self.shared.learn_lanes().await?;
        let asked = batches.iter().map(|batch| &asks[batch.members[0]].0);
        let lanes: BTreeSet<LaneId> = asked.flat_map(|ask| self.shared.lanes().asked_for(ask)).collect();
        let now = batches.iter().map(|batch| batch.now).max().unwrap_or_default();
        if lanes.len() > REFRESH_LANES_MAX {
            self.shared.refresh_all_heads(now).await?;
        } else {
            self.shared.refresh_heads(lanes.into_iter().collect(), now).await?;
        }
        let took = began.elapsed();
        if took > REFRESH_QUICK {
            self.refresh_after = Instant::now() + (took * (REFRESH_SHARE - 1)).min(REFRESH_PAUSE_MAX);
        }
        Ok(())
    }
}

/// Groups claims that differ only in the worker and the lease length.
fn batches(asks: &[(ClaimAsk, Timestamp)]) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for (member, (ask, now)) in asks.iter().enumerate() {
        let same = batches.iter_mut().find(|batch| {
            let (other, _) = &asks[batch.members[0]];
            other.wanted() == ask.wanted() && other.gate.is_some() == ask.gate.is_some()
        });
        match same {
            Some(batch) => {
                batch.members.push(member);
                batch.wanted += ask.limit;
                // The earlier time: no job is claimed before its `run_at`.
                batch.now = batch.now.min(*now);
            }
            None => batches.push(Batch { members: vec![member], wanted: ask.limit, now: *now }),
        }
    }
    batches
}

enum Failed {
    Undone(Trouble),
    Unknown(String),
}

struct Round<'a> {
    asks: &'a [(ClaimAsk, Timestamp)],
    shared: Arc<Shared>,
    limits: Limits,
    picks: Vec<Pick>,
    /// Positions up to which lanes were scanned.
    passed: Vec<(Look, (i64, i64))>,
}

impl Round<'_> {
    async fn run(&mut self, slot: &mut Slot, batches: &[Batch]) -> Result<(), Failed> {
        let connection = match slot.connection().await {
            Ok(connection) => connection,
            Err(error) => return Err(Failed::Undone(Trouble::Refused(error))),
        };
        let name = match self.pick_all(connection, batches).await {
            Ok(name) => name,
            Err(trouble) => return Err(Failed::Undone(slot.undo(trouble).await)),
        };
        if self.picks.is_empty() {
            slot.roll_back().await;
            self.note();
            return Ok(());
        }
        let mut moved = MovedRows::default();
        let mut tally = Tally::default();
        for pick in &self.picks {
            if let Err(error) = moved.push(&pick.before, &pick.after) {
                return Err(Failed::Undone(slot.undo(Trouble::Refused(error)).await));
            }
            tally.add(pick.look.lane, &pick.before, -1);
            tally.add(pick.look.lane, &pick.after, 1);
        }
        let (lanes, states, counts) = tally.columns();
        let (lanes, states, counts) = (&lanes, &states, &counts);
        let buckets = self.buckets();
        let Buckets { refs, bytes, full_at, full } = &buckets;
        let mut sending: Sending<'_> = vec![
            Box::pin(send_moved(connection, sql::UPDATE_JOBS, &moved, false)),
            Box::pin(async move { connection.query(sql::TALLY, &[lanes, states, counts]).await }),
        ];
        if !refs.is_empty() {
            sending.push(Box::pin(async move {
                connection.query(sql::PUT_BUCKETS, &[refs, bytes, full_at]).await
            }));
        }
        if !full.is_empty() {
            sending.push(Box::pin(async move { connection.query(sql::DROP_BUCKETS, &[full]).await }));
        }
        sending.push(said(connection, "COMMIT"));
        let began = Instant::now();
        let sent = all_within(patience(moved.ids.len(), 0), sending).await;
        self.shared.meters.sync_us.record_time(began.elapsed());
        if let Err(trouble) = sent {
            match slot.find_out(&name, trouble).await {
                End::Undone(trouble) => return Err(Failed::Undone(trouble)),
                End::Unknown(why) => return Err(Failed::Unknown(why)),
            }
        }
        self.note();
        Ok(())
    }

    fn buckets(&self) -> Buckets {
        let gates = self.asks.iter().filter_map(|(ask, _)| Some((ask.tenant.clone(), ask.gate.clone()?)));
        self.limits.buckets(&gates.collect())
    }

    async fn pick_all(&mut self, connection: &Connection, batches: &[Batch]) -> Result<Name, Trouble> {
        let sending: Sending<'_> = vec![
            said(connection, "BEGIN"),
            Box::pin(async { connection.query(sql::XACT_ID, &[]).await }),
            Box::pin(async { connection.query(sql::PAUSED, &[]).await }),
        ];
        let mut answers = all(sending).await?.into_iter().skip(1);
        let name = Name::of(&answers.next().unwrap_or_default());
        let name = name.ok_or_else(|| Trouble::Lost("PostgreSQL returned no transaction id".to_owned()))?;
        let paused = paused(&answers.next().unwrap_or_default()).map_err(Trouble::Refused)?;
        self.shared.lanes().all_paused(paused);
        for batch in batches {
            self.pick(connection, batch).await?;
        }
        Ok(name)
    }

    /// Picks jobs for one batch, as far as there are any.
    async fn pick(&mut self, connection: &Connection, batch: &Batch) -> Result<(), Trouble> {
        let ask = &self.asks[batch.members[0]].0;
        let mut members = Members { asks: self.asks, rest: batch.members.clone(), given: 0 };
        let mut from: FxHashMap<i32, (i64, i64)> = FxHashMap::default();
        let (mut wanted, mut at_once) = (batch.wanted, LANES_PER_LOOK);
        for _ in 0..LOOKS_MAX {
            if wanted == 0 {
                return Ok(());
            }
            let mut looks = self.shared.lanes().looks(ask, batch.now, at_once);
            looks.lanes.iter_mut().for_each(|look| {
                look.from = look.from.max(from.get(&look.lane).copied().unwrap_or(look.from))
            });
            if looks.lanes.is_empty() {
                return Ok(());
            }
            let taken: Vec<i64> = self.picks.iter().map(|pick| rows::number(pick.before.id)).collect();
            if let Some(gate) = &ask.gate {
                let lanes = looks.lanes.iter().map(|look| look.lane);
                self.limits.take(&self.shared, connection, &ask.tenant, lanes, &**gate).await?;
            }
            let found = look(connection, &looks, batch.now, wanted, &taken).await?;
            let is_last = found.len() < wanted && looks.bound.is_none();
            let jobs = self.shared.jobs_of_known_lanes(&found).map_err(Trouble::Refused)?;
            let picked = self
                .give_out(&looks, &found, jobs, batch, &mut members, &mut from)
                .map_err(Trouble::Refused)?;
            wanted -= picked;
            if is_last {
                // Every due job in these lanes was claimed, is blocked by a limit, or is locked by another
                // server.
                let beyond = (batch.now.as_millis().saturating_add(1), 0);
                if picked == found.len() {
                    self.passed.extend(looks.lanes.iter().map(|look| (*look, beyond)));
                    return Ok(());
                }
            } else if found.is_empty() {
                self.raise(connection, &looks, batch.now).await?;
                at_once = at_once.saturating_mul(WIDER);
            }
        }
        Ok(())
    }

    /// No job up to the bound: raises the floor of the scanned lanes, so that the next query goes further.
    async fn raise(&mut self, connection: &Connection, looks: &Looks, now: Timestamp) -> Result<(), Trouble> {
        let Some((priority, (at, id))) = looks.bound else { return Ok(()) };
        let (behind, beyond) = ((at, id.saturating_add(1)), (now.as_millis().saturating_add(1), 0));
        let ids: Vec<LaneId> = looks.lanes.iter().map(|look| look.lane).collect();
        let heads = in_time(connection.query(sql::HEADS_OF, &[&ids])).await?;
        let mut lanes = self.shared.lanes();
        let by_lane: FxHashMap<LaneId, Place> = heads
            .iter()
            .filter_map(|row| Some((row.get(0), (row.get::<_, Option<i64>>(1)?, row.get(2)))))
            .collect();
        for look in &looks.lanes {
            // Jobs before that position are locked by other servers.
            let passed = if look.priority < priority { beyond } else { behind };
            let head = by_lane.get(&look.lane).copied().unwrap_or(NOWHERE);
            lanes.passed(look, head.max(passed));
        }
        Ok(())
    }

    /// Asks the gate and applies the rules; returns the number of picked jobs.
    fn give_out(
        &mut self,
        looks: &Looks,
        found: &[Row],
        jobs: Vec<Arc<Job>>,
        batch: &Batch,
        members: &mut Members<'_>,
        from: &mut FxHashMap<i32, (i64, i64)>,
    ) -> Result<usize, StoreError> {
        let by_lane: FxHashMap<i32, &Look> = looks.lanes.iter().map(|look| (look.lane, look)).collect();
        let mut held: FxHashMap<i32, Held> = FxHashMap::default();
        let mut picked = 0;
        for (row, before) in found.iter().zip(jobs) {
            let lane: i32 = row.get(2);
            let Some(look) = by_lane.get(&lane).copied().copied() else { continue };
            if held.contains_key(&lane) {
                continue;
            }
            let Some(member) = members.next() else { break };
            let ask = &self.asks[member].0;
            let (tenant, keys) = (&before.spec.tenant, before.spec.limit_keys());
            if let Some(gate) = ask.gate.as_ref().filter(|_| !keys.is_empty())
                && let Err(why) = gate.admit(tenant, keys, self.limits.now())
            {
                held.insert(lane, why);
                continue;
            }
            let place: (i64, i64) = (row.get(4), row.get(0));
            let behind = (place.0, place.1.saturating_add(1));
            let grant =
                Grant { worker: ask.worker.clone(), lease_ms: ask.lease_ms, random: ask.random(before.id) };
            let after =
                apply(&before, Event::Claim(grant), batch.now).ok().and_then(|transition| transition.job);
            let Some(after) = after.map(Arc::new) else {
                give_back(ask, &before, batch.now);
                return Err(StoreError::Corrupt(format!("job {} was next but cannot be claimed", before.id)));
            };
            members.given();
            picked += 1;
            from.insert(lane, behind);
            self.passed.push((look, behind));
            self.picks.push(Pick { member, look, before, after });
        }
        let mut lanes = self.shared.lanes();
        held.into_iter().for_each(|(lane, held)| lanes.park(lane, held));
        Ok(picked)
    }

    /// Records the committed positions, so that the next claims skip them.
    fn note(&self) {
        let mut lanes = self.shared.lanes();
        for (look, place) in &self.passed {
            lanes.passed(look, *place);
        }
    }

    fn give_back(&self) {
        for pick in &self.picks {
            let (ask, now) = &self.asks[pick.member];
            give_back(ask, &pick.before, *now);
        }
    }
}

fn give_back(ask: &ClaimAsk, job: &Job, now: Timestamp) {
    let keys = job.spec.limit_keys();
    if let Some(gate) = ask.gate.as_ref().filter(|_| !keys.is_empty()) {
        gate.give_back(&job.spec.tenant, keys, now);
    }
}

/// Assigns jobs to the claims of a batch: each in turn until its limit is reached.
struct Members<'a> {
    asks: &'a [(ClaimAsk, Timestamp)],
    rest: Vec<usize>,
    given: usize,
}

impl Members<'_> {
    fn next(&mut self) -> Option<usize> {
        while let Some(first) = self.rest.first().copied() {
            if self.given < self.asks[first].0.limit {
                return Some(first);
            }
            self.rest.remove(0);
            self.given = 0;
        }
        None
    }

    fn given(&mut self) {
        self.given += 1;
    }
}

/// Queries all lanes at once; repeats with more candidates while other servers lock the same rows.
async fn look(
    connection: &Connection,
    looks: &Looks,
    now: Timestamp,
    wanted: usize,
    taken: &Vec<i64>,
) -> Result<Vec<Row>, Trouble> {
    let (now, limit) = (now.as_millis(), wanted as i64);
    if let ([look], None) = (looks.lanes.as_slice(), looks.bound) {
        let (at, id) = look.from;
        let params: Params<'_> = &[&look.lane, &at, &id, &now, &limit, taken];
        return in_time(connection.query(sql::CLAIM_ONE_LANE, params)).await;
    }
    let lanes: Vec<i32> = looks.lanes.iter().map(|look| look.lane).collect();
    let priorities: Vec<i32> = looks.lanes.iter().map(|look| look.priority).collect();
    let ats: Vec<i64> = looks.lanes.iter().map(|look| look.from.0).collect();
    let ids: Vec<i64> = looks.lanes.iter().map(|look| look.from.1).collect();
    let (priority, (at, id)) = looks.bound.unwrap_or((i32::MAX, (i64::MAX, i64::MAX)));
    let mut candidates = limit + SPARE_CANDIDATES + taken.len() as i64;
    loop {
        let params: Params<'_> =
            &[&lanes, &priorities, &ats, &ids, &now, &candidates, &limit, &priority, &at, &id, taken];
        let found = in_time(connection.query(sql::CLAIM, params)).await?;
        if found.len() == wanted || candidates > TAKEN_BY_OTHERS_MAX {
            return Ok(found);
        }
        candidates *= FURTHER;
    }
}

async fn in_time(asked: impl Future<Output = Result<Vec<Row>, Trouble>>) -> Result<Vec<Row>, Trouble> {
    tokio::time::timeout(ANSWER_MAX, asked).await.unwrap_or_else(|_| Err(late()))
}

pub(super) fn paused(rows: &[Row]) -> Result<Vec<(Tenant, Queue)>, StoreError> {
    let bad = |error: windlass_core::BadName| StoreError::Corrupt(format!("invalid paused queue: {error}"));
    rows.iter()
        .map(|row| Ok((Tenant::new(row.get(0)).map_err(bad)?, Queue::new(row.get(1)).map_err(bad)?)))
        .collect()
}
