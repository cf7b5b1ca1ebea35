//! Table of the workers: slots, running jobs, refused names. No I/O, no clock, no lock.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use windlass_core::{Job, JobId, Lease, NameMatch, Timestamp, Token};

/// A worker that has pinged once is removed after this time without a ping. Workers ping every five seconds,
/// so one lost ping is tolerated.
pub(super) const PING_MS_MAX: i64 = 10_000;
/// Failed deliveries in a row before a worker is removed.
pub(super) const FAILURES_MAX: u32 = 3;
/// Pause after a failed delivery, multiplied by the failures in a row. Other workers get the jobs meanwhile.
pub(super) const REST_MS: i64 = 1_000;
/// Most names that a worker may refuse; a worker that refuses more is removed.
pub(super) const REFUSED_NAMES_MAX: usize = 1_000;
/// Time after its expiry at which a lease is checked in the store: another server may have ended it.
const OVERDUE_MS: i64 = 5_000;

pub(super) type WorkerId = Arc<str>;

/// Workers of one tenant. `L` is the connection to a worker.
pub(super) struct Workers<L> {
    entries: BTreeMap<u64, Entry<L>>,
    numbers: HashMap<WorkerId, u64>,
    registered: u64,
    /// Workers with a free slot: fewest running jobs first, then longest registered.
    free: BTreeSet<(u32, u64)>,
    free_slots: usize,
    /// Number of free workers that refuse no name.
    free_and_open: usize,
    held: HashMap<JobId, Held>,
    /// Drained workers that are removed from the table but not from the store yet.
    left: Vec<WorkerId>,
    /// Time of the next planned `pass`.
    planned: Option<Timestamp>,
}

struct Entry<L> {
    id: WorkerId,
    max_jobs: u32,
    running: u32,
    refuses: HashSet<Box<str>>,
    failures: u32,
    rests_until: Option<Timestamp>,
    pinged_at: Option<Timestamp>,
    /// Resumes after a pause instead of being removed.
    is_fixed: bool,
    /// Drains: gets no more jobs, and is removed after its last one.
    is_leaving: bool,
    /// Paused by an operator.
    is_quiet: bool,
    connection: L,
}

impl<L> Entry<L> {
    fn is_free(&self) -> bool {
        self.running < self.max_jobs && self.rests_until.is_none() && !self.is_leaving && !self.is_quiet
    }
}

/// Job in delivery to a worker, or running there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub token: Token,
    pub worker: WorkerId,
    pub attempt: u32,
    pub until: Timestamp,
    /// The worker has accepted it.
    pub is_accepted: bool,
}

impl Held {
    pub(super) fn new(job: &Job, lease: &Lease, worker: WorkerId, is_accepted: bool) -> Held {
        let until = lease.until.unwrap_or(lease.granted_at);
        Held { token: lease.token, worker, attempt: job.progress.attempts, until, is_accepted }
    }
}

/// Worker in the table.
pub(super) struct Registered<'a, L> {
    pub id: &'a WorkerId,
    pub connection: &'a L,
    pub max_jobs: u32,
    pub running: u32,
    pub is_quiet: bool,
    pub is_fixed: bool,
    pub pinged_at: Option<Timestamp>,
}

/// Names and number of jobs for the next claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NextClaim {
    pub names: NameMatch,
    pub slots: usize,
}

/// Removed worker, with the jobs it had accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RemovedWorker {
    pub worker: WorkerId,
    pub jobs: Vec<(JobId, Token)>,
}

/// Effect of a failed delivery on the worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AfterFailure {
    Rests,
    Removed(RemovedWorker),
    /// Not in the table.
    Unknown,
}

/// Effects of passing time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    pub removed: Vec<RemovedWorker>,
    /// Leases that should have expired by now.
    pub overdue: Vec<(JobId, Token)>,
}

impl<L> Default for Workers<L> {
    fn default() -> Self {
        Workers {
            entries: BTreeMap::new(),
            numbers: HashMap::new(),
            registered: 0,
            free: BTreeSet::new(),
            free_slots: 0,
            free_and_open: 0,
            held: HashMap::new(),
            left: Vec::new(),
            planned: None,
        }
    }
}

