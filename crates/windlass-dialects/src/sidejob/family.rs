//! Parents and children.

use super::calls::{Answer, CommonFields, ask_of, job_id};
use super::create::tie;
use super::errors::{Problem, json};
use super::tx::Stop;
use super::views;
use crate::codec::{Encoding, Out};
use crate::route::Call;
use ::http::StatusCode;
use std::sync::Arc;
use windlass_core::event::Patch;
use windlass_core::family::Family;
use windlass_core::unique::Unique;
use windlass_core::{Event, Extras, Job, JobId, JobState, Tenant};
use windlass_engine::{Engine, Transaction};

/// Depth of a family; a deeper job takes no more children.
const ANCESTORS_MAX: usize = 1_000;
/// Descendants that one call can affect, as many as fit into one commit.
const DESCENDANTS_MAX: usize = 10_000;

/// Responds with the name and id of each child.
pub(super) async fn children(call: Call) -> Answer {
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let engine = &call.engine;
    find(engine, &tenant, id).await?;
    let mut out = Out::new(Encoding::Json, 128);
    views::family(&mut out, &engine.children(&tenant, id).await?);
    Ok(json(views::text(out)))
}

pub(super) async fn child(call: Call) -> Answer {
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let engine = &call.engine;
    find(engine, &tenant, id).await?;
    let children = engine.children(&tenant, id).await?;
    match children.iter().find(|child| name_of(child) == Some(call.param(1))) {
        Some(child) => Ok(json(format!("{{\"job\":{}}}", child.id))),
        None => Ok(json("{}")),
    }
}

fn name_of(child: &Job) -> Option<&str> {
    child.spec.family()?.child_name.as_deref()
}

pub(super) async fn adopt(mut call: Call) -> Answer {
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let also = CommonFields::beside(&["child", "name"], &ask)?;
    // Ancestors are checked outside the caller's scope too, since a cycle affects every caller.
    let everywhere = &call.server.engine;
    let child = ask.job("child")?.ok_or_else(|| Problem::refused("Missing child"))?;
    let name = ask.text("name")?.unwrap_or_default();
    if child == id {
        find(&call.engine, &tenant, id).await?;
        return Err(Problem::adopts_itself(id));
    }
    let decide = |tx: &mut Transaction<'_>| {
        let parent = within_reach(&call, tx, id)?;
        let orphan = within_reach(&call, tx, child)?;
        if orphan.spec.family().is_some() {
            return Err(Problem::has_a_parent(id, child).into());
        }
        if name.is_empty() {
            return Err(Problem::name_not_unique(id, child, "").into());
        }
        let (family, unique) = tie(id, &name);
        let ancestors = ancestors(tx, &parent)?;
        if ancestors.contains(&child) {
            return Err(Problem::would_go_round(id, child).into());
        }
        // Only a conflict on the unique key can refuse this.
        let tied = tx.apply(child, retied(&orphan, Some(family), Some(unique)))?;
        tied.map_err(|_| Problem::name_not_unique(id, child, &name))?;
        // Ancestors change only in their version: if one of them is adopted concurrently, this commit is
        // stale and decided again, so two adoptions cannot form a cycle.
        for ancestor in std::iter::once(id).chain(ancestors) {
            let _ = tx.hold(ancestor)?;
        }
        Ok(())
    };
    everywhere.transact(&tenant, vec![id, child], decide).await?;
    also.run_at_last(&call, &tenant, id, "null".to_owned()).await
}

fn retied(child: &Job, family: Option<Family>, unique: Option<Unique>) -> Event {
    let extras = Extras { unique, ..child.spec.extras.as_deref().cloned().unwrap_or_default() };
    Event::Update(Box::new(Patch {
        extras: Some(Box::new(extras)),
        family: Some(family),
        ..Patch::default()
    }))
}

