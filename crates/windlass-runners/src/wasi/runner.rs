//! Runner of WASI jobs: claims them, runs each in a guest process, and reports outcomes.

use super::child::{Child, GuestProgram, RunEnd};
use super::job_source::{Assignment, FetchError, GiveBack, JobSource, News, Tickled, Verdict};
use super::message::{How, Limits};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// Time before a run starts to listen for cancellation; shorter runs are not worth it.
const UNDISTURBED: Duration = Duration::from_secs(1);
/// Longest interval between heartbeats.
const TICKLE_MAX: Duration = Duration::from_secs(60);
/// Shortest interval between heartbeats, for very short leases in tests.
const TICKLE_MIN: Duration = Duration::from_millis(10);
/// Retry delay of a job whose process or blobs were lost without a known fault of the job.
const TROUBLE_DELAY: Duration = Duration::from_secs(5);
/// Backoff after a failure to start a process or to reach the source.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Attempts to report an outcome. If all fail, the lease expires and the job runs again.
const SETTLE_TRIES: u32 = 8;

#[derive(Clone, Debug)]
pub struct Options {
    /// Number of guest processes, each running one job at a time.
    pub workers: usize,
    pub limits: Limits,
    pub program: GuestProgram,
    /// Refuses to run modules if a confinement mechanism is missing.
    pub strict: bool,
}

/// Shutdown request to a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stopping {
    No,
    /// No new jobs start; running ones may finish.
    Finish,
    /// Running jobs are killed and released.
    Now,
}

pub struct Runner<D: JobSource> {
    source: Arc<D>,
    options: Options,
    stopping: watch::Receiver<Stopping>,
}

/// Slot of a guest process, which is started on demand.
type Slot = Option<Child>;

impl<D: JobSource> Runner<D> {
    pub fn new(source: Arc<D>, options: Options, stopping: watch::Receiver<Stopping>) -> Runner<D> {
        Runner { source, options, stopping }
    }

    /// Runs jobs until shutdown, and returns when the running ones have ended or were released.
    pub async fn run(mut self) {
        let (freed, mut free) = mpsc::unbounded_channel::<Slot>();
        for _ in 0..self.options.workers {
            // Cannot fail: the receiver is in this function.
            let _ = freed.send(None);
        }
        let mut idle: Vec<Child> = Vec::new();
        let mut runs = JoinSet::new();
        let mut told = false;
        while self.find_idle(&mut idle, &mut free).await {
            if !std::mem::replace(&mut told, true)
                && let Some(child) = idle.first()
            {
                info!(
                    "running WASI jobs in {} processes ({})",
                    self.options.workers,
                    child.confined.join(", ")
                );
            }
            let Some(jobs) = self.claim(idle.len()).await else { break };
            for job in jobs {
                let Some(child) = idle.pop() else { break };
                let (source, stopping, freed) = (self.source.clone(), self.stopping.clone(), freed.clone());
                runs.spawn(async move {
                    Run { source: &*source, job: &job, stopping }.see_through(child, freed).await;
                });
            }
            while let Some(ended) = runs.try_join_next() {
                complain(ended);
            }
        }
        while let Some(ended) = runs.join_next().await {
            complain(ended);
        }
    }

    /// Waits for at least one idle process. `false`: shutdown.
    async fn find_idle(&mut self, idle: &mut Vec<Child>, free: &mut mpsc::UnboundedReceiver<Slot>) -> bool {
        let mut delay = RETRY_FIRST;
        loop {
            let slot = if idle.is_empty() {
                tokio::select! {
                    slot = free.recv() => slot,
                    () = told(&mut self.stopping, Stopping::Finish) => return false,
                }
            } else {
                free.try_recv().ok()
            };
            let Some(slot) = slot else { return !idle.is_empty() };
            match slot {
                Some(child) => idle.push(child),
                None => match self.start_child(&mut delay).await {
                    Some(child) => idle.push(child),
                    None => return false,
                },
            }
        }
    }

