//! Event feed: changes of jobs, broadcast to subscribers. Costs one atomic load if there are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::broadcast;
use windlass_core::{Job, JobId, Name, Queue, StateWord, Tenant, Timestamp};

/// Events buffered per subscriber. A slower subscriber misses events, and receives their number.
const FEED_KEPT: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedKind {
    Pushed,
    Claimed,
    Completed,
    Failed,
    /// A run failed; another attempt is scheduled.
    Retrying,
    /// A run succeeded; the next run of the repeating job is scheduled.
    Repeating,
    /// No attempt of a turn is left; the next run of the repeating job is scheduled.
    TurnFailed,
    /// A turn of a repeating job came too late and was not run.
    TurnMissed,
    Released,
    Suspended,
    /// Waiting for its children.
    Waiting,
    /// The lease expired; the job will run again.
    Lapsed,
    CancelAsked,
    Cancelled,
    Terminating,
    Terminated,
    /// Claimable (again): started by a request, or released by its family.
    Ready,
    Progress,
    Updated,
    Deleted,
    Expired,
}

impl FeedKind {
    pub fn as_str(self) -> &'static str {
        match self {
            FeedKind::Pushed => "pushed",
            FeedKind::Claimed => "claimed",
            FeedKind::Completed => "completed",
            FeedKind::Failed => "failed",
            FeedKind::Retrying => "retrying",
            FeedKind::Repeating => "repeating",
            FeedKind::TurnFailed => "turn_failed",
            FeedKind::TurnMissed => "turn_missed",
            FeedKind::Released => "released",
            FeedKind::Suspended => "suspended",
            FeedKind::Waiting => "waiting",
            FeedKind::Lapsed => "lapsed",
            FeedKind::CancelAsked => "cancel_asked",
            FeedKind::Cancelled => "cancelled",
            FeedKind::Terminating => "terminating",
            FeedKind::Terminated => "terminated",
            FeedKind::Ready => "ready",
            FeedKind::Progress => "progress",
            FeedKind::Updated => "updated",
            FeedKind::Deleted => "deleted",
            FeedKind::Expired => "expired",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedEvent {
    /// 1, 2, 3, … since the start of the server, counted only while there are subscribers.
    pub seq: u64,
    pub at: Timestamp,
    pub kind: FeedKind,
    pub id: JobId,
    pub tenant: Tenant,
    pub queue: Queue,
    pub name: Name,
    /// State after the event; for a deleted job its last state.
    pub state: StateWord,
}

#[derive(Debug)]
pub(crate) struct Feed {
    sender: broadcast::Sender<Arc<FeedEvent>>,
    seq: AtomicU64,
}

impl Feed {
    pub(crate) fn new() -> Feed {
        Feed { sender: broadcast::Sender::new(FEED_KEPT), seq: AtomicU64::new(0) }
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Arc<FeedEvent>> {
        self.sender.subscribe()
    }

    pub(crate) fn has_listeners(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    pub(crate) fn publish(&self, kind: FeedKind, job: &Job, state: StateWord, at: Timestamp) {
        let spec = &job.spec;
        self.publish_for(kind, job.id, (&spec.tenant, &spec.queue, &spec.name), state, at);
    }

    pub(crate) fn publish_for(
        &self,
        kind: FeedKind,
        id: JobId,
        (tenant, queue, name): (&Tenant, &Queue, &Name),
        state: StateWord,
        at: Timestamp,
    ) {
        if !self.has_listeners() {
            return;
        }
        let event = FeedEvent {
            seq: self.seq.fetch_add(1, Ordering::Relaxed) + 1,
            at,
            kind,
            id,
            tenant: tenant.clone(),
            queue: queue.clone(),
            name: name.clone(),
            state,
        };
        // Fails only if the last subscriber has just left.
        let _ = self.sender.send(Arc::new(event));
    }
}
