//! Run of one batch, from its claim to its end: renews the leases while it runs, journals new jobs before the
//! job that requested them is settled, and settles outcomes in groups.

use super::log::{self, Info, LogLines};
use super::{State, commands, handlers, wire};
use crate::runners::{Batch, BatchJob, Booking, Ended, PrintedJob, Report, Resource, Run, Status};
use bytes::Bytes;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use windlass_core::event::RetryWish;
use windlass_core::retry::TIMED_OUT;
use windlass_core::{Event, Holder, Job, JobId, Name, StateWord, Tenant, Token};
use windlass_engine::journal::ids;
use windlass_engine::{Engine, EngineError, Extend, JobEvent, LogEntry, RunTime, Settled};

/// Outcomes that arrive within this time are settled together.
const GATHER: Duration = Duration::from_millis(10);
/// Outcomes that are settled without waiting for more.
const GATHERED_MAX: usize = 500;
/// Backoff between attempts to commit outcomes.
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Most log lines about new jobs that were not created; for the rest the log has a number.
const LEFT_OUT_MAX: usize = 20;

/// New jobs that could not be created, with the reason. Written to the log of the job that requested them.
#[derive(Default)]
struct LeftOut {
    lines: Vec<String>,
    more: usize,
}

impl LeftOut {
    fn add(&mut self, jobs: usize, why: &dyn std::fmt::Display) {
        match self.lines.len() < LEFT_OUT_MAX {
            true if jobs == 1 => self.lines.push(format!("windlass: 1 job was not created: {why}")),
            true => self.lines.push(format!("windlass: {jobs} jobs were not created: {why}")),
            false => self.more += jobs,
        }
    }

    fn tell(mut self, log: &mut Bytes) {
        if self.lines.is_empty() {
            return;
        }
        if self.more > 0 {
            self.lines.push(format!("windlass: {} more jobs were not created", self.more));
        }
        let mut text = log.to_vec();
        if !text.is_empty() && !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        text.extend_from_slice(self.lines.join("\n").as_bytes());
        *log = Bytes::from(text);
    }
}

/// Client, job type and resource of a batch.
pub(super) struct Kind {
    pub client: Tenant,
    pub jobtype: Name,
    pub resource: Resource,
}

/// Runs claimed jobs with their handler in the booked slot; without a handler they are retried later.
pub(super) fn start(
    state: &Arc<State>,
    kind: Kind,
    begun: Option<(handlers::Version, Box<dyn Booking>)>,
    jobs: Vec<Arc<Job>>,
) {
    let Kind { client, jobtype, resource } = kind;
    let count = jobs.len();
    let cut = Arc::<Notify>::default();
    let number = {
        let mut scheduler = state.scheduler();
        scheduler.jobs_started(&client, &jobtype, count);
        scheduler.batch_started(&client, resource, state.engine.now(), Arc::clone(&cut))
    };
    let next = begun.as_ref().and_then(|(version, _)| version.handler.next().map(str::to_owned));
    let run = begun.map(|(version, booking)| {
        let run_time = state.engine.begin_run(&client);
        (booking.start(batch(&state.engine, (&client, &jobtype), version, &jobs)), run_time)
    });
    let its = Arc::clone(state);
    state.spawn(async move {
        let mut drive = BatchRun::new(&its, client, jobtype, jobs);
        drive.next = next;
        drive.log_started();
        match run {
            Some((run, run_time)) => drive.run(run, run_time, &cut).await,
            None => drive.no_handler().await,
        }
        {
            let mut scheduler = its.scheduler();
            scheduler.jobs_stopped(&drive.client, &drive.jobtype, count);
            scheduler.batch_ended(number);
        }
        its.again.notify_one();
    });
}

fn batch(
    engine: &Engine,
    (client, jobtype): (&Tenant, &Name),
    version: handlers::Version,
    jobs: &[Arc<Job>],
) -> Batch {
    let job = |job: &Arc<Job>| BatchJob {
        id: commands::job_id(job),
        attempt: job.progress.attempts,
        payload: Bytes::from_owner(Arc::clone(&job.spec.payload.bytes)),
        trace: engine.trace_within(job),
    };
    Batch {
        client: client.to_string(),
        jobtype: jobtype.to_string(),
        version: version.id,
        handler: version.handler,
        jobs: jobs.iter().map(job).collect(),
    }
}

