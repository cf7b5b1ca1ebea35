//! `GET /api/v1/limits`, `PUT` and `DELETE /api/v1/limits/{id}`.

use crate::audit::with_detail;
use crate::codec;
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, ok};
use crate::native::request::{Body, one_tenant};
use crate::native::schema::GoneWord;
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use windlass_core::limits::Limit;
use windlass_engine::LimitView;

pub(super) const EXAMPLES: Examples = &[(
    "per_user",
    "two running jobs per user",
    r#"{"matcher":{"name_glob":"mail*"},"max_running":2,"group_by":[["user","id"]]}"#,
)];

/// Limit on the rate, the concurrency, or both.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used; `Limit::parse` reads the body")]
pub(super) struct LimitAsk {
    /// Id, as in the path.
    id: Option<String>,
    #[serde(flatten)]
    bounds: Bounds,
}

/// Limits.
#[derive(Serialize, JsonSchema)]
pub(super) struct Limits {
    /// List of limits.
    limits: Vec<LimitShown>,
}

/// Limit.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Limit")]
pub(super) struct LimitShown {
    /// Id, as in the path.
    id: String,
    #[serde(flatten)]
    bounds: Bounds,
    /// Number of running jobs under the limit.
    running: u64,
    /// Number of due, waiting jobs under the limit.
    waiting: u64,
    /// Number of jobs that the limit holds back now.
    held: u64,
}

#[derive(Serialize, serde::Deserialize, JsonSchema)]
struct Bounds {
    /// Matcher of the jobs: {"name"}, {"name_glob"}, {"queue"}, {"priority"}, {"arg","op","value"}, {"all"},
    /// {"any"}, {"not"}.
    matcher: Map<String, Value>,
    rate: Option<RateShown>,
    /// Maximum number of concurrently running jobs.
    max_running: Option<u32>,
    /// Paths into the payload; each group of equal values has a limit of its own.
    group_by: Option<Vec<Vec<Value>>>,
}

/// Rate of starts.
#[derive(Serialize, serde::Deserialize, JsonSchema)]
#[schemars(inline)]
struct RateShown {
    /// Starts per second.
    per_second: f64,
    /// Starts at once after an idle time.
    burst: Option<u32>,
}

impl LimitShown {
    fn new(view: LimitView) -> Result<LimitShown, ApiError> {
        let id = view.limit.id.to_string();
        let bounds = serde_json::from_value(Value::from(view.limit)).map_err(|error| {
            ApiError::coded(StatusCode::INTERNAL_SERVER_ERROR, "unwritable", error.to_string())
        })?;
        Ok(LimitShown { id, bounds, running: view.running, waiting: view.waiting, held: view.held })
    }
}

/// Deleted limit.
#[derive(Serialize, JsonSchema)]
pub(super) struct LimitGone<'a> {
    /// Id of the limit.
    id: &'a str,
    /// Always `gone`.
    state: GoneWord,
}

pub(super) async fn list(call: Call) -> Answer {
    let limits = call.engine.limits(&one_tenant(&call)?).await?;
    let limits = limits.into_iter().map(LimitShown::new).collect::<Result<_, _>>()?;
    ok(&call, &Limits { limits })
}

pub(super) async fn put(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let value: Value = codec::read(body.encoding, &body.bytes)?;
    let tenant = one_tenant(&call)?;
    let asked = Limit::parse(call.param(0), &value).map_err(|e| ApiError::bad_request(e.to_string()))?;
    call.engine.set_limit(&tenant, asked.clone()).await?;
    let detail = Value::from(asked.clone()).to_string();
    let limits = call.engine.limits(&tenant).await?;
    let now = limits.into_iter().find(|view| view.limit.id == asked.id);
    let now = now.unwrap_or(LimitView { limit: asked, running: 0, waiting: 0, held: 0 });
    Ok(with_detail(ok(&call, &LimitShown::new(now)?)?, None, detail))
}

pub(super) async fn delete(call: Call) -> Answer {
    let tenant = one_tenant(&call)?;
    if !call.engine.remove_limit(&tenant, call.param(0)).await? {
        return Err(ApiError::not_found("limit not found"));
    }
    ok(&call, &LimitGone { id: call.param(0), state: GoneWord::Gone })
}
