//! Row format of a job: the changing part (`moves`) apart from the specification (`asked`), each with a
//! checksum, so that a flipped bit is detected.
//!
//! `moves` is fixed-width little-endian: `[format u8][flags u16][crc u32]`, the fields named by the flags,
//! then zeros up to `MOVES_BYTES_MIN`. All sixteen flags are in use; an unknown format is an error, because a
//! newer version wrote it.

use crate::error::StoreError;
use std::sync::Arc;
use windlass_core::job::MinuteRuns;
use windlass_core::lease::{Afterwards, Lease, Rest, RunKind, Token};
use windlass_core::{Body, Extras, Format, Job, JobId, JobSpec, JobState, Name, Payload, Policy};
use windlass_core::{Progress, Queue, StateName, Tenant, Timestamp};

/// Payloads up to this size are stored in the job's row, which saves a second row; larger ones would be
/// rewritten with every claim. Measured: inline is faster at 250 bytes, a separate row at 500
/// (docs/adr/0001).
pub(crate) const INLINE_BYTES_MAX: usize = 384;

const MOVES_FORMAT: u8 = 1;
/// Space for a lease is reserved from the start. If the rows of a full page grew when claimed, SQLite would
/// split the page, which costs several times as much as the claim itself.
const MOVES_BYTES_MIN: usize = 80;

mod flag {
    pub(super) const STARTED: u16 = 1;
    pub(super) const FINISHED: u16 = 1 << 1;
    pub(super) const CHILDREN: u16 = 1 << 2;
    pub(super) const BODY: u16 = 1 << 3;
    pub(super) const LAPSED: u16 = 1 << 4;
    pub(super) const UNTIL: u16 = 1 << 5;
    pub(super) const WORKER: u16 = 1 << 6;
    pub(super) const SHUTDOWN: u16 = 1 << 7;
    pub(super) const RUN_AGAIN: u16 = 1 << 8;
    pub(super) const TERMINATE: u16 = 1 << 9;
    pub(super) const CANCEL: u16 = 1 << 10;
    pub(super) const PRIOR_START: u16 = 1 << 11;
    /// With `RUN_AGAIN`: not at once. Rows written before this flag existed mean at once.
    pub(super) const AGAIN_AT: u16 = 1 << 12;
    pub(super) const REST: u16 = 1 << 13;
    pub(super) const MINUTE_RUNS: u16 = 1 << 14;
    /// All flags are taken: a further field needs a new format number.
    pub(super) const AHEAD: u16 = 1 << 15;
}

/// Value of the column `at`: the time that belongs to the state.
pub(crate) fn at(state: &JobState) -> i64 {
    match state {
        JobState::Ready { run_at, .. } | JobState::Terminating { run_at } => run_at.as_millis(),
        JobState::Running(lease) => lease.until.map_or(i64::MAX, Timestamp::as_millis),
        JobState::Completed { at }
        | JobState::Failed { at }
        | JobState::Cancelled { at }
        | JobState::Terminated { at } => at.as_millis(),
        // Zero means no time; a time before 1970 has passed like any other.
        JobState::Suspended { until: Some(until) } => until.as_millis().max(1),
        JobState::Waiting | JobState::Suspended { until: None } => 0,
    }
}

/// Writes the changing part into `out`, which is cleared first.
pub(crate) fn write_moves(job: &Job, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[MOVES_FORMAT, 0, 0, 0, 0, 0, 0]);
    let progress = &job.progress;
    let mut flags = 0;
    put(out, i64::from(progress.attempts));
    put(out, progress.due_at.as_millis());
    put(out, progress.updated_at.as_millis());
    put_if(out, &mut flags, flag::STARTED, progress.started_at.map(Timestamp::as_millis));
    put_if(out, &mut flags, flag::FINISHED, progress.finished_at.map(Timestamp::as_millis));
    let children = (progress.pending_children > 0).then_some(i64::from(progress.pending_children));
    put_if(out, &mut flags, flag::CHILDREN, children);
    put_if(out, &mut flags, flag::PRIOR_START, progress.prior_start.map(Timestamp::as_millis));
    let runs = progress.minute_runs;
    let runs = (runs != MinuteRuns::default()).then(|| i64::from(runs.minute) << 32 | i64::from(runs.count));
    put_if(out, &mut flags, flag::MINUTE_RUNS, runs);
    if job.body.is_some() {
        flags |= flag::BODY;
    }
    match job.state() {
        JobState::Ready { lapsed, .. } => {
            put_if(out, &mut flags, flag::LAPSED, lapsed.map(|token| token.number() as i64));
        }
        JobState::Running(lease) => write_lease(lease, &mut flags, out),
        _ => {}
    }
    if out.len() < MOVES_BYTES_MIN {
        out.resize(MOVES_BYTES_MIN, 0);
    }
    out[1..3].copy_from_slice(&flags.to_le_bytes());
    let crc = moves_crc(job.id, job.version, job.state().name(), at(job.state()), out);
    out[3..7].copy_from_slice(&crc.to_le_bytes());
}

