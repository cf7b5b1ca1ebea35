//! Table of claimed jobs, and the thread that sends heartbeats and carries out the server's requests.

use super::guard::Guard;
use crate::client::Client;
use crate::fault::Fault;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Shortest interval between progress reports, which are for people.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Shortest interval between log uploads: each one is written to disk by the server.
const MESSAGES_EVERY: Duration = Duration::from_secs(1);
/// Most log lines waiting for upload, equal to the server's limit per job; the oldest are dropped.
const MESSAGES_MAX: usize = 1_000;

/// Reason why a command was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Cancelled,
    LeaseLost,
    TimedOut,
    /// The worker shuts down at once and releases its jobs.
    Leaving,
}

/// Run of a job. After a lost lease the same job may be claimed again while its first run is still being
/// stopped, so the job id does not identify a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Run(u64);

pub(super) struct Held {
    id: u64,
    token: Value,
    /// Process group while the process runs; removed before the process is reaped, since its id may be
    /// reused.
    group: Option<Pid>,
    stop: Option<Stop>,
    kill_at: Option<Instant>,
    deadline: Option<Instant>,
    progress: Option<(u8, String)>,
    /// Stderr lines not yet sent to the server.
    messages: Vec<String>,
    /// A log upload is in progress: later lines wait, to keep their order.
    telling: bool,
}

impl Held {
    pub(super) fn new(id: u64, token: Value, timeout: Option<Duration>) -> Held {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        Held {
            id,
            token,
            group: None,
            stop: None,
            kill_at: None,
            deadline,
            progress: None,
            messages: Vec::new(),
            telling: false,
        }
    }

    fn ask_to_stop(&mut self, why: Stop, grace: Duration) {
        if self.stop.is_none() {
            self.stop = Some(why);
            self.kill_at = Some(Instant::now() + grace);
            self.signal(Signal::TERM);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // The group may have exited already.
            let _ = kill_process_group(group, signal);
        }
    }
}

#[derive(Default)]
struct State {
    runs: HashMap<Run, Held>,
    /// Stop claiming.
    leaving: bool,
    /// Stop running jobs.
    urgent: bool,
    closed: bool,
    trouble: Option<Fault>,
    started: u64,
    finished: u64,
    failed: u64,
    /// Runs that asked for another attempt.
    again: u64,
    /// Runs that were released or lost.
    released: u64,
}

impl State {
    fn ends(&self) -> u64 {
        self.finished + self.failed + self.again + self.released
    }
}

/// Counter of the summary to which a run belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Finished,
    Failed,
    Again,
    Released,
}

impl Counted {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Counted::Finished => "finished",
            Counted::Failed => "failed",
            Counted::Again => "again",
            Counted::Released => "released",
        }
    }
}

pub(super) struct Table {
    state: Mutex<State>,
    changed: Condvar,
    guard: Guard,
    pub quiet: bool,
}

