//! Encoding of jobs as columns, and back.

use super::lanes::{LaneId, LaneKey};
use crate::error::StoreError;
use crate::row::{self, AskedColumns, Sharing};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use tokio_postgres::Row;
use windlass_core::{Job, JobId, JobSpec, JobState, Progress, StateName, Timestamp};

/// Digest of a tenant and its unique key, alias or limit key: of fixed length, so that an index can hold any
/// key.
pub(super) type Ref = Vec<u8>;

/// Half of SHA-256: collisions are infeasible.
const REF_BYTES: usize = 16;

pub(super) fn unique_ref(tenant: &str, key: &str) -> Ref {
    digest(b'u', tenant, key)
}

pub(super) fn alias_ref(tenant: &str, alias: &str) -> Ref {
    digest(b'a', tenant, alias)
}

pub(super) fn limit_ref(tenant: &str, key: &str) -> Ref {
    digest(b'l', tenant, key)
}

/// No tenant contains a slash, so different pairs give different texts. `windlass.push` computes the same in
/// SQL.
fn digest(kind: u8, tenant: &str, key: &str) -> Ref {
    let mut hasher = Sha256::new();
    hasher.update([kind]);
    hasher.update(tenant.as_bytes());
    hasher.update(b"/");
    hasher.update(key.as_bytes());
    hasher.finalize()[..REF_BYTES].to_vec()
}

/// Number of the advisory lock for a key. Keys with the same number block each other, which is harmless.
pub(super) fn lock_number(bytes: &[u8]) -> i64 {
    bytes.first_chunk::<8>().map_or(0, |head| i64::from_be_bytes(*head))
}

/// Digest of the unique key, while the job holds it.
pub(super) fn held_ref(job: &Job) -> Option<Ref> {
    let unique = job.spec.unique().filter(|_| job.holds_unique_key())?;
    Some(unique_ref(&job.spec.tenant, &unique.key))
}

pub(super) fn alias_of(spec: &JobSpec) -> Option<Ref> {
    spec.alias().map(|alias| alias_ref(&spec.tenant, alias))
}

pub(super) fn parent_of(spec: &JobSpec) -> Option<i64> {
    spec.family().map(|family| number(family.parent))
}

pub(super) fn number(id: JobId) -> i64 {
    i64::try_from(id.get()).unwrap_or(i64::MAX)
}

pub(super) fn id_of(number: i64) -> Result<JobId, StoreError> {
    let id = u64::try_from(number).ok().and_then(JobId::new);
    id.ok_or_else(|| StoreError::Corrupt(format!("invalid job id {number}; restore a backup")))
}

pub(super) fn write_limit_keys(keys: &[Arc<str>]) -> Result<Vec<u8>, StoreError> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    rmp_serde::to_vec(keys)
        .map_err(|error| StoreError::Unavailable(format!("cannot encode limit keys: {error}")))
}

pub(super) fn read_limit_keys(bytes: &[u8]) -> Result<Vec<Arc<str>>, StoreError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    rmp_serde::from_slice(bytes)
        .map_err(|error| StoreError::Corrupt(format!("cannot decode the limit keys of a lane: {error}")))
}

/// New rows of a commit, by column.
#[derive(Default)]
pub(super) struct NewRows {
    pub lanes: Vec<LaneId>,
    pub states: Vec<i16>,
    pub ats: Vec<i64>,
    pub created_ats: Vec<i64>,
    pub formats: Vec<i16>,
    pub payloads: Vec<Arc<[u8]>>,
    pub asked: Vec<Option<Vec<u8>>>,
    pub bodies: Vec<Option<Vec<u8>>>,
    pub unique_refs: Vec<Option<Ref>>,
    pub alias_refs: Vec<Option<Ref>>,
    pub parents: Vec<Option<i64>>,
}

impl NewRows {
    /// Adds a new job; the database assigns its id.
    pub(super) fn push(&mut self, lane: LaneId, job: &Job) -> Result<(), StoreError> {
        let spec = &job.spec;
        self.asked.push(row::write_asked(spec)?);
        self.bodies.push(job.body.as_deref().map(row::write_body).transpose()?);
        self.lanes.push(lane);
        self.states.push(job.state().name() as i16);
        self.ats.push(job.progress.due_at.as_millis());
        self.created_ats.push(spec.created_at.as_millis());
        self.formats.push(spec.payload.format as i16);
        self.payloads.push(Arc::clone(&spec.payload.bytes));
        self.unique_refs.push(held_ref(job));
        self.alias_refs.push(alias_of(spec));
        self.parents.push(parent_of(spec));
        Ok(())
    }
}

