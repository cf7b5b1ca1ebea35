//! What the server holds, read when nobody is asking for anything.

use super::http::Client;
use crate::server::eventually;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dump {
    /// When it was taken, in microseconds.
    pub at: i64,
    /// In the order of the pages, twice if listed twice.
    pub jobs: Vec<Value>,
    pub queues: Vec<Value>,
}

impl Dump {
    /// Taken again if something happened by itself in between, such as the end of a lease.
    pub fn take(to: SocketAddr) -> Dump {
        let mut client = Client::default();
        eventually("nothing changes while it is looked at", || {
            let before = counts(&mut client, to);
            let jobs = pages(&mut client, to);
            let queues = counts(&mut client, to);
            let same = before.iter().map(without_ages).eq(queues.iter().map(without_ages));
            same.then(|| Dump { at: super::history::now_us(), jobs, queues })
        })
    }

    pub fn by_id(&self) -> BTreeMap<u64, &Value> {
        self.jobs.iter().map(|job| (job["id"].as_u64().unwrap_or(0), job)).collect()
    }

    /// Everything about every job and queue that may not change by a restart.
    pub fn essence(&self) -> (BTreeMap<u64, Value>, Vec<Value>) {
        let jobs = self.by_id().into_iter().map(|(id, job)| (id, job.clone())).collect();
        let mut queues: Vec<Value> = self.queues.iter().map(without_ages).collect();
        queues.sort_by_key(|queue| queue["queue"].to_string());
        (jobs, queues)
    }
}

/// Ready and delayed are one state that the clock divides.
fn without_ages(queue: &Value) -> Value {
    let mut queue = queue.clone();
    let waiting = queue["ready"].as_u64().unwrap_or(0) + queue["delayed"].as_u64().unwrap_or(0);
    if let Some(fields) = queue.as_object_mut() {
        fields.remove("oldest_ms");
        fields.remove("delayed");
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
        jobs.extend(page["jobs"].as_array().cloned().unwrap_or_default());
        match &page["next"] {
            Value::Null => return jobs,
            Value::String(next) => cursor = format!("&cursor={next}"),
            next => cursor = format!("&cursor={next}"),
        }
    }
}
