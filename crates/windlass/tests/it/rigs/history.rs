//! Records of operations: request, times, and response.

use parking_lot::Mutex;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970, by the clock that the server uses, too: both run on this machine.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Outcome {
    Ok,
    /// Certainly not done; with the server's error code.
    Fail(String),
    /// Done or not: no response.
    Unknown,
    /// Done or not: the server answered that the result is unknown, which only a broken disk excuses.
    Trouble(String),
}

#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Number of the request; shared by the jobs of a batch.
    pub call: u64,
    pub start: i64,
    pub end: i64,
    pub what: What,
    pub outcome: Outcome,
}

impl Record {
    pub fn is_ok(&self) -> bool {
        self.outcome == Outcome::Ok
    }

    /// True unless it was certainly not done.
    pub fn may_be_done(&self) -> bool {
        !matches!(self.outcome, Outcome::Fail(_))
    }
}

#[derive(Clone, Debug, Serialize)]
pub enum What {
    Push(Pushing),
    /// The worker's name is unique to this call, so that a lease in a dump identifies its claim.
    Claim {
        worker: String,
        queues: Vec<String>,
        granted: Vec<Grant>,
    },
    Extend {
        id: u64,
        token: u64,
        until: Option<i64>,
    },
    Settle {
        id: u64,
        token: u64,
        how: How,
        delay_ms: i64,
        state: Option<String>,
    },
    Act {
        id: u64,
        action: Action,
        state: Option<String>,
    },
    Pause {
        queue: String,
        paused: bool,
    },
    /// `None`: no such job.
    Read {
        id: u64,
        state: Option<String>,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pushing {
    /// Unique mark of the job; part of its payload.
    pub mark: String,
    pub queue: String,
    pub priority: i64,
    pub delay_ms: i64,
    pub key: Option<Key>,
    pub tags: Vec<String>,
    pub max_attempts: i64,
    pub repeats: bool,
    /// Deleted as soon as it is completed.
    pub forget: bool,
    pub parent: Option<u64>,
    pub id: Option<u64>,
    /// The id is that of an older job that holds the key.
    pub existing: bool,
}

impl Pushing {
    /// Payload of the job: derived from the mark alone, so that every byte can be verified.
    pub fn payload(&self) -> serde_json::Value {
        let size = self.mark.bytes().fold(7_usize, |sum, byte| (sum * 31 + usize::from(byte)) % 700);
        serde_json::json!({ "mark": self.mark, "pad": "x".repeat(size) })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Key {
    pub key: String,
    /// The key is held as long as the job exists, else until it is settled.
    pub forever: bool,
    pub refuse: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Grant {
    pub id: u64,
    pub token: u64,
    pub attempt: i64,
    /// By the server's clock, in ms.
    pub granted_at: i64,
    pub until: i64,
    pub run_at: i64,
    pub payload: serde_json::Value,
}

impl Grant {
    pub fn mark(&self) -> &str {
        self.payload["mark"].as_str().unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum How {
    Finish,
    Fail,
    Release,
}

impl How {
    pub fn word(self) -> &'static str {
        match self {
            How::Finish => "finish",
            How::Fail => "fail",
            How::Release => "release",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Action {
    CancelAsk,
    CancelNow,
    Retry,
    RetryForce,
    Run,
    Delete,
}

impl Action {
    /// True if it may restart a settled job, or reset its attempts.
    pub fn revives(self) -> bool {
        matches!(self, Action::Retry | Action::RetryForce | Action::Run)
    }

    /// True if it takes the job from its worker.
    pub fn takes_away(self) -> bool {
        matches!(self, Action::CancelNow | Action::RetryForce)
    }
}

#[derive(Default)]
pub struct History {
    records: Mutex<Vec<Record>>,
    calls: AtomicU64,
}

impl History {
    pub fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    pub fn add(&self, record: Record) {
        self.records.lock().push(record);
    }

    pub fn records(&self) -> Vec<Record> {
        self.records.lock().clone()
    }

    /// Saves the history for the analysis of a finding: one line per record.
    pub fn save(&self, name: &str) -> PathBuf {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.jsonl"));
        let lines: Vec<String> =
            self.records().iter().map(|record| serde_json::to_string(record).unwrap()).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        path
    }
}
