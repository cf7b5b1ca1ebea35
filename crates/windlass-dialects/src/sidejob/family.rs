//! Parents and children.

use super::calls::{Also, Answer, ask_of, job_id, tenant};
use super::create::tie;
use super::errors::{Problem, json};
use super::views;
use crate::codec::{Encoding, Out};
use crate::route::Call;
use ::http::StatusCode;
use std::collections::HashSet;
use std::sync::Arc;
use windlass_core::event::Patch;
use windlass_core::family::Family;
use windlass_core::unique::Unique;
use windlass_core::{Extras, Job, JobId, JobState, Tenant};
use windlass_engine::{Action, Deed, Engine, Together};

/// Looks before a call gives up: each one lost means that one of the family moved meanwhile.
const LOOKS_MAX: usize = 100;
/// Ancestors that are looked at: a family deeper than that takes no more children.
const ANCESTORS_MAX: usize = 1_000;
/// Descendants that one call reaches, as many as fit in one step.
const DESCENDANTS_MAX: usize = 10_000;

/// Name and id of each child.
pub async fn children(call: Call) -> Answer {
    let (tenant, id) = (tenant(&call)?, job_id(&call)?);
    let engine = &call.engine;
    find(engine, &tenant, id).await?;
    let mut out = Out::new(Encoding::Json, 128);
    views::family(&mut out, &engine.children(&tenant, id).await?);
    Ok(json(views::text(out)))
}

