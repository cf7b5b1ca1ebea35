//! `GET /api/v1/history`: counters for each step of a span of time.

use crate::native::State;
use crate::native::errors::ApiError;
use crate::native::history::{HOUR_MS, last_hours};
use crate::native::rates::queue_steps::STEP;
use crate::native::rates::{Counts, EVERY};
use crate::native::reply::{Answer, reply};
use crate::native::request::Params;
use crate::native::wire::Time;
use crate::route::Call;
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::Queue;

/// Counters for each step of a span of time, oldest first.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "History")]
pub(super) struct HistoryAnswer {
    /// Start of the first step; for 15m, its end.
    from: Time,
    /// Length of a step.
    #[schemars(range(min = 0))]
    step_ms: i64,
    /// Jobs pushed in each step.
    pushed: Vec<u64>,
    /// Jobs claimed in each step.
    claimed: Vec<u64>,
    /// Runs finished in each step; empty for a single queue.
    finished: Vec<u64>,
    /// Runs failed in each step; empty for a single queue.
    failed: Vec<u64>,
}

pub(super) async fn history(call: Call) -> Answer {
    let params = Params::of(&call)?;
    if let Some(queue) = params.text("queue") {
        return of_queue(&call, &params, &Queue::new(queue)?);
    }
    let server = &call.server;
    // Figures of the whole server are for admins only.
    let is_theirs = call.caller.tenants_for(None)?.is_none();
    let (from, step_ms, steps) = match params.text("span") {
        None | Some("15m" | "30d") if !is_theirs => (server.engine.now(), HOUR_MS, Vec::new()),
        None | Some("30d") => {
            server.state::<State>().history.read(&server.engine);
            last_hours(&server.state::<State>().history.hours(&server.engine).await?, server.engine.now())
        }
        Some("15m") => {
            let (first, steps) = server.state::<State>().rates.recent();
            (first.unwrap_or_else(|| server.engine.now()), EVERY.as_millis() as i64, steps)
        }
        Some(_) => return Err(ApiError::bad_request("`span` must be 15m or 30d")),
    };
    // In the order of `rates::NAMES`.
    let [pushed, claimed, finished, failed] =
        std::array::from_fn(|index| steps.iter().map(|counts: &Counts| counts[index]).collect());
    let answer = HistoryAnswer { from: from.into(), step_ms, pushed, claimed, finished, failed };
    reply(&call, StatusCode::OK, 64 + steps.len() * 16, &answer)
}

/// History of one queue, for callers who may see all its jobs.
fn of_queue(call: &Call, params: &Params, queue: &Queue) -> Answer {
    if params.text("span") != Some("15m") {
        return Err(ApiError::bad_request("the history of a queue needs `span=15m`"));
    }
    let tenant = call.caller.tenant_for(params.tenant())?;
    let is_seen = call.caller.scope.allows_queue(queue);
    let (from, steps) = call.server.state::<State>().rates.recent_of(&tenant, queue);
    let steps = if is_seen { steps } else { Vec::new() };
    let answer = HistoryAnswer {
        from: from.unwrap_or_else(|| call.engine.now()).into(),
        step_ms: STEP.as_millis() as i64,
        pushed: steps.iter().map(|traffic| traffic.pushed).collect(),
        claimed: steps.iter().map(|traffic| traffic.claimed).collect(),
        finished: Vec::new(),
        failed: Vec::new(),
    };
    reply(call, StatusCode::OK, 64 + steps.len() * 16, &answer)
}
