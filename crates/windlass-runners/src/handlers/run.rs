//! Running batch: the handle of its caller, and the state of its task.

use super::booking::Hold;
use super::handler::Handler;
use super::outcome::{TOO_MUCH, Verdict};
use super::output::{NO_RESPONSE, Output, OutputLimits};
use super::{Inner, Stopping};
use bytes::Bytes;
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use windlass_core::handler::{self, Batch, Ended, Report, Status};

/// Handle of a running batch.
pub struct Run {
    ended: mpsc::UnboundedReceiver<(usize, Ended)>,
    stops: mpsc::UnboundedSender<Stop>,
}

#[derive(Clone, Copy, Debug)]
enum Stop {
    Job(usize),
    /// All jobs that have not started.
    Rest,
}

impl handler::Run for Run {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<(usize, Ended)>> + Send + '_>> {
        Box::pin(self.ended.recv())
    }

    fn stop(&self, index: usize) {
        // Fails only if the batch has ended.
        let _ = self.stops.send(Stop::Job(index));
    }

    fn cut(&self) {
        let _ = self.stops.send(Stop::Rest);
    }
}

/// Reason why a wait was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// The [`Run`] was dropped.
    Dropped,
    /// The runner is shutting down.
    Stopping,
    /// The running job was stopped.
    Stopped,
    /// Jobs that have not started must not be run now.
    Cut,
}

impl Interrupt {
    pub(super) fn why(self) -> &'static str {
        match self {
            Interrupt::Dropped | Interrupt::Stopped => "the job was stopped",
            Interrupt::Stopping => "the server is shutting down",
            Interrupt::Cut => "other clients run first",
        }
    }
}

/// Task's side of a [`Run`].
pub(super) struct Drive {
    pub inner: Arc<Inner>,
    pub batch: Batch<Handler>,
    /// Reserved slot, until it is used.
    pub hold: Option<Hold>,
    teller: Teller,
    stops: mpsc::UnboundedReceiver<Stop>,
    stopped: HashSet<usize>,
    is_cut: bool,
    began: Instant,
    stopping: watch::Receiver<Stopping>,
}

pub(super) fn begin(inner: Arc<Inner>, batch: Batch<Handler>, hold: Option<Hold>) -> (Run, Drive) {
    let (tell, ended) = mpsc::unbounded_channel();
    let (send_stop, stops) = mpsc::unbounded_channel();
    let teller = Teller { tell, told: vec![false; batch.jobs.len()] };
    let stopping = inner.stopping.subscribe();
    let stopped = HashSet::new();
    let drive =
        Drive { inner, batch, hold, teller, stops, stopped, is_cut: false, began: Instant::now(), stopping };
    (Run { ended, stops: send_stop }, drive)
}

impl Drive {
    pub(super) fn limits(&self) -> OutputLimits {
        OutputLimits::of(&self.inner.settings)
    }

    pub(super) fn time_limit(&self) -> Duration {
        let most = self.inner.settings.time_limit;
        self.batch.handler.options.timeout.map_or(most, |asked| asked.min(most))
    }

    /// Time limit of a batch that runs as a whole and cannot be cut.
    pub(super) fn whole_time_limit(&self, jobs: usize) -> Duration {
        let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
        self.time_limit().saturating_mul(jobs.min(WHOLE_BATCH_JOBS))
    }

    pub(super) fn recycle_jobs(&self) -> u32 {
        let most = self.inner.settings.recycle_jobs;
        self.batch.handler.options.recycle.map_or(most, |asked| asked.min(most))
    }

    /// Reports stopped jobs, and returns the jobs still to be run.
    pub(super) fn pending(&mut self) -> Vec<usize> {
        self.hear_stops();
        let mut pending = Vec::new();
        for index in 0..self.batch.jobs.len() {
            if self.teller.told[index] {
                continue;
            }
            match self.stopped.contains(&index) {
                true => self.teller.tell(index, Ended::Unrun(Interrupt::Stopped.why().to_owned())),
                false => pending.push(index),
            }
        }
        pending
    }

    fn hear_stops(&mut self) {
        while let Ok(stop) = self.stops.try_recv() {
            self.heed(stop);
        }
    }

    fn heed(&mut self, stop: Stop) {
        match stop {
            Stop::Job(index) => {
                self.stopped.insert(index);
            }
            Stop::Rest => self.is_cut = true,
        }
    }

    /// True if jobs that have not started should be returned: other batches wait for the slot, or the time of
    /// the batch is used up. Check it only after a job has run: a batch cut while its context starts would
    /// never make progress.
    pub(super) fn is_cut(&mut self) -> bool {
        self.hear_stops();
        self.is_cut || self.began.elapsed() >= self.inner.settings.batch_time
    }

    pub(super) fn is_stopped(&self, index: usize) -> bool {
        self.stopped.contains(&index)
    }

    /// Refuses jobs whose payload contains a newline, for handlers that get one payload per line.
    pub(super) fn refuse_payloads_with_newlines(&mut self) {
        for index in self.pending() {
            if self.batch.jobs[index].payload.contains(&b'\n') {
                let message = Some("a payload with a newline cannot be part of a batch".to_owned());
                let verdict = Verdict { exitcode: 400, code: "BAD_PAYLOAD".to_owned(), message };
                self.tell(index, Ended::Done(verdict.into()));
            }
        }
    }

