//! `GET /api/v1/jobs/{id}/family`: ancestors and descendants of a job, within bounds.

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
use windlass_core::{Job, JobId, Tenant, Timestamp};
use windlass_engine::Engine;

/// Ancestors. Of a deeper family the nearest are shown.
const ANCESTORS_MAX: usize = 20;
/// Generations of descendants.
const DEPTH_MAX: usize = 6;
/// Children listed per parent; the others are only counted.
const CHILDREN_MAX: usize = 50;
/// Descendants in total, to bound the response and the time it takes.
const DESCENDANTS_MAX: usize = 300;

/// Family of a job.
#[derive(Serialize, JsonSchema)]
pub(super) struct FamilyTree<'a> {
    /// Ancestors, the oldest first.
    ancestors: Vec<FamilyMember<'a>>,
    #[serde(flatten)]
    descendants: Descendants<'a>,
}

/// Member of a family.
#[derive(Serialize, JsonSchema)]
struct FamilyMember<'a> {
    /// Id of the job.
    id: Id,
    /// Kind of job.
    name: &'a str,
    /// State.
    state: State,
    /// Due time of the current, next or last run.
    run_at: Time,
    /// End of the last run.
    finished_at: Option<Time>,
    /// Its name among the children of its parent.
    child_name: Option<&'a str>,
}

/// Member of a family, with its descendants.
#[derive(Serialize, JsonSchema)]
struct KinWithChildren<'a> {
    #[serde(flatten)]
    kin: FamilyMember<'a>,
    #[serde(flatten)]
    descendants: Descendants<'a>,
}

#[derive(Serialize, JsonSchema)]
struct Descendants<'a> {
    /// First children, with their descendants.
    children: Vec<KinWithChildren<'a>>,
    /// Number of children that are not listed.
    more: usize,
}

impl<'a> FamilyMember<'a> {
    fn new(job: &'a Job, now: Timestamp) -> FamilyMember<'a> {
        FamilyMember {
            id: Id(job.id),
            name: &job.spec.name,
            state: State(job.state_word(now)),
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
    let now = call.engine.now();
    let ancestors = ancestors.iter().rev().map(|ancestor| FamilyMember::new(ancestor, now)).collect();
    reply(&call, StatusCode::OK, 1_024, &FamilyTree { ancestors, descendants: below.of(job.id, now) })
}

/// Ancestors of a job, nearest first, up to a parent that no longer exists.
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

/// Descendants of a job, loaded breadth-first.
#[derive(Default)]
struct Below {
    children: BTreeMap<JobId, Vec<Arc<Job>>>,
    /// Number of children that are not listed, by parent.
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
            // Each job appears once, even if the store holds a cycle.
            let children: Vec<Arc<Job>> =
                children.into_iter().filter(|child| seen.insert(child.id)).collect();
            parents.extend(children.iter().map(|child| (child.id, depth + 1)));
            below.children.insert(parent, children);
        }
        Ok(below)
    }

    fn of<'a>(&'a self, parent: JobId, now: Timestamp) -> Descendants<'a> {
        let children = self.children.get(&parent).into_iter().flatten();
        let with_children = |child: &'a Arc<Job>| KinWithChildren {
            kin: FamilyMember::new(child, now),
            descendants: self.of(child.id, now),
        };
        Descendants {
            children: children.map(with_children).collect(),
            more: self.more.get(&parent).copied().unwrap_or_default(),
        }
    }
}
