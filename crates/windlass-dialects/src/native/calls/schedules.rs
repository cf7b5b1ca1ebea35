//! `GET /api/v1/schedules`: jobs with a repeat rule that are not settled, with their next runs and last turns;
//! `GET …/{id}/turns`, `POST …/{id}/pause`, `…/resume`, `…/run`, and `PATCH …/{id}`.

use super::act::act_on;
use super::list::Page;
use crate::codec::{Raw, Text};
use crate::native::commands::{payload, repeat};
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, reply};
use crate::native::request::{Body, Params, find, reply_encoding};
use crate::native::schema::{CatchUpWord, FormatWord};
use crate::native::views::{JobView, TurnView, is_paused, up_since};
use crate::native::wire::{REPEAT_BYTES_MAX, When};
use crate::query::Filter;
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use windlass_core::event::Patch;
use windlass_core::lease::Rest;
use windlass_core::names::NAME_BYTES_MAX;
use windlass_core::repeat::{Moments, Repeat};
use windlass_core::turn::CatchUp;
use windlass_core::{Event, Format, Job, JobState, Queue, Refused, Tenant, Timestamp};
use windlass_engine::VerbError;

pub(super) const EXAMPLES: Examples = &[
    ("rule", "another rule", r#"{"repeat":"0 5 * * *"}"#),
    ("payload", "another payload, from the next turn on", r#"{"payload":{"day":"monday"}}"#),
];

/// Changes to a schedule; omitted fields stay unchanged.
#[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "ScheduleChange")]
pub(super) struct ScheduleAsk<'a> {
    /// New repeat rule. The next run is then at the first time of this rule, unless `run_at` is given.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = REPEAT_BYTES_MAX))]
    pub repeat: Option<Text<'a>>,
    /// New payload.
    #[serde(borrow)]
    pub payload: Option<Raw<'a>>,
    /// New payload that is not JSON, in base64.
    #[serde(borrow)]
    pub payload_base64: Option<Text<'a>>,
    #[schemars(with = "Option<FormatWord>")]
    pub format: Option<Format>,
    /// Priority; a smaller number runs first.
    pub priority: Option<i32>,
    /// Queue.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    pub queue: Option<Text<'a>>,
    /// Time of the next run.
    pub run_at: Option<When>,
    /// Handling of a turn that was not claimed before the next scheduled time.
    #[schemars(with = "Option<CatchUpWord>")]
    pub catch_up: Option<CatchUp>,
}

/// Last turns of a repeating job.
#[derive(Serialize, JsonSchema)]
pub(super) struct Turns<'a> {
    /// Turns, newest first.
    turns: Vec<TurnView<'a>>,
}

pub(super) async fn schedules(call: Call) -> Answer {
    let params = Params::of(&call)?;
    let filter = Filter {
        tenant: call.caller.tenants_for(params.tenant())?,
        repeating: true,
        before: params.cursor()?,
        limit: params.page_limit()?,
        ..Filter::default()
    };
    let (page, now) = (call.engine.list(filter).await?, call.engine.now());
    let (encoding, hidden, since) = (reply_encoding(&call), call.hides_payloads(), up_since(&call));
    let jobs = page.jobs.iter();
    let jobs = jobs.map(|job| JobView::new(job, encoding, hidden, now).with_next_runs(job, now, since));
    Page::reply(&call, jobs.collect(), page.next)
}

pub(super) async fn turns(call: Call) -> Answer {
    let (_, job) = find_schedule(&call).await?;
    let turns = TurnView::all(&job, call.hides_payloads());
    reply(&call, StatusCode::OK, 32 + turns.len() * 192, &Turns { turns })
}

pub(super) async fn pause(call: Call) -> Answer {
    let (tenant, job) = live_schedule(&call).await?;
    if is_paused(&job) {
        let view = JobView::new(&job, reply_encoding(&call), call.hides_payloads(), call.engine.now());
        return reply(&call, StatusCode::OK, 512, &view);
    }
    act_on(&call, &tenant, &job, Event::PutToRest(Rest::Suspended)).await
}

pub(super) async fn resume(call: Call) -> Answer {
    let (tenant, job) = live_schedule(&call).await?;
    if !is_paused(&job) {
        let view = JobView::new(&job, reply_encoding(&call), call.hides_payloads(), call.engine.now());
        return reply(&call, StatusCode::OK, 512, &view);
    }
    // Kept steps belong to a turn that has begun: it goes on at once.
    let has_begun = job.steps().is_some_and(|steps| !steps.kept().is_empty());
    let now = call.engine.now();
    let at = if has_begun { now } else { next_time(&job, now) };
    act_on(&call, &tenant, &job, Event::Run { at, force: false }).await
}

