//! Jobs as they are while a call is worked out, before anything is written.
//!
//! What a call does to jobs is decided here by the same pure rules that the engine applies; the engine then does it to
//! exactly the versions that were seen, all or nothing, or says that they are stale.

use super::errors::Problem;
use super::log::PortEvents;
use super::registry::Queues;
use super::wire::Context;
use std::collections::HashMap;
use std::sync::Arc;
use windlass_core::event::{Failure, Finish, Patch, RetryWish};
use windlass_core::ports::{PortError, Ports};
use windlass_core::{Event, Job, JobId, Refused, Timestamp, apply};
use windlass_engine::{Action, Deed, How};

/// Why a call stops.
pub enum Stop {
    /// This job has to be loaded; then from the start.
    Load(JobId),
    Refuse(Problem),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Stop {
        Stop::Refuse(problem)
    }
}

/// What a call answers once all is written.
#[derive(Clone, Debug)]
pub struct Reply {
    pub text: String,
    /// What was done is done, but this has to be said.
    pub trouble: Option<Problem>,
}

impl Reply {
    pub fn new(text: impl Into<String>) -> Reply {
        Reply { text: text.into(), trouble: None }
    }

    pub fn null() -> Reply {
        Reply::new("null")
    }

    pub fn but(self, trouble: Option<Problem>) -> Reply {
        Reply { trouble: self.trouble.or(trouble), ..self }
    }
}

/// Worked out as often as it takes, so it must not remember anything of the times before.
pub type Op = Box<dyn FnMut(&mut Scene) -> Result<Reply, Stop> + Send>;

pub struct Scene {
    pub now: Timestamp,
    pub queues: Arc<Queues>,
    /// As they were loaded; `None`: there is no such job.
    seen: HashMap<JobId, Option<Arc<Job>>>,
    drafts: Drafts,
}

/// What will be written.
#[derive(Clone, Default)]
struct Drafts {
    jobs: HashMap<JobId, Arc<Job>>,
    deeds: Vec<(JobId, Action)>,
    entries: Vec<String>,
}

impl Scene {
    pub fn new(now: Timestamp, queues: Arc<Queues>, seen: HashMap<JobId, Option<Arc<Job>>>) -> Scene {
        Scene { now, queues, seen, drafts: Drafts::default() }
    }

    pub fn loaded(&mut self, id: JobId, job: Option<Arc<Job>>) {
        self.seen.insert(id, job);
    }

    /// Works out one call, or leaves everything as it was before it.
    pub fn work_out(&mut self, op: &mut Op) -> Result<Reply, Stop> {
        let before = self.drafts.clone();
        let outcome = op(self);
        if outcome.is_err() {
            self.drafts = before;
        }
        outcome
    }

    pub fn find(&self, id: JobId) -> Result<Option<Arc<Job>>, Stop> {
        match (self.drafts.jobs.get(&id), self.seen.get(&id)) {
            (Some(job), _) => Ok(Some(Arc::clone(job))),
            (None, Some(job)) => Ok(job.clone()),
            (None, None) => Err(Stop::Load(id)),
        }
    }

    pub fn job(&self, id: JobId) -> Result<Arc<Job>, Stop> {
        self.find(id)?.ok_or_else(|| Stop::Refuse(Problem::no_job(id)))
    }

    /// Makes it happen, if the rules allow it.
    pub fn act(&mut self, id: JobId, action: Action) -> Result<Result<(), Refused>, Stop> {
        let job = self.job(id)?;
        let transition = match apply(&job, event_of(&action, self.now), self.now) {
            Ok(transition) => transition,
            Err(refused) => return Ok(Err(refused)),
        };
        // Only what is deleted is gone, and nothing is deleted here.
        if let Some(after) = transition.job {
            self.drafts.jobs.insert(id, Arc::new(after));
        }
        let last = self.drafts.deeds.last_mut();
        match (last, &action) {
            // Ports that are set again before anything else happened need be set once.
            (Some((last, earlier @ Action::SetPorts(_))), Action::SetPorts(_)) if *last == id => {
                *earlier = action;
            }
            _ => self.drafts.deeds.push((id, action)),
        }
        Ok(Ok(()))
    }

    /// What is written holds only if nothing happens to this job meanwhile. A job that is changed holds still anyway.
    pub fn hold_still(&mut self, id: JobId) -> Result<(), Stop> {
        if !self.drafts.jobs.contains_key(&id) {
            // It changes in nothing but its version; no state refuses that.
            let _ = self.act(id, Action::Update(Patch::default()))?;
        }
        Ok(())
    }

    pub fn ports(&self, id: JobId) -> Result<Ports, Stop> {
        Ok(self.job(id)?.ports().map(|ports| Ports::clone(ports)).unwrap_or_default())
    }

    pub fn set_ports(&mut self, id: JobId, ports: Ports) -> Result<(), Stop> {
        self.act(id, Action::SetPorts(Arc::new(ports)))?
            .map_err(|refused| Problem::refused(refused.to_string()))?;
        Ok(())
    }

    /// Changes the ports of a job.
    pub fn with_ports<T>(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut Ports) -> Result<T, PortError>,
    ) -> Result<T, Stop> {
        let mut ports = self.ports(id)?;
        let outcome = change(&mut ports).map_err(|error| Problem::port(id, &error))?;
        self.set_ports(id, ports)?;
        Ok(outcome)
    }

    pub fn log(&mut self, entry: String) {
        self.drafts.entries.push(entry);
    }

    pub fn log_ports(&mut self, events: &PortEvents, context: &Context) {
        self.drafts.entries.extend(events.entry(context, self.now));
    }

    pub fn is_untouched(&self) -> bool {
        self.drafts.deeds.is_empty() && self.drafts.entries.is_empty()
    }

    pub fn deeds(&self) -> Vec<Deed> {
        let deed = |(id, action): &(JobId, Action)| {
            let job = self.seen.get(id)?.clone()?;
            Some(Deed { job, action: action.clone() })
        };
        self.drafts.deeds.iter().filter_map(deed).collect()
    }

    pub fn entries(&self) -> &[String] {
        &self.drafts.entries
    }
}

/// The same event that the engine will make of it, but for chance, which decides nothing here.
fn event_of(action: &Action, now: Timestamp) -> Event {
    match action.clone() {
        Action::Cancel { running, failed_too } => Event::Cancel { running, failed_too },
        Action::Run { at, force } => Event::Run { at: at.from(now), force },
        Action::Requeue { at, even_running } => Event::Requeue { at: at.from(now), even_running },
        Action::Terminate { .. } => Event::Terminate,
        Action::PutToRest(rest) => Event::PutToRest(rest),
        Action::Update(patch) => Event::Update(Box::new(patch)),
        Action::SetPorts(ports) => Event::SetPorts(ports),
        Action::Delete => Event::Delete,
        Action::Settle { by, how } => match how {
            How::Finish { outcome, payload, ignore_repeat } => {
                Event::Finish(Finish { by, outcome, payload, ignore_repeat })
            }
            How::Fail { outcome, payload, .. } => {
                Event::Fail(Failure { by, outcome, retry: RetryWish::Never, payload, chance: 0.0 })
            }
            How::Release { delay_ms, counts } => {
                Event::Release { by, run_at: now.plus_ms(delay_ms.max(0)), counts }
            }
            How::Suspend => Event::Suspend { by },
            How::Return | How::Restart { .. } => Event::Return { by },
        },
    }
}
