//! Events that can happen to a job. Random numbers come in with the event, the time with `apply`.

use crate::family::Family;
use crate::job::{Extras, Outcome, Payload};
use crate::lease::{Holder, LeasePolicy, Rest, Token};
use crate::ports::Ports;
use crate::repeat::{Repeat, Span};
use crate::steps::{NewStep, Wait};
use crate::turn::CatchUp;
use crate::{Name, Queue, Timestamp};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Event {
    /// A worker claims the job.
    Claim(Grant),
    /// Heartbeat: prolongs the lease, never shortens it.
    Extend {
        by: Holder,
        lease_ms: Option<i64>,
    },
    /// Restarts the lease from now, whether that makes it longer or shorter; `worker` names a new holder.
    Renew {
        by: Holder,
        lease_ms: Option<i64>,
        worker: Option<Arc<str>>,
    },
    /// Progress of the run.
    Report {
        by: Holder,
        percent: Option<u8>,
        note: Option<String>,
        payload: Option<Payload>,
    },
    /// Log lines to keep with the job. `by: None`: written from outside the runs, accepted in any state.
    Log {
        by: Option<Holder>,
        source: Option<Arc<str>>,
        lines: Vec<String>,
    },
    Finish(Finish),
    Fail(Failure),
    /// The worker gives the job back unfinished. `counts`: the attempt counts.
    Release {
        by: Holder,
        run_at: Timestamp,
        counts: bool,
    },
    /// The worker gives the job back as if it had never been claimed: the attempt does not count, and the job
    /// keeps its place in the queue.
    Return {
        by: Holder,
    },
    /// The first attempt of a turn came too late for its catch-up rule: it is not run, and the job waits for
    /// its next scheduled time.
    Skip {
        by: Holder,
    },
    /// Ends the run and starts the job over: attempts count from zero, settled children are deleted if the
    /// policy says so.
    Restart(Box<Restart>),
    /// Ends the run but not the job, which waits.
    Suspend(Suspend),
    /// Keeps the results of steps of the run.
    KeepSteps {
        by: Holder,
        steps: Vec<NewStep>,
    },
    /// Signal from outside the runs: ends a wait for it, or is kept until one begins.
    Signal {
        name: Arc<str>,
        payload: Payload,
    },
    /// The time of a suspended job has come.
    Wake,
    /// The lease with this token has expired.
    Lapse {
        token: Token,
        chance: f64,
    },
    /// The same, while the worker could not reach the server: by the default lease policy the last attempt does
    /// not count.
    LapseInOutage {
        token: Token,
        chance: f64,
    },
    Cancel {
        running: CancelRunning,
        failed_too: bool,
    },
    /// Runs the job (again), now or at a time. `force` also restarts a settled job.
    Run {
        at: Timestamp,
        force: bool,
    },
    /// Starts over: attempts count from zero. `even_running` takes a running job away from its worker.
    Requeue {
        at: Timestamp,
        even_running: bool,
    },
    /// Starts over from a step: that step and the ones kept after it are executed again.
    RequeueFrom {
        at: Timestamp,
        step: Arc<str>,
    },
    Terminate,
    /// Moves straight to a state without a run and without a shutdown run; a current run ends first.
    PutToRest(Rest),
    Update(Box<Patch>),
    /// Replaces its ports and state.
    SetPorts(Arc<Ports>),
    /// A job imported from elsewhere enters the state it had there. Accepted only if no worker here ever
    /// claimed it.
    TakeOver(Standing),
    /// A child that this job waits for was added, or was restarted.
    ChildAdded,
    /// A child that this job waits for was settled or deleted.
    ChildSettled,
    /// A child that this job waits for has failed, which alone does not make this job run.
    ChildFailed,
    /// A failed child was cancelled or deleted.
    ChildWrittenOff,
    /// The run of the parent has ended: a waiting child may start.
    ParentPaused,
    Delete,
    /// Hands out the result and deletes it; the job stays.
    TakeResult,
    /// The keep time of the job, or of its result, is over.
    Expire,
}

impl Event {
    /// A run that ended well.
    pub fn finish(by: Holder, outcome: Outcome) -> Event {
        Event::Finish(Finish { by, outcome, payload: None, ignore_repeat: false })
    }

    /// Ends a run; the job waits for a request.
    pub fn suspend(by: Holder) -> Event {
        Event::Suspend(Suspend { by, until: None, wait: None })
    }

    /// A run that went wrong. The engine fills in chance.
    pub fn fail(by: Holder, outcome: Outcome, retry: RetryWish) -> Event {
        Event::Fail(Failure { by, outcome, retry, payload: None, chance: 0.0 })
    }
}

#[derive(Clone, Debug)]
pub struct Grant {
    pub worker: Option<Arc<str>>,
    /// Overrides the lease length of the job's policy.
    pub lease_ms: Option<i64>,
    pub random: u16,
}

#[derive(Clone, Debug)]
pub struct Finish {
    pub by: Holder,
    pub outcome: Outcome,
    /// Payload of the next run of a repeating or waiting job.
    pub payload: Option<Payload>,
    /// Ends the job in spite of its repeat rule.
    pub ignore_repeat: bool,
}

#[derive(Clone, Debug)]
pub struct Suspend {
    pub by: Holder,
    /// Time at which the job runs again in any case.
    pub until: Option<Timestamp>,
    /// `None`: nothing is kept of the wait.
    pub wait: Option<Box<Wait>>,
}

#[derive(Clone, Debug)]
pub struct Restart {
    pub by: Holder,
    pub run_at: Timestamp,
    /// A repeating job runs at its next scheduled time instead of `run_at`.
    pub heed_repeat: bool,
    /// Further changes of the specification; `patch.run_at` is ignored.
    pub patch: Patch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryWish {
    /// By the job's retry policy.
    Policy,
    /// At this time, within `max_attempts`.
    At(Timestamp),
    Never,
}

#[derive(Clone, Debug)]
pub struct Failure {
    pub by: Holder,
    pub outcome: Outcome,
    pub retry: RetryWish,
    pub payload: Option<Payload>,
    pub chance: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelRunning {
    /// The worker learns of it with its next heartbeat; a finish before that still counts.
    Ask,
    /// At once; any later report of the worker is refused.
    Now,
    Refuse,
}

/// State of an imported job at its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub stands: Stands,
    /// Time at which the current or next run is or was due.
    pub due_at: Timestamp,
    /// Start of its last run.
    pub started_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    Ready,
    /// Its run is over; it waits for its children, which are created after it.
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

/// Changes to a specification. `None` leaves a field unchanged.
#[derive(Clone, Debug, Default)]
pub struct Patch {
    pub payload: Option<Payload>,
    pub priority: Option<i32>,
    pub name: Option<Name>,
    pub queue: Option<Queue>,
    pub run_at: Option<Timestamp>,
    /// `Some(None)` removes the repeat rule.
    pub repeat: Option<Option<Repeat>>,
    pub catch_up: Option<CatchUp>,
    /// Lease policy from the next claim on.
    pub lease: Option<(LeasePolicy, Option<Span>)>,
    /// Number of attempts to record as made.
    pub attempts: Option<u32>,
    pub extras: Option<Box<Extras>>,
    /// New parent; `Some(None)`: no parent. Overrides `extras.family`.
    pub family: Option<Option<Family>>,
    /// Facts to set, or with `None` to remove; other facts stay.
    pub facts: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// Applies only if the job still has this version.
    pub if_version: Option<u64>,
}
