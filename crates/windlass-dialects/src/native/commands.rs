//! What is asked, in the engine's words. The names, units and defaults of this dialect live here and nowhere else.

use super::errors::ApiError;
use super::wire::{
    self, BackoffAsk, ClaimAsk, OutcomeWord, PatchAsk, PushAsk, RunAsk, SettleEntry, UniqueAsk, When,
};
use crate::codec::{self, Encoding, Raw, Text};
use base64::Engine as _;
use std::sync::{Arc, OnceLock};
use windlass_core::event::Patch;
use windlass_core::family::{Family, FamilyRule};
use windlass_core::repeat::Repeat;
use windlass_core::retry::{Backoff, RetryPolicy};
use windlass_core::unique::Unique;
use windlass_core::{
    Extras, Format, Holder, Name, NameMatch, Outcome, Payload, Policy, Queue, Tenant, Timestamp,
};
use windlass_engine::{Claim, How, Push, RunAt, Settle, Wish};

#[cfg(test)]
mod tests;

/// Jobs handed out when the claim does not say how many.
const CLAIM_LIMIT_DEFAULT: usize = 1;

/// Turns a batch into pushes. Equal neighbours share their texts and policy: a waiting job then costs little more than
/// its payload.
pub fn pushes(asks: &[PushAsk<'_>], single: bool) -> Result<Vec<Push>, ApiError> {
    if asks.len() > wire::BATCH_MAX {
        return Err(ApiError::batch_too_large(asks.len()));
    }
    let mut pushes: Vec<Push> = Vec::with_capacity(asks.len());
    for (index, ask) in asks.iter().enumerate() {
        let before = pushes.last().zip(index.checked_sub(1).and_then(|before| asks.get(before)));
        let push = push(ask, before).map_err(|message| match single {
            true => ApiError::bad_request(message),
            false => ApiError::bad_request(format!("job {index}: {message}")),
        })?;
        pushes.push(push);
    }
    Ok(pushes)
}

fn push(ask: &PushAsk<'_>, before: Option<(&Push, &PushAsk<'_>)>) -> Result<Push, String> {
    let name = match (&ask.name, before) {
        (None, _) => return Err("`name` is missing: say what kind of job it is".into()),
        (Some(name), Some((push, _))) if **name == *push.name => push.name.clone(),
        (Some(name), _) => Name::new(name).map_err(|e| e.to_string())?,
    };
    let queue = match (&ask.queue, before) {
        (Some(queue), Some((push, _))) if **queue == *push.queue => push.queue.clone(),
        (Some(queue), _) => Queue::new(queue).map_err(|e| e.to_string())?,
        (None, _) => default_queue(),
    };
    let policy = match before {
        _ if ask.has_default_policy() => default_policy(),
        Some((push, other)) if ask.has_same_policy_as(other) => push.policy.clone(),
        _ => Arc::new(policy(ask)?),
    };
    Ok(Push {
        queue,
        name,
        payload: payload(ask.payload, ask.payload_base64.as_ref(), ask.format)?
            .unwrap_or_else(default_payload),
        priority: ask.priority,
        run_at: match run_at(ask.run_at, ask.delay_ms)? {
            // "Every night at three" does not mean now.
            RunAt::Now if ask.repeat.is_some() && ask.delay_ms.is_none() => RunAt::FirstTurn,
            at => at,
        },
        policy,
        extras: extras(ask)?,
        body: None,
    })
}

fn default_queue() -> Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    QUEUE.get_or_init(Queue::default).clone()
}

fn default_policy() -> Arc<Policy> {
    static POLICY: OnceLock<Arc<Policy>> = OnceLock::new();
    POLICY.get_or_init(Arc::default).clone()
}

fn default_payload() -> Payload {
    static PAYLOAD: OnceLock<Payload> = OnceLock::new();
    PAYLOAD.get_or_init(Payload::default).clone()
}

pub fn run_at(at: Option<When>, delay_ms: Option<i64>) -> Result<RunAt, String> {
    match (at, delay_ms) {
        (Some(_), Some(_)) => Err("`run_at` and `delay_ms` exclude each other: send one of them".into()),
        (Some(When(at)), None) => Ok(RunAt::At(at)),
        (None, Some(delay_ms)) if delay_ms < 0 => Err("`delay_ms` must not be negative".into()),
        (None, Some(0)) | (None, None) => Ok(RunAt::Now),
        (None, Some(delay_ms)) => Ok(RunAt::After(delay_ms)),
    }
}