struct BatchRun<'a> {
    state: &'a State,
    client: Tenant,
    jobtype: Name,
    full: String,
    jobs: Vec<Arc<Job>>,
    /// Lease token per job; `None`: the job has ended, or its lease is lost.
    held: Vec<Option<Token>>,
    /// Type of the job that follows each successful one.
    next: Option<String>,
    gathered: Vec<(usize, Ended)>,
}

impl<'a> BatchRun<'a> {
    fn new(state: &'a State, client: Tenant, jobtype: Name, jobs: Vec<Arc<Job>>) -> BatchRun<'a> {
        let full = wire::full_type(&client, &jobtype);
        let held = jobs.iter().map(|job| job.state().lease().map(|lease| lease.token)).collect();
        BatchRun { state, client, jobtype, full, jobs, held, next: None, gathered: Vec::new() }
    }

    async fn run(&mut self, mut run: Box<dyn Run>, run_time: RunTime, cut: &Notify) {
        let engine = &self.state.engine;
        let renew_ms = (self.state.settings.lock_ms / 3).max(1);
        let mut renewal = Box::pin(engine.sleep_until(engine.now().plus_ms(renew_ms)));
        // One timer per batch, reset by the first outcome of each group.
        let mut gathering = std::pin::pin!(tokio::time::sleep(GATHER));
        let mut is_gathering = false;
        let mut is_cut = false;
        loop {
            let mut is_gathered = false;
            tokio::select! {
                ended = run.next() => match ended {
                    Some(ended) => {
                        self.gathered.push(ended);
                        if !std::mem::replace(&mut is_gathering, true) {
                            gathering.as_mut().reset(Instant::now() + GATHER);
                        }
                    }
                    None => break,
                },
                () = &mut gathering, if is_gathering => is_gathered = true,
                () = cut.notified() => run.cut(),
                () = &mut renewal => {
                    self.renew().await.into_iter().for_each(|place| run.stop(place));
                    renewal = Box::pin(engine.sleep_until(engine.now().plus_ms(renew_ms)));
                }
            }
            if is_gathered || self.gathered.len() >= GATHERED_MAX {
                self.settle().await;
                is_gathering = false;
                // Jobs that have not begun wait until their client has run time again.
                if !is_cut && engine.runs_wait_until(&self.client).is_some() {
                    is_cut = true;
                    run.cut();
                }
            }
        }
        // The handler has ended: the client does not pay for a store that is slow to take the outcomes.
        drop(run_time);
        // Jobs that the runner did not report were not run.
        let told: HashSet<usize> = self.gathered.iter().map(|(place, _)| *place).collect();
        for place in 0..self.jobs.len() {
            if self.held[place].is_some() && !told.contains(&place) {
                self.gathered.push((place, Ended::Unrun("the runner reported no outcome".to_owned())));
            }
        }
        self.settle().await;
    }

    async fn no_handler(&mut self) {
        let report = Report {
            exitcode: 500,
            code: "BAD_HANDLER".to_owned(),
            message: Some(format!("no handler for {}; the job runs when one is added", self.full)),
            ..Report::default()
        };
        self.gathered = (0..self.jobs.len()).map(|place| (place, Ended::Done(report.clone()))).collect();
        self.settle().await;
    }

    /// Extends the leases of jobs that have not ended. Returns the indexes of jobs to stop: their lease is
    /// lost, or their cancellation was requested.
    async fn renew(&mut self) -> Vec<usize> {
        let places: Vec<usize> = (0..self.jobs.len()).filter(|place| self.held[*place].is_some()).collect();
        let extend = |place: &usize| {
            let token = self.held[*place]?;
            let lease_ms = Some(self.state.settings.lock_ms);
            Some(Extend { id: self.jobs[*place].id, by: Holder::Token(token), lease_ms })
        };
        let extends: Vec<Extend> = places.iter().filter_map(extend).collect();
        let answers = match self.state.engine.extend(&self.client, extends).await {
            Ok(answers) => answers,
            Err(error) => {
                tracing::warn!("cannot renew the locks of {} jobs: {error}", self.full);
                return Vec::new();
            }
        };
        let mut stopped = Vec::new();
        for (place, answer) in places.into_iter().zip(answers) {
            match answer {
                Ok(extended) if extended.cancel_asked => stopped.push(place),
                Ok(_) => {}
                Err(_) => {
                    self.held[place] = None;
                    stopped.push(place);
                }
            }
        }
        stopped
    }

    async fn settle(&mut self) {
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.retain(|(place, _)| self.held.get(*place).is_some_and(Option::is_some));
        if gathered.is_empty() {
            return;
        }
        for (_, ended) in &mut gathered {
            self.refuse_too_much(ended);
            self.journal_new_jobs(ended).await;
        }
        let entry = |(place, ended): &(usize, Ended)| {
            let by = Holder::Token(self.held[*place]?);
            let event = match ended {
                Ended::Done(report) => commands::end(report, by),
                Ended::Unrun(_) => Event::Return { by },
            };
            Some(JobEvent { id: self.jobs[*place].id, event })
        };
        let entries: Vec<JobEvent> = gathered.iter().filter_map(entry).collect();
        self.store_logs(&gathered).await;
        let given_up = self.commit_outcomes(entries).await;
        self.log_ended(&gathered, &given_up);
        for (place, _) in gathered {
            self.held[place] = None;
        }
    }

    /// Stores the logs of the runs. An error here does not affect the results.
    async fn store_logs(&self, gathered: &[(usize, Ended)]) {
        let entry = |(place, ended): &(usize, Ended)| match ended {
            Ended::Done(report) if !report.log.is_empty() => Some(LogEntry {
                id: self.jobs[*place].id,
                by: Some(Holder::Token(self.held[*place]?)),
                source: None,
                lines: commands::log_lines(&report.log),
            }),
            _ => None,
        };
        let entries: Vec<LogEntry> = gathered.iter().filter_map(entry).collect();
        if entries.is_empty() {
            return;
        }
        if let Err(error) = self.state.engine.log(&self.client, entries).await {
            tracing::warn!("cannot store the log output of {} jobs: {error}", self.full);
        }
    }

    /// Turns a result above the size limit into an error now, instead of keeping the lease until it expires.
    fn refuse_too_much(&self, ended: &mut Ended) {
        let Ended::Done(report) = ended else { return };
        let max = self.state.engine.options().payload_bytes_max;
        if report.result.len() > max {
            let bytes = report.result.len();
            report.exitcode = 500;
            report.code = "TOO_MUCH".to_owned();
            report.message = Some(format!("the result of {bytes} bytes is too large; the maximum is {max}"));
            report.result = Bytes::new();
            // The job runs again, and would request them again each time.
            report.new_jobs.clear();
        }
    }

    /// Journals the requested jobs before the job is settled. If that fails, the run counts as failed.
    async fn journal_new_jobs(&self, ended: &mut Ended) {
        let Ended::Done(report) = ended else { return };
        let mut new = std::mem::take(&mut report.new_jobs);
        let is_ok = report.status() == Status::Ok;
        if let (Some(next), true) = (&self.next, is_ok) {
            let result = report.result.strip_suffix(b"\n").unwrap_or(&report.result);
            new.push(PrintedJob { jobtype: next.clone(), payload: Bytes::copy_from_slice(result) });
        }
        let mut left_out = LeftOut::default();
        let mut rest: &[PrintedJob] = &new;
        while let Some(PrintedJob { jobtype, .. }) = rest.first() {
            let same = rest.iter().take_while(|other| other.jobtype == *jobtype).count();
            let (group, later) = rest.split_at(same);
            rest = later;
            let name = match wire::jobtype(jobtype) {
                Ok(name) => name,
                Err(error) => {
                    tracing::warn!(
                        "a job of {} requested new jobs of an invalid type: {jobtype:?}",
                        self.full
                    );
                    left_out.add(group.len(), &error);
                    continue;
                }
            };
            let payloads = self.small_enough(group, &mut left_out);
            if payloads.is_empty() {
                continue;
            }
            let queue = commands::queue();
            let coming = payloads.iter().map(|payload| (&queue, &name, payload.len()));
            let admitted = self.state.engine.admit_jobs(&self.client, coming).await;
            if let Err(error @ EngineError::Quota { .. }) = admitted {
                left_out.add(payloads.len(), &error);
                continue;
            }
            if let Err(error) = self.state.add(&self.client, &name, &payloads, None).await {
                report.exitcode = 500;
                report.code = "JOURNAL".to_owned();
                report.message = Some(format!("cannot store the new jobs it requested: {error}"));
                break;
            }
        }
        left_out.tell(&mut report.log);
    }

    fn small_enough<'b>(&self, group: &'b [PrintedJob], left_out: &mut LeftOut) -> Vec<&'b [u8]> {
        let max = self.state.engine.options().payload_bytes_max;
        let mut payloads: Vec<&[u8]> = group.iter().map(|new| &*new.payload).collect();
        payloads.retain(|payload| {
            let fits = payload.len() <= max;
            if !fits {
                let bytes = payload.len();
                left_out
                    .add(1, &format_args!("a payload of {bytes} bytes is too large; the maximum is {max}"));
            }
            fits
        });
        payloads
    }

    /// Commits outcomes, with retries until the leases expire; afterwards another server may have the jobs.
    /// Returns the jobs that were given up because their time was over.
    async fn commit_outcomes(&self, entries: Vec<JobEvent>) -> HashSet<JobId> {
        let give_up = self.state.engine.now().plus_ms(self.state.settings.lock_ms);
        let mut wait = WAIT_FIRST;
        loop {
            match self.state.engine.settle(&self.client, entries.clone()).await {
                Ok(answers) => {
                    let lost = answers.iter().filter(|answer| answer.is_err()).count();
                    if lost > 0 {
                        tracing::warn!("{lost} jobs of {} lost their locks before they ended", self.full);
                    }
                    let asked = entries.iter().zip(&answers);
                    let is_given_up = |(entry, answer): (&JobEvent, &Result<Settled, _>)| {
                        let wanted_more = matches!(&entry.event, Event::Fail(failure) if failure.retry == RetryWish::Policy);
                        let is_over = matches!(answer, Ok(Settled { state: Some(StateWord::Failed), .. }));
                        (wanted_more && is_over).then_some(entry.id)
                    };
                    return asked.filter_map(is_given_up).collect();
                }
                Err(error) if self.state.engine.now() < give_up && !*self.state.stop.borrow() => {
                    tracing::warn!(
                        "cannot store the outcomes of {} jobs of {}; retrying: {error}",
                        entries.len(),
                        self.full
                    );
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(WAIT_MAX);
                }
                Err(error) => {
                    tracing::error!(
                        "cannot store the outcomes of jobs of {}; the jobs run again: {error}",
                        self.full
                    );
                    return HashSet::new();
                }
            }
        }
    }

    fn log_started(&self) {
        if !self.state.log.is_on() {
            return;
        }
        let now = self.state.engine.now();
        let sysid = self.state.sysid();
        let mut lines = LogLines::new(now, &sysid);
        for job in &self.jobs {
            let info = Info {
                id: &commands::job_id(job),
                jobtype: &self.full,
                bytes: Some(job.spec.payload.bytes.len()),
                attempt: Some(job.progress.attempts),
                wait_ms: Some(now.since_ms(job.progress.due_at)),
                ..Info::default()
            };
            lines.push(log::STARTED, info);
        }
        self.state.log.write(lines);
    }

    fn log_ended(&self, gathered: &[(usize, Ended)], given_up: &HashSet<JobId>) {
        if !self.state.log.is_on() {
            return;
        }
        let now = self.state.engine.now();
        let sysid = self.state.sysid();
        let mut lines = LogLines::new(now, &sysid);
        for (place, ended) in gathered {
            let job = &self.jobs[*place];
            let id = commands::job_id(job);
            let Ended::Done(report) = ended else {
                lines.push(log::RETURNED, Info { id: &id, jobtype: &self.full, ..Info::default() });
                continue;
            };
            let added = ids::made_at_ms(&id).unwrap_or_else(|| job.spec.created_at.as_millis());
            let status = report.status();
            let (word, code, is_done) = match given_up.contains(&job.id) {
                true => (Status::Failed.as_str(), TIMED_OUT, true),
                false => (status.as_str(), report.code.as_str(), status.is_final()),
            };
            let info = Info {
                id: &id,
                jobtype: &self.full,
                attempt: Some(job.progress.attempts),
                status: Some(word),
                code: Some(code),
                exitcode: Some(report.exitcode),
                run_ms: Some(report.run_ms),
                total_ms: Some(now.as_millis() - added),
                result_bytes: Some(report.result.len()),
                done: Some(is_done),
                ..Info::default()
            };
            lines.push(log::ENDED, info);
        }
        self.state.log.write(lines);
    }
}