pub(super) async fn run(call: Call) -> Answer {
    let (tenant, job) = live_schedule(&call).await?;
    if is_paused(&job) {
        let message =
            format!("the schedule is paused; resume it first: POST /api/v1/schedules/{}/resume", job.id);
        return Err(ApiError::coded(StatusCode::CONFLICT, "paused", message));
    }
    if matches!(job.state(), JobState::Suspended { .. }) {
        let message = format!("the current turn waits; end its wait first: POST /api/v1/jobs/{}/run", job.id);
        return Err(ApiError::coded(StatusCode::CONFLICT, "waiting", message));
    }
    let at = call.engine.now();
    act_on(&call, &tenant, &job, Event::Run { at, force: false }).await
}

pub(super) async fn change(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let ask: ScheduleAsk<'_> = body.read()?;
    let (tenant, job) = live_schedule(&call).await?;
    let patch = changes(&ask, call.engine.now()).map_err(ApiError::bad_request)?;
    call.engine.check_reach(patch.queue.as_ref().unwrap_or(&job.spec.queue), &job.spec.name)?;
    act_on(&call, &tenant, &job, Event::Update(Box::new(patch))).await
}

fn changes(ask: &ScheduleAsk<'_>, now: Timestamp) -> Result<Patch, String> {
    let rule = ask.repeat.as_ref().map(|rule| repeat(rule)).transpose()?;
    let first = rule.as_ref().map(|rule| first_time(rule, now).ok_or("`repeat`: the rule has no next time"));
    let first = first.transpose()?;
    Ok(Patch {
        payload: payload(ask.payload, ask.payload_base64.as_ref(), ask.format)?,
        priority: ask.priority,
        queue: ask.queue.as_ref().map(|queue| Queue::new(queue)).transpose().map_err(|e| e.to_string())?,
        run_at: ask.run_at.map(|When(at)| at).or(first),
        repeat: rule.map(Some),
        catch_up: ask.catch_up,
        ..Patch::default()
    })
}

/// First time of a rule that begins now.
fn first_time(rule: &Repeat, now: Timestamp) -> Option<Timestamp> {
    rule.next(&Moments { scheduled: now, started: Some(now), finished: now })
}

/// Time at which a paused schedule goes on: its next scheduled time that has not passed.
fn next_time(job: &Job, now: Timestamp) -> Timestamp {
    let due_at = job.progress.due_at;
    if due_at > now {
        return due_at;
    }
    let moments = Moments { scheduled: due_at, started: job.progress.started_at, finished: now };
    let next = job.spec.policy.repeat.as_ref().and_then(|repeat| repeat.next(&moments));
    next.unwrap_or(now).max(now)
}

/// Repeating job in the path that is not settled.
async fn live_schedule(call: &Call) -> Result<(Tenant, Arc<Job>), ApiError> {
    let (tenant, job) = find_schedule(call).await?;
    match job.state().is_settled() {
        true => Err(VerbError::Refused(Refused::Settled(job.state().name())).into()),
        false => Ok((tenant, job)),
    }
}

/// Repeating job in the path.
async fn find_schedule(call: &Call) -> Result<(Tenant, Arc<Job>), ApiError> {
    let (tenant, job) = find(call).await?;
    if job.spec.policy.repeat.is_none() {
        let message = format!("job {} does not repeat; set a rule: PATCH /api/v1/jobs/{}", job.id, job.id);
        return Err(ApiError::coded(StatusCode::CONFLICT, "not_repeating", message));
    }
    Ok((tenant, job))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{self, Encoding};

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_new_rule_moves_the_next_run_to_its_first_time() {
        let now = at(90 * 60_000);
        for (body, run_at) in [
            (r#"{"priority":3}"#, None),
            (r#"{"repeat":"every 5m"}"#, Some(95 * 60_000)),
            (r#"{"repeat":"0 * * * *"}"#, Some(120 * 60_000)),
            (r#"{"repeat":"every 5m","run_at":7}"#, Some(7)),
            (r#"{"catch_up":"none"}"#, None),
        ] {
            let ask = codec::read::<ScheduleAsk<'_>>(Encoding::Json, body.as_bytes()).unwrap();
            assert_eq!(changes(&ask, now).unwrap().run_at, run_at.map(at), "{body}");
        }
        let never = codec::read::<ScheduleAsk<'_>>(Encoding::Json, br#"{"repeat":"0 0 30 2 *"}"#).unwrap();
        assert!(changes(&never, now).unwrap_err().contains("no next time"));
    }
}
