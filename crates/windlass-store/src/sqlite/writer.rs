//! Writer: requests that arrive during a commit form the next commit (group commit); a reply is sent only
//! after its commit is durable. The holder of the [`WriterState`] writes.

use super::audit;
use super::cache::FreshJobs;
use super::files::{self, CommitCounter, Lock};
use super::requests::{Answer, Applied, Failed, Reply, Request, applied, refuse};
use super::rows::Rows;
use super::tables::{RowCounts, Tables};
use super::{Shared, load::load_index};
use crate::change::{ClaimAsk, Due, Inserted, KeyRule, NewJob, Step, Verdict};
use crate::copy::{holds_the_key, is_there};
use crate::error::StoreError;
use crate::keys::{keys_of, minds_keys, refusal};
use crate::row::Sharing;
use rusqlite::Connection;
use rustc_hash::FxHashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tracing::{error, info, warn};
use windlass_core::event::Grant;
use windlass_core::{Event, Job, JobId, Queue, Tenant, Timestamp, apply, created};

/// Pages in the write-ahead log before a checkpoint: 16 MiB, copied in some tens of milliseconds.
const LOG_PAGES_MAX: u32 = 4_096;
/// With relaxed durability a checkpoint syncs the log first: a claim waits a few milliseconds at most.
const LOG_PAGES_MAX_RELAXED: u32 = 1_024;
/// Interval of the checks whether a full disk has space again.
const ROOM_CHECK_EVERY: Duration = Duration::from_secs(1);

/// Most replies sent by the writer itself; more are sent by a task of the runtime.
const ANSWERS_FROM_HERE_MAX: usize = 4;

pub(super) struct Opened {
    pub connection: Connection,
    pub database: PathBuf,
    pub lock: Lock,
    pub counter: CommitCounter,
    pub commits: u64,
    pub next_id: u64,
    pub rows: RowCounts,
    /// Runtime of the callers, if the store was opened on one.
    pub runtime: Option<Handle>,
}

/// Writer state: the write connection, and the data kept from one commit to the next.
pub(super) struct WriterState {
    connection: Connection,
    lock: Lock,
    known: Known,
}

struct Known {
    database: PathBuf,
    counter: CommitCounter,
    shared: Arc<Shared>,
    fresh: FreshJobs,
    sharing: Sharing,
    /// Number of commits; stored in each commit, and in the counter file after it.
    commits: u64,
    next_id: u64,
    rows: RowCounts,
    runtime: Option<Handle>,
    /// Last check of a full disk; `None`: the disk is not full.
    room_checked: Option<Instant>,
}

impl WriterState {
    pub(super) fn new(opened: Opened, shared: Arc<Shared>) -> WriterState {
        let Opened { connection, database, lock, counter, commits, next_id, rows, runtime } = opened;
        let (fresh, sharing, room_checked) = Default::default();
        let known = Known {
            database,
            counter,
            shared,
            fresh,
            sharing,
            commits,
            next_id,
            rows,
            runtime,
            room_checked,
        };
        WriterState { connection, lock, known }
    }

    /// Applies a group of requests in one commit and replies.
    pub(super) fn write(&mut self, group: &mut Vec<Request>) -> Option<Reply<()>> {
        let known = &mut self.known;
        let mut writer = Writer {
            connection: &self.connection,
            tables: Tables::new(&self.connection, known.rows),
            rows: Rows::new(&self.connection).sharing(std::mem::take(&mut known.sharing)),
            known,
            in_transaction: false,
        };
        let closing = writer.group(group);
        let Writer { tables, rows, known, .. } = writer;
        known.rows = tables.rows;
        known.sharing = rows.into_sharing();
        closing
    }

    pub(super) fn log_is_long(&self) -> bool {
        let max = if self.known.counter.is_relaxed() { LOG_PAGES_MAX_RELAXED } else { LOG_PAGES_MAX };
        self.known.shared.log_pages.load(Ordering::Relaxed) > max
    }

    /// Makes a checkpoint. An error is handled like an error of a commit.
    pub(super) fn checkpoint(&mut self, how: &str) {
        let began = Instant::now();
        let sql = format!("PRAGMA wal_checkpoint({how})");
        let result = self.connection.query_row(&sql, [], |row| row.get::<_, i64>(0));
        match result {
            Ok(_busy) => {
                self.known.shared.log_pages.store(0, Ordering::Relaxed);
                self.known.shared.meters.checkpoint_us.record_time(began.elapsed());
            }
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => {
                warn!(%error, "the disk is full; the write-ahead log is not checkpointed");
                self.known.shared.log_pages.store(0, Ordering::Relaxed);
            }
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {}
            Err(error) => {
                stop(&format!("cannot checkpoint {}: {error}", self.known.database.display()));
            }
        }
    }