fn ancestors(tx: &mut Transaction<'_>, job: &Job) -> Result<Vec<JobId>, Stop> {
    let mut found: Vec<JobId> = Vec::new();
    let mut next = job.spec.family().map(|family| family.parent);
    while let Some(id) = next {
        let Some(ancestor) = tx.job(id)? else { break };
        next = ancestor.spec.family().map(|family| family.parent);
        found.push(id);
        if found.len() > ANCESTORS_MAX {
            let message = format!("the job tree is too deep; the maximum is {ANCESTORS_MAX} levels");
            return Err(Problem::refused(message).into());
        }
    }
    Ok(found)
}

/// Disowns a child, given by name or by id.
pub(super) async fn disown(mut call: Call) -> Answer {
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let also = CommonFields::beside(&["name", "child"], &ask)?;
    let engine = &call.engine;
    let (name, child_id) = (ask.text("name")?, ask.job("child")?);
    let decide = |tx: &mut Transaction<'_>| {
        found(tx, id)?;
        let child = match (&name, child_id) {
            (Some(name), _) => {
                let named = tx.children(id)?.into_iter().find(|child| name_of(child) == Some(name));
                named.ok_or_else(|| Problem::no_such_child(id, name))?
            }
            (None, Some(child)) => {
                let job = found(tx, child)?;
                if job.spec.family().is_none_or(|family| family.parent != id) {
                    return Err(Problem::not_a_child(id, child).into());
                }
                job
            }
            (None, None) => return Err(Problem::refused("Missing name").into()),
        };
        let untied = tx.apply(child.id, retied(&child, None, None))?;
        Ok(untied.map_err(|refused| Problem::refused(format!("Job {}: {refused}", child.id)))?)
    };
    engine.transact(&tenant, vec![id], decide).await?;
    also.run_at_last(&call, &tenant, id, "null".to_owned()).await
}

/// Returns the job and all its descendants, parents before children.
pub(super) fn with_descendants(tx: &mut Transaction<'_>, job: Arc<Job>) -> Result<Vec<Arc<Job>>, Stop> {
    let all = tx.with_descendants(job, DESCENDANTS_MAX)?;
    if all.len() > DESCENDANTS_MAX {
        let message = format!("the job has more than {DESCENDANTS_MAX} descendants; start with a descendant");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message).into());
    }
    Ok(all)
}

/// Deletes a job with all descendants, if all of them are terminated.
pub(super) async fn delete(call: Call) -> Answer {
    let (tenant, id) = (call.tenant()?, job_id(&call)?);
    let decide = |tx: &mut Transaction<'_>| {
        let job = within_reach(&call, tx, id)?;
        // Includes descendants outside the caller's scope: if there is one, nothing is deleted.
        let all = with_descendants(tx, job)?;
        let is_over =
            |job: &Arc<Job>| matches!(job.state(), JobState::Terminated { .. } | JobState::Cancelled { .. });
        if !all.iter().all(|job| is_over(job) && call.engine.reaches(&job.spec.queue, &job.spec.name)) {
            return Ok(false);
        }
        // Youngest first, so that no job is orphaned in between.
        for job in all.iter().rev() {
            let deleted = tx.apply(job.id, Event::Delete)?;
            deleted.map_err(|refused| Problem::refused(format!("Job {}: {refused}", job.id)))?;
        }
        Ok(true)
    };
    let deleted = call.server.engine.transact(&tenant, vec![id], decide).await?;
    Ok(json(format!("{{\"job\":{id},\"delete\":{deleted}}}")))
}

pub(super) async fn find(engine: &Engine, tenant: &Tenant, id: JobId) -> Result<Arc<Job>, Problem> {
    engine.get_one(tenant, id).await?.ok_or_else(|| Problem::no_job(id))
}

fn found(tx: &mut Transaction<'_>, id: JobId) -> Result<Arc<Job>, Stop> {
    tx.job(id)?.ok_or_else(|| Problem::no_job(id).into())
}

/// Loads a job that the call names, if it is in the caller's scope.
fn within_reach(call: &Call, tx: &mut Transaction<'_>, id: JobId) -> Result<Arc<Job>, Stop> {
    let job = found(tx, id)?;
    match call.engine.reaches(&job.spec.queue, &job.spec.name) {
        true => Ok(job),
        false => Err(Problem::no_job(id).into()),
    }
}
