//! `GET /api/v1/jobs/{id}/family`: who a job came from, and what came of it, as far as a page shows it.

use crate::native::errors::ApiError;
use crate::native::reply::{Answer, reply};
use crate::native::request::find;
use crate::native::views::due_at;
use crate::native::wire::{Id, State, Time};
use crate::route::Call;
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use windlass_core::{Job, JobId, Tenant};
use windlass_engine::Engine;

/// Parents of parents. A family that is deeper shows its nearest.
const ANCESTORS_MAX: usize = 20;
/// Generations below.
const DEPTH_MAX: usize = 6;
/// Children told of each parent: the first; the others are a number.
const CHILDREN_MAX: usize = 50;
/// Descendants in all: what a page can show, and a look that holds up nobody.
const DESCENDANTS_MAX: usize = 300;

/// A job's family.
#[derive(Serialize, JsonSchema)]
pub(super) struct FamilyTree<'a> {
    /// Its parents, the oldest first.
    ancestors: Vec<Kin<'a>>,
    #[serde(flatten)]
    descendants: Descendants<'a>,
}

/// One of a family.
#[derive(Serialize, JsonSchema)]
struct Kin<'a> {
    /// The job.
    id: Id,
    /// Its kind.
    name: &'a str,
    /// Where it stands.
    state: State,
    /// When it is or was due.
    run_at: Time,
    /// When it ended.
    finished_at: Option<Time>,
    /// What its parent calls it.
    child_name: Option<&'a str>,
}

/// One of a family, and what came of it.
#[derive(Serialize, JsonSchema)]
struct KinWithChildren<'a> {
    #[serde(flatten)]
    kin: Kin<'a>,
    #[serde(flatten)]
    descendants: Descendants<'a>,
}

#[derive(Serialize, JsonSchema)]
struct Descendants<'a> {
    /// The first of them, with theirs.
    children: Vec<KinWithChildren<'a>>,
    /// Children that are not told of.
    more: usize,
}

impl<'a> Kin<'a> {
    fn new(job: &'a Job) -> Kin<'a> {
        Kin {
            id: Id(job.id),
            name: &job.spec.name,
            state: State(job.state().name()),
            run_at: due_at(job),
            finished_at: job.progress.finished_at.map(Time::from),
            child_name: job.spec.family().and_then(|family| family.child_name.as_deref()),
        }
    }
}

pub(super) async fn family(call: Call) -> Answer {
    let (tenant, job) = find(&call).await?;
    let ancestors = ancestors(&call.engine, &tenant, &job).await?;
    let below = Below::look(&call.engine, &tenant, &job).await?;
    let ancestors = ancestors.iter().rev().map(|ancestor| Kin::new(ancestor)).collect();
    reply(&call, StatusCode::OK, 1_024, &FamilyTree { ancestors, descendants: below.of(job.id) })
}

/// The nearest first. A parent that is gone ends the line.
async fn ancestors(engine: &Engine, tenant: &Tenant, job: &Job) -> Result<Vec<Arc<Job>>, ApiError> {
    let mut line: Vec<Arc<Job>> = Vec::new();
    let mut parent = job.spec.family().map(|family| family.parent);
    while let Some(id) =
        parent.filter(|id| line.len() < ANCESTORS_MAX && line.iter().all(|one| one.id != *id))
    {
        let Some(found) = engine.get_one(tenant, id).await? else { break };
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

    fn of<'a>(&'a self, parent: JobId) -> Descendants<'a> {
        let children = self.children.get(&parent).into_iter().flatten();
        let with_children =
            |child: &'a Arc<Job>| KinWithChildren { kin: Kin::new(child), descendants: self.of(child.id) };
        Descendants {
            children: children.map(with_children).collect(),
            more: self.more.get(&parent).copied().unwrap_or_default(),
        }
    }
}
