//! State of the server, read while no client sends requests.

use super::http::Client;
use crate::server::eventually;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Most reads; each takes some milliseconds, and a commit takes less than all of them.
const LOOKS_MAX: u32 = 50;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dump {
    /// Time of the dump, in microseconds.
    pub at: i64,
    /// In the order of the pages, with duplicates.
    pub jobs: Vec<Value>,
    pub queues: Vec<Value>,
}

impl Dump {
    /// Reads the state. Repeated if a change happened in between, such as the expiry of a lease: counters are
    /// one commit ahead of rows. A difference that persists is a finding.
    pub fn take(to: SocketAddr) -> Dump {
        let mut client = Client::default();
        let mut looks = 0;
        eventually("nothing changes while it is looked at", || {
            looks += 1;
            let before = counts(&mut client, to);
            let jobs = pages(&mut client, to);
            let queues = counts(&mut client, to);
            let dump = Dump { at: super::history::now_us(), jobs, queues };
            let same = before.iter().map(without_ages).eq(dump.queues.iter().map(without_ages));
            (looks > LOOKS_MAX || (same && dump.adds_up())).then_some(dump)
        })
    }

    fn adds_up(&self) -> bool {
        let waits = |job: &&Value| job["state"] == "ready" || job["state"] == "running";
        let told = self.queues.iter().map(|queue| {
            ["ready", "delayed", "retrying", "running"]
                .map(|state| queue[state].as_u64().unwrap_or(0))
                .iter()
                .sum::<u64>()
        });
        let running = self.queues.iter().map(|queue| queue["running"].as_u64().unwrap_or(0)).sum::<u64>();
        told.sum::<u64>() == self.jobs.iter().filter(waits).count() as u64
            && running == self.jobs.iter().filter(|job| job["state"] == "running").count() as u64
    }

    pub fn by_id(&self) -> BTreeMap<u64, &Value> {
        self.jobs.iter().map(|job| (job["id"].as_u64().unwrap_or(0), job)).collect()
    }

    /// Properties of every job and queue that a restart must not change.
    pub fn essence(&self) -> (BTreeMap<u64, Value>, Vec<Value>) {
        let jobs = self.by_id().into_iter().map(|(id, job)| (id, job.clone())).collect();
        let mut queues: Vec<Value> = self.queues.iter().map(without_ages).collect();
        queues.sort_by_key(|queue| queue["queue"].to_string());
        (jobs, queues)
    }
}

/// State apart from the clock: delayed and retrying jobs are ready jobs whose time has not come.
pub fn timeless(state: &str) -> &str {
    if ["delayed", "retrying"].contains(&state) { "ready" } else { state }
}

/// Merges ready, delayed and retrying, which differ only by the clock.
fn without_ages(queue: &Value) -> Value {
    let mut queue = queue.clone();
    let waiting: u64 =
        ["ready", "delayed", "retrying"].map(|state| queue[state].as_u64().unwrap_or(0)).iter().sum();
    if let Some(fields) = queue.as_object_mut() {
        for moving in ["oldest_ms", "delayed", "retrying", "pushed_per_s", "claimed_per_s", "empty_in_ms"] {
            fields.remove(moving);
        }
        fields.insert("ready".to_owned(), waiting.into());
    }
    queue
}

fn counts(client: &mut Client, to: SocketAddr) -> Vec<Value> {
    client.get(to, "/api/v1/queues")["queues"].as_array().cloned().unwrap_or_default()
}

fn pages(client: &mut Client, to: SocketAddr) -> Vec<Value> {
    let mut jobs = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(to, &format!("/api/v1/jobs?limit=300{cursor}"));
        jobs.extend(page["jobs"].as_array().cloned().unwrap_or_default().into_iter().map(|mut job| {
            job["state"] = timeless(job["state"].as_str().unwrap_or_default()).into();
            job
        }));
        match &page["next"] {
            Value::Null => return jobs,
            Value::String(next) => cursor = format!("&cursor={next}"),
            next => cursor = format!("&cursor={next}"),
        }
    }
}
