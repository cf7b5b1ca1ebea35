//! Outcome of a run, decided by the exit code of its command, and the report of it to the server.

use super::held::{Counted, Stop};
use super::process::{self, Job};
use super::stderr::{self, Said};
use crate::human_time;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use windlass_runners::process::{EXIT_RETRY, ProcessEnd, RESULT_BYTES_MAX};

/// Delay before the next attempt after exit code 75: short, but no busy loop.
const AGAIN_AFTER_MS: i64 = 10_000;

/// Exit codes that end the job without another attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FatalCodes(Vec<i32>);

impl FatalCodes {
    /// Parses `65,66`, or `none`.
    pub(super) fn parse(text: &str) -> Result<FatalCodes, String> {
        if text == "none" {
            return Ok(FatalCodes(Vec::new()));
        }
        let code = |word: &str| match word.trim().parse() {
            Ok(EXIT_RETRY) => Err("75 always asks for another attempt".to_string()),
            Ok(code @ 1..=255) => Ok(code),
            _ => {
                Err(format!("`{word}` is not an exit code from 1 to 255; give a list such as 65,66, or none"))
            }
        };
        text.split(',').map(code).collect::<Result<_, _>>().map(FatalCodes)
    }
}

/// Outcome of a run.
#[derive(Debug)]
pub(super) enum Verdict {
    Finish(Option<Box<RawValue>>),
    Fail(Failure),
    /// Another attempt that does not count, with the reason.
    Again(String),
    GiveBack,
    /// The lease is lost, and another worker has the job.
    Lost,
}

/// Failed attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub said: Said,
    pub exit_code: Option<i32>,
    /// No other attempt follows, whatever the rules of the job.
    pub is_final: bool,
}

impl Failure {
    pub(super) fn new(message: String, exit_code: Option<i32>, is_final: bool) -> Failure {
        Failure { said: Said { message, ..Said::default() }, exit_code, is_final }
    }
}

impl Verdict {
    pub(super) fn of(ended: ProcessEnd, stopped: Option<Stop>, fatal: &FatalCodes) -> Verdict {
        let fail = |message: String, is_final: bool| Verdict::Fail(Failure::new(message, None, is_final));
        match (stopped, ended) {
            (Some(Stop::LeaseLost), _) => Verdict::Lost,
            (Some(Stop::Leaving), _) | (None, ProcessEnd::NotStarted(_)) => Verdict::GiveBack,
            (Some(Stop::Cancelled) | None, ProcessEnd::Code { code: 0, stdout, .. }) => {
                Verdict::Finish(process::result_of(&stdout))
            }
            (Some(Stop::Cancelled), _) => fail("cancelled".to_string(), true),
            (Some(Stop::TimedOut), _) => fail("exceeded its time limit (--timeout)".to_string(), false),
            // The command succeeded: another attempt would do its work twice, with the same output.
            (None, ProcessEnd::TooMuch) => {
                fail(format!("standard output exceeded {RESULT_BYTES_MAX} bytes"), true)
            }
            (None, ProcessEnd::Code { code: EXIT_RETRY, stderr, .. }) => {
                Verdict::Again(stderr::read(&stderr, "exit code 75").message)
            }
            (None, ProcessEnd::Code { code, stderr, .. }) => {
                let said = stderr::read(&stderr, &format!("exit code {code}"));
                Verdict::Fail(Failure { said, exit_code: Some(code), is_final: fatal.0.contains(&code) })
            }
            (None, ProcessEnd::Signal { signal, stderr }) => {
                let message = format!("killed by signal {signal}");
                let backtrace = Some(stderr).filter(|stderr| !stderr.is_empty());
                let said = Said { message, backtrace, class: None };
                Verdict::Fail(Failure { said, exit_code: None, is_final: false })
            }
        }
    }

    pub(super) fn counted(&self) -> Counted {
        match self {
            Verdict::Finish(_) => Counted::Finished,
            Verdict::Fail(_) => Counted::Failed,
            Verdict::Again(_) => Counted::Again,
            Verdict::GiveBack | Verdict::Lost => Counted::Released,
        }
    }

    /// Text for the worker's output, before the server has answered.
    pub(super) fn words(&self) -> String {
        match self {
            Verdict::Finish(_) => "finished".to_string(),
            Verdict::Fail(failure) => format!("failed: {}", failure.said.words()),
            Verdict::Again(reason) => format!("asks for another attempt: {reason}"),
            Verdict::GiveBack => "released".to_string(),
            Verdict::Lost => "stopped: lease lost to another worker".to_string(),
        }
    }

    /// Entry of a settle request. `None`: there is nothing to report.
    pub(super) fn entry(self, job: &Job, retry_delay: Option<i64>) -> Option<Entry> {
        let entry = Entry { id: job.id, token: job.token.clone(), ..Entry::default() };
        Some(match self {
            Verdict::Finish(result) => Entry { outcome: "finish", result, ..entry },
            Verdict::Fail(Failure { said, exit_code, is_final }) => Entry {
                outcome: "fail",
                class: said.class,
                message: Some(said.message),
                backtrace: said.backtrace,
                exit_code,
                retry: is_final.then_some(false),
                delay_ms: retry_delay.filter(|_| !is_final),
                ..entry
            },
            Verdict::Again(_) => {
                Entry { outcome: "release", delay_ms: retry_delay.or(Some(AGAIN_AFTER_MS)), ..entry }
            }
            Verdict::GiveBack => Entry { outcome: "release", ..entry },
            Verdict::Lost => return None,
        })
    }
}

