//! Effects of a commit: updates the tables, frees limits, plans deadlines, notifies waiting callers and
//! subscribers.

use crate::engine::Inner;
use crate::events::feed::FeedKind;
use crate::events::job_meters::JobOutcome;
use crate::shutdown::InFlight;
use crate::transaction::Moved;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::sync::Arc;
use windlass_core::turn::{Turn, TurnOutcome};
use windlass_core::{
    Event, Job, JobId, JobState, Keep, KeepFor, Policy, StateName, StateWord, Timestamp, apply,
};
use windlass_store::Change;

/// Number of queries, and the pause between them, after a commit with an unknown outcome. A store may need
/// minutes to recover.
const DOUBT_TRIES: usize = 600;
const DOUBT_PAUSE_MS: u64 = 1_000;

impl Inner {
    /// Updates the tables for all written jobs, family included. Plans lease expiries and keep times, also
    /// past ones, and the start of jobs that were not yet claimable at the commit; the store has announced
    /// the others.
    pub(crate) fn after_commit(&self, changes: &[Change], committed_at: Timestamp) {
        let mut leases = self.leases();
        let record = |change: &Change| leases.changed(&change.before, change.after.as_ref());
        let previous: SmallVec<[Option<Arc<Job>>; 1]> = changes.iter().map(record).collect();
        drop(leases);
        let moments = |job: &Arc<Job>| {
            let ready = job.state().claimable_at().filter(|moment| *moment > committed_at);
            job.deadline().into_iter().chain(ready)
        };
        let coming = changes.iter().filter_map(|change| change.after.as_ref()).flat_map(moments);
        if let Some(next) = coming.min() {
            self.timers.plan(next);
        }
        let is_shared = self.store.shared().is_some();
        for (change, previous) in changes.iter().zip(&previous) {
            // A shared store counts the use of limits itself. On other stores each run is charged and freed
            // once, in whatever order the results arrive.
            let before = if is_shared { Some(&change.before) } else { previous.as_ref() };
            if let Some(before) = before {
                self.limits.apply_change(&*self.store, before, change.after.as_deref());
            }
        }
        self.lease_watch.after_commit(changes);
    }

    /// Commit with an unknown outcome: corrects the tables as soon as the store responds again.
    pub(crate) fn resolve_unknown_commit(self: &Arc<Self>, changes: Vec<Change>) {
        let mut leases = self.leases();
        changes.iter().for_each(|change| leases.forget(change.before.id));
        drop(leases);
        let in_flight = InFlight::new(self);
        self.runtime.spawn(async move {
            for _ in 0..DOUBT_TRIES {
                let ids = changes.iter().map(|change| change.before.id).collect();
                if let Ok(jobs) = in_flight.store.load(ids).await {
                    for (change, job) in changes.iter().zip(jobs) {
                        in_flight.correct_tables(&change.before, job);
                    }
                    return;
                }
                tokio::select! {
                    () = in_flight.clock.sleep_ms(DOUBT_PAUSE_MS) => {}
                    () = in_flight.shutdown.closed() => return,
                }
            }
            tracing::error!(
                "the store does not respond; counts of running jobs are wrong until the next start"
            );
        });
    }

    fn correct_tables(&self, before: &Arc<Job>, found: Option<Arc<Job>>) {
        let token = |job: &Job| job.state().lease().map(|lease| lease.token);
        if found.as_deref().and_then(token) != token(before) && !self.leases().has_later_version(before) {
            self.limits.apply_change(&*self.store, before, None);
            self.lease_watch.notify_if_ended(before, None);
        }
        let is_over = found.as_ref().is_none_or(|job| job.state().is_settled());
        if is_over && !self.settle_waiters.is_empty() {
            self.settle_waiters.settled(before.id, found);
        }
    }

    /// Reports a requested event: metrics, the feed, callers that wait for the job to settle.
    pub(crate) fn report_event(&self, event: &Event, moved: &Moved) {
        if matches!(event, Event::Return { .. } | Event::Skip { .. }) {
            self.limits.refund(&*self.store, &moved.before, self.now());
        }
        self.count(event, moved);
        if !self.settle_waiters.is_empty() {
            self.report_to_watchers(event, moved);
        }
        if self.feed.has_listeners()
            && let Some((kind, state)) = feed_event(event, moved, self.now())
        {
            self.feed.publish(kind, &moved.before, state, self.now());
        }
    }