/// Changing columns of a commit.
#[derive(Default)]
pub(super) struct MovedRows {
    pub ids: Vec<i64>,
    pub versions: Vec<i64>,
    pub states: Vec<i16>,
    pub ats: Vec<i64>,
    pub moves: Vec<Vec<u8>>,
    pub unique_refs: Vec<Option<Ref>>,
    pub other_bodies: Vec<bool>,
    pub bodies: Vec<Option<Vec<u8>>>,
    /// Only for settled jobs.
    pub deadlines: Vec<Option<i64>>,
}

impl MovedRows {
    pub(super) fn push(&mut self, before: &Job, after: &Job) -> Result<(), StoreError> {
        let is_same_body = match (&before.body, &after.body) {
            (Some(before), Some(after)) => Arc::ptr_eq(before, after) || before == after,
            (None, None) => true,
            _ => false,
        };
        let body = after.body.as_deref().filter(|_| !is_same_body);
        self.bodies.push(body.map(row::write_body).transpose()?);
        self.other_bodies.push(!is_same_body);
        let mut moves = Vec::new();
        row::write_moves(after, &mut moves);
        self.moves.push(moves);
        self.ids.push(number(after.id));
        self.versions.push(after.version as i64);
        self.states.push(after.state().name() as i16);
        self.ats.push(row::at(after.state()));
        self.unique_refs.push(held_ref(after));
        self.deadlines.push(after.deadline().map(Timestamp::as_millis));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Changed specifications, by column.
#[derive(Default)]
pub(super) struct SpecRows {
    pub ids: Vec<i64>,
    pub lanes: Vec<LaneId>,
    pub formats: Vec<i16>,
    pub payloads: Vec<Arc<[u8]>>,
    pub asked: Vec<Option<Vec<u8>>>,
    pub alias_refs: Vec<Option<Ref>>,
    pub parents: Vec<Option<i64>>,
}

impl SpecRows {
    pub(super) fn push(&mut self, lane: LaneId, job: &Job) -> Result<(), StoreError> {
        let spec = &job.spec;
        self.asked.push(row::write_asked(spec)?);
        self.ids.push(number(job.id));
        self.lanes.push(lane);
        self.formats.push(spec.payload.format as i16);
        self.payloads.push(Arc::clone(&spec.payload.bytes));
        self.alias_refs.push(alias_of(spec));
        self.parents.push(parent_of(spec));
        Ok(())
    }
}

/// Decodes `id, version, lane, state, at, created_at, format, payload, moves, asked, body`.
pub(super) fn job(row: &Row, words: &LaneKey, sharing: &mut Sharing) -> Result<Job, StoreError> {
    let id = id_of(row.get(0))?;
    let read = |error: tokio_postgres::Error| row::damaged(id, &error.to_string());
    let version = row.try_get::<_, i64>(1).map_err(read)? as u64;
    let state: i16 = row.try_get(3).map_err(read)?;
    let at: i64 = row.try_get(4).map_err(read)?;
    let created_at: i64 = row.try_get(5).map_err(read)?;
    let format: i16 = row.try_get(6).map_err(read)?;
    let columns = AskedColumns {
        tenant: &words.tenant,
        queue: &words.queue,
        name: &words.name,
        priority: words.priority,
        created_at,
        format: u8::try_from(format).unwrap_or(u8::MAX),
        payload: row.try_get(7).map_err(read)?,
        asked: row.try_get(9).map_err(read)?,
        crc: None,
    };
    let spec = sharing.spec(id, &columns)?;
    let body: Option<&[u8]> = row.try_get(10).map_err(read)?;
    let body = body.map(|bytes| row::read_body(id, bytes, None)).transpose()?;
    let state = u8::try_from(state).unwrap_or(u8::MAX);
    let (state, progress) = match row.try_get::<_, Option<&[u8]>>(8).map_err(read)? {
        Some(moves) => {
            let moves = row::read_moves(id, version, state, at, moves)?;
            (moves.state, moves.progress)
        }
        None => untouched(id, state, Timestamp::from_millis(at), Timestamp::from_millis(created_at))?,
    };
    Ok(Job::from_parts(id, version, Arc::new(spec), progress, body, state))
}

/// Bytes of payload and body, as the lists of jobs count them.
pub(super) fn large_bytes(row: &Row) -> usize {
    let length =
        |column: usize| row.try_get::<_, Option<&[u8]>>(column).ok().flatten().map_or(0, <[u8]>::len);
    length(7) + length(10)
}

/// State and progress of a job that was never changed, which has no `moves`.
fn untouched(
    id: JobId,
    state: u8,
    run_at: Timestamp,
    created_at: Timestamp,
) -> Result<(JobState, Progress), StoreError> {
    let state = match StateName::from_number(state) {
        Some(StateName::Ready) => JobState::ready(run_at),
        Some(StateName::Waiting) => JobState::Waiting,
        _ => return Err(row::damaged(id, "its state columns are missing")),
    };
    Ok((state, Progress { due_at: run_at, updated_at: created_at, ..Progress::default() }))
}