    pub(super) fn close(mut self) -> Result<(), StoreError> {
        self.checkpoint("TRUNCATE");
        let WriterState { connection, lock, .. } = self;
        let closed = connection.close().map_err(|(_, error)| StoreError::Unavailable(error.to_string()));
        drop(lock);
        closed
    }
}

/// State of one group commit.
struct Writer<'p> {
    connection: &'p Connection,
    known: &'p mut Known,
    tables: Tables<'p>,
    rows: Rows<'p>,
    /// True while a transaction is open, that is, after the first write of the group.
    in_transaction: bool,
}

impl Writer<'_> {
    /// Applies a group of requests in one commit and replies.
    fn group(&mut self, group: &mut Vec<Request>) -> Option<Reply<()>> {
        if self.is_full() {
            refuse(
                group.drain(..),
                &StoreError::Full(format!("no free space for {}", self.known.database.display())),
            );
            return None;
        }
        let began = Instant::now();
        let size = group.len() as u64;
        let mut closing = None;
        let mut answers = Vec::with_capacity(group.len());
        let mut requests = group.drain(..);
        for request in requests.by_ref() {
            match self.apply(request) {
                Ok(Applied::Answer(answer)) => answers.push(answer),
                Ok(Applied::Close(reply)) => closing = Some(reply),
                Ok(Applied::Nothing) => {}
                Err((reply, error)) => {
                    self.give_up(error, answers, reply);
                    refuse(
                        requests,
                        &StoreError::Unavailable("an earlier write of the group failed; retry".to_owned()),
                    );
                    return closing;
                }
            }
        }
        drop(requests);
        if self.in_transaction {
            if let Err(error) = self.commit() {
                self.give_up(error, answers, Box::new(|_| {}));
                return closing;
            }
            self.known.shared.meters.commit_size.record(size);
            self.known.shared.meters.commit_us.record_time(began.elapsed());
        }
        self.answer(answers);
        self.known.shared.tell_news();
        closing
    }

    /// Sends the replies. Each reply wakes a task; from outside the runtime every wake-up goes through its
    /// injection queue and may wake a thread, so many replies are sent from within a task.
    fn answer(&self, answers: Vec<Answer>) {
        let many = answers.len() > ANSWERS_FROM_HERE_MAX;
        let give_out = move || answers.into_iter().for_each(Answer::send);
        match &self.known.runtime {
            Some(runtime) if many => {
                runtime.spawn(async move { give_out() });
            }
            _ => give_out(),
        }
    }

    fn apply(&mut self, request: Request) -> Result<Applied, Failed> {
        match request {
            Request::Commit { steps, now, reply } => applied(reply, self.steps(steps, now), Answer::Commit),
            Request::Claim { ask, now, reply } => {
                let jobs = self.claim(&ask, now);
                applied(reply, jobs, |reply, jobs| Answer::Claim(reply, jobs, ask))
            }
            Request::Due { now, limit, reply } => applied(reply, self.due(now, limit), Answer::Due),
            Request::Setting { key, value, reply } => {
                let put = self.begin().and_then(|()| self.tables.put_setting(&key, value.as_deref()));
                applied(reply, put, |reply, ()| Answer::Done(reply))
            }
            Request::Pause { tenant, queue, paused, reply } => {
                let paused = self.pause(&tenant, &queue, paused);
                applied(reply, paused, |reply, ()| Answer::Done(reply))
            }
            Request::Audit { entries, bounds, reply } => {
                let put = self.begin().and_then(|()| audit::append(self.connection, &entries, bounds));
                applied(reply, put, |reply, ()| Answer::Done(reply))
            }
            Request::NextId { reply } => applied(reply, self.next_id(), Answer::NextId),
            Request::Restore { jobs, next, keys, reply } => {
                let restored = self.restore(&jobs, next, keys);
                applied(reply, restored, |reply, refused| match refused {
                    None => Answer::Done(reply),
                    Some(why) => Answer::Refused(reply, why),
                })
            }
            Request::Close { reply } => Ok(Applied::Close(reply)),
            Request::Tidy {} => Ok(Applied::Nothing),
        }
    }

    fn steps(&mut self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Verdict>, StoreError> {
        self.begin()?;
        self.known.shared.index().advance(now);
        steps.into_iter().map(|step| self.step(step)).collect()
    }

    fn step(&mut self, step: Step) -> Result<Verdict, StoreError> {
        // A single update detects a stale version by itself; several changes are checked before the first is
        // written.
        let minds_keys = minds_keys(&step);
        if (step.changes.len() > 1 || minds_keys) && !self.is_fresh(&step)? {
            return Ok(Verdict::Stale);
        }
        if minds_keys {
            let index = self.known.shared.index();
            if let Some(refused) = refusal(&step, |key| index.claimants(key)) {
                return Ok(refused);
            }
        }
        for change in step.changes {
            let written = match &change.after {
                Some(after) => self.tables.update(&change.before, after)?,
                None => self.tables.delete(&change.before)?,
            };
            if !written {
                return Ok(Verdict::Stale);
            }
            self.known.fresh.forget(change.before.id);
            self.known.shared.recent.wrote(Some(&change.before), change.after.as_ref());
            let mut index = self.known.shared.index();
            index.remove(&change.before);
            if let Some(after) = &change.after {
                index.add(after);
            }
        }
        for (key, value) in &step.settings {
            self.tables.put_setting(key, value.as_deref())?;
        }
        let inserted = step.inserts.into_iter().map(|new| self.insert(new)).collect::<Result<_, _>>()?;
        Ok(Verdict::Done(inserted))
    }

    /// True if every change starts from the stored version, or from the version that an earlier change of the
    /// step will store.
    fn is_fresh(&mut self, step: &Step) -> Result<bool, StoreError> {
        for (place, change) in step.changes.iter().enumerate() {
            let earlier =
                step.changes[..place].iter().rev().find(|other| other.before.id == change.before.id);
            let version = match earlier {
                Some(other) => other.after.as_ref().map(|job| job.version),
                None => self.tables.version_of(change.before.id)?,
            };
            if version != Some(change.before.version) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn next_id(&self) -> Result<JobId, StoreError> {
        let zero = || StoreError::Corrupt("the next id is zero; restore a backup".to_owned());
        JobId::new(self.known.next_id).ok_or_else(zero)
    }

    /// Inserts jobs unchanged, or returns why not. Checked before anything is written, because other requests
    /// share the commit.
    fn restore(
        &mut self,
        jobs: &[Arc<Job>],
        next: JobId,
        keys: KeyRule,
    ) -> Result<Option<StoreError>, StoreError> {
        let mut ids = FxHashSet::default();
        for job in jobs {
            if !ids.insert(job.id) || self.tables.version_of(job.id)?.is_some() {
                return Ok(Some(is_there(job.id)));
            }
            for key in keys_of(job).iter().filter(|_| keys == KeyRule::Ask) {
                if let Some(holder) = self.known.shared.index().claimants(key).first() {
                    return Ok(Some(holds_the_key(*holder)));
                }
            }
        }
        self.begin()?;
        for job in jobs {
            self.tables.insert(job)?;
            self.known.shared.index().add(job);
            self.known.next_id = self.known.next_id.max(job.id.get() + 1);
        }
        self.known.next_id = self.known.next_id.max(next.get());
        Ok(None)
    }

    fn insert(&mut self, new: NewJob) -> Result<Inserted, StoreError> {
        if let Some(holder) = self.known.shared.index().conflict(&new.spec) {
            return Ok(Inserted::Existing(holder));
        }
        let id = self.next_id()?;
        self.known.next_id += 1;
        let job = Arc::new(created(id, new.spec, new.run_at, new.held_by_parent, new.body));
        self.tables.insert(&job)?;
        self.known.shared.recent.wrote(None, Some(&job));
        self.known.shared.index().add(&job);
        self.known.fresh.remember(job);
        Ok(Inserted::New(id))
    }

    fn claim(&mut self, ask: &ClaimAsk, now: Timestamp) -> Result<Vec<Arc<Job>>, StoreError> {
        let picked = self.known.shared.index().pick(ask, now);
        if picked.is_empty() {
            return Ok(Vec::new());
        }
        self.begin()?;
        let mut claimed = Vec::with_capacity(picked.len());
        for id in picked {
            let before = self.job(id)?;
            let grant = Grant { worker: ask.worker.clone(), lease_ms: ask.lease_ms, random: ask.random(id) };
            let after = match apply(&before, Event::Claim(grant), now) {
                Ok(transition) => transition.job,
                Err(refused) => {
                    // The index and the rules disagree about the state: a bug in the index.
                    return Err(StoreError::Corrupt(format!("job {id} was next but {refused}")));
                }
            };
            let Some(after) = after.map(Arc::new) else { continue };
            if !self.tables.update(&before, &after)? {
                return Err(StoreError::Corrupt(format!(
                    "job {id} was next but has another version on disk"
                )));
            }
            self.known.shared.recent.wrote(Some(&before), Some(&after));
            let mut index = self.known.shared.index();
            index.remove(&before);
            index.add(&after);
            claimed.push(after);
        }
        Ok(claimed)
    }

    fn due(&mut self, now: Timestamp, limit: usize) -> Result<Due, StoreError> {
        let (ids, next) = {
            let mut index = self.known.shared.index();
            index.advance(now);
            let overdue = index.overdue(now, limit);
            (overdue, index.next_deadline(now))
        };
        let jobs = ids.into_iter().map(|id| self.job(id)).collect::<Result<_, _>>()?;
        Ok(Due { jobs, next })
    }

    fn pause(&mut self, tenant: &Tenant, queue: &Queue, paused: bool) -> Result<(), StoreError> {
        self.begin()?;
        self.tables.set_paused(tenant, queue, paused)?;
        self.known.shared.index().set_paused(tenant, queue, paused);
        Ok(())
    }

    /// Loads a job that is in the index, from a cache or from its row.
    fn job(&mut self, id: JobId) -> Result<Arc<Job>, StoreError> {
        if let Some(job) = self.known.fresh.take(id).or_else(|| self.known.shared.recent.get(id)) {
            return Ok(job);
        }
        let missing = || StoreError::Corrupt(format!("job {id} is missing; restore a backup"));
        self.rows.load(id)?.map(Arc::new).ok_or_else(missing)
    }

    // --- commits -------------------------------------------------------------------------------------------

    fn begin(&mut self) -> Result<(), StoreError> {
        if !self.in_transaction {
            let begun =
                self.connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.execute([]));
            begun.map_err(super::rows::read_error)?;
            self.in_transaction = true;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        self.tables.count_commit(self.known.commits + 1, self.known.next_id)?;
        let began = Instant::now();
        let committed = self.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        committed.map_err(super::rows::read_error)?;
        self.known.shared.meters.sync_us.record_time(began.elapsed());
        self.in_transaction = false;
        self.known.shared.recent.committed();
        self.known.commits += 1;
        self.known
            .counter
            .write(self.known.commits)
            .map_err(|error| StoreError::Unavailable(error.to_string()))
    }

    /// Fails the whole group, which was not applied. After a full disk the store waits for space; after any
    /// other error the state of the disk is unknown, and only a restart, which reads everything again,
    /// resolves it.
    fn give_up(&mut self, error: StoreError, answers: Vec<Answer>, reply: Box<dyn FnOnce(StoreError)>) {
        let StoreError::Full(_) = &error else {
            stop(&format!("cannot write to {}: {error}", self.known.database.display()));
        };
        warn!(%error, "the disk with {} is full; nothing is acknowledged until space is freed", self.known.database.display());
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            stop(&format!("cannot roll back a failed write: {error}"));
        }
        self.in_transaction = false;
        self.known.room_checked = Some(Instant::now());
        self.known.shared.set_trouble(Some(error.clone()));
        self.forget_unwritten();
        reply(error.clone());
        for answer in answers {
            answer.refuse(error.clone());
        }
    }

    /// Rebuilds the index, which is ahead of the database after a rollback.
    fn forget_unwritten(&mut self) {
        self.known.fresh = FreshJobs::default();
        self.known.shared.recent.taken_back();
        match load_index(self.connection) {
            Ok(loaded) => {
                self.tables.rows = loaded.rows;
                self.known.next_id = loaded.next_id;
                *self.known.shared.index() = loaded.index;
            }
            Err(error) => stop(&format!("cannot reload the jobs: {error}")),
        }
    }

    fn is_full(&mut self) -> bool {
        let Some(checked) = self.known.room_checked else { return false };
        if checked.elapsed() < ROOM_CHECK_EVERY {
            return true;
        }
        if !files::has_room(&self.known.database) {
            self.known.room_checked = Some(Instant::now());
            return true;
        }
        info!("the disk with {} has free space again", self.known.database.display());
        self.known.room_checked = None;
        self.known.shared.set_trouble(None);
        false
    }
}

/// Aborts the process: the state of the disk is unknown, and nothing may be acknowledged or overwritten.
pub(super) fn stop(why: &str) -> ! {
    error!("{why}; stopping");
    if !tracing::enabled!(tracing::Level::ERROR) {
        eprintln!("{why}; stopping");
    }
    std::process::abort();
}