fn write_lease(lease: &Lease, flags: &mut u16, out: &mut Vec<u8>) {
    put(out, lease.token.number() as i64);
    put(out, lease.granted_at.as_millis());
    put_if(out, flags, flag::UNTIL, lease.until.map(Timestamp::as_millis));
    if lease.kind == RunKind::Shutdown {
        *flags |= flag::SHUTDOWN;
    }
    match lease.afterwards {
        Afterwards::Settle => {}
        Afterwards::RunAgain { at } => {
            *flags |= flag::RUN_AGAIN;
            put_if(out, flags, flag::AGAIN_AT, Some(at.as_millis()));
        }
        Afterwards::Terminate => *flags |= flag::TERMINATE,
        Afterwards::Rest(rest) => put_if(out, flags, flag::REST, Some(rest.name() as i64)),
    }
    if lease.cancel_asked {
        *flags |= flag::CANCEL;
    }
    if lease.ahead {
        *flags |= flag::AHEAD;
    }
    if let Some(worker) = &lease.worker {
        *flags |= flag::WORKER;
        let bytes = &worker.as_bytes()[..worker.len().min(usize::from(u16::MAX))];
        out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        out.extend_from_slice(bytes);
    }
}

fn put(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_if(out: &mut Vec<u8>, flags: &mut u16, flag: u16, number: Option<i64>) {
    if let Some(number) = number {
        *flags |= flag;
        put(out, number);
    }
}

/// Checksum over the columns written together with the blob, and over the blob without the checksum itself.
fn moves_crc(id: JobId, version: u64, state: StateName, at: i64, moves: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.get().to_le_bytes());
    hasher.update(&version.to_le_bytes());
    hasher.update(&[state as u8]);
    hasher.update(&at.to_le_bytes());
    hasher.update(&moves[..3]);
    hasher.update(&moves[7..]);
    hasher.finalize()
}

struct Reader<'a> {
    id: JobId,
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn number(&mut self) -> Result<i64, StoreError> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<8>() else {
            return Err(damaged(self.id, "its row is too short"));
        };
        self.bytes = rest;
        Ok(i64::from_le_bytes(*head))
    }

    fn number_if(&mut self, present: bool) -> Result<Option<i64>, StoreError> {
        present.then(|| self.number()).transpose()
    }

    fn text(&mut self) -> Result<Arc<str>, StoreError> {
        let bytes = self
            .bytes
            .split_first_chunk::<2>()
            .and_then(|(length, rest)| rest.get(..usize::from(u16::from_le_bytes(*length))));
        let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.map(Arc::from).ok_or_else(|| damaged(self.id, "invalid worker name"))
    }

    fn time(&mut self) -> Result<Timestamp, StoreError> {
        self.number().map(Timestamp::from_millis)
    }

    fn time_if(&mut self, present: bool) -> Result<Option<Timestamp>, StoreError> {
        present.then(|| self.time()).transpose()
    }
}

pub(crate) struct Moves {
    pub state: JobState,
    pub progress: Progress,
    pub has_body: bool,
}

