//! Insertion of jobs unchanged, for copies of whole stores and jobs that come back.

use super::connection::{Connection, Params, Trouble};
use super::lanes::{LaneId, LaneKey};
use super::rows::{self, MovedRows, SpecRows};
use super::shared::Shared;
use super::statements as sql;
use super::tally::Tally;
use super::transaction::{Sending, all, all_within, patience, said};
use crate::copy::holds_the_key;
use crate::row;
use crate::{KeyRule, Result, StoreError};
use std::sync::Arc;
use tokio_postgres::Row;
use windlass_core::{Job, JobId, Timestamp};

pub(super) async fn next_id(shared: &Shared) -> Result<JobId> {
    shared.open()?;
    let rows = shared.pool.read(sql::NEXT_ID, &[]).await?;
    rows::id_of(rows.first().map_or(0, |row| row.get(0)))
}

pub(super) async fn restore(
    shared: &Arc<Shared>,
    jobs: Vec<Arc<Job>>,
    next: JobId,
    keys: KeyRule,
) -> Result<()> {
    shared.open()?;
    shared.make_lanes(shared.missing_lanes(jobs.iter().map(|job| &job.spec))).await?;
    let rows = Restored::of(shared, &jobs, next, keys)?;
    let mut borrowed = shared.pool.get().await?;
    let connection = borrowed.connection()?;
    match rows.write(connection).await {
        Ok(()) => {}
        Err(Trouble::Refused(StoreError::Unavailable(why))) if why.contains("(23505)") => {
            let _ = connection.say("ROLLBACK").await;
            return Err(StoreError::Unsupported(format!("one of the jobs already exists: {why}")));
        }
        Err(Trouble::Refused(refused @ StoreError::Unsupported(_))) => {
            let _ = connection.say("ROLLBACK").await;
            return Err(refused);
        }
        Err(trouble) => {
            borrowed.throw_away();
            return Err(StoreError::Unknown(trouble.not_done().to_string()));
        }
    }
    let mut lanes = shared.lanes();
    for (job, lane) in jobs.iter().zip(&rows.lanes) {
        if let Some(run_at) = job.state().claimable_at() {
            lanes.entered(*lane, (run_at.as_millis(), rows::number(job.id)), Timestamp::MAX, Some(1));
        }
    }
    drop(lanes);
    shared.tell_news();
    Ok(())
}

#[derive(Default)]
struct Table {
    moved: MovedRows,
    spec: SpecRows,
    created_ats: Vec<i64>,
    bodies: Vec<Option<Vec<u8>>>,
}

struct Restored {
    jobs: Table,
    done: Table,
    /// In the order of the jobs.
    lanes: Vec<LaneId>,
    tally: (Vec<LaneId>, Vec<i16>, Vec<i64>),
    /// Highest id in use.
    last: i64,
    ids: Vec<i64>,
    /// Keys that no other job may have.
    refs: Vec<rows::Ref>,
}

impl Restored {
    fn of(shared: &Shared, jobs: &[Arc<Job>], next: JobId, keys: KeyRule) -> Result<Restored> {
        let (mut open, mut done, mut tally) = (Table::default(), Table::default(), Tally::default());
        let mut lanes = Vec::with_capacity(jobs.len());
        let mut last = rows::number(next) - 1;
        for job in jobs {
            let lane = shared.lanes().find(&LaneKey::of(&job.spec));
            let lane =
                lane.ok_or_else(|| StoreError::Unavailable("a lane vanished; try again".to_owned()))?;
            let table = if job.state().is_settled() { &mut done } else { &mut open };
            table.moved.push(job, job)?;
            table.spec.push(lane, job)?;
            table.created_ats.push(job.spec.created_at.as_millis());
            table.bodies.push(job.body.as_deref().map(row::write_body).transpose()?);
            tally.add(lane, job, 1);
            lanes.push(lane);
            last = last.max(rows::number(job.id));
        }
        let ids = jobs.iter().map(|job| rows::number(job.id)).collect();
        let asking = jobs.iter().filter(|_| keys == KeyRule::Ask);
        let refs = asking.flat_map(|job| rows::held_ref(job).into_iter().chain(rows::alias_of(&job.spec)));
        let refs = refs.collect();
        Ok(Restored { jobs: open, done, lanes, tally: tally.columns(), last, ids, refs })
    }

    /// Locks the keys, and refuses if another job has one of them.
    async fn lock_keys(&self, connection: &Connection) -> Result<(), Trouble> {
        let mut locks: Vec<i64> = self.refs.iter().map(|bytes| rows::lock_number(bytes)).collect();
        locks.sort_unstable();
        let locks = &locks;
        let sending: Sending<'_> = vec![
            Box::pin(async move { connection.query(sql::LOCK_KEYS, &[locks]).await }),
            Box::pin(async move { connection.query(sql::CLAIMANTS, &[&self.refs]).await }),
        ];
        let answers = all(sending).await?;
        match answers.get(1).and_then(|claimants| claimants.first()) {
            Some(row) => {
                Err(Trouble::Refused(holds_the_key(rows::id_of(row.get(1)).map_err(Trouble::Refused)?)))
            }
            None => Ok(()),
        }
    }

    async fn write(&self, connection: &Connection) -> Result<(), Trouble> {
        let (lanes, states, counts) = &self.tally;
        // An existing job may be in the table of settled jobs or in the other.
        let begun: Sending<'_> = vec![
            said(connection, "BEGIN"),
            Box::pin(async move { connection.query(sql::LOAD, &[&self.ids]).await }),
        ];
        if let Some(row) = all(begun).await?.iter().flatten().next() {
            let there: i64 = row.get(0);
            return Err(Trouble::Refused(StoreError::Unavailable(format!("job {there} (23505)"))));
        }
        if !self.refs.is_empty() {
            self.lock_keys(connection).await?;
        }
        let sending: Sending<'_> = vec![
            Box::pin(send(connection, sql::RESTORE_JOBS, &self.jobs, false)),
            Box::pin(send(connection, sql::RESTORE_DONE, &self.done, true)),
            Box::pin(async move { connection.query(sql::TALLY, &[lanes, states, counts]).await }),
        ];
        let bytes = [&self.jobs, &self.done]
            .map(|table| table.spec.payloads.iter().map(|bytes| bytes.len()).sum::<usize>());
        all_within(patience(self.ids.len(), bytes[0] + bytes[1]), sending).await?;
        // A sequence is not rolled back, so it is advanced when only the commit can still fail.
        let sending: Sending<'_> = vec![
            Box::pin(async move { connection.query(sql::IDS_GO_ON, &[&self.last]).await }),
            said(connection, "COMMIT"),
        ];
        all(sending).await.map(drop)
    }
}

async fn send(
    connection: &Connection,
    query: sql::Query,
    table: &Table,
    has_deadline: bool,
) -> Result<Vec<Row>, Trouble> {
    let (moved, spec) = (&table.moved, &table.spec);
    let payloads: Vec<&[u8]> = spec.payloads.iter().map(|bytes| &**bytes).collect();
    let params: Params<'_> = &[
        &moved.ids,
        &moved.versions,
        &spec.lanes,
        &moved.states,
        &moved.ats,
        &table.created_ats,
        &spec.formats,
        &payloads,
        &moved.moves,
        &spec.asked,
        &table.bodies,
        &moved.unique_refs,
        &spec.alias_refs,
        &spec.parents,
        &moved.deadlines,
    ];
    let count = if has_deadline { params.len() } else { params.len() - 1 };
    connection.query(query, &params[..count]).await
}