pub async fn child(call: Call) -> Answer {
    let (tenant, id) = (tenant(&call)?, job_id(&call)?);
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

pub async fn adopt(mut call: Call) -> Answer {
    let (tenant, id) = (tenant(&call)?, job_id(&call)?);
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let also = Also::beside(&["child", "name"], &ask)?;
    // Ancestors wherever they are: a circle is one for everybody.
    let (engine, everywhere) = (&call.engine, &call.server.engine);
    let child = ask.job("child")?.ok_or_else(|| Problem::refused("Missing child"))?;
    let name = ask.text("name")?.unwrap_or_default();
    for _ in 0..LOOKS_MAX {
        let parent = find(engine, &tenant, id).await?;
        let orphan = find(engine, &tenant, child).await?;
        if child == id {
            return Err(Problem::adopts_itself(id));
        }
        if orphan.spec.family().is_some() {
            return Err(Problem::has_a_parent(id, child));
        }
        if name.is_empty() {
            return Err(Problem::name_not_unique(id, child, ""));
        }
        let ancestors = ancestors(everywhere, &tenant, &parent).await?;
        if ancestors.iter().any(|ancestor| ancestor.id == child) {
            return Err(Problem::would_go_round(id, child));
        }
        let (family, unique) = tie(id, &name);
        let mut deeds = vec![Deed { action: retied(&orphan, Some(family), Some(unique)), job: orphan }];
        // They change in nothing but their version: were one of them adopted meanwhile, this is stale, and no two
        // adoptions close a circle between them.
        let unchanged = |job| Deed { job, action: Action::Update(Patch::default()) };
        deeds.extend(std::iter::once(parent).chain(ancestors).map(unchanged));
        match everywhere.act_together(&tenant, deeds).await? {
            Together::Done => return also.run_at_last(&call, &tenant, id, "null".to_owned()).await,
            Together::Stale => {}
            // Nothing but the key of its name can be in the way.
            Together::Refused(_) => return Err(Problem::name_not_unique(id, child, &name)),
        }
    }
    Err(keeps_changing())
}

fn retied(child: &Job, family: Option<Family>, unique: Option<Unique>) -> Action {
    let extras = Extras { unique, ..child.spec.extras.as_deref().cloned().unwrap_or_default() };
    Action::Update(Patch { extras: Some(Box::new(extras)), family: Some(family), ..Patch::default() })
}

async fn ancestors(engine: &Engine, tenant: &Tenant, job: &Job) -> Result<Vec<Arc<Job>>, Problem> {
    let mut found: Vec<Arc<Job>> = Vec::new();
    let mut next = job.spec.family().map(|family| family.parent);
    while let Some(id) = next {
        let Some(ancestor) = engine.get(tenant, vec![id]).await?.pop().flatten() else { break };
        next = ancestor.spec.family().map(|family| family.parent);
        found.push(ancestor);
        if found.len() > ANCESTORS_MAX {
            return Err(Problem::refused(format!("a family may be {ANCESTORS_MAX} generations deep")));
        }
    }
    Ok(found)
}

/// By name, or by the child's id.
pub async fn disown(mut call: Call) -> Answer {
    let (tenant, id) = (tenant(&call)?, job_id(&call)?);
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let also = Also::beside(&["name", "child"], &ask)?;
    let engine = &call.engine;
    let (name, child_id) = (ask.text("name")?, ask.job("child")?);
    for _ in 0..LOOKS_MAX {
        find(engine, &tenant, id).await?;
        let child = match (&name, child_id) {
            (Some(name), _) => {
                let children = engine.children(&tenant, id).await?;
                let named = children.into_iter().find(|child| name_of(child) == Some(name));
                named.ok_or_else(|| Problem::no_such_child(id, name))?
            }
            (None, Some(child)) => {
                let job = find(engine, &tenant, child).await?;
                if job.spec.family().is_none_or(|family| family.parent != id) {
                    return Err(Problem::not_a_child(id, child));
                }
                job
            }
            (None, None) => return Err(Problem::refused("Missing name")),
        };
        let deeds = vec![Deed { action: retied(&child, None, None), job: child }];
        if let Together::Done = engine.act_together(&tenant, deeds).await? {
            return also.run_at_last(&call, &tenant, id, "null".to_owned()).await;
        }
    }
    Err(keeps_changing())
}

/// All below a job, parents before their children, the job itself first.
pub async fn with_descendants(
    engine: &Engine,
    tenant: &Tenant,
    job: Arc<Job>,
) -> Result<Vec<Arc<Job>>, Problem> {
    let mut seen: HashSet<JobId> = HashSet::from([job.id]);
    let mut all = vec![job];
    let mut next = 0;
    while next < all.len() {
        for child in engine.children(tenant, all[next].id).await? {
            if seen.insert(child.id) {
                all.push(child);
            }
        }
        if all.len() > DESCENDANTS_MAX {
            let message = format!("more than {DESCENDANTS_MAX} descendants; begin further down");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        next += 1;
    }
    Ok(all)
}

/// Only what is terminated, down to the last descendant.
pub async fn delete(call: Call) -> Answer {
    let (tenant, id) = (tenant(&call)?, job_id(&call)?);
    let engine = &call.engine;
    let answer = |deleted: bool| Ok(json(format!("{{\"job\":{id},\"delete\":{deleted}}}")));
    for _ in 0..LOOKS_MAX {
        // Descendants wherever they are: if one is out of reach, nothing is deleted.
        let job = find(engine, &tenant, id).await?;
        let all = with_descendants(&call.server.engine, &tenant, job).await?;
        let is_over =
            |job: &Arc<Job>| matches!(job.state(), JobState::Terminated { .. } | JobState::Cancelled { .. });
        if !all.iter().all(is_over) {
            return answer(false);
        }
        // The youngest first: nobody becomes an orphan on the way.
        let deeds = all.into_iter().rev().map(|job| Deed { job, action: Action::Delete }).collect();
        match engine.act_together(&tenant, deeds).await? {
            Together::Done => return answer(true),
            Together::Stale => {}
            Together::Refused(_) => return answer(false),
        }
    }
    Err(keeps_changing())
}

pub async fn find(engine: &Engine, tenant: &Tenant, id: JobId) -> Result<Arc<Job>, Problem> {
    engine.get(tenant, vec![id]).await?.pop().flatten().ok_or_else(|| Problem::no_job(id))
}

fn keeps_changing() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the family keeps changing; try again")
}
