//! What can happen to a job. Chance comes in with the event, time with `apply`.

use crate::family::Family;
use crate::job::{Extras, Outcome, Payload};
use crate::lease::{Holder, LeasePolicy, Rest, Token};
use crate::ports::Ports;
use crate::repeat::{Repeat, Span};
use crate::{Name, Queue, Timestamp};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Event {
    /// A worker is given the job.
    Claim(Grant),
    /// A sign of life; lengthens the lease, never shortens it.
    Extend {
        by: Holder,
        lease_ms: Option<i64>,
    },
    /// The lease runs anew from now, be that longer or shorter, and in other hands if `worker` names them.
    Renew {
        by: Holder,
        lease_ms: Option<i64>,
        worker: Option<Arc<str>>,
    },
    /// How far the run has come.
    Report {
        by: Holder,
        percent: Option<u8>,
        note: Option<String>,
        payload: Option<Payload>,
    },
    /// Words of a run, to be kept with the job. `by` nobody: said from outside its runs, whatever its state.
    Log {
        by: Option<Holder>,
        source: Option<Arc<str>>,
        lines: Vec<String>,
    },
    Finish(Finish),
    Fail(Failure),
    /// Given back unfinished. `counts`: whether the attempt is used up.
    Release {
        by: Holder,
        run_at: Timestamp,
        counts: bool,
    },
    /// Given back as if nobody had taken it: no attempt is used up, and it stands where it stood in the line.
    Return {
        by: Holder,
    },
    /// The run ends and the job starts over: attempts count from zero, children that are settled are forgotten.
    Restart(Box<Restart>),
    /// The run ends, the job does not: it waits to be run again.
    Suspend {
        by: Holder,
    },
    /// The lease with this token has ended.
    Lapse {
        token: Token,
        chance: f64,
    },
    Cancel {
        running: CancelRunning,
        failed_too: bool,
    },
    /// Run it (again), now or at a time. `force` also revives what has ended.
    Run {
        at: Timestamp,
        force: bool,
    },
    /// Start over: attempts count from zero. `even_running` takes it away from its worker.
    Requeue {
        at: Timestamp,
        even_running: bool,
    },
    Terminate,
    /// Straight to where there is no run, without a last one; a run that is going on ends first.
    PutToRest(Rest),
    Update(Box<Patch>),
    /// Its ports and state are these from now on.
    SetPorts(Arc<Ports>),
    /// A job that comes from elsewhere takes up where it stood there; only one that nobody was ever given here.
    TakeOver(Standing),
    /// A child that this job has to wait for was added, or came back to life.
    ChildAdded,
    /// A child that this job had to wait for is settled or gone.
    ChildSettled,
    /// A child that this job had to wait for has failed, which alone does not make this job run.
    ChildFailed,
    /// A child that had failed is cancelled or gone.
    ChildWrittenOff,
    /// The parent's run has ended: a waiting child may start.
    ParentPaused,
    Delete,
    /// Its result is handed to someone and not kept any longer; the job is.
    TakeResult,
    /// Its keep time is over, or that of its result.
    Expire,
}

impl Event {
    /// A run that ended well.
    pub fn finish(by: Holder, outcome: Outcome) -> Event {
        Event::Finish(Finish { by, outcome, payload: None, ignore_repeat: false })
    }

    /// A run that went wrong. The engine fills in chance.
    pub fn fail(by: Holder, outcome: Outcome, retry: RetryWish) -> Event {
        Event::Fail(Failure { by, outcome, retry, payload: None, chance: 0.0 })
    }
}

#[derive(Clone, Debug)]
pub struct Grant {
    pub worker: Option<Arc<str>>,
    /// Overrides the length in the job's policy.
    pub lease_ms: Option<i64>,
    pub dice: u16,
}

#[derive(Clone, Debug)]
pub struct Finish {
    pub by: Holder,
    pub outcome: Outcome,
    /// What the next run of a repeating or waiting job starts with.
    pub payload: Option<Payload>,
    /// End it, whatever its repeat rule says.
    pub ignore_repeat: bool,
}

#[derive(Clone, Debug)]
pub struct Restart {
    pub by: Holder,
    pub run_at: Timestamp,
    /// A repeating job runs at its next turn, whatever `run_at` says.
    pub heed_repeat: bool,
    /// What else changes with it; its own `run_at` means nothing here.
    pub patch: Patch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryWish {
    /// As the job's retry policy says.
    Policy,
    /// At this time, within the bound on attempts.
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
    /// The worker is told with its next heartbeat; a finish before that still counts.
    Ask,
    /// At once; whatever the worker reports later is refused.
    Now,
    Refuse,
}

/// Where a job stood before it came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub stands: Stands,
    /// When its present or next run is or was due.
    pub due_at: Timestamp,
    /// When it was last given to a worker.
    pub started_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    Ready,
    /// Its run is over; it waits for its children, which are made after it.
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

/// Changes to what was asked. `None` leaves a part alone.
#[derive(Clone, Debug, Default)]
pub struct Patch {
    pub payload: Option<Payload>,
    pub priority: Option<i32>,
    pub name: Option<Name>,
    pub queue: Option<Queue>,
    pub run_at: Option<Timestamp>,
    /// `Some(None)` ends the repetition.
    pub repeat: Option<Option<Repeat>>,
    /// What a lease is from the next claim on.
    pub lease: Option<(LeasePolicy, Option<Span>)>,
    /// How many attempts are taken to have been made.
    pub attempts: Option<u32>,
    pub extras: Option<Box<Extras>>,
    /// Another parent; `Some(None)`: none. Whatever `extras` says of it.
    pub family: Option<Option<Family>>,
    /// Facts to set, or with `None` to forget; the others stay.
    pub facts: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// Only if the job still has this version.
    pub if_version: Option<u64>,
}
