//! Where calls that change jobs are carried out.
//!
//! Calls that come for a job while others for it are on their way to the disk are carried out together, in the order
//! they came, as one step: sixteen writers to one port wait for one write, and not for sixteen.

use super::errors::Problem;
use super::scene::{Op, Reply, Scene, Stop};
use crate::http::Server;
use crate::route::Call;
use crate::weight::Weight;
use ::http::StatusCode;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use windlass_core::{Job, JobId, Tenant};
use windlass_engine::Together;

/// Calls carried out in one step: more would make the first wait for the last.
const TOGETHER_MAX: usize = 64;
/// Looks before a call gives up: each one lost means that somebody else changed one of its jobs meanwhile.
const LOOKS_MAX: usize = 200;

#[derive(Default)]
pub struct Desk {
    /// Present while somebody carries out calls for the job.
    lines: Mutex<HashMap<(Tenant, JobId), Vec<Waiting>>>,
}

struct Waiting {
    op: Op,
    /// Other jobs that it is about.
    others: Vec<JobId>,
    is_large: bool,
    reply: oneshot::Sender<Result<Reply, Problem>>,
}

impl Desk {
    /// Carries out a call. It is carried out even if the caller goes away.
    pub async fn carry_out(call: &Call, tenant: &Tenant, id: JobId, op: Op) -> Result<Reply, Problem> {
        Desk::carry_out_with(call, tenant, id, Vec::new(), op).await
    }

    /// The same for a call that is about `others`, too: they are loaded at once. Whatever else turns out to be needed is
    /// loaded one by one, each time with a new start.
    pub async fn carry_out_with(
        call: &Call,
        tenant: &Tenant,
        id: JobId,
        others: Vec<JobId>,
        op: Op,
    ) -> Result<Reply, Problem> {
        check_reach(call, tenant, id, &others).await?;
        let server = &call.server;
        let (reply, answer) = oneshot::channel();
        let is_first = {
            let mut lines = server.sidejob.desk.lines();
            let line = lines.get_mut(&(tenant.clone(), id));
            let is_first = line.is_none();
            let waiting = Waiting { op, others, is_large: call.weight().is_large(), reply };
            match line {
                Some(line) => line.push(waiting),
                None => drop(lines.insert((tenant.clone(), id), vec![waiting])),
            }
            is_first
        };
        if is_first {
            let (server, tenant) = (Arc::clone(server), tenant.clone());
            tokio::spawn(async move { serve(&server, &tenant, id).await });
        }
        answer.await.unwrap_or_else(|_| Err(gave_up()))
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<(Tenant, JobId), Vec<Waiting>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next calls in line; none: the line is closed.
    fn next(&self, tenant: &Tenant, id: JobId) -> Vec<Waiting> {
        let mut lines = self.lines();
        let key = (tenant.clone(), id);
        match lines.get_mut(&key) {
            Some(line) if !line.is_empty() => {
                let count = line.len().min(TOGETHER_MAX);
                line.drain(..count).collect()
            }
            _ => {
                lines.remove(&key);
                Vec::new()
            }
        }
    }
}

/// Closes the line if whoever serves it is gone before it is empty: nobody must wait at it for ever.
struct Serving<'a> {
    desk: &'a Desk,
    key: (Tenant, JobId),
    /// The line was closed when it was found empty. One of the same name may be open by now, and is another's.
    is_closed: bool,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if !self.is_closed {
            self.desk.lines().remove(&self.key);
        }
    }
}

async fn serve(server: &Arc<Server>, tenant: &Tenant, id: JobId) {
    let key = (tenant.clone(), id);
    let mut serving = Serving { desk: &server.sidejob.desk, key, is_closed: false };
    loop {
        let mut batch = server.sidejob.desk.next(tenant, id);
        if batch.is_empty() {
            serving.is_closed = true;
            return;
        }
        let weight = Weight::of(batch.iter().any(|waiting| waiting.is_large));
        match weight.carry(together(server, tenant, id, &mut batch)).await {
            Ok(answers) => {
                for (waiting, answer) in batch.into_iter().zip(answers) {
                    // Whoever asked may be gone.
                    let _ = waiting.reply.send(answer);
                }
            }
            Err(problem) if batch.len() == 1 => {
                let _ = batch.remove(0).reply.send(Err(problem));
            }
            Err(_) => {
                for mut waiting in batch {
                    let alone = together(server, tenant, id, std::slice::from_mut(&mut waiting));
                    let answer = weight.carry(alone).await;
                    let answer =
                        answer.and_then(|mut answers| answers.pop().unwrap_or_else(|| Err(gave_up())));
                    let _ = waiting.reply.send(answer);
                }
            }
        }
    }
}