/// Entry of a settle request.
#[derive(Debug, Serialize, Default)]
pub(super) struct Entry {
    id: u64,
    token: Value,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backtrace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<i64>,
}

/// Answer of the server to a report.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Settled {
    #[serde(default)]
    pub state: String,
    #[serde(default)]
    run_at: Option<i64>,
}

impl Settled {
    /// Words for the worker's output, with the time of the next attempt.
    pub(super) fn words(&self, words: String, counted: Counted, now_ms: i64) -> String {
        let next = self.run_at.map(|at| match at > now_ms {
            true => human_time::show_relative(at, now_ms),
            false => "now".to_string(),
        });
        match (counted, self.state.as_str(), next) {
            (_, "cancelled", _) => "cancelled".to_string(),
            (Counted::Failed, "failed" | "gone", _) => format!("{words}; no other attempt follows"),
            (Counted::Failed | Counted::Again, _, Some(next)) => format!("{words}; next attempt {next}"),
            _ => words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn code(code: i32, stderr: &str) -> ProcessEnd {
        ProcessEnd::Code { code, stdout: Vec::new(), stderr: stderr.to_string() }
    }

    fn signal(stderr: &str) -> ProcessEnd {
        ProcessEnd::Signal { signal: 9, stderr: stderr.to_string() }
    }

    /// Report of a run as the server gets it.
    fn report(ended: ProcessEnd, stopped: Option<Stop>, fatal: &str, delay: Option<i64>) -> Value {
        let job = serde_json::from_str::<Job>(r#"{"id":7,"token":1,"name":"n"}"#).expect("a job");
        let fatal = FatalCodes::parse(fatal).expect("codes");
        let entry = Verdict::of(ended, stopped, &fatal).entry(&job, delay);
        let mut report = serde_json::to_value(entry).expect("JSON");
        if let Some(fields) = report.as_object_mut() {
            fields.remove("id");
            fields.remove("token");
        }
        report
    }

    #[test]
    fn exit_codes_decide_what_is_reported() {
        let table = [
            (code(0, ""), None, "65", None, json!({"outcome": "finish"})),
            (code(75, "busy"), None, "65", None, json!({"outcome": "release", "delay_ms": 10_000})),
            (code(75, ""), None, "65", Some(5), json!({"outcome": "release", "delay_ms": 5})),
            (
                code(65, "bad data"),
                None,
                "65",
                Some(5),
                json!({"outcome": "fail", "message": "bad data", "exit_code": 65, "retry": false}),
            ),
            (
                code(65, ""),
                None,
                "none",
                None,
                json!({"outcome": "fail", "message": "exit code 65", "exit_code": 65}),
            ),
            (
                code(3, ""),
                None,
                "3,4",
                None,
                json!({"outcome": "fail", "message": "exit code 3", "exit_code": 3, "retry": false}),
            ),
            (
                code(1, "Traceback:\n  line 1\nValueError: no\n"),
                None,
                "65",
                None,
                json!({"outcome": "fail", "class": "ValueError", "message": "no", "exit_code": 1,
                    "backtrace": "Traceback:\n  line 1\nValueError: no"}),
            ),
            (
                code(1, "one"),
                None,
                "65",
                Some(5),
                json!({"outcome": "fail", "message": "one", "exit_code": 1, "delay_ms": 5}),
            ),
            (
                signal("oh"),
                None,
                "65",
                None,
                json!({"outcome": "fail", "message": "killed by signal 9", "backtrace": "oh"}),
            ),
            (
                signal(""),
                Some(Stop::TimedOut),
                "65",
                None,
                json!({"outcome": "fail", "message": "exceeded its time limit (--timeout)"}),
            ),
            (
                signal(""),
                Some(Stop::Cancelled),
                "65",
                None,
                json!({"outcome": "fail", "message": "cancelled", "retry": false}),
            ),
            (code(0, ""), Some(Stop::Cancelled), "65", None, json!({"outcome": "finish"})),
            (code(1, ""), Some(Stop::Leaving), "65", None, json!({"outcome": "release"})),
            (code(0, ""), Some(Stop::LeaseLost), "65", None, Value::Null),
            (ProcessEnd::NotStarted("no".to_string()), None, "65", None, json!({"outcome": "release"})),
        ];
        for (ended, stopped, fatal, delay, expected) in table {
            let what = format!("{ended:?} {stopped:?}");
            assert_eq!(report(ended, stopped, fatal, delay), expected, "{what}");
        }
    }

    #[test]
    fn fatal_codes_are_a_list() {
        assert_eq!(FatalCodes::parse("65, 70"), Ok(FatalCodes(vec![65, 70])));
        assert_eq!(FatalCodes::parse("none"), Ok(FatalCodes(vec![])));
        for (text, part) in
            [("", "exit code"), ("0", "`0`"), ("256", "`256`"), ("65,x", "`x`"), ("75", "another")]
        {
            let error = FatalCodes::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_answer_of_the_server_says_what_follows() {
        let words = |counted, state: &str, run_at| {
            let settled = Settled { state: state.to_string(), run_at };
            settled.words("failed: no".to_string(), counted, 0)
        };
        assert_eq!(words(Counted::Failed, "failed", None), "failed: no; no other attempt follows");
        assert_eq!(words(Counted::Failed, "retrying", Some(5_000)), "failed: no; next attempt in 5s");
        assert_eq!(words(Counted::Failed, "cancelled", None), "cancelled");
        assert_eq!(words(Counted::Finished, "completed", None), "failed: no");
    }
}