    /// Reports changes of parents and children that follow from the requested events.
    pub(crate) fn report_family_changes(&self, changes: &[Change], asked: &FxHashSet<JobId>) {
        let family = changes.iter().filter(|change| !asked.contains(&change.before.id));
        family.for_each(|change| self.report_family_change(change));
    }

    fn report_family_change(&self, change: &Change) {
        let (before, now) = (&change.before, self.now());
        let is_ready = |job: &Job| job.state().name() == StateName::Ready;
        let (kind, state) = match &change.after {
            Some(after) if is_ready(after) && !is_ready(before) => (FeedKind::Ready, after.state_word(now)),
            Some(_) => return,
            None => (FeedKind::Deleted, before.state_word(now)),
        };
        self.feed.publish(kind, before, state, now);
    }

    fn report_to_watchers(&self, event: &Event, moved: &Moved) {
        let id = moved.before.id;
        let has_ended = moved.after.as_ref().is_none_or(|after| after.state().is_settled());
        if !has_ended || !self.settle_waiters.is_watched(id) {
            return;
        }
        let ending = match &moved.after {
            Some(after) => Some(after.clone()),
            None => self.last_version(event, &moved.before),
        };
        self.settle_waiters.settled(id, ending);
    }

    /// Final version of a job that is deleted when it ends: the same event applied under a policy that keeps
    /// it.
    fn last_version(&self, event: &Event, before: &Arc<Job>) -> Option<Arc<Job>> {
        if before.state().is_settled() {
            return Some(before.clone());
        }
        let mut kept = Job::clone(before);
        let keep = Keep { completed: KeepFor::Ever, failed: KeepFor::Ever, cancelled: KeepFor::Ever };
        Arc::make_mut(&mut kept.spec).policy =
            Arc::new(Policy { keep, ..Policy::clone(&before.spec.policy) });
        let mut last = apply(&kept, event.clone(), self.now()).ok()?.job?;
        Arc::make_mut(&mut last.spec).policy = before.spec.policy.clone();
        last.state().is_settled().then(|| Arc::new(last))
    }

    fn count(&self, event: &Event, moved: &Moved) {
        if let Some(outcome) = JobOutcome::of(event, moved) {
            let spec = &moved.before.spec;
            let series = self.meters.jobs.of(&spec.tenant, &spec.queue, &spec.name);
            series.outcome(outcome).add(1);
            if let Some(ran_us) = self.reported_run_us(event, moved) {
                series.run_us.record(ran_us);
                self.meters.run_us.record(ran_us);
            }
        }
        let meters = &self.meters;
        if let Some(turn) = ended_turn(moved) {
            meters.turns.of(turn.outcome).add(1);
        }
        let counter = match event {
            Event::Finish(_) => &meters.finished,
            Event::Fail(_) => &meters.failed,
            Event::Release { .. } | Event::Return { .. } | Event::Restart(_) => &meters.released,
            Event::Lapse { .. } | Event::LapseInOutage { .. } => &meters.lapsed,
            Event::Cancel { .. } if !moved.after.as_ref().is_some_and(|after| was_running(after)) => {
                &meters.cancelled
            }
            Event::Expire if moved.after.is_none() => &meters.expired,
            Event::Claim(_)
            | Event::Extend { .. }
            | Event::Renew { .. }
            | Event::Report { .. }
            | Event::Log { .. }
            | Event::Suspend(_)
            | Event::KeepSteps { .. }
            | Event::Signal { .. }
            | Event::Wake
            | Event::Skip { .. }
            | Event::Cancel { .. }
            | Event::Run { .. }
            | Event::Requeue { .. }
            | Event::RequeueFrom { .. }
            | Event::Terminate
            | Event::PutToRest(_)
            | Event::SetPorts(_)
            | Event::Update(_)
            | Event::TakeOver(_)
            | Event::ChildAdded
            | Event::ChildSettled
            | Event::ChildFailed
            | Event::ChildWrittenOff
            | Event::ParentPaused
            | Event::Delete
            | Event::TakeResult
            | Event::Expire => return,
        };
        counter.add(1);
    }

    /// Length of a run whose worker has reported its outcome.
    fn reported_run_us(&self, event: &Event, moved: &Moved) -> Option<u64> {
        match (event, moved.before.state()) {
            (Event::Finish(_) | Event::Fail(_), JobState::Running(lease)) => {
                Some(self.now().since_ms(lease.granted_at).unsigned_abs().saturating_mul(1_000))
            }
            _ => None,
        }
    }
}

