//! Requests as engine commands. The only place where names, units and defaults of JQ become policies.

use super::wire::{Bad, Done, End, Job as Asked, as_msgpack};
use super::{ORIGIN, Settings};
use crate::codec::Raw;
use std::sync::Arc;
use windlass_core::event::RetryWish;
use windlass_core::lease::{LeasePolicy, OnLapse};
use windlass_core::retry::{Backoff, RetryPolicy};
use windlass_core::{Event, Extras, Format, Holder, Keep, KeepFor, Outcome, Payload, Policy, ResultPolicy};
use windlass_engine::{Push, RunAt};

/// Jitter of the backoff, so that jobs that failed together are not all retried at once.
const JITTER_PERCENT: u8 = 10;

pub fn push(asked: &Asked<'_>, settings: &Settings) -> Result<Push, Bad> {
    let argument = as_msgpack(asked.argument)?;
    Ok(Push {
        queue: super::tenant_dispatcher::queue(),
        name: asked.name.clone(),
        payload: Payload::new(Format::Msgpack, argument),
        priority: asked.priority,
        run_at: RunAt::Now,
        policy: Arc::new(policy(asked, settings)),
        extras: Some(Box::new(Extras { origin: Some(ORIGIN.into()), ..Extras::default() })),
        body: None,
    })
}

fn policy(asked: &Asked<'_>, settings: &Settings) -> Policy {
    let record = KeepFor::Ms(settings.record_ttl_ms);
    Policy {
        lease: LeasePolicy {
            length_ms: Some(asked.timeout_s * 1_000),
            // A timeout is a failed attempt.
            on_lapse: OnLapse::Fail,
            lapse_attempts: 0,
            accept_late: false,
        },
        retry: RetryPolicy {
            // The first run is not a retry.
            max_attempts: Some(asked.max_retry.saturating_add(1)),
            backoff: Backoff::Exponential {
                base_ms: settings.backoff_base_ms,
                cap_ms: settings.backoff_cap_ms,
                jitter_percent: JITTER_PERCENT,
            },
            give_up_after_ms: None,
        },
        // JQ has no cancelled state: a cancelled job is deleted.
        keep: Keep { completed: record, failed: record, cancelled: KeepFor::Drop },
        result: ResultPolicy {
            keep: if asked.keep_result { KeepFor::Ms(settings.result_ttl_ms) } else { KeepFor::Drop },
            once: true,
        },
        ..Policy::default()
    }
}

/// Outcome of a run as reported by its worker; for a failure, with the retry decision.
pub fn done(done: &Done<'_>, worker: &str) -> Result<(Outcome, Option<RetryWish>), Bad> {
    let said = Outcome { worker: Some(worker.into()), ended_at: done.finished_at, ..Outcome::default() };
    Ok(match &done.end {
        End::Success { result } => (Outcome { result: content(*result)?, ..said }, None),
        End::Failure { reason, should_retry, message, error } => {
            let outcome = Outcome {
                error: content(*error)?,
                message: Some(message.clone()),
                code: Some(reason.as_str().to_owned()),
                ..said
            };
            (outcome, Some(if *should_retry { RetryWish::Policy } else { RetryWish::Never }))
        }
    })
}

fn content(raw: Option<Raw<'_>>) -> Result<Option<Payload>, Bad> {
    raw.map(|raw| Ok(Payload::new(Format::Msgpack, as_msgpack(raw)?))).transpose()
}

/// Failure of a run whose worker was lost or refused the job.
pub fn worker_lost(by: Holder, worker: &str, message: &str) -> Event {
    let outcome = Outcome {
        message: Some(message.to_owned()),
        code: Some("other".to_owned()),
        worker: Some(worker.into()),
        ..Outcome::default()
    };
    Event::fail(by, outcome, RetryWish::Policy)
}
