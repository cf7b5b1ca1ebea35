//! Bodies of the calls of the native API.

use crate::outcome::{RetryWish, Settlement};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Job to be pushed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NewJob {
    pub(crate) name: String,
    pub(crate) payload: Box<RawValue>,
    #[serde(flatten)]
    pub(crate) options: Options,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repeat: Option<String>,
}

/// Options of a push, with the names of the API.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Options {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unique: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keep: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) alias: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
}

#[derive(Serialize)]
pub(crate) struct PushAsk<'a> {
    pub(crate) jobs: &'a [NewJob],
}

#[derive(Debug, Deserialize)]
pub(crate) struct PushAnswer {
    pub(crate) ids: Vec<u64>,
    #[serde(default)]
    pub(crate) existing: Vec<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClaimAsk {
    pub(crate) names: Vec<String>,
    pub(crate) queues: Vec<String>,
    pub(crate) limit: usize,
    pub(crate) wait_ms: u64,
    pub(crate) lease_ms: u64,
    pub(crate) worker: String,
}

/// Job as delivered to its worker.
#[derive(Debug, Deserialize)]
pub(crate) struct ClaimedJob {
    pub(crate) id: u64,
    pub(crate) token: u64,
    pub(crate) name: String,
    pub(crate) queue: String,
    #[serde(default)]
    pub(crate) payload: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) payload_base64: Option<String>,
    pub(crate) attempt: u32,
    #[serde(default)]
    pub(crate) priority: i32,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    #[serde(default)]
    pub(crate) steps: Vec<KeptStep>,
    /// Number of times that steps were dropped to be executed again.
    #[serde(default)]
    pub(crate) generation: u32,
}

/// Step that is kept with the job.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct KeptStep {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) result: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) timed_out: bool,
    #[serde(default)]
    pub(crate) generation: u32,
}

#[derive(Deserialize)]
pub(crate) struct ClaimAnswer {
    pub(crate) jobs: Vec<ClaimedJob>,
}

#[derive(Serialize)]
pub(crate) struct SettleAsk<'a> {
    pub(crate) settle: &'a [&'a SettleEntry],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<&'a ClaimAsk>,
}

#[derive(Deserialize)]
pub(crate) struct SettleAnswer {
    pub(crate) settled: Vec<Settled>,
    #[serde(default)]
    pub(crate) jobs: Option<Vec<ClaimedJob>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Settled {
    pub(crate) ok: bool,
    #[serde(default)]
    pub(crate) error: Option<Said>,
    #[serde(default)]
    pub(crate) state: Option<String>,
}

/// Reason of a refusal.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Said {
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Deserialize)]
pub(crate) struct ErrorAnswer {
    pub(crate) error: Said,
}

/// Report of one ended run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct SettleEntry {
    pub(crate) id: u64,
    pub(crate) token: u64,
    pub(crate) outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) children: Option<bool>,
}

impl SettleEntry {
    /// Report of a settlement; `None` if the lease is lost.
    pub(crate) fn new(id: u64, token: u64, settlement: Settlement) -> Option<SettleEntry> {
        let entry = SettleEntry { id, token, ..SettleEntry::default() };
        Some(match settlement {
            Settlement::Finish(result) => SettleEntry { outcome: "finish", result: Some(result), ..entry },
            Settlement::Fail { class, message, retry } => SettleEntry {
                outcome: "fail",
                class: Some(class),
                message: Some(message),
                retry: (retry == RetryWish::Never).then_some(false),
                delay_ms: match retry {
                    RetryWish::After(delay) => Some(ms(delay)),
                    RetryWish::Policy | RetryWish::Never => None,
                },
                ..entry
            },
            Settlement::Release { delay } => {
                SettleEntry { outcome: "release", delay_ms: Some(ms(delay)).filter(|ms| *ms > 0), ..entry }
            }
            Settlement::Suspend(wait) => SettleEntry {
                outcome: "suspend",
                step: Some(wait.step),
                delay_ms: wait.delay_ms,
                until: wait.until_ms,
                signal: wait.signal,
                children: wait.children.then_some(true),
                ..entry
            },
            Settlement::Drop => return None,
        })
    }
}

#[derive(Serialize)]
pub(crate) struct ExtendAsk {
    pub(crate) extend: Vec<ExtendEntry>,
}

#[derive(Serialize)]
pub(crate) struct ExtendEntry {
    pub(crate) id: u64,
    pub(crate) token: u64,
    pub(crate) lease_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct ExtendAnswer {
    pub(crate) extended: Vec<Extended>,
}

#[derive(Deserialize)]
pub(crate) struct Extended {
    pub(crate) id: u64,
    pub(crate) ok: bool,
    #[serde(default)]
    pub(crate) error: Option<Said>,
    #[serde(default)]
    pub(crate) cancel: Option<bool>,
}

#[derive(Serialize)]
pub(crate) struct LogAsk<'a> {
    pub(crate) token: u64,
    pub(crate) lines: &'a [String],
}

