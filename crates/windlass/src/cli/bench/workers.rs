//! Connections of the benchmark: the native API and the Bedrock dialect.

use crate::client::{BedrockClient, Client};
use crate::fault::{Fault, Outcome};
use serde_json::{Value, json};
use std::net::SocketAddr;

const NAME: &str = "bench.job";
/// Longer than a run, so that no lease expires.
const LEASE_MS: u64 = 600_000;
/// Digits of the time of the push, at the beginning of a payload.
const STAMP_DIGITS: usize = 20;

/// Claimed job.
pub(super) struct Held {
    id: u64,
    /// Lease token; 0 if the protocol has none.
    token: u64,
    pub pushed_ns: u64,
}

impl Held {
    fn new(id: &Value, token: &Value, payload: &Value) -> Held {
        let digits = payload.as_str().and_then(|text| text.get(..STAMP_DIGITS));
        let pushed_ns = digits.and_then(|digits| digits.parse().ok()).unwrap_or_default();
        Held { id: id.as_u64().unwrap_or_default(), token: token.as_u64().unwrap_or_default(), pushed_ns }
    }
}

pub(super) trait Worker: Send {
    /// Pushes jobs whose payload begins with the time.
    fn push(&mut self, jobs: usize, stamp_ns: u64) -> Outcome;
    /// Claims up to `limit` jobs, waiting up to `wait_ms` for the first.
    fn claim(&mut self, limit: usize, wait_ms: u64) -> Outcome<Vec<Held>>;
    fn finish(&mut self, held: &[Held]) -> Outcome;
}

fn payload(stamp_ns: u64, bytes: usize) -> String {
    format!("{stamp_ns:0STAMP_DIGITS$}{}", "x".repeat(bytes.saturating_sub(STAMP_DIGITS)))
}

pub(super) struct NativeWorker {
    pub client: Client,
    pub queue: String,
    pub payload_bytes: usize,
}

impl Worker for NativeWorker {
    fn push(&mut self, jobs: usize, stamp_ns: u64) -> Outcome {
        // A finished job is deleted at once.
        let job = json!({"name": NAME, "queue": self.queue, "keep": {"completed_ms": 0},
            "payload": payload(stamp_ns, self.payload_bytes)});
        let body = if jobs == 1 { job } else { json!({"jobs": vec![job; jobs]}) };
        self.client.post("/api/v1/jobs", &body)?;
        Ok(())
    }

    fn claim(&mut self, limit: usize, wait_ms: u64) -> Outcome<Vec<Held>> {
        let body = json!({"queues": [self.queue], "name": NAME, "limit": limit, "wait_ms": wait_ms,
            "lease_ms": LEASE_MS});
        let answer = self.client.call("POST", "/api/v1/claim", Some(&body.to_string()), wait_ms)?.value()?;
        let jobs = answer["jobs"].as_array().into_iter().flatten();
        Ok(jobs.map(|job| Held::new(&job["id"], &job["token"], &job["payload"])).collect())
    }

    fn finish(&mut self, held: &[Held]) -> Outcome {
        let entry = |job: &Held| json!({"id": job.id, "token": job.token, "outcome": "finish"});
        let entries: Vec<Value> = held.iter().map(entry).collect();
        let answer = self.client.post("/api/v1/settle", &json!({"settle": entries}))?;
        let settled = answer["settled"].as_array().into_iter().flatten();
        match settled.filter(|entry| entry["ok"] == true).count() {
            all if all == held.len() => Ok(()),
            some => Err(Fault::failed(format!("the server finished only {some} of {} jobs", held.len()))),
        }
    }
}

pub(super) struct BedrockWorker {
    client: BedrockClient,
    payload_bytes: usize,
}

impl BedrockWorker {
    pub(super) fn open(address: SocketAddr, payload_bytes: usize) -> Outcome<BedrockWorker> {
        Ok(BedrockWorker { client: BedrockClient::open(address)?, payload_bytes })
    }

    /// Body of the response; `None` if there is no job.
    fn ask(&mut self, request: &str) -> Outcome<Option<Value>> {
        let (status, body) = self.client.ask(request)?;
        match status.get(..3) {
            Some("200") => Ok(Some(serde_json::from_str(&body).unwrap_or_default())),
            Some("404") => Ok(None),
            _ => Err(Fault::failed(format!("the server responded with {status}"))),
        }
    }
}

impl Worker for BedrockWorker {
    fn push(&mut self, jobs: usize, stamp_ns: u64) -> Outcome {
        let data = json!({"x": payload(stamp_ns, self.payload_bytes)});
        for _ in 0..jobs {
            self.ask(&format!("CreateJob\nname: {NAME}\ndata: {data}\n"))?;
        }
        Ok(())
    }

    fn claim(&mut self, limit: usize, wait_ms: u64) -> Outcome<Vec<Held>> {
        let wait = match wait_ms {
            0 => String::new(),
            _ => format!("Connection: wait\ntimeout: {wait_ms}\n"),
        };
        let request = format!("GetJob\nname: {NAME}\n{wait}");
        let mut held = Vec::new();
        while held.len() < limit
            && let Some(job) = self.ask(&request)?
        {
            held.push(Held::new(&job["jobID"], &Value::Null, &job["data"]["x"]));
        }
        Ok(held)
    }

    fn finish(&mut self, held: &[Held]) -> Outcome {
        for job in held {
            if self.ask(&format!("FinishJob\njobID: {}\n", job.id))?.is_none() {
                return Err(Fault::failed(format!("cannot finish job {}", job.id)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_carries_the_time_of_its_push() {
        let text = payload(1_234_567_890_123, 64);
        assert_eq!((text.len(), payload(0, 3).len()), (64, STAMP_DIGITS));
        assert_eq!(Held::new(&json!(7), &json!(9), &json!(text)).pushed_ns, 1_234_567_890_123);
        assert_eq!(Held::new(&json!(7), &Value::Null, &json!("short")).pushed_ns, 0);
    }
}