    async fn start_child(&mut self, delay: &mut Duration) -> Option<Child> {
        loop {
            let starting = Child::start(&self.options.program, self.options.limits);
            let error = tokio::select! {
                started = starting => match started {
                    Ok(child) => return self.check_strict(&child).then_some(child),
                    Err(error) => error,
                },
                () = told(&mut self.stopping, Stopping::Finish) => return None,
            };
            warn!(%error, "cannot start a process for WASI jobs; retrying in {delay:?}");
            self.pause(delay).await?;
        }
    }

    /// Stops the runner if a mechanism is missing, since waiting would not help.
    fn check_strict(&self, child: &Child) -> bool {
        match child.check_strict() {
            Err(why) if self.options.strict => {
                tracing::error!("WASI jobs are disabled: {why}");
                false
            }
            _ => true,
        }
    }

    /// Waits for the backoff. `None`: shutdown.
    async fn pause(&mut self, delay: &mut Duration) -> Option<()> {
        let wait = *delay;
        *delay = (wait * 2).min(RETRY_MAX);
        tokio::select! {
            () = tokio::time::sleep(wait) => Some(()),
            () = told(&mut self.stopping, Stopping::Finish) => None,
        }
    }

    async fn claim(&mut self, limit: usize) -> Option<Vec<Assignment<D::Ticket>>> {
        let mut delay = RETRY_FIRST;
        loop {
            let source = self.source.clone();
            let claimed = tokio::select! {
                claimed = source.claim(limit) => claimed,
                () = told(&mut self.stopping, Stopping::Finish) => return None,
            };
            match claimed {
                Ok(jobs) => return Some(jobs),
                Err(error) => {
                    warn!(%error, "cannot claim WASI jobs; retrying in {delay:?}");
                    self.pause(&mut delay).await?;
                }
            }
        }
    }
}

async fn told(stopping: &mut watch::Receiver<Stopping>, how: Stopping) {
    // An error means that the sender is gone, which also counts as a shutdown.
    let _ = stopping.wait_for(|now| *now >= how).await;
}

fn complain(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        warn!(%error, "a WASI run panicked; its job runs again when its lease expires");
    }
}

/// Run of one job from its claim to its outcome.
struct Run<'a, D: JobSource> {
    source: &'a D,
    job: &'a Assignment<D::Ticket>,
    stopping: watch::Receiver<Stopping>,
}

/// Action at the end of a run.
#[derive(Debug)]
enum Fate {
    Settle(Verdict),
    GiveBack {
        how: GiveBack,
        why: String,
    },
    /// The lease is lost; report nothing.
    Forget,
}

impl Fate {
    fn given_back(why: &str) -> Fate {
        Fate::GiveBack { how: GiveBack { counts: false, delay: Duration::ZERO }, why: why.to_owned() }
    }

    /// Releases the job after a failed attempt without a known fault of the job.
    fn tried_in_vain(why: String) -> Fate {
        Fate::GiveBack { how: GiveBack { counts: true, delay: TROUBLE_DELAY }, why }
    }
}

