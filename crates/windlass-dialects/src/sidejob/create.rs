//! Creation of jobs.

use super::calls::{Answer, ask_of};
use super::errors::{Problem, json};
use super::registry;
use super::state_of;
use super::views::BY;
use super::wire::{Ask, OF_ANY_CALL, When};
use super::{ORIGIN, Settings, State};
use crate::route::Call;
use std::sync::Arc;
use windlass_core::family::{Family, FamilyRule};
use windlass_core::lease::{LeasePolicy, OnLapse};
use windlass_core::ports::Declared;
use windlass_core::retry::{Backoff, RetryPolicy};
use windlass_core::unique::{HeldUntil, OnConflict, Unique};
use windlass_core::{Body, Extras, JobId, Keep, KeepFor, Name, Payload, Policy, Queue, Tenant, Token};
use windlass_engine::{Push, PushRefused, Pushed, RunAt};

/// Policy of all jobs: kept until deleted, and run again without bound when a lease expires.
pub(super) fn policy(settings: &Settings) -> Policy {
    Policy {
        lease: LeasePolicy {
            length_ms: Some(settings.lease_ms),
            on_lapse: OnLapse::RunAgain,
            lapse_attempts: 0,
            accept_late: false,
        },
        retry: RetryPolicy { max_attempts: None, backoff: Backoff::None, give_up_after_ms: None },
        keep: Keep { completed: KeepFor::Ever, failed: KeepFor::Ever, cancelled: KeepFor::Ever },
        runs_per_minute: Some(settings.runs_per_minute),
        ..Policy::default()
    }
}

struct Wanted {
    queue: String,
    class: String,
    args: String,
    family: Option<(JobId, String)>,
    by: Option<String>,
    when: Option<When>,
    inports: Declared,
    outports: Declared,
}

pub(super) async fn create(mut call: Call) -> Answer {
    let tenant = call.tenant()?;
    let body = call.read_body().await?;
    let ask = ask_of(&body)?;
    let wanted = wanted(&ask)?;
    let engine = &call.engine;
    engine.check_reach(&Queue::new(&wanted.queue)?, &Name::new(&wanted.class)?)?;
    let queues = state_of(&call.server).registry.queues(engine, &tenant).await?;
    let Some(class) = queues.class(&wanted.queue, &wanted.class) else {
        return Err(Problem::not_registered(&wanted.class, &wanted.queue));
    };
    let (inports, outports) = class.with(wanted.inports.clone(), wanted.outports.clone());
    let next_id = || async { Ok::<_, Problem>(engine.next_id().await?) };
    let ports = match registry::ports(next_id().await?, inports, outports) {
        Ok(ports) => Arc::new(ports),
        Err(problem) => return Err(problem),
    };
    let by = match (&wanted.family, ask.token()?) {
        (Some((parent, _)), Some(token)) if is_run_of(&call, &tenant, *parent, &token).await? => {
            Some(format!("job:{parent}"))
        }
        _ => wanted.by.clone(),
    };
    let body = (*ports != Default::default())
        .then(|| Arc::new(Body { ports: Some(Arc::clone(&ports)), ..Body::default() }));
    let push = push(state_of(&call.server), &wanted, by, body)?;
    match engine.push(&tenant, vec![push]).await?.pop() {
        Some(Pushed::New(id)) => Ok(json(format!("{{\"job\":{id}}}"))),
        Some(Pushed::Refused(PushRefused::NoParent(parent))) => Err(Problem::no_job(parent)),
        Some(Pushed::Refused(_) | Pushed::Existing(_)) => {
            let (parent, name) = wanted.family.ok_or_else(|| Problem::refused("the job was not created"))?;
            Err(Problem::name_not_unique(parent, next_id().await?, &name))
        }
        None => Err(Problem::refused("the job was not created")),
    }
}

/// True if the token is that of the job's current run.
async fn is_run_of(call: &Call, tenant: &Tenant, id: JobId, token: &str) -> Result<bool, Problem> {
    let job = call.engine.get_one(tenant, id).await?;
    let token = token.parse().ok().map(Token::from_number);
    Ok(job.and_then(|job| job.state().lease().map(|lease| lease.token)) == token && token.is_some())
}

const MEMBERS: &[&str] =
    &["queue", "class", "args", "parent", "name", "by", "at", "wait", "inports", "outports", "token"];

fn wanted(ask: &Ask<'_>) -> Result<Wanted, Problem> {
    ask.only(MEMBERS, OF_ANY_CALL)?;
    let needed = |key: &str| -> Result<String, Problem> {
        ask.text(key)?.ok_or_else(|| Problem::refused(format!("Missing {key}")))
    };
    let (queue, class) = (needed("queue")?, needed("class")?);
    let args = ask.value("args")?.map_or_else(|| "null".to_owned(), |args| args.as_str().to_owned());
    if args != "null" && !args.starts_with('[') {
        return Err(Problem::refused(format!("Job args must be an Array: {}", excerpt(&args))));
    }
    let family = match (ask.job("parent")?, ask.text("name")?) {
        (None, _) => None,
        (Some(parent), Some(name)) => Some((parent, name)),
        (Some(_), None) => return Err(Problem::refused("Missing name option for job with a parent")),
    };
    Ok(Wanted {
        queue,
        class,
        args,
        family,
        by: ask.text("by")?,
        when: ask.when()?,
        inports: ask.declared("inports")?.unwrap_or_default(),
        outports: ask.declared("outports")?.unwrap_or_default(),
    })
}

fn excerpt(text: &str) -> String {
    text.chars().take(200).collect()
}

fn push(
    state: &State,
    wanted: &Wanted,
    by: Option<String>,
    body: Option<Arc<Body>>,
) -> Result<Push, Problem> {
    let mut extras = Extras { origin: Some(ORIGIN.into()), ..Extras::default() };
    if let Some(by) = by {
        extras.facts.insert(BY.into(), by.into());
    }
    if let Some((parent, name)) = &wanted.family {
        let (family, unique) = tie(*parent, name);
        (extras.family, extras.unique) = (Some(family), Some(unique));
    }
    Ok(Push {
        queue: Queue::new(&wanted.queue)?,
        name: Name::new(&wanted.class)?,
        payload: Payload::json(&wanted.args),
        priority: 0,
        run_at: match wanted.when {
            None => RunAt::Now,
            Some(When::At(at)) => RunAt::At(at),
            Some(When::AfterMs(ms)) => RunAt::After(ms),
        },
        policy: Arc::clone(&state.policy),
        extras: Some(Box::new(extras)),
        body,
    })
}

/// Returns the tie of a child to its parent. The unique key keeps child names unique on every store, also
/// against concurrent adoptions.
pub(super) fn tie(parent: JobId, name: &str) -> (Family, Unique) {
    let family = Family { parent, child_name: Some(name.into()), rule: FamilyRule::ParentRunsAfter };
    let unique = Unique {
        key: format!("sidejob/child/{parent}/{name}").into(),
        on_conflict: OnConflict::Refuse,
        held_until: HeldUntil::Forgotten,
    };
    (family, unique)
}