/// Jobs that a call names have to be within the caller's reach; what follows for others happens wherever they are.
async fn check_reach(call: &Call, tenant: &Tenant, id: JobId, others: &[JobId]) -> Result<(), Problem> {
    if call.caller.scope.is_everything() {
        return Ok(());
    }
    let named: Vec<JobId> = std::iter::once(id).chain(others.iter().copied()).collect();
    let found = call.engine.get(tenant, named.clone()).await?;
    match named.into_iter().zip(found).find(|(_, job)| job.is_none()) {
        Some((missing, _)) => Err(Problem::no_job(missing)),
        None => Ok(()),
    }
}

type Answers = Vec<Result<Reply, Problem>>;

/// Carries out all of them in one step. `Err`: together they may not happen; each by itself may.
async fn together(
    server: &Arc<Server>,
    tenant: &Tenant,
    id: JobId,
    batch: &mut [Waiting],
) -> Result<Answers, Problem> {
    let (engine, own) = (&server.engine, &server.sidejob);
    let mut wanted = vec![id];
    for _ in 0..LOOKS_MAX {
        let queues = own.registry.queues(engine, tenant).await?;
        let jobs = engine.get(tenant, wanted.clone()).await?;
        let seen = wanted.iter().copied().zip(jobs).collect();
        let mut scene = Scene::new(engine.now(), queues, seen);
        let answers = work_out(server, tenant, &mut scene, &mut wanted, batch).await?;
        if scene.is_untouched() {
            return Ok(answers);
        }
        own.log.recall(engine, tenant).await?;
        let note = own.log.note(engine, tenant, scene.entries());
        let notes = note.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
        match engine.act_and_note(tenant, scene.deeds(), notes).await? {
            Together::Done => {
                if let Some((key, value)) = note {
                    own.log.written(engine, tenant, key, value.len()).await;
                }
                return Ok(answers);
            }
            Together::Stale => {}
            // The rules said yes a moment ago: time has passed, or the family moved with it.
            Together::Refused(refused) => {
                let why =
                    refused.first().map_or_else(String::new, |(id, error)| format!("Job {id}: {error}"));
                return Err(Problem::new(StatusCode::CONFLICT, why));
            }
        }
    }
    Err(gave_up())
}

/// The answers, if all is written; jobs that turn out to be needed are loaded.
async fn work_out(
    server: &Arc<Server>,
    tenant: &Tenant,
    scene: &mut Scene,
    wanted: &mut Vec<JobId>,
    batch: &mut [Waiting],
) -> Result<Answers, Problem> {
    let mut answers = Vec::with_capacity(batch.len());
    for waiting in batch {
        load_with_parents(server, tenant, scene, wanted, &waiting.others).await?;
        let answer = loop {
            match scene.work_out(&mut waiting.op) {
                Ok(reply) => break Ok(reply),
                Err(Stop::Refuse(problem)) => break Err(problem),
                Err(Stop::Load(id)) => {
                    let job: Option<Arc<Job>> = server.engine.get(tenant, vec![id]).await?.pop().flatten();
                    scene.loaded(id, job);
                    wanted.push(id);
                }
            }
        };
        answers.push(answer);
    }
    Ok(answers)
}

/// Loads jobs, and their parents, who may have to be run.
async fn load_with_parents(
    server: &Arc<Server>,
    tenant: &Tenant,
    scene: &mut Scene,
    wanted: &mut Vec<JobId>,
    ids: &[JobId],
) -> Result<(), Problem> {
    let mut missing: Vec<JobId> = ids.to_vec();
    for _ in 0..2 {
        missing.sort_unstable();
        missing.dedup();
        missing.retain(|id| scene.find(*id).is_err());
        if missing.is_empty() {
            return Ok(());
        }
        let jobs = server.engine.get(tenant, missing.clone()).await?;
        let parents = jobs.iter().flatten().filter_map(|job| job.spec.family().map(|family| family.parent));
        let parents = parents.collect();
        wanted.extend(&missing);
        missing.into_iter().zip(jobs).for_each(|(id, job)| scene.loaded(id, job));
        missing = parents;
    }
    Ok(())
}

fn gave_up() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the job keeps changing; try again")
}