fn policy(ask: &PushAsk<'_>) -> Result<Policy, String> {
    let mut policy = Policy::default();
    if let Some(lease) = ask.lease_ms {
        policy.lease.length_ms = Some(lease.0);
    }
    if let Some(retry) = &ask.retry {
        policy.retry = retry_policy(retry)?;
    }
    if let Some(keep) = &ask.keep {
        let or = |asked: Option<wire::KeepMs>, default| asked.map_or(default, |keep| keep.0);
        policy.keep.completed = or(keep.completed_ms, policy.keep.completed);
        policy.keep.failed = or(keep.failed_ms, policy.keep.failed);
        policy.keep.cancelled = or(keep.cancelled_ms, policy.keep.cancelled);
    }
    if let Some(rule) = &ask.repeat {
        policy.repeat = Some(repeat(rule)?);
        // A repeating job that fails for good waits for its next turn; nobody expects a timer to stop by itself.
        policy.repeat_after_failure = true;
    }
    Ok(policy)
}

fn retry_policy(ask: &wire::RetryAsk) -> Result<RetryPolicy, String> {
    let mut retry = RetryPolicy::default();
    if let Some(max_attempts) = ask.max_attempts {
        retry.max_attempts = max_attempts;
    }
    match ask.backoff {
        None => {}
        Some(BackoffAsk::None) => retry.backoff = Backoff::None,
        Some(BackoffAsk::Fixed { fixed_ms }) => retry.backoff = Backoff::Fixed { delay_ms: fixed_ms },
        Some(BackoffAsk::Growing { base_ms, cap_ms, jitter_percent }) => {
            let cap_ms = cap_ms.unwrap_or(3_600_000);
            let jitter_percent = jitter_percent.unwrap_or(10);
            if jitter_percent > 100 {
                return Err("`jitter_percent` must be between 0 and 100".into());
            }
            retry.backoff = Backoff::Exponential { base_ms, cap_ms, jitter_percent };
        }
    }
    match retry.backoff {
        Backoff::Fixed { delay_ms: ms } | Backoff::Exponential { base_ms: ms, .. } if ms < 0 => {
            return Err("the times of `backoff` must not be negative".into());
        }
        _ => {}
    }
    retry.give_up_after_ms = ask.give_up_after_ms.map(|ms| ms.max(0));
    Ok(retry)
}

pub fn repeat(rule: &str) -> Result<Repeat, String> {
    within("repeat", rule, wire::REPEAT_BYTES_MAX)?;
    Repeat::parse(rule).map_err(|e| format!("`repeat`: {e}"))
}

fn extras(ask: &PushAsk<'_>) -> Result<Option<Box<Extras>>, String> {
    if ask.alias.is_none() && ask.tags.is_empty() && ask.unique.is_none() && ask.parent.is_none() {
        return Ok(None);
    }
    if let Some(alias) = &ask.alias {
        within("alias", alias, wire::KEY_BYTES_MAX)?;
    }
    let extras = Extras {
        alias: ask.alias.as_ref().map(|alias| Arc::from(&**alias)),
        tags: tags(&ask.tags)?,
        unique: ask.unique.as_ref().map(unique).transpose()?,
        family: ask.parent.map(|parent| Family {
            parent,
            child_name: None,
            // The parent gets its turn even if a child fails, and can look at what became of each.
            rule: FamilyRule::ParentWaits { failure_settles: true },
        }),
        ..Extras::default()
    };
    Ok(Some(Box::new(extras)))
}

fn unique(ask: &UniqueAsk<'_>) -> Result<Unique, String> {
    within("unique", &ask.key, wire::KEY_BYTES_MAX)?;
    Ok(Unique { key: Arc::from(&*ask.key), on_conflict: ask.on_conflict, held_until: ask.held_until })
}

fn tags(tags: &[Text<'_>]) -> Result<Vec<Arc<str>>, String> {
    if tags.len() > wire::TAGS_MAX {
        return Err(format!("{} tags; at most {} are allowed", tags.len(), wire::TAGS_MAX));
    }
    tags.iter().map(|tag| within("tags", tag, wire::LABEL_BYTES_MAX).map(|()| Arc::from(&**tag))).collect()
}

/// A text that must be there and must not be too long.
pub(super) fn within(field: &str, text: &str, bytes_max: usize) -> Result<(), String> {
    match text.len() {
        0 => Err(format!("`{field}` must not be empty")),
        bytes if bytes > bytes_max => {
            Err(format!("`{field}` is {bytes} bytes long; at most {bytes_max} are allowed"))
        }
        _ => Ok(()),
    }
}

/// A payload as it is kept. `None`: none was given.
pub fn payload(
    raw: Option<Raw<'_>>,
    base64: Option<&Text<'_>>,
    format: Option<Format>,
) -> Result<Option<Payload>, String> {
    match (raw, base64) {
        (Some(_), Some(_)) => {
            Err("`payload` and `payload_base64` exclude each other: send one of them".into())
        }
        (None, None) => Ok(None),
        (Some(raw), None) => inline_payload(raw, format).map(Some),
        (None, Some(text)) => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(text.as_bytes())
                .map_err(|e| format!("`payload_base64` is not base64: {e}"))?;
            let format = format.unwrap_or(Format::Binary);
            checked(format, bytes).map(Some)
        }
    }
}