impl<L: Clone> Workers<L> {
    /// Adds a worker, with the slots of its known jobs in use. A worker in the table stays unchanged.
    pub(super) fn register(&mut self, id: WorkerId, max_jobs: u32, connection: L, is_fixed: bool) {
        if self.knows(&id) {
            return;
        }
        let number = self.registered;
        self.registered += 1;
        let running = self.held.values().filter(|held| held.worker == id).count();
        let entry = Entry {
            id: id.clone(),
            max_jobs,
            running: u32::try_from(running).unwrap_or(u32::MAX),
            refuses: HashSet::new(),
            failures: 0,
            rests_until: None,
            pinged_at: None,
            is_fixed,
            is_leaving: false,
            is_quiet: false,
            connection,
        };
        self.numbers.insert(id, number);
        self.enter(number, entry);
    }

    /// Removes a worker and returns its accepted jobs. Jobs in delivery to it end by themselves.
    pub(super) fn remove(&mut self, id: &str) -> Option<RemovedWorker> {
        let number = self.numbers.remove(id)?;
        let entry = self.leave(number)?;
        Some(RemovedWorker { jobs: self.accepted_by(&entry.id), worker: entry.id })
    }

    /// Removes a worker and its jobs, which another server keeps.
    pub(super) fn release(&mut self, id: &str) {
        if let Some(number) = self.numbers.remove(id) {
            self.leave(number);
            self.held.retain(|_, held| *held.worker != *id);
        }
    }

    /// Drains a worker. Returns false if it is unknown.
    pub(super) fn leaving(&mut self, id: &str) -> bool {
        let Some(number) = self.numbers.get(id).copied() else { return false };
        self.change(number, |entry| entry.is_leaving = true);
        self.gone_if_idle(number);
        true
    }

    fn gone_if_idle(&mut self, number: u64) {
        let is_over = |entry: &Entry<L>| entry.is_leaving && entry.running == 0;
        let Some(id) = self.entries.get(&number).filter(|entry| is_over(entry)).map(|entry| entry.id.clone())
        else {
            return;
        };
        self.remove(&id);
        self.left.push(id);
    }

    /// Returns and clears the workers that have left.
    pub(super) fn take_left(&mut self) -> Vec<WorkerId> {
        std::mem::take(&mut self.left)
    }

    /// Pauses or resumes a worker. Returns false if it is unknown.
    pub(super) fn set_quiet(&mut self, id: &str, quiet: bool) -> bool {
        let Some(number) = self.numbers.get(id).copied() else { return false };
        self.change(number, |entry| entry.is_quiet = quiet).is_some()
    }