pub(crate) fn read_moves(
    id: JobId,
    version: u64,
    state: u8,
    at: i64,
    moves: &[u8],
) -> Result<Moves, StoreError> {
    let name = StateName::from_number(state).ok_or_else(|| damaged(id, "unknown state"))?;
    if moves.len() < 7 {
        return Err(damaged(id, "its row is too short"));
    }
    let stored = u32::from_le_bytes([moves[3], moves[4], moves[5], moves[6]]);
    if stored != moves_crc(id, version, name, at, moves) {
        return Err(damaged(id, "wrong checksum of its progress"));
    }
    let flags = u16::from_le_bytes([moves[1], moves[2]]);
    if moves[0] != MOVES_FORMAT {
        return Err(StoreError::Open(format!("job {id} was written by a newer version of windlass")));
    }
    let has = |flag: u16| flags & flag != 0;
    let mut reader = Reader { id, bytes: &moves[7..] };
    let progress = Progress {
        attempts: count(id, reader.number()?)?,
        due_at: reader.time()?,
        updated_at: reader.time()?,
        started_at: reader.time_if(has(flag::STARTED))?,
        finished_at: reader.time_if(has(flag::FINISHED))?,
        pending_children: count(id, reader.number_if(has(flag::CHILDREN))?.unwrap_or(0))?,
        prior_start: reader.time_if(has(flag::PRIOR_START))?,
        minute_runs: reader.number_if(has(flag::MINUTE_RUNS))?.map_or_else(MinuteRuns::default, |runs| {
            MinuteRuns { minute: (runs >> 32) as u32, count: runs as u32 }
        }),
    };
    let moment = Timestamp::from_millis(at);
    let state = match name {
        StateName::Ready => JobState::Ready {
            run_at: moment,
            lapsed: reader.number_if(has(flag::LAPSED))?.map(|token| Token::from_number(token as u64)),
        },
        StateName::Running => JobState::Running(read_lease(&mut reader, flags)?),
        StateName::Waiting => JobState::Waiting,
        StateName::Suspended => JobState::Suspended { until: (at > 0).then_some(moment) },
        StateName::Completed => JobState::Completed { at: moment },
        StateName::Failed => JobState::Failed { at: moment },
        StateName::Cancelled => JobState::Cancelled { at: moment },
        StateName::Terminating => JobState::Terminating { run_at: moment },
        StateName::Terminated => JobState::Terminated { at: moment },
    };
    Ok(Moves { state, progress, has_body: has(flag::BODY) })
}

fn read_lease(reader: &mut Reader<'_>, flags: u16) -> Result<Lease, StoreError> {
    let has = |flag: u16| flags & flag != 0;
    let token = Token::from_number(reader.number()? as u64);
    let granted_at = reader.time()?;
    let until = reader.time_if(has(flag::UNTIL))?;
    let again_at = reader.time_if(has(flag::AGAIN_AT))?.unwrap_or(Timestamp::EPOCH);
    let rest = match reader.number_if(has(flag::REST))? {
        None => None,
        Some(number) => {
            let named = Rest::ALL.into_iter().find(|rest| rest.name() as i64 == number);
            Some(named.ok_or_else(|| damaged(reader.id, "unknown follow-up of its run"))?)
        }
    };
    let worker = if has(flag::WORKER) { Some(reader.text()?) } else { None };
    Ok(Lease {
        token,
        worker,
        granted_at,
        until,
        kind: if has(flag::SHUTDOWN) { RunKind::Shutdown } else { RunKind::Perform },
        afterwards: match (has(flag::RUN_AGAIN), has(flag::TERMINATE), rest) {
            (_, true, _) => Afterwards::Terminate,
            (true, false, _) => Afterwards::RunAgain { at: again_at },
            (false, false, Some(rest)) => Afterwards::Rest(rest),
            (false, false, None) => Afterwards::Settle,
        },
        cancel_asked: has(flag::CANCEL),
        ahead: has(flag::AHEAD),
    })
}

fn count(id: JobId, number: i64) -> Result<u32, StoreError> {
    u32::try_from(number).map_err(|_| damaged(id, "a counter is out of range"))
}

// --- specification -----------------------------------------------------------------------------------------

#[derive(serde::Serialize)]
struct AskedRef<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a Policy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extras: Option<&'a Extras>,
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Asked {
    policy: Option<Policy>,
    extras: Option<Box<Extras>>,
}

/// Encodes policy and extras; `None` if both are the default.
pub(crate) fn write_asked(spec: &JobSpec) -> Result<Option<Vec<u8>>, StoreError> {
    let policy = (*spec.policy != Policy::default()).then_some(&*spec.policy);
    if policy.is_none() && spec.extras.is_none() {
        return Ok(None);
    }
    let asked = AskedRef { policy, extras: spec.extras.as_deref() };
    rmp_serde::to_vec_named(&asked)
        .map(Some)
        .map_err(|error| StoreError::Unavailable(format!("cannot encode a job: {error}")))
}