fn inline_payload(raw: Raw<'_>, format: Option<Format>) -> Result<Payload, String> {
    let expected_text = || "`payload` must be a string when `format` is \"text\"".to_owned();
    match (raw, format) {
        (Raw::Json(json), None | Some(Format::Json)) => Ok(Payload::json(json)),
        (Raw::Json(json), Some(Format::Text)) => {
            let text: Text<'_> = codec::read(Encoding::Json, json.as_bytes()).map_err(|_| expected_text())?;
            Ok(Payload::new(Format::Text, text.as_bytes()))
        }
        (Raw::Json(_), Some(Format::Msgpack | Format::Binary)) => {
            Err("in a JSON body such a payload goes into `payload_base64`".into())
        }
        (Raw::Msgpack(bytes), None | Some(Format::Binary)) => match (msgpack_bin(bytes), format) {
            (Some(content), _) => Ok(Payload::new(Format::Binary, content)),
            (None, None) => Ok(Payload::new(Format::Msgpack, bytes)),
            (None, Some(_)) => Err("`payload` must be a bin when `format` is \"binary\"".into()),
        },
        (Raw::Msgpack(bytes), Some(Format::Msgpack)) => Ok(Payload::new(Format::Msgpack, bytes)),
        (Raw::Msgpack(bytes), Some(Format::Text)) => {
            let text: Text<'_> = codec::read(Encoding::Msgpack, bytes).map_err(|_| expected_text())?;
            Ok(Payload::new(Format::Text, text.as_bytes()))
        }
        (Raw::Msgpack(bytes), Some(Format::Json)) => {
            let value: serde_json::Value = codec::read(Encoding::Msgpack, bytes)
                .map_err(|e| format!("`payload` cannot be said in JSON: {e}"))?;
            Ok(Payload::new(Format::Json, value.to_string().into_bytes()))
        }
    }
}

/// The content, if the value is a bin.
fn msgpack_bin(value: &[u8]) -> Option<&[u8]> {
    let head = match value.first()? {
        0xc4 => 2,
        0xc5 => 3,
        0xc6 => 5,
        _ => return None,
    };
    value.get(head..)
}

fn checked(format: Format, bytes: Vec<u8>) -> Result<Payload, String> {
    match format {
        Format::Json => {
            codec::read::<Raw<'_>>(Encoding::Json, &bytes).map_err(|e| format!("`payload_base64`: {e}"))?;
        }
        Format::Text => {
            std::str::from_utf8(&bytes).map_err(|_| "`payload_base64` is not UTF-8")?;
        }
        Format::Msgpack => match codec::msgpack_length(&bytes) {
            Ok(length) if length == bytes.len() => {}
            Ok(_) => return Err("`payload_base64` holds more than one MessagePack value".into()),
            Err(e) => return Err(format!("`payload_base64`: {e}")),
        },
        Format::Binary => {}
    }
    Ok(Payload::new(format, bytes))
}

pub fn claim(ask: &ClaimAsk<'_>, tenant: Tenant) -> Result<Claim, ApiError> {
    let names = match (&ask.name, ask.names.as_slice()) {
        (None, []) => NameMatch::Any,
        (Some(glob), []) => NameMatch::glob(glob),
        (None, [name]) => NameMatch::Exact((**name).into()),
        (None, names) => NameMatch::OneOf(names.iter().map(|name| (**name).into()).collect()),
        (Some(_), _) => {
            return Err(ApiError::bad_request("`name` and `names` exclude each other: send one of them"));
        }
    };
    let asked = ask.queues.iter().chain(&ask.queue);
    let queues: Vec<Queue> = asked.map(|queue| Queue::new(queue)).collect::<Result<_, _>>()?;
    if queues.len().max(ask.names.len()) > wire::QUEUES_MAX {
        return Err(ApiError::bad_request(format!(
            "at most {} queues and names per claim",
            wire::QUEUES_MAX
        )));
    }
    if let Some(worker) = &ask.worker {
        within("worker", worker, wire::LABEL_BYTES_MAX).map_err(ApiError::bad_request)?;
    }
    Ok(Claim {
        tenant,
        queues,
        names,
        priority: ask.priority,
        limit: ask.limit.unwrap_or(CLAIM_LIMIT_DEFAULT).min(wire::BATCH_MAX),
        wait_ms: ask.wait_ms.min(wire::WAIT_MS_MAX),
        lease_ms: ask.lease_ms.map(|lease| lease.0),
        worker: ask.worker.as_ref().map(|worker| Arc::from(&**worker)),
    })
}

