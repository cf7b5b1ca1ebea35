//! Deletion of many jobs, and its undoing. See docs/adr/0019.

use super::{BulkAsk, BulkDone, few};
use crate::audit::with_detail;
use crate::native::State;
use crate::native::calls::act::{bring_back, take_kept};
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, ok};
use crate::native::wire::{Id, Time};
use crate::route::Call;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::{Job, JobId, Tenant};
use windlass_engine::{Engine, VerbError};

/// Jobs brought back at once, so that they share commits.
const AT_ONCE: usize = 64;

/// Number of deleted jobs that the server keeps.
pub(super) fn kept_max(call: &Call) -> usize {
    call.server.state::<State>().deleted.jobs_max()
}

/// Deletes jobs, and keeps them for a while so that it can be undone.
pub(super) async fn delete(
    call: &Call,
    engine: &Engine,
    tenant: &Tenant,
    ids: &[JobId],
    done: &mut BulkDone,
) -> Result<Vec<Result<(), VerbError>>, ApiError> {
    let answers = engine.delete(tenant, ids).await?;
    let (deleted, now) = (&call.server.state::<State>().deleted, engine.now());
    let undo = done.undo.get_or_insert_default();
    let mut keep = |job: Option<Arc<Job>>| {
        let Some(job) = job else { return };
        let id = job.id;
        if let Some(until) = deleted.keep(job, now) {
            undo.push(Id(id));
            done.undo_until.get_or_insert(Time::from(until));
        }
    };
    Ok(answers.into_iter().map(|answer| answer.map(&mut keep)).collect())
}

async fn come_back(
    call: &Call,
    engine: &Engine,
    tenant: Option<&Tenant>,
    id: JobId,
) -> Result<Arc<Job>, ApiError> {
    bring_back(call, engine, take_kept(call, tenant, id)?).await
}

/// Brings back deleted jobs, those of which it is possible.
pub(super) async fn undelete(call: &Call, ask: &BulkAsk<'_>) -> Answer {
    let ids = few(ask.ids.as_deref().unwrap_or_default())?;
    let tenant = call.caller.tenants_for(ask.tenant.as_deref())?;
    let engine = call.engine.on_behalf_of(&call.caller.who);
    let mut answers = Vec::with_capacity(ids.len());
    for some in ids.chunks(AT_ONCE) {
        let each: Vec<_> = some.iter().map(|Id(id)| come_back(call, &engine, tenant.as_ref(), *id)).collect();
        answers.extend(join_all(each).await);
    }
    let mut done = BulkDone::default();
    let mut back: BTreeMap<Tenant, usize> = BTreeMap::new();
    for (Id(id), answer) in ids.iter().zip(answers) {
        if let Ok(job) = &answer {
            *back.entry(job.spec.tenant.clone()).or_default() += 1;
        }
        done.add(*id, answer.map(|_| ()));
    }
    for (tenant, count) in &back {
        call.concerns(tenant, None);
        call.has_done(format!("undelete, {} ids: {count} done", ids.len()));
    }
    let detail = format!("undelete, {} ids: {} done, {} refused", ids.len(), done.done, done.refused);
    Ok(with_detail(ok(call, &done)?, None, detail))
}
