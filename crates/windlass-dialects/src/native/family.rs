//! The family of a job: who it came from, and what came of it, as far as a page shows it.

use super::calls::{Answer, answer, find, param, params, reply_encoding};
use super::errors::ApiError;
use crate::codec::Out;
use crate::route::Call;
use ::http::StatusCode;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use windlass_core::{Job, JobId, Tenant, Timestamp};
use windlass_engine::Engine;

/// Parents of parents. A family that is deeper shows its nearest.
const ANCESTORS_MAX: usize = 20;
/// Generations below.
const DEPTH_MAX: usize = 6;
/// Children told of each parent: the first; the others are a number.
const CHILDREN_MAX: usize = 50;
/// Descendants in all: what a page can show, and a look that holds up nobody.
const DESCENDANTS_MAX: usize = 300;

pub async fn family(call: Call) -> Answer {
    let params = params(&call, &["tenant"])?;
    let (tenant, job) = find(&call, param(&params, "tenant")).await?;
    let engine = &call.engine;
    let ancestors = ancestors(engine, &tenant, &job).await?;
    let below = Below::look(engine, &tenant, &job).await?;
    let mut out = Out::new(reply_encoding(&call), 1_024);
    out.begin_map();
    out.key("ancestors");
    out.begin_array();
    for ancestor in ancestors.iter().rev() {
        out.begin_map();
        fields(&mut out, ancestor);
        out.end_map();
    }
    out.end_array();
    below.write(&mut out, job.id);
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

/// The nearest first. A parent that is gone ends the line.
async fn ancestors(engine: &Engine, tenant: &Tenant, job: &Job) -> Result<Vec<Arc<Job>>, ApiError> {
    let mut line: Vec<Arc<Job>> = Vec::new();
    let mut parent = job.spec.family().map(|family| family.parent);
    while let Some(id) =
        parent.filter(|id| line.len() < ANCESTORS_MAX && line.iter().all(|one| one.id != *id))
    {
        let Some(found) = engine.get(tenant, vec![id]).await?.pop().flatten() else { break };
        parent = found.spec.family().map(|family| family.parent);
        line.push(found);
    }
    Ok(line)
}

/// The generations below a job, looked at one after another.
#[derive(Default)]
struct Below {
    children: BTreeMap<JobId, Vec<Arc<Job>>>,
    /// Children that are not told of, by parent.
    more: BTreeMap<JobId, usize>,
}

impl Below {
    async fn look(engine: &Engine, tenant: &Tenant, job: &Job) -> Result<Below, ApiError> {
        let mut below = Below::default();
        let mut seen = BTreeSet::from([job.id]);
        let mut parents = VecDeque::from([(job.id, 0)]);
        while let Some((parent, depth)) = parents.pop_front() {
            let room = CHILDREN_MAX.min((DESCENDANTS_MAX + 1).saturating_sub(seen.len()));
            let room = if depth < DEPTH_MAX { room } else { 0 };
            let (children, count) = engine.some_children(tenant, parent, room).await?;
            below.more.insert(parent, count.saturating_sub(children.len()));
            // Nobody is twice in a tree, whatever a store may hold.
            let children: Vec<Arc<Job>> =
                children.into_iter().filter(|child| seen.insert(child.id)).collect();
            parents.extend(children.iter().map(|child| (child.id, depth + 1)));
            below.children.insert(parent, children);
        }
        Ok(below)
    }

    fn write(&self, out: &mut Out, parent: JobId) {
        out.key("children");
        out.begin_array();
        for child in self.children.get(&parent).into_iter().flatten() {
            out.begin_map();
            fields(out, child);
            self.write(out, child.id);
            out.end_map();
        }
        out.end_array();
        out.key("more");
        out.uint(self.more.get(&parent).copied().unwrap_or_default() as u64);
    }
}

fn fields(out: &mut Out, job: &Job) {
    out.key("id");
    out.uint(job.id.get());
    out.key("name");
    out.str(&job.spec.name);
    out.key("state");
    out.str(job.state().name().as_str());
    out.key("run_at");
    out.int(job.state().claimable_at().unwrap_or(job.progress.due_at).calendar_ms());
    out.opt_int("finished_at", job.progress.finished_at.map(Timestamp::as_millis));
    out.opt_str("child_name", job.spec.family().and_then(|family| family.child_name.as_deref()));
}
