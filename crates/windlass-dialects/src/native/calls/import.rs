//! `POST /api/v1/import`: imports jobs of another system in their current state.

use super::push::PushedAnswer;
use crate::codec::{Raw, Text};
use crate::native::commands::{payload, within};
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, reply};
use crate::native::request::Body;
use crate::native::schema::FormatWord;
use crate::native::wire::{BATCH_MAX, Id, KEY_BYTES_MAX, LABEL_BYTES_MAX, TenantText, When};
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::event::{Standing, Stands};
use windlass_core::family::{Family, FamilyRule};
use windlass_core::names::NAME_BYTES_MAX;
use windlass_core::{Extras, Format, Name, Policy, Queue};
use windlass_engine::{Import, Push, RunAt};

/// Facts per job: a dialect stores a handful.
const FACTS_MAX: usize = 32;

pub(super) const EXAMPLES: Examples = &[(
    "one",
    "a failed job",
    r#"{"jobs":[{"alias":"old-5","name":"mail","payload":{},"stands":"failed",
        "created_at":"2026-01-31T12:00:00Z","due_at":"2026-01-31T12:00:00Z"}]}"#,
)];

/// Jobs to import. Parents must be imported in an earlier call than their children.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Import")]
pub(super) struct ImportAsk<'a> {
    /// Jobs.
    #[serde(borrow)]
    pub jobs: Vec<ImportEntry<'a>>,
    #[serde(borrow, default)]
    pub tenant: Option<TenantText<'a>>,
}

/// Job and its current state.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct ImportEntry<'a> {
    /// Identity of the job; importing the same alias again creates no second job.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = KEY_BYTES_MAX))]
    pub alias: Text<'a>,
    /// Kind of job.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    pub name: Text<'a>,
    /// Queue; `default` if omitted.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    pub queue: Option<Text<'a>>,
    /// Any value, stored byte for byte.
    #[serde(borrow, default)]
    pub payload: Option<Raw<'a>>,
    /// Instead of `payload`: bytes that are not JSON, in base64.
    #[serde(borrow, default)]
    pub payload_base64: Option<Text<'a>>,
    #[serde(default)]
    #[schemars(with = "Option<FormatWord>")]
    pub format: Option<Format>,
    /// Priority; a smaller number runs first.
    #[serde(default)]
    #[schemars(range(min = i32::MIN, max = i32::MAX))]
    pub priority: i32,
    /// State; a waiting parent waits for children that are imported after it.
    pub stands: StandsWord,
    /// Time of creation.
    pub created_at: When,
    /// Due time of the current or next run.
    pub due_at: When,
    /// Time of the last claim.
    #[serde(default)]
    pub started_at: Option<When>,
    /// Id of a parent that was imported before, in the state waiting.
    #[serde(default)]
    pub parent: Option<Id>,
    /// True if its failure counts as an end for its parent; true if omitted.
    #[serde(default = "yes")]
    pub failure_settles: bool,
    /// Policy, in the format of the engine.
    #[serde(default)]
    #[schemars(with = "Option<Raw<'a>>")]
    pub policy: Option<Policy>,
    /// System it came from.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = LABEL_BYTES_MAX))]
    pub origin: Option<Text<'a>>,
    /// Values that its dialect stores with it.
    #[serde(default)]
    #[schemars(with = "Option<Raw<'a>>")]
    pub facts: BTreeMap<Arc<str>, Arc<str>>,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum StandsWord {
    Ready,
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

impl From<StandsWord> for Stands {
    fn from(word: StandsWord) -> Stands {
        match word {
            StandsWord::Ready => Stands::Ready,
            StandsWord::Waiting => Stands::Waiting,
            StandsWord::Completed => Stands::Completed,
            StandsWord::Failed => Stands::Failed,
            StandsWord::Cancelled => Stands::Cancelled,
        }
    }
}

pub(super) async fn import(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let ask: ImportAsk<'_> = body.read()?;
    let tenant = call.caller.tenant_for(ask.tenant.as_deref())?;
    if ask.jobs.len() > BATCH_MAX {
        return Err(ApiError::batch_too_large(ask.jobs.len()));
    }
    let mut jobs = Vec::with_capacity(ask.jobs.len());
    for (index, entry) in ask.jobs.iter().enumerate() {
        jobs.push(job(entry).map_err(|why| ApiError::bad_request(format!("job {index}: {why}")))?);
    }
    drop(ask);
    let answers = call.engine.import(&tenant, jobs).await?;
    reply(&call, StatusCode::OK, 64 + answers.len() * 8, &PushedAnswer::new(&answers))
}

fn job(entry: &ImportEntry<'_>) -> Result<Import, String> {
    within("alias", &entry.alias, KEY_BYTES_MAX)?;
    if let Some(origin) = &entry.origin {
        within("origin", origin, LABEL_BYTES_MAX)?;
    }
    if entry.facts.len() > FACTS_MAX {
        return Err(format!("{} facts; the maximum is {FACTS_MAX}", entry.facts.len()));
    }
    let rule = FamilyRule::ParentWaits { failure_settles: entry.failure_settles };
    let extras = Extras {
        origin: entry.origin.as_ref().map(|origin| Arc::from(&**origin)),
        alias: Some(Arc::from(&*entry.alias)),
        family: entry.parent.map(|Id(parent)| Family { parent, child_name: None, rule }),
        facts: entry.facts.clone(),
        ..Extras::default()
    };
    let queue = entry.queue.as_ref().map(|queue| Queue::new(queue)).transpose().map_err(|e| e.to_string())?;
    let content = payload(entry.payload, entry.payload_base64.as_ref(), entry.format)?;
    let push = Push {
        queue: queue.unwrap_or_default(),
        name: Name::new(&entry.name).map_err(|e| e.to_string())?,
        payload: content.unwrap_or_default(),
        priority: entry.priority,
        run_at: RunAt::At(entry.due_at.0),
        policy: Arc::new(entry.policy.clone().unwrap_or_default()),
        extras: Some(Box::new(extras)),
        body: None,
    };
    let standing = Standing {
        stands: entry.stands.into(),
        due_at: entry.due_at.0,
        started_at: entry.started_at.map(|at| at.0),
    };
    Ok(Import { push, created_at: entry.created_at.0, standing })
}
