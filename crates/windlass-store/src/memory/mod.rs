//! Reference implementation of the contract: a map behind a mutex, scanned in full. Other stores are compared
//! with it, so it is written for review, not for speed. Nothing survives the process.
//!
//! Details that the contract leaves open are defined here, and [`crate::conformance`] checks them for every
//! store:
//!
//! * Steps of a commit are applied in order; within a step its changes in order, then its inserts; each sees
//!   the effect of the earlier ones. A stale step and an insert that found an existing job use no id.
//! * An insert whose unique key is held, or else whose alias is taken, returns `Existing` with the id of the
//!   holder, even if that holder was created earlier in the same step.
//! * A job claims its unique key while `Job::holds_unique_key` is true, and its alias while it exists. If
//!   several jobs claim a key (one released its key when it started, and its run did not settle it), the job
//!   with the smallest id is the holder.
//! * A step with key checks (`Change::keys`, `Step::all_new`) is checked before anything is written: changes
//!   in order, then inserts, each against the result of the earlier ones, without the refused ones.
//! * The listener may be notified of a job several times or without need, but never too rarely.

use crate::blobs::BlobStore;
use crate::blobs::memory::MemoryBlobs;
use crate::copy::{holds_the_key, is_there};
use crate::keys::{Key, keys_of, refusal};
use crate::meters::Meters;
use crate::query::{Filter, Page, QueueCounts, WaitingName};
use crate::{
    AuditBounds, AuditEntry, AuditFilter, AuditLog, Change, ClaimAsk, Due, Held, Inserted, KeyRule, Listener,
    Lookup, NewJob, Restore, Result, Settings, SharedStore, Step, Store, StoreError, UnderLimits, Verdict,
};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use windlass_core::event::Grant;
use windlass_core::{Event, Job, JobId, Name, Queue, Tenant, Timestamp, apply, created};

mod queries;
mod shared;
#[cfg(test)]
mod tests;

#[derive(Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
    is_shared: bool,
    blobs: MemoryBlobs,
    meters: Arc<Meters>,
}

#[derive(Default)]
struct Inner {
    jobs: BTreeMap<JobId, Arc<Job>>,
    /// Not decreased when a job is deleted: ids are never reused.
    last_id: u64,
    /// Jobs that claim a key; the smallest id is the holder.
    claimants: BTreeMap<Key, BTreeSet<JobId>>,
    paused: BTreeSet<(Tenant, Queue)>,
    settings: BTreeMap<String, Vec<u8>>,
    audit: VecDeque<AuditEntry>,
    last_audit_id: u64,
    /// Jobs that the gate refused at the last check, unchanged since.
    held: BTreeMap<JobId, Held>,
    /// `now` of the last `due`: the listener has been notified of jobs due before that.
    looked_at: Option<Timestamp>,
    /// Tenant, queue and name of jobs that became claimable during the current call, and their number.
    news: BTreeMap<(Tenant, Queue, Name), usize>,
    listener: Option<Arc<dyn Listener>>,
    closed: bool,
}

impl MemoryStore {
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// For tests: reports itself as shared with other servers, like a database.
    pub fn shared() -> MemoryStore {
        MemoryStore { is_shared: true, ..MemoryStore::default() }
    }

