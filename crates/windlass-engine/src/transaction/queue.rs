//! Transactions that come often for one job, such as writes to its ports: those that come while others for it are on their
//! way to the disk are decided one after another, in the order they came, and written in one commit. Sixteen writers to
//! one port wait for one write, and not for sixteen.
//!
//! Whoever comes first for a job works for the queue; with its own transaction done it hands the work to a caller that
//! waits. So there is no task beside the callers', and a caller that goes away still does its part (`detached.rs`).

use super::Transaction;
use super::run::{Stop, Task, Work, broken_off};
use crate::engine::{Engine, Inner};
use crate::error::EngineError;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use tokio::sync::oneshot;
use windlass_core::{JobId, Tenant};

/// Transactions in one commit: more would make the first wait for the last.
const TOGETHER_MAX: usize = 64;

/// How a transaction is queued.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    /// Behind the others for this job.
    pub job: JobId,
    /// It works on many bytes. Its caller's future is polled where that may take a while, so that is where it is run.
    pub is_large: bool,
}

type Key = (Tenant, JobId);

/// A queue is present while somebody works for it.
#[derive(Default)]
pub(crate) struct JobQueues(Mutex<FxHashMap<Key, Vec<Waiting>>>);

struct Waiting {
    call: Box<dyn QueuedCall>,
    ids: Vec<JobId>,
    is_large: bool,
    /// Tells its caller to work for the queue.
    lead: oneshot::Sender<Batch>,
}

/// What is carried out next, by whoever has this.
struct Batch {
    calls: Vec<Waiting>,
    working: Working,
}

/// The work for one queue. Closes the queue if it is dropped before it is done: nobody must wait there for ever.
struct Working {
    engine: Arc<Inner>,
    key: Key,
    is_done: bool,
}

impl Drop for Working {
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

/// A transaction, and where its answer goes.
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

    /// Behind those who wait; given back if nobody works for the queue: then it is the caller's to do.
    fn join(&self, key: &Key, waiting: Waiting) -> Option<Waiting> {
        let mut queues = self.lock();
        if let Some(queue) = queues.get_mut(key) {
            queue.push(waiting);
            return None;
        }
        queues.insert(key.clone(), Vec::new());
        Some(waiting)
    }

    /// The next in the queue; none: the queue is closed.
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
    /// As [`Engine::transact`], in one commit with the others that are queued for the same job. It is carried out even if
    /// the caller goes away.
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
        let first = self
            .inner
            .job_queues
            .join(&key, waiting)
            .map(|waiting| Batch { calls: vec![waiting], working: Working { engine, key, is_done: false } });
        let work = async move {
            let batch = match first {
                Some(batch) => Some(batch),
                // Gone: somebody else has worked for the queue, and the answer is there.
                None => leads.await.ok(),
            };
            if let Some(batch) = batch {
                batch.carry_out().await;
            }
            answered.await.map_err(|_| broken_off())
        };
        match self.inner.detached(work).await {
            Ok(outcome) => outcome,
            Err(error) => Err(error.into()),
        }
    }
}

impl Batch {
    /// Carries out its own transactions, and hands the queue on.
    async fn carry_out(self) {
        let Batch { mut calls, mut working } = self;
        loop {
            working.together(calls).await;
            calls = working.engine.job_queues.next(&working.key);
            if calls.is_empty() {
                working.is_done = true;
                return;
            }
            let leader = calls.iter().position(|waiting| waiting.is_large).unwrap_or(0);
            let (unused, _) = oneshot::channel();
            let lead = std::mem::replace(&mut calls[leader].lead, unused);
            match lead.send(Batch { calls, working }) {
                Ok(()) => return,
                Err(batch) => (calls, working) = (batch.calls, batch.working),
            }
        }
    }
}

impl Working {
    async fn together(&self, mut calls: Vec<Waiting>) {
        if let Err(error) = self.transact(&mut calls).await {
            // Too much for one commit is not too much for several.
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
