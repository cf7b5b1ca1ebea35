//! `GET /api/v1/limits`, `PUT` and `DELETE /api/v1/limits/{id}`.

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
    "two at once per user",
    r#"{"matcher":{"name_glob":"mail*"},"max_running":2,"group_by":[["user","id"]]}"#,
)];

/// A limit: a rate, a number at once, or both.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used; `Limit::parse` reads the body")]
pub(super) struct LimitAsk {
    /// Its id, as in the path.
    id: Option<String>,
    #[serde(flatten)]
    bounds: Bounds,
}

/// All limits.
#[derive(Serialize, JsonSchema)]
pub(super) struct Limits {
    /// The limits.
    limits: Vec<LimitShown>,
}

/// A limit.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Limit")]
pub(super) struct LimitShown {
    /// Its id, as in the path.
    id: String,
    #[serde(flatten)]
    bounds: Bounds,
    /// Jobs under it that are running.
    running: u64,
    /// Jobs under it that are due and wait.
    waiting: u64,
    /// How many of these it holds back now.
    held: u64,
}

#[derive(Serialize, serde::Deserialize, JsonSchema)]
struct Bounds {
    /// Which jobs it is about: {"name"}, {"name_glob"}, {"queue"}, {"priority"}, {"arg","op","value"}, {"all"}, {"any"}, {"not"}.
    matcher: Map<String, Value>,
    rate: Option<RateShown>,
    /// How many may run at once.
    max_running: Option<u32>,
    /// Paths into the payload; each group of equal values has the limit for itself.
    group_by: Option<Vec<Vec<Value>>>,
}

/// How fast jobs may start.
#[derive(Serialize, serde::Deserialize, JsonSchema)]
#[schemars(inline)]
struct RateShown {
    /// Starts per second.
    per_second: f64,
    /// How many may start at once after a rest.
    burst: Option<u32>,
}

impl LimitShown {
    fn new(view: LimitView) -> Result<LimitShown, ApiError> {
        let id = view.limit.id.to_string();
        let bounds = serde_json::from_value(Value::from(view.limit)).map_err(|error| {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "unwritable", error.to_string())
        })?;
        Ok(LimitShown { id, bounds, running: view.running, waiting: view.waiting, held: view.held })
    }
}

/// It is gone.
#[derive(Serialize, JsonSchema)]
pub(super) struct LimitGone<'a> {
    /// The limit.
    id: &'a str,
    /// What became of it.
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
    let limits = call.engine.limits(&tenant).await?;
    let now = limits.into_iter().find(|view| view.limit.id == asked.id);
    let now = now.unwrap_or(LimitView { limit: asked, running: 0, waiting: 0, held: 0 });
    ok(&call, &LimitShown::new(now)?)
}

pub(super) async fn delete(call: Call) -> Answer {
    let tenant = one_tenant(&call)?;
    if !call.engine.remove_limit(&tenant, call.param(0)).await? {
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", "there is no such limit"));
    }
    ok(&call, &LimitGone { id: call.param(0), state: GoneWord::Gone })
}