impl Table {
    pub(super) fn new(quiet: bool) -> Table {
        Table { state: Mutex::default(), changed: Condvar::new(), guard: Guard::default(), quiet }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn wait(&self, state: &mut MutexGuard<'_, State>) {
        self.changed.wait(state);
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let answer = change(&mut self.lock());
        self.changed.notify_all();
        answer
    }

    /// Waits for a free slot and returns the number of free slots. 0: stop claiming.
    pub(super) fn wait_for_room(&self, most: usize) -> usize {
        let mut state = self.lock();
        while !state.leaving && state.runs.len() >= most {
            self.wait(&mut state);
        }
        if state.leaving { 0 } else { most - state.runs.len() }
    }

    /// Number of ended jobs.
    pub(super) fn ends(&self) -> u64 {
        self.lock().ends()
    }

    /// Waits until more jobs have ended than `before`. False: no job is running.
    pub(super) fn wait_for_an_end(&self, before: u64) -> bool {
        let mut state = self.lock();
        while !state.leaving && !state.runs.is_empty() && state.ends() == before {
            self.wait(&mut state);
        }
        state.leaving || state.ends() > before
    }

    pub(super) fn wait_until_empty(&self) {
        let mut state = self.lock();
        while !state.runs.is_empty() {
            self.wait(&mut state);
        }
    }

    /// Sleeps; interrupted by a shutdown.
    pub(super) fn sleep(&self, time: Duration) {
        let mut state = self.lock();
        self.changed.wait_while_for(&mut state, |state| !state.leaving, time);
    }

    pub(super) fn insert(&self, held: Held) -> Run {
        self.change(|state| {
            state.started += 1;
            let run = Run(state.started);
            state.runs.insert(run, held);
            run
        })
    }

    pub(super) fn has_started(&self) -> bool {
        self.lock().started > 0
    }

    pub(super) fn remove(&self, run: Run, counted: Counted) {
        self.change(|state| {
            state.runs.remove(&run);
            match counted {
                Counted::Finished => state.finished += 1,
                Counted::Failed => state.failed += 1,
                Counted::Again => state.again += 1,
                Counted::Released => state.released += 1,
            }
        });
    }

    /// Registers the process group for signals, and sends SIGTERM if a stop was requested before.
    pub(super) fn process_started(&self, run: Run, group: Pid) {
        self.guard.began(group);
        self.change(|state| {
            if let Some(held) = state.runs.get_mut(&run) {
                held.group = Some(group);
                if held.stop.is_some() {
                    held.signal(Signal::TERM);
                }
            }
        });
    }

    /// Kills the rest of the process group and unregisters it. Call it before the process is reaped.
    pub(super) fn process_ended(&self, run: Run) {
        let group = self.change(|state| {
            let held = state.runs.get_mut(&run)?;
            held.signal(Signal::KILL);
            held.group.take()
        });
        if let Some(group) = group {
            self.guard.ended(group);
        }
    }

    pub(super) fn why_stopped(&self, run: Run) -> Option<Stop> {
        self.lock().runs.get(&run).and_then(|held| held.stop)
    }

    pub(super) fn report(&self, run: Run, percent: u8, note: String) {
        self.change(|state| {
            if let Some(held) = state.runs.get_mut(&run) {
                held.progress = Some((percent, note));
            }
        });
    }

    pub(super) fn say(&self, run: Run, line: &str) {
        self.change(|state| {
            let Some(held) = state.runs.get_mut(&run) else { return };
            if held.messages.len() == MESSAGES_MAX {
                held.messages.remove(0);
            }
            held.messages.push(line.to_owned());
        });
    }

    /// Log lines not yet sent, after waiting for an upload in progress.
    pub(super) fn last_messages(&self, run: Run) -> Vec<String> {
        let mut state = self.lock();
        while state.runs.get(&run).is_some_and(|held| held.telling) {
            self.wait(&mut state);
        }
        state.runs.get_mut(&run).map(|held| std::mem::take(&mut held.messages)).unwrap_or_default()
    }

    /// Requests a shutdown and returns the number of running jobs.
    pub(super) fn leave(&self, urgent: bool) -> usize {
        self.change(|state| {
            state.leaving = true;
            state.urgent |= urgent;
            state.runs.len()
        })
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.lock().urgent
    }

    /// Stops the worker because of an error that no retry can fix, such as a missing command.
    pub(super) fn give_up(&self, fault: Fault) {
        self.change(|state| {
            state.leaving = true;
            state.trouble.get_or_insert(fault);
        });
    }

    pub(super) fn take_trouble(&self) -> Option<Fault> {
        self.lock().trouble.take()
    }

    pub(super) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// Summary of the ended runs.
    pub(super) fn tally(&self) -> String {
        let State { finished, failed, again, .. } = *self.lock();
        match again {
            0 => format!("{finished} finished, {failed} failed"),
            again => format!("{finished} finished, {failed} failed, {again} to run again"),
        }
    }
}

/// Task that sends heartbeats, progress and log lines, and stops jobs when due.
pub(super) struct Keeper {
    table: std::sync::Arc<Table>,
    client: Client,
    lease_ms: i64,
    grace: Duration,
    next_beat: Instant,
    progress_after: Instant,
    messages_after: Instant,
}

impl Keeper {
    pub(super) fn new(table: std::sync::Arc<Table>, client: Client, lease_ms: i64, grace_ms: i64) -> Keeper {
        let grace = Duration::from_millis(u64::try_from(grace_ms).unwrap_or(0));
        let now = Instant::now();
        Keeper { table, client, lease_ms, grace, next_beat: now, progress_after: now, messages_after: now }
    }