impl<D: JobSource> Run<'_, D> {
    /// Runs the job. The process becomes free for another job before the outcome is reported.
    async fn see_through(mut self, mut child: Child, freed: mpsc::UnboundedSender<Slot>) {
        let mut stopping = self.stopping.clone();
        let (fate, usable) = tokio::select! {
            ended = self.perform(&mut child) => ended,
            fate = self.keep_alive() => (fate, false),
            () = told(&mut stopping, Stopping::Now) => (Fate::given_back("the runner is shutting down"), false),
        };
        if !usable {
            child.kill().await;
        }
        let keeps = usable && !child.has_grown_too_big();
        // Without a receiver, the process is dropped and so killed.
        let _ = freed.send(keeps.then_some(child));
        self.tell(fate).await;
    }

    async fn perform(&self, child: &mut Child) -> (Fate, bool) {
        let input = match &self.job.input {
            None => Vec::new(),
            Some(address) => match self.source.fetch(address).await {
                Ok(bytes) => bytes,
                Err(error) => return (no_blob("input", error), true),
            },
        };
        let end = child.run(&self.job.binary, input, self.source.fetch(&self.job.binary)).await;
        let usable = end.leaves_it_usable();
        let fate = match end {
            RunEnd::Ended(ended) => Fate::Settle(verdict(ended.how, ended.stdout, ended.stderr)),
            RunEnd::NoModule(error) => no_blob("binary", error),
            RunEnd::Killed(why) => Fate::Settle(failed(why, Vec::new())),
            RunEnd::Lost(why) => Fate::tried_in_vain(why),
        };
        (fate, usable)
    }

    /// Sends heartbeats during the run; returns only if the run must be stopped.
    async fn keep_alive(&self) -> Fate {
        let third = self.job.lease.map_or(TICKLE_MAX, |lease| lease / 3);
        let every = third.clamp(TICKLE_MIN, TICKLE_MAX);
        let mut alive = Instant::now();
        let mut wait = every.min(UNDISTURBED);
        let mut news: News<'_> = Box::pin(std::future::pending());
        loop {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = &mut news => {}
            }
            // Listens before the heartbeat, so that no notification is missed.
            news = self.source.listen(&self.job.ticket);
            wait = every;
            let asked = Instant::now();
            match self.source.tickle(&self.job.ticket).await {
                Ok(Tickled::GoOn) => alive = asked,
                Ok(Tickled::Stop) => {
                    return Fate::Settle(failed("the job was cancelled".to_owned(), Vec::new()));
                }
                Ok(Tickled::Lost) => return Fate::Forget,
                Err(error) if self.job.lease.is_some_and(|lease| alive.elapsed() >= lease) => {
                    warn!(job = %self.job.id, %error, "no heartbeat reached the server before the lease expired");
                    return Fate::Forget;
                }
                Err(error) => debug!(job = %self.job.id, %error, "a heartbeat did not reach the server"),
            }
        }
    }

    async fn tell(&mut self, fate: Fate) {
        let id = &self.job.id;
        let ticket = &self.job.ticket;
        let mut delay = RETRY_FIRST;
        for _ in 0..SETTLE_TRIES {
            let told = match &fate {
                Fate::Settle(verdict) => self.source.settle(ticket, verdict.clone()).await,
                Fate::GiveBack { how, why } => {
                    info!(job = %id, "job {id} is released: {why}");
                    self.source.give_back(ticket, *how).await
                }
                Fate::Forget => {
                    info!(job = %id, "the lease on job {id} was lost; its run was stopped");
                    return;
                }
            };
            let Err(error) = told else { return };
            warn!(job = %id, %error, "cannot report the outcome of job {id}; retrying");
            if *self.stopping.borrow() == Stopping::Now {
                return;
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(RETRY_MAX);
        }
    }
}

fn no_blob(what: &str, error: FetchError) -> Fate {
    match error {
        FetchError::Missing(why) => {
            Fate::Settle(failed(format!("the {what} is not available: {why}"), Vec::new()))
        }
        FetchError::Trouble(why) => Fate::tried_in_vain(format!("cannot fetch the {what}: {why}")),
    }
}

fn verdict(how: How, stdout: Vec<u8>, stderr: Vec<u8>) -> Verdict {
    match how {
        How::Exit(0) => Verdict::Completed(stdout),
        How::Exit(code) => {
            Verdict::Failed { message: format!("exit code {code}"), exit_code: Some(code), stderr }
        }
        How::Failed(why) | How::TooMuchOutput(why) => failed(why, stderr),
    }
}

/// Failure whose stderr ends with the runner's message.
fn failed(why: String, mut stderr: Vec<u8>) -> Verdict {
    if stderr.last().is_some_and(|byte| *byte != b'\n') {
        stderr.push(b'\n');
    }
    stderr.extend_from_slice(format!("windlass: {why}\n").as_bytes());
    Verdict::Failed { message: why, exit_code: None, stderr }
}