    /// All workers in the order of registration.
    pub(super) fn roster(&self) -> impl Iterator<Item = Registered<'_, L>> {
        self.entries.values().map(|entry| Registered {
            id: &entry.id,
            connection: &entry.connection,
            max_jobs: entry.max_jobs,
            running: entry.running,
            is_quiet: entry.is_quiet,
            is_fixed: entry.is_fixed,
            pinged_at: entry.pinged_at,
        })
    }

    pub(super) fn knows(&self, id: &str) -> bool {
        self.numbers.contains_key(id)
    }

    pub(super) fn held(&self, id: JobId) -> Option<&Held> {
        self.held.get(&id)
    }

    /// Jobs that workers have accepted.
    pub(super) fn accepted_jobs(&self) -> Vec<(JobId, Token)> {
        let accepted = self.held.iter().filter(|(_, held)| held.is_accepted);
        accepted.map(|(id, held)| (*id, held.token)).collect()
    }

    /// `None`: no worker has a free slot.
    pub(super) fn next_claim(&self) -> Option<NextClaim> {
        if self.free.is_empty() {
            return None;
        }
        let names = if self.free_and_open > 0 { NameMatch::Any } else { self.names_somebody_takes() };
        Some(NextClaim { names, slots: self.free_slots })
    }

    /// All names except the names that every free worker refuses.
    fn names_somebody_takes(&self) -> NameMatch {
        let mut free = self.free.iter().filter_map(|(_, number)| self.entries.get(number));
        let Some(first) = free.next() else { return NameMatch::Any };
        let mut refused: Vec<&Box<str>> = first.refuses.iter().collect();
        for other in free {
            refused.retain(|name| other.refuses.contains(*name));
        }
        if refused.is_empty() {
            return NameMatch::Any;
        }
        // Sorted, so that equal sets compare as equal.
        refused.sort_unstable();
        NameMatch::NoneOf(refused.into_iter().cloned().collect())
    }

    /// Assigns a job to the free worker with the fewest jobs that accepts its name.
    pub(super) fn assign(
        &mut self,
        name: &str,
        id: JobId,
        held: impl FnOnce(WorkerId) -> Held,
    ) -> Option<(WorkerId, L)> {
        // The job may be claimed again before the end of its last lease is reported.
        if let Some(before) = self.held.remove(&id) {
            self.vacate(&before);
        }
        let takes =
            |number: &u64| self.entries.get(number).is_some_and(|entry| !entry.refuses.contains(name));
        let number = self.free.iter().map(|(_, number)| *number).find(takes)?;
        let (worker, connection) = self.change(number, |entry| {
            entry.running += 1;
            (entry.id.clone(), entry.connection.clone())
        })?;
        self.held.insert(id, held(worker.clone()));
        Some((worker, connection))
    }

    /// Adds a job that was sent before a restart.
    pub(super) fn adopt(&mut self, id: JobId, held: Held) {
        if let Some(number) = self.numbers.get(&held.worker).copied() {
            self.change(number, |entry| entry.running = entry.running.saturating_add(1));
        }
        self.held.insert(id, held);
    }

    /// Marks a job as accepted. It may have ended already, or its worker may be gone.
    pub(super) fn accept(&mut self, id: JobId, token: Token, until: Timestamp) -> Acceptance {
        let Some(held) = self.held.get_mut(&id).filter(|held| held.token == token) else {
            return Acceptance::Ended;
        };
        held.is_accepted = true;
        held.until = until;
        let Some(number) = self.numbers.get(&held.worker).copied() else { return Acceptance::WorkerGone };
        self.change(number, |entry| entry.failures = 0);
        Acceptance::Runs
    }

    /// Removes a job whose lease is over. Returns true if a slot became free.
    pub(super) fn ended(&mut self, id: JobId, token: Token) -> bool {
        if self.held.get(&id).is_none_or(|held| held.token != token) {
            return false;
        }
        let Some(held) = self.held.remove(&id) else { return false };
        self.vacate(&held)
    }

    /// Frees the slot of a job. Returns true if it had one.
    fn vacate(&mut self, held: &Held) -> bool {
        let Some(number) = self.numbers.get(&held.worker).copied() else { return false };
        let is_free = self.change(number, |entry| entry.running = entry.running.saturating_sub(1)).is_some();
        self.gone_if_idle(number);
        is_free
    }

    /// Records that a worker refuses a name. Removes a worker that refuses too many.
    pub(super) fn refuses(&mut self, id: &str, name: &str) -> Option<RemovedWorker> {
        let number = *self.numbers.get(id)?;
        let refused = self.change(number, |entry| {
            entry.failures = 0;
            entry.refuses.insert(name.into());
            entry.refuses.len()
        })?;
        if refused > REFUSED_NAMES_MAX { self.remove(id) } else { None }
    }

    /// Records a failed delivery.
    pub(super) fn failed(&mut self, id: &str, now: Timestamp) -> AfterFailure {
        let Some(number) = self.numbers.get(id).copied() else { return AfterFailure::Unknown };
        let gone = self.change(number, |entry| {
            entry.failures += 1;
            entry.rests_until = Some(now.plus_ms(REST_MS * i64::from(entry.failures.min(FAILURES_MAX))));
            // A draining worker refuses jobs in delivery and still finishes the jobs it has.
            entry.failures >= FAILURES_MAX && !entry.is_fixed && !entry.is_leaving
        });
        match gone {
            Some(true) => self.remove(id).map_or(AfterFailure::Unknown, AfterFailure::Removed),
            Some(false) => AfterFailure::Rests,
            None => AfterFailure::Unknown,
        }
    }

    /// Records a ping. `None`: unknown worker; `true`: its first ping.
    pub(super) fn pinged(&mut self, id: &str, now: Timestamp) -> Option<bool> {
        let number = *self.numbers.get(id)?;
        let entry = self.entries.get_mut(&number)?;
        let before = entry.pinged_at;
        // Pings at other servers arrive here late.
        entry.pinged_at = before.max(Some(now));
        Some(before.is_none())
    }

    /// Ends pauses that are over, and removes workers without heartbeat.
    pub(super) fn pass(&mut self, now: Timestamp) -> Passed {
        let rested = |entry: &Entry<L>| entry.rests_until.is_some_and(|until| until <= now);
        let silent = |entry: &Entry<L>| silent_from(entry).is_some_and(|from| from <= now);
        let (mut wakes, mut gone) = (Vec::new(), Vec::new());
        for (number, entry) in &self.entries {
            if silent(entry) {
                gone.push(entry.id.clone());
            } else if rested(entry) {
                wakes.push(*number);
            }
        }
        for number in wakes {
            self.change(number, |entry| entry.rests_until = None);
        }
        let overdue = |(id, held): (&JobId, &mut Held)| {
            let is_over = held.until.plus_ms(OVERDUE_MS) <= now;
            if is_over {
                // Checked again after the same time, if the store does not answer.
                held.until = now;
            }
            is_over.then_some((*id, held.token))
        };
        let overdue = self.held.iter_mut().filter_map(overdue).collect();
        Passed { removed: gone.iter().filter_map(|id| self.remove(id)).collect(), overdue }
    }

    /// Returns the next deadline; the caller calls `pass` then.
    pub(super) fn plan(&mut self) -> Option<Timestamp> {
        self.planned = self.next_change();
        self.planned
    }

    /// True if a lease that expires at `until` has to be checked before the planned `pass`. Saves a search
    /// through thousands of workers for every job.
    pub(super) fn is_before_plan(&self, until: Timestamp) -> bool {
        self.planned.is_none_or(|planned| until.plus_ms(OVERDUE_MS) < planned)
    }

    /// Time of the next effect of `pass`.
    pub(super) fn next_change(&self) -> Option<Timestamp> {
        let workers =
            self.entries.values().flat_map(|entry| [entry.rests_until, silent_from(entry)]).flatten();
        let jobs = self.held.values().map(|held| held.until.plus_ms(OVERDUE_MS));
        workers.chain(jobs).min()
    }

    fn accepted_by(&self, worker: &WorkerId) -> Vec<(JobId, Token)> {
        let theirs = |held: &Held| held.is_accepted && held.worker == *worker;
        let jobs = self.held.iter().filter(|(_, held)| theirs(held));
        jobs.map(|(id, held)| (*id, held.token)).collect()
    }

    fn change<T>(&mut self, number: u64, change: impl FnOnce(&mut Entry<L>) -> T) -> Option<T> {
        let mut entry = self.leave(number)?;
        let answer = change(&mut entry);
        self.enter(number, entry);
        Some(answer)
    }

    fn leave(&mut self, number: u64) -> Option<Entry<L>> {
        let entry = self.entries.remove(&number)?;
        if self.free.remove(&(entry.running, number)) {
            self.free_slots -= (entry.max_jobs - entry.running) as usize;
            self.free_and_open -= usize::from(entry.refuses.is_empty());
        }
        Some(entry)
    }

    fn enter(&mut self, number: u64, entry: Entry<L>) {
        if entry.is_free() {
            self.free.insert((entry.running, number));
            self.free_slots += (entry.max_jobs - entry.running) as usize;
            self.free_and_open += usize::from(entry.refuses.is_empty());
        }
        self.entries.insert(number, entry);
    }
}

/// State of a job when its worker's acceptance arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acceptance {
    Runs,
    Ended,
    WorkerGone,
}

fn silent_from<L>(entry: &Entry<L>) -> Option<Timestamp> {
    entry.pinged_at.map(|at| at.plus_ms(PING_MS_MAX))
}

#[cfg(test)]
mod tests;