pub(crate) fn asked_crc(id: JobId, spec: &JobSpec, asked: Option<&[u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.get().to_le_bytes());
    for text in [spec.tenant.as_str(), spec.queue.as_str(), spec.name.as_str()] {
        hasher.update(&(text.len() as u32).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.update(&spec.priority.to_le_bytes());
    hasher.update(&spec.created_at.as_millis().to_le_bytes());
    hasher.update(&[spec.payload.format as u8]);
    hasher.update(&spec.payload.bytes);
    hasher.update(asked.unwrap_or(&[]));
    hasher.finalize()
}

/// Rebuilds names and policies, sharing equal values between neighbouring rows.
#[derive(Default)]
pub(crate) struct Sharing {
    tenant: Option<Tenant>,
    queue: Option<Queue>,
    name: Option<Name>,
    asked: Option<(Vec<u8>, Arc<Policy>)>,
    default_policy: Arc<Policy>,
}

macro_rules! shared_name {
    ($self:ident.$field:ident, $type:ident, $text:expr) => {
        match &$self.$field {
            Some(known) if known.as_str() == $text => Ok(known.clone()),
            _ => $type::new($text).inspect(|fresh| $self.$field = Some(fresh.clone())),
        }
    };
}

/// Columns of the specification, as read.
pub(crate) struct AskedColumns<'a> {
    pub tenant: &'a str,
    pub queue: &'a str,
    pub name: &'a str,
    pub priority: i32,
    pub created_at: i64,
    pub format: u8,
    pub payload: &'a [u8],
    pub asked: Option<&'a [u8]>,
    /// `None`: the store has its own checksums.
    pub crc: Option<u32>,
}

impl Sharing {
    pub(crate) fn spec(&mut self, id: JobId, columns: &AskedColumns<'_>) -> Result<JobSpec, StoreError> {
        let bad_name = |_| damaged(id, "invalid name");
        let tenant = shared_name!(self.tenant, Tenant, columns.tenant).map_err(bad_name)?;
        let queue = shared_name!(self.queue, Queue, columns.queue).map_err(bad_name)?;
        let name = shared_name!(self.name, Name, columns.name).map_err(bad_name)?;
        let format = match columns.format {
            0 => Format::Json,
            1 => Format::Msgpack,
            2 => Format::Text,
            3 => Format::Binary,
            _ => return Err(damaged(id, "unknown payload format")),
        };
        let mut spec = JobSpec {
            tenant,
            queue,
            name,
            payload: Payload::new(format, columns.payload),
            priority: columns.priority,
            created_at: Timestamp::from_millis(columns.created_at),
            policy: Arc::clone(&self.default_policy),
            extras: None,
        };
        if columns.crc.is_some_and(|crc| crc != asked_crc(id, &spec, columns.asked)) {
            return Err(damaged(id, "wrong checksum of its options"));
        }
        if let Some(bytes) = columns.asked {
            (spec.policy, spec.extras) = self.asked(id, bytes)?;
        }
        Ok(spec)
    }

    /// Jobs of one kind have the same policy: the last policy is cached by its bytes.
    fn asked(&mut self, id: JobId, bytes: &[u8]) -> Result<(Arc<Policy>, Option<Box<Extras>>), StoreError> {
        if let Some((known, policy)) = &self.asked
            && known == bytes
        {
            return Ok((Arc::clone(policy), None));
        }
        let unread =
            |error: &dyn std::fmt::Display| damaged(id, &format!("cannot decode its options: {error}"));
        // `{` never begins a MessagePack map.
        let asked: Asked = match bytes.first() {
            Some(b'{') => serde_json::from_slice(bytes).map_err(|error| unread(&error))?,
            _ => rmp_serde::from_slice(bytes).map_err(|error| unread(&error))?,
        };
        let policy = asked.policy.map_or_else(|| Arc::clone(&self.default_policy), Arc::new);
        if asked.extras.is_none() {
            self.asked = Some((bytes.to_vec(), Arc::clone(&policy)));
        }
        Ok((policy, asked.extras))
    }
}

pub(crate) fn write_body(body: &Body) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    write_body_to(body, &mut bytes)?;
    Ok(bytes)
}

/// Encodes the body into `out`, which is cleared first.
pub(crate) fn write_body_to(body: &Body, out: &mut Vec<u8>) -> Result<(), StoreError> {
    out.clear();
    rmp_serde::encode::write_named(out, body)
        .map_err(|error| StoreError::Unavailable(format!("cannot encode a job: {error}")))
}

pub(crate) fn read_body(id: JobId, bytes: &[u8], crc: Option<u32>) -> Result<Arc<Body>, StoreError> {
    if crc.is_some_and(|crc| crc != body_crc(id, bytes)) {
        return Err(damaged(id, "wrong checksum of its results"));
    }
    rmp_serde::from_slice(bytes)
        .map(Arc::new)
        .map_err(|error| damaged(id, &format!("cannot decode its results: {error}")))
}

pub(crate) fn body_crc(id: JobId, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.get().to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

pub(crate) fn damaged(id: JobId, what: &str) -> StoreError {
    StoreError::Corrupt(format!("job {id}: {what}; nothing was changed, restore a backup"))
}