    /// A third of the lease, so that two heartbeats may be lost.
    fn beat(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.lease_ms / 3).unwrap_or(0)).max(Duration::from_millis(10))
    }

    pub(super) fn run(mut self) {
        self.next_beat = Instant::now() + self.beat();
        loop {
            let table = self.table.clone();
            let mut state = table.lock();
            loop {
                if state.closed {
                    return;
                }
                let now = Instant::now();
                self.end_what_is_due(&mut state, now);
                match self.next_call(&state).map(|at| at.saturating_duration_since(now)) {
                    Some(Duration::ZERO) => break,
                    Some(time) => {
                        table.changed.wait_for(&mut state, time);
                    }
                    None => table.wait(&mut state),
                }
            }
            let entries = self.entries(&mut state);
            let messages = self.messages(&mut state);
            drop(state);
            self.extend(entries);
            self.tell(messages);
        }
    }

    fn end_what_is_due(&self, state: &mut State, now: Instant) {
        for held in state.runs.values_mut() {
            if state.urgent {
                held.ask_to_stop(Stop::Leaving, self.grace.min(Duration::from_secs(2)));
            }
            if held.deadline.is_some_and(|deadline| deadline <= now) {
                held.ask_to_stop(Stop::TimedOut, self.grace);
            }
            if held.kill_at.is_some_and(|at| at <= now) {
                held.kill_at = None;
                held.signal(Signal::KILL);
            }
        }
    }

    /// Time of the next action; `None` if no job is claimed.
    fn next_call(&self, state: &State) -> Option<Instant> {
        let held = || state.runs.values();
        let beat = (!state.runs.is_empty()).then_some(self.next_beat);
        let progress = held().any(|held| held.progress.is_some()).then_some(self.progress_after);
        let kills = held().filter_map(|held| held.kill_at);
        let deadlines = held().filter(|held| held.stop.is_none()).filter_map(|held| held.deadline);
        let messages = held().any(|held| !held.messages.is_empty()).then_some(self.messages_after);
        kills.chain(deadlines).chain(beat).chain(progress).chain(messages).min()
    }

    /// Entries of an extend request: all jobs if a heartbeat is due, else only those with new progress.
    fn entries(&mut self, state: &mut State) -> Vec<(Run, Value)> {
        let now = Instant::now();
        let beat = now >= self.next_beat;
        if beat {
            self.next_beat = now + self.beat();
        }
        let tell_progress = now >= self.progress_after;
        let mut entries = Vec::new();
        for (run, held) in &mut state.runs {
            let progress = if tell_progress { held.progress.take() } else { None };
            if held.stop == Some(Stop::LeaseLost) || (!beat && progress.is_none()) {
                continue;
            }
            let mut entry = json!({"id": held.id, "token": held.token, "lease_ms": self.lease_ms});
            if let Some((percent, note)) = progress {
                entry["progress"] = json!(percent);
                entry["note"] = json!(note);
            }
            entries.push((*run, entry));
        }
        if tell_progress && !entries.is_empty() {
            self.progress_after = now + PROGRESS_EVERY;
        }
        entries
    }

    fn messages(&mut self, state: &mut State) -> Vec<(Run, String, Value)> {
        let now = Instant::now();
        if now < self.messages_after {
            return Vec::new();
        }
        let mut messages = Vec::new();
        for (run, held) in &mut state.runs {
            if !held.messages.is_empty() {
                held.telling = true;
                let lines = std::mem::take(&mut held.messages);
                messages.push((*run, log_path(held.id), log_body(&held.token, &lines)));
            }
        }
        if !messages.is_empty() {
            self.messages_after = now + MESSAGES_EVERY;
        }
        messages
    }

    /// Uploads log lines. Errors are ignored: the lines are informational and the worker has printed them.
    fn tell(&mut self, messages: Vec<(Run, String, Value)>) {
        for (run, path, body) in messages {
            let _ = self.client.post(&path, &body);
            self.table.change(|state| {
                if let Some(held) = state.runs.get_mut(&run) {
                    held.telling = false;
                }
            });
        }
    }

    /// Sends an extend request. An unreachable server is no reason to stop: the lease may still be valid when
    /// it is back.
    fn extend(&mut self, entries: Vec<(Run, Value)>) {
        if entries.is_empty() {
            return;
        }
        let (runs, entries): (Vec<Run>, Vec<Value>) = entries.into_iter().unzip();
        let Ok(answer) = self.client.post("/api/v1/extend", &json!({"extend": entries})) else { return };
        let answers = answer["extended"].as_array().map(Vec::as_slice).unwrap_or_default();
        let grace = self.grace;
        self.table.change(|state| {
            // One result per entry, in the same order.
            for (run, answer) in runs.iter().zip(answers) {
                let Some(held) = state.runs.get_mut(run) else { continue };
                if answer["ok"] == false {
                    held.ask_to_stop(Stop::LeaseLost, grace);
                } else if answer["cancel"] == true {
                    held.ask_to_stop(Stop::Cancelled, grace);
                }
            }
        });
    }
}

pub(super) fn log_path(id: u64) -> String {
    format!("/api/v1/jobs/{id}/log")
}

pub(super) fn log_body(token: &Value, lines: &[String]) -> Value {
    json!({"token": token, "lines": lines, "source": "stderr"})
}