/// Result of a step, to be kept.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NewStep {
    pub(crate) name: String,
    pub(crate) result: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<u64>,
}

#[derive(Serialize)]
pub(crate) struct StepsAsk<'a> {
    pub(crate) token: u64,
    pub(crate) steps: &'a [NewStep],
}

#[derive(Deserialize)]
pub(crate) struct StepsAnswer {
    pub(crate) steps: Vec<StepAnswer>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct StepAnswer {
    pub(crate) kept: bool,
    #[serde(default)]
    pub(crate) result: Option<Box<RawValue>>,
}

/// Outcome of a job, or its current state.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct JobResult {
    pub(crate) id: u64,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) result: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) message: Option<String>,
    #[serde(default)]
    pub(crate) class: Option<String>,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
}

#[derive(Deserialize)]
pub(crate) struct ChildrenAnswer {
    pub(crate) jobs: Vec<JobResult>,
    /// Cursor of the next page.
    #[serde(default)]
    pub(crate) next: Option<String>,
}

/// Milliseconds of a duration.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970.
pub(crate) fn ms_since_1970(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, ms)
}

/// Keep time after completion.
pub(crate) fn keep_completed(for_: Duration) -> Value {
    json!({"completed_ms": ms(for_)})
}

/// JSON `null`.
pub(crate) fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Suspension;

    fn entry(settlement: Settlement) -> Value {
        serde_json::to_value(SettleEntry::new(7, 9, settlement).unwrap()).unwrap()
    }

    #[test]
    fn settlements_have_the_shapes_of_the_api() {
        let minute = Duration::from_secs(60);
        for (settlement, expected) in [
            (Settlement::Finish(null()), json!({"id": 7, "token": 9, "outcome": "finish", "result": null})),
            (
                Settlement::failed("Fail", "no", RetryWish::Never),
                json!({"id": 7, "token": 9, "outcome": "fail", "class": "Fail", "message": "no", "retry": false}),
            ),
            (
                Settlement::failed("Retry", "no", RetryWish::After(minute)),
                json!({"id": 7, "token": 9, "outcome": "fail", "class": "Retry", "message": "no", "delay_ms": 60_000}),
            ),
            (
                Settlement::Release { delay: Duration::ZERO },
                json!({"id": 7, "token": 9, "outcome": "release"}),
            ),
            (
                Settlement::Suspend(Suspension {
                    step: "wait:approval".into(),
                    delay_ms: Some(5),
                    signal: Some("approval".into()),
                    ..Suspension::default()
                }),
                json!({"id": 7, "token": 9, "outcome": "suspend", "step": "wait:approval", "delay_ms": 5,
                    "signal": "approval"}),
            ),
        ] {
            assert_eq!(entry(settlement), expected);
        }
        assert!(SettleEntry::new(7, 9, Settlement::Drop).is_none());
    }

    #[test]
    fn a_push_has_only_the_fields_that_were_given() {
        let job = NewJob {
            name: "mail".into(),
            payload: RawValue::from_string("{\"to\":1}".into()).unwrap(),
            options: Options { queue: Some("q".into()), tags: vec!["t".into()], ..Options::default() },
            idempotency_key: Some("k".into()),
            parent: None,
            repeat: None,
        };
        let text = serde_json::to_string(&PushAsk { jobs: &[job] }).unwrap();
        assert_eq!(
            text,
            r#"{"jobs":[{"name":"mail","payload":{"to":1},"queue":"q","tags":["t"],"idempotency_key":"k"}]}"#
        );
    }

    #[test]
    fn a_claimed_job_brings_its_steps() {
        let text = r#"{"jobs":[{"id":1,"token":2,"lease_until":3,"name":"n","queue":"q","payload":{"a":[1]},
            "attempt":1,"priority":0,"created_at":1,"run_at":1,"steps":[
            {"name":"charge","kind":"run","result":{"x":1},"at":5},
            {"name":"wait:ok","kind":"signal","result":null,"at":6,"timed_out":true}]}]}"#;
        let mut jobs = serde_json::from_str::<ClaimAnswer>(text).unwrap().jobs;
        let job = jobs.remove(0);
        assert_eq!(job.payload.unwrap().get(), r#"{"a":[1]}"#);
        assert_eq!(job.steps[0].result.as_deref().map(RawValue::get), Some(r#"{"x":1}"#));
        assert!(job.steps[1].timed_out && job.steps[1].result.is_none());
    }
}