    /// Payloads, one per line.
    pub(super) fn lines(&self, indexes: &[usize]) -> Vec<u8> {
        let lines = indexes.iter().flat_map(|index| [&self.batch.jobs[*index].payload[..], b"\n"]);
        lines.collect::<Vec<_>>().concat()
    }

    /// Like [`Drive::interrupted`] for several running jobs: completes when any job is stopped.
    pub(super) async fn interrupted_any(&mut self) -> Interrupt {
        let stop = tokio::select! {
            () = self.teller.tell.closed() => return Interrupt::Dropped,
            _ = self.stopping.wait_for(|now| *now == Stopping::Now) => return Interrupt::Stopping,
            Some(stop) = self.stops.recv() => stop,
        };
        self.heed(stop);
        match stop {
            Stop::Job(_) => Interrupt::Stopped,
            Stop::Rest => Interrupt::Cut,
        }
    }

    /// Completes when the running job should be interrupted.
    pub(super) async fn interrupted(&mut self, running: Option<usize>) -> Interrupt {
        if running.is_some_and(|index| self.stopped.contains(&index)) {
            return Interrupt::Stopped;
        }
        loop {
            let stop = tokio::select! {
                () = self.teller.tell.closed() => return Interrupt::Dropped,
                // An error means that the sender is gone, which also counts as a shutdown.
                _ = self.stopping.wait_for(|now| *now == Stopping::Now) => return Interrupt::Stopping,
                Some(stop) = self.stops.recv() => stop,
            };
            self.heed(stop);
            if let Stop::Job(index) = stop
                && running == Some(index)
            {
                return Interrupt::Stopped;
            }
        }
    }

    pub(super) fn tell(&mut self, index: usize, ended: Ended) {
        self.teller.tell(index, ended);
    }

    pub(super) fn tell_all(&mut self, verdict: &Verdict) {
        for index in self.pending() {
            self.tell(index, Ended::Done(verdict.clone().into()));
        }
    }

    pub(super) fn tell_all_unrun(&mut self, why: &str) {
        for index in self.pending() {
            self.tell(index, Ended::Unrun(why.to_owned()));
        }
    }

    /// Outcomes of a batch that ran as a whole, from its status lines. Jobs without a line get the verdict of
    /// the batch; if the batch was interrupted (`complete` is false), only the first of them does, and the
    /// rest are still to be run.
    pub(super) fn status_outcomes(
        &self,
        pending: &[usize],
        verdict: &Verdict,
        complete: bool,
        output: Output,
        took: Duration,
    ) -> Vec<(usize, Report)> {
        let finished = output.finish();
        let failed = !complete || Status::of(verdict.exitcode) != Status::Ok;
        let mut outcomes = Vec::with_capacity(pending.len());
        for (index, (own, data)) in pending.iter().copied().zip(finished.statuses) {
            let missing = failed && own.code == NO_RESPONSE;
            let own = match &finished.too_much {
                Some(what) => too_much(what),
                None if missing => verdict.clone(),
                None => own,
            };
            outcomes.push((index, self.outcome(own, data, Output::new(self.limits()), took)));
            if missing && !complete {
                break;
            }
        }
        // The log of the batch goes to its first job; its new jobs go to the first job that will not be
        // retried for too much output, so that they are pushed once.
        if let Some((_, asking)) = outcomes.iter_mut().find(|(_, outcome)| outcome.code != TOO_MUCH) {
            asking.new_jobs = finished.new_jobs;
        }
        if let Some((_, first)) = outcomes.first_mut() {
            first.log = finished.log;
        }
        outcomes
    }

    /// Outcome of one job with its output.
    pub(super) fn outcome(&self, verdict: Verdict, result: Bytes, output: Output, took: Duration) -> Report {
        let finished = output.finish();
        let mut verdict = verdict;
        let bytes_max = self.inner.settings.result_bytes_max;
        let surplus = match result.len() > bytes_max {
            true => Some(format!("a result of more than {bytes_max} bytes")),
            false => finished.too_much,
        };
        let mut result = result;
        if let Some(what) = surplus {
            verdict = too_much(&what);
            result = Bytes::new();
        }
        let Verdict { exitcode, code, message } = verdict;
        let run_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        // The job is retried and prints all of them again: pushing a part each time would duplicate jobs.
        let new_jobs = if code == TOO_MUCH { Vec::new() } else { finished.new_jobs };
        Report { exitcode, code, message, result, log: finished.log, new_jobs, run_ms }
    }

    pub(super) fn result_too_large(&self) -> Verdict {
        too_much(&format!("a result of more than {} bytes", self.inner.settings.result_bytes_max))
    }
}

/// Most job time limits granted to a batch that runs as a whole, because other batches wait for its slot.
const WHOLE_BATCH_JOBS: u32 = 5;

fn too_much(what: &str) -> Verdict {
    Verdict::error(TOO_MUCH, format!("too much output: {what}"))
}

/// Reports each job exactly once; on drop, the jobs that were not reported.
struct Teller {
    tell: mpsc::UnboundedSender<(usize, Ended)>,
    told: Vec<bool>,
}

impl Teller {
    fn tell(&mut self, index: usize, ended: Ended) {
        debug_assert!(!self.told[index], "job {index} of a batch ended twice");
        if !std::mem::replace(&mut self.told[index], true) {
            // The receiver may be gone.
            let _ = self.tell.send((index, ended));
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        for index in 0..self.told.len() {
            if !self.told[index] {
                self.tell(index, Ended::Unrun("the runner stopped".to_owned()));
            }
        }
    }
}