/// Turn of a repeating job that ended with this event.
fn ended_turn(moved: &Moved) -> Option<&Turn> {
    let last = moved.after.as_ref()?.turns().last();
    last.filter(|last| moved.before.turns().last() != Some(*last))
}

fn turn_failed(moved: &Moved) -> bool {
    ended_turn(moved).is_some_and(|turn| turn.outcome == TurnOutcome::Failed)
}

fn was_running(job: &Job) -> bool {
    job.state().lease().is_some()
}

/// Kind of the feed event and the state afterwards; for a deleted job the state in which it ended.
fn feed_event(event: &Event, moved: &Moved, now: Timestamp) -> Option<(FeedKind, StateWord)> {
    let after = moved.after.as_ref().map(|job| job.state().name());
    let gone = |state: StateName| after.unwrap_or(state);
    let kind = match event {
        Event::Extend { .. }
        | Event::Renew { .. }
        | Event::ChildAdded
        | Event::ChildSettled
        | Event::ChildFailed
        | Event::ChildWrittenOff
        | Event::TakeResult
        | Event::Claim(_) => return None,
        Event::Report { .. } | Event::Log { .. } | Event::KeepSteps { .. } => FeedKind::Progress,
        Event::Signal { .. } if after == Some(moved.before.state().name()) => FeedKind::Updated,
        Event::Update(_) | Event::TakeOver(_) | Event::SetPorts(_) => FeedKind::Updated,
        Event::Delete => return Some((FeedKind::Deleted, moved.before.state_word(now))),
        Event::Expire if after.is_some() => return None,
        Event::Expire => return Some((FeedKind::Expired, moved.before.state_word(now))),
        Event::Run { .. }
        | Event::Requeue { .. }
        | Event::RequeueFrom { .. }
        | Event::Signal { .. }
        | Event::Wake
        | Event::ParentPaused => FeedKind::Ready,
        Event::Terminate => FeedKind::Terminating,
        Event::PutToRest(_) => match gone(StateName::Terminated) {
            StateName::Suspended => FeedKind::Suspended,
            StateName::Completed => FeedKind::Completed,
            StateName::Failed => FeedKind::Failed,
            StateName::Terminated => FeedKind::Terminated,
            _ => FeedKind::Updated,
        },
        Event::Suspend(_) => match after {
            Some(StateName::Suspended) => FeedKind::Suspended,
            _ => FeedKind::Ready,
        },
        Event::Cancel { .. } => match gone(StateName::Cancelled) {
            StateName::Running => FeedKind::CancelAsked,
            _ => FeedKind::Cancelled,
        },
        Event::Skip { .. } => FeedKind::TurnMissed,
        Event::Release { .. } | Event::Return { .. } | Event::Restart(_) => {
            match gone(StateName::Cancelled) {
                StateName::Ready if turn_failed(moved) => FeedKind::TurnFailed,
                StateName::Ready => FeedKind::Released,
                StateName::Failed => FeedKind::Failed,
                _ => FeedKind::Cancelled,
            }
        }
        Event::Finish(_) => match gone(StateName::Completed) {
            StateName::Ready => FeedKind::Repeating,
            StateName::Waiting => FeedKind::Waiting,
            StateName::Terminated => FeedKind::Terminated,
            StateName::Terminating => FeedKind::Terminating,
            _ => FeedKind::Completed,
        },
        Event::Fail(_) => match gone(StateName::Failed) {
            StateName::Ready if turn_failed(moved) => FeedKind::TurnFailed,
            StateName::Ready => FeedKind::Retrying,
            StateName::Cancelled => FeedKind::Cancelled,
            StateName::Terminated => FeedKind::Terminated,
            StateName::Terminating => FeedKind::Terminating,
            _ => FeedKind::Failed,
        },
        Event::Lapse { .. } | Event::LapseInOutage { .. } => match gone(StateName::Failed) {
            StateName::Ready if turn_failed(moved) => FeedKind::TurnFailed,
            StateName::Failed => FeedKind::Failed,
            StateName::Cancelled => FeedKind::Cancelled,
            _ => FeedKind::Lapsed,
        },
    };
    let ended_in = match kind {
        FeedKind::Completed => StateWord::Completed,
        FeedKind::Failed => StateWord::Failed,
        FeedKind::Cancelled => StateWord::Cancelled,
        _ => moved.before.state_word(now),
    };
    Some((kind, moved.after.as_ref().map_or(ended_in, |job| job.state_word(now))))
}
