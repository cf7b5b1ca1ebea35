//! The call that takes over jobs from elsewhere.

use super::calls::{self, Answer};
use super::commands::{self, within};
use super::errors::ApiError;
use super::views;
use super::wire::import::{ImportAsk, ImportEntry};
use super::wire::{BATCH_MAX, KEY_BYTES_MAX, LABEL_BYTES_MAX};
use crate::codec::{self, Out};
use crate::route::Call;
use ::http::StatusCode;
use std::sync::Arc;
use windlass_core::event::Standing;
use windlass_core::family::{Family, FamilyRule};
use windlass_core::{Extras, Name, Queue};
use windlass_engine::{Import, Push, RunAt};

/// Facts of one job: a dialect keeps a handful.
const FACTS_MAX: usize = 32;

pub async fn import(mut call: Call) -> Answer {
    let reply = calls::reply_encoding(&call);
    let (encoding, body) = calls::body(&mut call).await?;
    let ask: ImportAsk<'_> = codec::read_map(encoding, &body)?;
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
    let mut out = Out::new(reply, 64 + answers.len() * 8);
    views::pushed(&mut out, &answers);
    Ok(calls::answer(StatusCode::OK, out))
}

fn job(entry: &ImportEntry<'_>) -> Result<Import, String> {
    within("alias", &entry.alias, KEY_BYTES_MAX)?;
    if let Some(origin) = &entry.origin {
        within("origin", origin, LABEL_BYTES_MAX)?;
    }
    if entry.facts.len() > FACTS_MAX {
        return Err(format!("{} facts; at most {FACTS_MAX} are allowed", entry.facts.len()));
    }
    let rule = FamilyRule::ParentWaits { failure_settles: entry.failure_settles };
    let extras = Extras {
        origin: entry.origin.as_ref().map(|origin| Arc::from(&**origin)),
        alias: Some(Arc::from(&*entry.alias)),
        family: entry.parent.map(|parent| Family { parent, child_name: None, rule }),
        facts: entry.facts.clone(),
        ..Extras::default()
    };
    let queue = entry.queue.as_ref().map(|queue| Queue::new(queue)).transpose().map_err(|e| e.to_string())?;
    let payload = commands::payload(entry.payload, entry.payload_base64.as_ref(), entry.format)?;
    let push = Push {
        queue: queue.unwrap_or_default(),
        name: Name::new(&entry.name).map_err(|e| e.to_string())?,
        payload: payload.unwrap_or_default(),
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