    /// Runs `work` under the mutex, then notifies the listener without it.
    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> Result<T> {
        let (answer, news, listener) = {
            let mut inner = self.inner.lock();
            if inner.closed {
                return Err(StoreError::Closed);
            }
            let answer = work(&mut inner);
            (answer, std::mem::take(&mut inner.news), inner.listener.clone())
        };
        if let Some(listener) = listener {
            for ((tenant, queue, name), count) in &news {
                listener.became_ready(tenant, queue, name, Some(*count));
            }
        }
        Ok(answer)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn commit(&self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Verdict>> {
        self.meters.commit_size.record(steps.len() as u64);
        self.with(|inner| steps.into_iter().map(|step| inner.apply_step(step, now)).collect())
    }

    async fn claim(&self, ask: ClaimAsk, now: Timestamp) -> Result<Vec<Arc<Job>>> {
        self.with(|inner| inner.claim(&ask, now))
    }

    async fn load(&self, ids: Vec<JobId>) -> Result<Vec<Option<Arc<Job>>>> {
        self.with(|inner| ids.iter().map(|id| inner.jobs.get(id).cloned()).collect())
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Due> {
        self.with(|inner| inner.due(now, limit))
    }

    async fn set_paused(&self, tenant: &Tenant, queue: &Queue, paused: bool) -> Result<()> {
        self.with(|inner| inner.set_paused(tenant, queue, paused))
    }

    fn reopen(&self, limit_key: &str) {
        // A closed store returns no jobs, so no notice is needed.
        let _ = self.with(|inner| inner.let_in(|held| *held.key == *limit_key));
    }

    fn blobs(&self) -> Arc<dyn BlobStore> {
        Arc::new(self.blobs.clone())
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        let _ = self.with(|inner| inner.listener = Some(listener));
    }

    fn shared(&self) -> Option<&dyn SharedStore> {
        self.is_shared.then_some(self)
    }

    async fn health(&self) -> Result<()> {
        self.with(|_| ())
    }

    fn meters(&self) -> Arc<Meters> {
        self.meters.clone()
    }

    async fn close(&self) -> Result<()> {
        self.with(|inner| inner.closed = true)
    }
}

#[async_trait]
impl Lookup for MemoryStore {
    async fn find_alias(&self, tenant: &Tenant, alias: &str) -> Result<Option<JobId>> {
        let key = Key::Alias(tenant.clone(), alias.into());
        self.with(|inner| inner.holder(&key))
    }

    async fn find_named(&self, tenant: &Tenant, queue: &Queue, name: &Name) -> Result<Option<JobId>> {
        self.with(|inner| inner.find_named(tenant, queue, name))
    }

    async fn children(&self, parent: JobId) -> Result<Vec<JobId>> {
        let is_child = |job: &&Arc<Job>| job.spec.family().is_some_and(|family| family.parent == parent);
        self.with(|inner| inner.jobs.values().filter(is_child).map(|job| job.id).collect())
    }

    async fn list(&self, filter: Filter) -> Result<Page> {
        self.with(|inner| inner.list(&filter))
    }

    async fn next_id(&self) -> Result<JobId> {
        self.with(|inner| inner.next_id())
    }

    async fn payload_bytes(&self, tenant: &Tenant) -> Result<u64> {
        self.with(|inner| {
            let own = inner.jobs.values().filter(|job| job.spec.tenant == *tenant);
            own.map(|job| job.spec.payload.bytes.len() as u64).sum()
        })
    }

    async fn counts(&self, tenant: Option<&Tenant>, now: Timestamp) -> Result<Vec<QueueCounts>> {
        self.with(|inner| inner.counts(tenant, now))
    }

    async fn waiting(&self, queue: &Queue, now: Timestamp) -> Result<Vec<WaitingName>> {
        self.with(|inner| inner.waiting(queue, now))
    }

    async fn under_limits(&self, tenant: &Tenant, now: Timestamp) -> Result<Vec<UnderLimits>> {
        self.with(|inner| inner.under_limits(tenant, now))
    }
}

#[async_trait]
impl Settings for MemoryStore {
    async fn put_setting(&self, key: &str, value: Option<Vec<u8>>) -> Result<()> {
        self.with(|inner| inner.put_setting(key.to_owned(), value))
    }

    async fn settings(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
        let owned = |(key, value): (&String, &Vec<u8>)| (key.clone(), value.clone());
        self.with(|inner| {
            inner.settings.iter().filter(|(key, _)| key.starts_with(prefix)).map(owned).collect()
        })
    }

    async fn setting_keys(&self, prefix: &str) -> Result<Vec<String>> {
        self.with(|inner| inner.settings.keys().filter(|key| key.starts_with(prefix)).cloned().collect())
    }
}

#[async_trait]
impl Restore for MemoryStore {
    async fn restore(&self, jobs: Vec<Arc<Job>>, next: JobId, keys: KeyRule) -> Result<()> {
        self.with(|inner| inner.restore(jobs, next, keys))?
    }
}

#[async_trait]
impl AuditLog for MemoryStore {
    async fn append_audit(&self, entries: Vec<AuditEntry>, bounds: AuditBounds) -> Result<()> {
        self.with(|inner| {
            for entry in entries {
                inner.last_audit_id += 1;
                inner.audit.push_back(AuditEntry { id: inner.last_audit_id, ..entry });
            }
            let last = inner.last_audit_id;
            let is_beyond = |entry: &AuditEntry| {
                entry.at < bounds.since || entry.id.saturating_add(bounds.entries_max) <= last
            };
            while inner.audit.front().is_some_and(is_beyond) {
                inner.audit.pop_front();
            }
        })
    }

    async fn list_audit(&self, filter: AuditFilter) -> Result<Vec<AuditEntry>> {
        let newest_first = |inner: &mut Inner| {
            let fitting = inner.audit.iter().rev().filter(|entry| filter.fits(entry));
            fitting.take(filter.page()).cloned().collect()
        };
        self.with(newest_first)
    }
}

impl Inner {
    fn apply_step(&mut self, step: Step, now: Timestamp) -> Verdict {
        if !self.are_current(&step.changes) {
            return Verdict::Stale;
        }
        let claimants = |key: &Key| self.claimants.get(key).into_iter().flatten().copied().collect();
        if let Some(refused) = refusal(&step, claimants) {
            return refused;
        }
        for change in step.changes {
            self.put(change.before.id, change.after, now);
        }
        for (key, value) in step.settings {
            self.put_setting(key, value);
        }
        Verdict::Done(step.inserts.into_iter().map(|new| self.insert(new, now)).collect())
    }

    /// True if each change starts from the current version of its job, or from the version left by an earlier
    /// change of the step.
    fn are_current(&self, changes: &[Change]) -> bool {
        let mut versions: BTreeMap<JobId, Option<u64>> = BTreeMap::new();
        changes.iter().all(|change| {
            let id = change.before.id;
            let stored = || self.jobs.get(&id).map(|job| job.version);
            let version = versions.get(&id).copied().unwrap_or_else(stored);
            versions.insert(id, change.after.as_ref().map(|after| after.version));
            version == Some(change.before.version)
        })
    }

    fn next_id(&self) -> JobId {
        JobId::new(self.last_id + 1).expect("one more than a number is not zero")
    }

    fn restore(&mut self, jobs: Vec<Arc<Job>>, next: JobId, keys: KeyRule) -> Result<()> {
        let mut ids = BTreeSet::new();
        if let Some(job) = jobs.iter().find(|job| self.jobs.contains_key(&job.id) || !ids.insert(job.id)) {
            return Err(is_there(job.id));
        }
        let holder = jobs.iter().flat_map(|job| keys_of(job)).find_map(|key| self.holder(&key));
        if let Some(holder) = holder.filter(|_| keys == KeyRule::Ask) {
            return Err(holds_the_key(holder));
        }
        let highest = ids.last().map_or(0, |id| id.get());
        self.last_id = self.last_id.max(next.get() - 1).max(highest);
        for job in jobs {
            // Notifies for all jobs, even those not due: an extra notice is harmless.
            self.put(job.id, Some(job), Timestamp::MAX);
        }
        Ok(())
    }

    fn insert(&mut self, new: NewJob, now: Timestamp) -> Inserted {
        let id = self.next_id();
        let job = created(id, new.spec, new.run_at, new.held_by_parent, new.body);
        if let Some(holder) = keys_of(&job).iter().find_map(|key| self.holder(key)) {
            return Inserted::Existing(holder);
        }
        self.last_id = id.get();
        self.put(id, Some(Arc::new(job)), now);
        Inserted::New(id)
    }

    fn holder(&self, key: &Key) -> Option<JobId> {
        self.claimants.get(key)?.first().copied()
    }

    /// Writes or deletes one job and updates all indexes.
    fn put(&mut self, id: JobId, after: Option<Arc<Job>>, now: Timestamp) {
        self.held.remove(&id);
        if let Some(before) = self.jobs.remove(&id) {
            for key in keys_of(&before) {
                self.claimants.entry(key).or_default().remove(&id);
            }
        }
        let Some(job) = after else { return };
        debug_assert_eq!(job.id, id, "a change is about one job");
        for key in keys_of(&job) {
            self.claimants.entry(key).or_default().insert(id);
        }
        // `due` will not notify of times it has already passed, so the notice is given here.
        let told_until = self.looked_at.max(Some(now));
        if job.state().claimable_at().is_some_and(|run_at| Some(run_at) <= told_until) {
            self.tell(&job);
        }
        self.jobs.insert(id, job);
    }

    fn tell(&mut self, job: &Job) {
        let spec = &job.spec;
        if !self.is_paused(job) {
            let address = (spec.tenant.clone(), spec.queue.clone(), spec.name.clone());
            *self.news.entry(address).or_default() += 1;
        }
    }

    fn is_paused(&self, job: &Job) -> bool {
        self.paused.contains(&(job.spec.tenant.clone(), job.spec.queue.clone()))
    }

    fn claim(&mut self, ask: &ClaimAsk, now: Timestamp) -> Vec<Arc<Job>> {
        let mut candidates: Vec<(i32, Timestamp, JobId)> = Vec::new();
        for job in self.jobs.values() {
            if let Some(run_at) = job.state().claimable_at()
                && run_at <= now
                && is_asked_for(job, ask)
                && !self.is_paused(job)
            {
                candidates.push((job.spec.priority, run_at, job.id));
            }
        }
        candidates.sort_unstable();
        let mut claimed = Vec::new();
        for (_, _, id) in candidates {
            if claimed.len() == ask.limit {
                break;
            }
            claimed.extend(self.give_out(id, ask, now));
        }
        claimed
    }

    /// Claims one job; `None` if the gate refuses it. Jobs without limits skip the gate.
    fn give_out(&mut self, id: JobId, ask: &ClaimAsk, now: Timestamp) -> Option<Arc<Job>> {
        let before = self.jobs.get(&id)?.clone();
        let (tenant, keys) = (&before.spec.tenant, before.spec.limit_keys());
        let gate = ask.gate.as_ref().filter(|_| !keys.is_empty());
        if let Some(gate) = gate
            && let Err(held) = gate.admit(tenant, keys, now)
        {
            self.held.insert(id, held);
            return None;
        }
        let grant = Grant { worker: ask.worker.clone(), lease_ms: ask.lease_ms, random: ask.random(id) };
        let after = apply(&before, Event::Claim(grant), now).ok().and_then(|transition| transition.job);
        let Some(after) = after.map(Arc::new) else {
            if let Some(gate) = gate {
                gate.give_back(tenant, keys, now);
            }
            return None;
        };
        self.put(id, Some(after.clone()), now);
        Some(after)
    }

    fn due(&mut self, now: Timestamp, limit: usize) -> Due {
        self.let_in(|held| held.until.is_some_and(|until| until <= now));
        for job in self.jobs.values().cloned().collect::<Vec<_>>() {
            if let Some(run_at) = job.state().claimable_at()
                && Some(run_at) > self.looked_at
                && run_at <= now
            {
                self.tell(&job);
            }
        }
        self.looked_at = Some(now);

        let passed = |job: &Arc<Job>| job.deadline().filter(|deadline| *deadline <= now);
        let mut due: Vec<Arc<Job>> =
            self.jobs.values().filter(|job| passed(job).is_some()).cloned().collect();
        due.sort_by_key(|job| (job.deadline(), job.id));
        let cut_off = due.iter().skip(limit).filter_map(passed).min();
        due.truncate(limit);
        Due { jobs: due, next: cut_off.or_else(|| self.next_moment(now)) }
    }

    /// First time after `now` at which a job becomes due.
    fn next_moment(&self, now: Timestamp) -> Option<Timestamp> {
        let deadlines = self.jobs.values().filter_map(|job| job.deadline());
        let starts = self.jobs.values().filter_map(|job| job.state().claimable_at());
        let held = self.held.values().filter_map(|held| held.until);
        deadlines.chain(starts).chain(held).filter(|moment| *moment > now).min()
    }

    /// Retries blocked jobs; the next claim asks the gate in any case.
    fn let_in(&mut self, which: impl Fn(&Held) -> bool) {
        let released: Vec<JobId> =
            self.held.iter().filter(|(_, held)| which(held)).map(|(id, _)| *id).collect();
        for id in released {
            self.held.remove(&id);
            if let Some(job) = self.jobs.get(&id).cloned() {
                self.tell(&job);
            }
        }
    }

    fn put_setting(&mut self, key: String, value: Option<Vec<u8>>) {
        match value {
            Some(value) => self.settings.insert(key, value),
            None => self.settings.remove(&key),
        };
    }

    fn set_paused(&mut self, tenant: &Tenant, queue: &Queue, paused: bool) {
        let address = (tenant.clone(), queue.clone());
        if paused {
            self.paused.insert(address);
            return;
        }
        self.paused.remove(&address);
        let waits_here = |job: &&Arc<Job>| {
            job.state().claimable_at().is_some() && job.spec.tenant == *tenant && job.spec.queue == *queue
        };
        for job in self.jobs.values().filter(waits_here).cloned().collect::<Vec<_>>() {
            self.tell(&job);
        }
    }
}

fn is_asked_for(job: &Job, ask: &ClaimAsk) -> bool {
    let spec = &job.spec;
    spec.tenant == ask.tenant
        && ask.fits(&spec.queue, &spec.name)
        && ask.priority.is_none_or(|priority| priority == spec.priority)
}