pub fn settles(entries: &[SettleEntry<'_>]) -> Result<Vec<Settle>, ApiError> {
    if entries.len() > wire::BATCH_MAX {
        return Err(ApiError::batch_too_large(entries.len()));
    }
    let settle = |(index, entry): (usize, &SettleEntry<'_>)| {
        let how = how(entry).map_err(|message| ApiError::bad_request(format!("entry {index}: {message}")))?;
        Ok(Settle { id: entry.id, by: Holder::Token(entry.token), how })
    };
    entries.iter().enumerate().map(settle).collect()
}

fn how(entry: &SettleEntry<'_>) -> Result<How, String> {
    if entry.delay_ms.is_some_and(|ms| ms < 0) {
        return Err("`delay_ms` must not be negative".into());
    }
    match entry.outcome {
        OutcomeWord::Finish if entry.delay_ms.is_some() || entry.retry.is_some() => {
            Err("`delay_ms` and `retry` belong to the outcomes fail and release".into())
        }
        OutcomeWord::Finish => {
            let payload = payload(entry.payload, None, None)?;
            Ok(How::Finish { outcome: outcome(entry)?, payload, ignore_repeat: false })
        }
        OutcomeWord::Fail => {
            let retry = match (entry.retry, entry.delay_ms) {
                (Some(false), _) => Wish::Never,
                (_, Some(delay_ms)) => Wish::After(delay_ms),
                (_, None) => Wish::Policy,
            };
            Ok(How::Fail { outcome: outcome(entry)?, retry, payload: payload(entry.payload, None, None)? })
        }
        OutcomeWord::Release => Ok(How::Release { delay_ms: entry.delay_ms.unwrap_or(0), counts: false }),
    }
}

fn outcome(entry: &SettleEntry<'_>) -> Result<Outcome, String> {
    if let Some(message) = entry.message.as_ref().filter(|message| message.len() > wire::MESSAGE_BYTES_MAX) {
        return Err(format!("`message` is {} bytes long; put data into `error`", message.len()));
    }
    if let Some(code) = &entry.code {
        within("code", code, wire::LABEL_BYTES_MAX)?;
    }
    let (error_text, error) = error(entry.error)?;
    Ok(Outcome {
        result: payload(entry.result, None, None)?,
        error,
        message: entry.message.as_ref().map(|message| message.to_string()).or(error_text),
        code: entry.code.as_ref().map(|code| code.to_string()),
        exit_code: entry.exit_code,
        ..Outcome::default()
    })
}

/// An error that is a short text is the message for people; anything else is data.
fn error(raw: Option<Raw<'_>>) -> Result<(Option<String>, Option<Payload>), String> {
    let Some(raw) = raw else { return Ok((None, None)) };
    let text: Option<Text<'_>> = match raw {
        Raw::Json(json) => codec::read(Encoding::Json, json.as_bytes()).ok(),
        Raw::Msgpack(bytes) => codec::read(Encoding::Msgpack, bytes).ok(),
    };
    match text {
        Some(text) if text.len() <= wire::MESSAGE_BYTES_MAX => Ok((Some(text.to_string()), None)),
        _ => Ok((None, Some(inline_payload(raw, None)?))),
    }
}

/// `extras` are the job's own, of which a patch may change the tags.
pub fn patch(ask: &PatchAsk<'_>, extras: Option<&Extras>, now: Timestamp) -> Result<Patch, String> {
    let patched_extras = match &ask.tags {
        None => None,
        Some(new) => Some(Box::new(Extras { tags: tags(new)?, ..extras.cloned().unwrap_or_default() })),
    };
    let run_at = match (ask.run_at, ask.delay_ms) {
        (None, None) => None,
        (at, delay_ms) => Some(run_at(at, delay_ms)?.from(now)),
    };
    Ok(Patch {
        payload: payload(ask.payload, ask.payload_base64.as_ref(), ask.format)?,
        priority: ask.priority,
        name: ask.name.as_ref().map(|name| Name::new(name)).transpose().map_err(|e| e.to_string())?,
        queue: ask.queue.as_ref().map(|queue| Queue::new(queue)).transpose().map_err(|e| e.to_string())?,
        run_at,
        repeat: match &ask.repeat {
            None => None,
            Some(None) => Some(None),
            Some(Some(rule)) => Some(Some(repeat(rule)?)),
        },
        extras: patched_extras,
        ..Patch::default()
    })
}

impl RunAsk {
    pub fn at(&self) -> Result<RunAt, ApiError> {
        run_at(self.run_at, self.delay_ms).map_err(ApiError::bad_request)
    }
}
