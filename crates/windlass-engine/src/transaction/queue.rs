//! Queue of transactions on one busy job, such as writes to its ports (group commit). Transactions that
//! arrive during a commit are decided in order and share the next commit: sixteen writers to one port wait
//! for one write instead of sixteen.
//!
//! The first caller for a job becomes the leader of the queue; after its own batch it passes the lead to a
//! waiting caller. So no task is needed beside the callers, and a caller that goes away still does its part
//! (`detached.rs`).

use super::Transaction;
use super::run::{Stop, Task, Work, aborted_error};
use crate::engine::{Engine, Inner};
use crate::error::EngineError;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use tokio::sync::oneshot;
use windlass_core::{JobId, Tenant};

/// Most transactions in one commit: more would delay the first for the last.
const TOGETHER_MAX: usize = 64;

/// Queueing options of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    /// Job whose queue it joins.
    pub job: JobId,
    /// True if it processes many bytes. It then leads its batch, because its future is polled where a long
    /// computation is acceptable.
    pub is_large: bool,
}

type Key = (Tenant, JobId);

/// Queues by job; an entry exists while the queue has a leader.
#[derive(Default)]
pub(crate) struct JobQueues(Mutex<FxHashMap<Key, Vec<Waiting>>>);

struct Waiting {
    call: Box<dyn QueuedCall>,
    ids: Vec<JobId>,
    is_large: bool,
    /// Makes its caller the leader.
    lead: oneshot::Sender<QueuedBatch>,
}

/// Next batch, passed to its leader.
struct QueuedBatch {
    calls: Vec<Waiting>,
    working: QueueLead,
}

/// Lead of one queue. If dropped early it removes the queue, so that no caller waits for ever.
struct QueueLead {
    engine: Arc<Inner>,
    key: Key,
    is_done: bool,
}

impl Drop for QueueLead {
    fn drop(&mut self) {
        if !self.is_done {
            self.engine.job_queues.lock().remove(&self.key);
        }
    }
}

trait QueuedCall: Send {
    fn work(&mut self) -> &mut dyn Work;
    fn answer(self: Box<Self>);
}

/// Transaction, and the channel for its result.
struct Answered<F, T, E> {
    task: Task<F, T, E>,
    answer: oneshot::Sender<Result<T, E>>,
}

impl<F, T, E> QueuedCall for Answered<F, T, E>
where
    F: FnMut(&mut Transaction<'_>) -> Result<T, Stop<E>> + Send,
    T: Send,
    E: From<EngineError> + Send,
{
    fn work(&mut self) -> &mut dyn Work {
        &mut self.task
    }

    fn answer(self: Box<Self>) {
        if let Some(outcome) = self.task.outcome {
            // The caller may be gone.
            let _ = self.answer.send(outcome);
        }
    }
}

impl JobQueues {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<Key, Vec<Waiting>>> {
        self.0.lock()
    }

    /// Appends to the queue; returns the call if there is no leader, so that the caller leads.
    fn join(&self, key: &Key, waiting: Waiting) -> Option<Waiting> {
        let mut queues = self.lock();
        if let Some(queue) = queues.get_mut(key) {
            queue.push(waiting);
            return None;
        }
        queues.insert(key.clone(), Vec::new());
        Some(waiting)
    }

    /// Next batch; empty: the queue is removed.
    fn next(&self, key: &Key) -> Vec<Waiting> {
        let mut queues = self.lock();
        match queues.get_mut(key) {
            Some(queue) if !queue.is_empty() => queue.drain(..queue.len().min(TOGETHER_MAX)).collect(),
            _ => {
                queues.remove(key);
                Vec::new()
            }
        }
    }
}

impl Engine {
    /// Like [`Engine::transact`], in one commit with other transactions queued for the same job. Runs to
    /// completion even if the caller is gone.
    pub async fn transact_queued<T, E>(
        &self,
        tenant: &Tenant,
        queued: Queued,
        ids: Vec<JobId>,
        decide: impl FnMut(&mut Transaction<'_>) -> Result<T, Stop<E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<EngineError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let (lead, leads) = oneshot::channel();
        let task = Task { decide, by: self.by(), outcome: None };
        let call = Box::new(Answered { task, answer });
        let waiting = Waiting { call, ids, is_large: queued.is_large, lead };
        let (engine, key) = (self.inner.clone(), (tenant.clone(), queued.job));
        let first = self.inner.job_queues.join(&key, waiting).map(|waiting| QueuedBatch {
            calls: vec![waiting],
            working: QueueLead { engine, key, is_done: false },
        });
        let work = async move {
            let batch = match first {
                Some(batch) => Some(batch),
                // An error means that another caller led the batch, and the result is there.
                None => leads.await.ok(),
            };
            if let Some(batch) = batch {
                batch.lead().await;
            }
            answered.await.map_err(|_| aborted_error())
        };
        match self.inner.detached(work).await {
            Ok(outcome) => outcome,
            Err(error) => Err(error.into()),
        }
    }
}

impl QueuedBatch {
    /// Runs the batch, and passes the lead on.
    async fn lead(self) {
        let QueuedBatch { mut calls, mut working } = self;
        loop {
            working.commit_batch(calls).await;
            calls = working.engine.job_queues.next(&working.key);
            if calls.is_empty() {
                working.is_done = true;
                return;
            }
            let leader = calls.iter().position(|waiting| waiting.is_large).unwrap_or(0);
            let (unused, _) = oneshot::channel();
            let lead = std::mem::replace(&mut calls[leader].lead, unused);
            match lead.send(QueuedBatch { calls, working }) {
                Ok(()) => return,
                Err(batch) => (calls, working) = (batch.calls, batch.working),
            }
        }
    }
}

impl QueueLead {
    async fn commit_batch(&self, mut calls: Vec<Waiting>) {
        if let Err(error) = self.transact(&mut calls).await {
            // A batch that is too large is retried one transaction at a time.
            let are_too_many = matches!(error, EngineError::TooMany { .. }) && calls.len() > 1;
            for call in &mut calls {
                let failed = match are_too_many {
                    true => self.transact(std::slice::from_mut(call)).await.err(),
                    false => Some(error.clone()),
                };
                if let Some(error) = failed {
                    call.call.work().fail(error);
                }
            }
        }
        calls.into_iter().for_each(|waiting| waiting.call.answer());
    }

    async fn transact(&self, calls: &mut [Waiting]) -> Result<(), EngineError> {
        let mut ids = vec![self.key.1];
        ids.extend(calls.iter().flat_map(|waiting| &waiting.ids));
        let mut works: Vec<&mut dyn Work> = calls.iter_mut().map(|waiting| waiting.call.work()).collect();
        self.engine.transact(&self.key.0, &ids, &mut works).await
    }
}
