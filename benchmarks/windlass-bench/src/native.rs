//! Client of the native API, in JSON or MessagePack. Repeated requests are built once and reused.

use super::client::{Client, Held, Shape, Target, blank_payload, read_stamp, stamp};
use super::http::{Http, RequestHead};
use serde::{Deserialize, Serialize};
use std::io;

/// Lease duration; long enough that no lease expires during a run, as for the peers.
const LEASE_MS: u64 = 600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    Json,
    Msgpack,
}

impl Format {
    fn content_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Msgpack => "application/msgpack",
        }
    }

    fn write<T: Serialize>(self, value: &T, out: &mut Vec<u8>) -> io::Result<()> {
        out.clear();
        match self {
            Format::Json => serde_json::to_writer(out, value).map_err(io::Error::other),
            Format::Msgpack => rmp_serde::encode::write_named(out, value).map_err(io::Error::other),
        }
    }

    fn read<'a, T: Deserialize<'a>>(self, bytes: &'a [u8]) -> io::Result<T> {
        match self {
            Format::Json => serde_json::from_slice(bytes).map_err(io::Error::other),
            Format::Msgpack => rmp_serde::from_slice(bytes).map_err(io::Error::other),
        }
    }
}

/// Windlass server.
#[derive(Clone, Debug)]
pub(super) struct Windlass {
    pub address: String,
    pub pid: Option<u32>,
    pub format: Format,
    pub token: Option<String>,
}

impl Target for Windlass {
    type Client = Native;

    async fn connect(&self, shape: &Shape) -> io::Result<Native> {
        let head =
            |path| RequestHead::post(path, &self.address, self.format.content_type(), self.token.as_deref());
        Ok(Native {
            http: Http::connect(&self.address).await?,
            format: self.format,
            shape: shape.clone(),
            push_head: head("/api/v1/jobs"),
            claim_head: head("/api/v1/claim"),
            settle_head: head("/api/v1/settle"),
            push: Prepared::default(),
            claim: Prepared::default(),
            body: Vec::new(),
            request: Vec::new(),
        })
    }

    fn pid(&self) -> Option<u32> {
        self.pid
    }
}

pub(super) struct Native {
    http: Http,
    format: Format,
    shape: Shape,
    push_head: RequestHead,
    claim_head: RequestHead,
    settle_head: RequestHead,
    push: Prepared,
    claim: Prepared,
    body: Vec<u8>,
    request: Vec<u8>,
}

/// Last request, reused for equal arguments.
#[derive(Default)]
struct Prepared {
    for_arguments: Option<(usize, u64)>,
    request: Vec<u8>,
    payload_at: usize,
}

#[derive(Serialize)]
struct PushBody<'a> {
    jobs: Vec<NewJob<'a>>,
}

#[derive(Serialize, Clone, Copy)]
struct NewJob<'a> {
    name: &'a str,
    queue: &'a str,
    keep: Keep,
    payload: &'a str,
}

/// Keep time 0: a finished job is deleted at once, as by the peers.
#[derive(Serialize, Clone, Copy)]
struct Keep {
    completed_ms: u64,
}

#[derive(Serialize, Clone, Copy)]
struct ClaimBody<'a> {
    queues: [&'a str; 1],
    name: &'a str,
    limit: usize,
    wait_ms: u64,
    lease_ms: u64,
}

#[derive(Deserialize)]
struct ClaimAnswer<'a> {
    #[serde(borrow)]
    jobs: Vec<ClaimedJob<'a>>,
}

#[derive(Deserialize)]
struct ClaimedJob<'a> {
    id: u64,
    token: u64,
    payload: &'a str,
}

#[derive(Serialize)]
struct SettleBody<'a> {
    settle: Vec<SettleEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<ClaimBody<'a>>,
}

#[derive(Serialize)]
struct SettleEntry {
    id: u64,
    token: u64,
    outcome: &'static str,
}

#[derive(Deserialize)]
struct SettleAnswer<'a> {
    settled: Vec<SettledEntry>,
    #[serde(borrow, default)]
    jobs: Vec<ClaimedJob<'a>>,
}

#[derive(Deserialize)]
struct SettledEntry {
    ok: bool,
}

impl Native {
    /// Pushes one job per name, to fill a queue with many names.
    pub(super) async fn push_names(&mut self, names: &[String]) -> io::Result<()> {
        let payload = blank_payload(self.shape.payload_bytes);
        let payload = as_text(&payload)?;
        let jobs = names.iter().map(|name| NewJob { name, ..new_job(&self.shape, payload) }).collect();
        self.format.write(&PushBody { jobs }, &mut self.body)?;
        self.push_head.write(&self.body, &mut self.request);
        self.http.exchange(&self.request).await?;
        Ok(())
    }

    fn prepare_push(&mut self, jobs: usize) -> io::Result<()> {
        let payload = blank_payload(self.shape.payload_bytes);
        let job = new_job(&self.shape, as_text(&payload)?);
        if jobs == 1 {
            self.format.write(&job, &mut self.body)?;
        } else {
            self.format.write(&PushBody { jobs: vec![job; jobs] }, &mut self.body)?;
        }
        self.push_head.write(&self.body, &mut self.push.request);
        let found = self.push.request.windows(payload.len()).position(|window| window == payload);
        self.push.payload_at = found.ok_or_else(|| io::Error::other("the payload is not sent as it is"))?;
        self.push.for_arguments = Some((jobs, 0));
        Ok(())
    }

    fn prepare_claim(&mut self, limit: usize, wait_ms: u64) -> io::Result<()> {
        let Shape { queue, pattern, .. } = &self.shape;
        let body = ClaimBody { queues: [queue], name: pattern, limit, wait_ms, lease_ms: LEASE_MS };
        self.format.write(&body, &mut self.body)?;
        self.claim_head.write(&self.body, &mut self.claim.request);
        self.claim.for_arguments = Some((limit, wait_ms));
        Ok(())
    }
}

impl Client for Native {
    async fn push(&mut self, jobs: usize, stamp_ns: u64) -> io::Result<()> {
        if self.push.for_arguments != Some((jobs, 0)) {
            self.prepare_push(jobs)?;
        }
        stamp(&mut self.push.request[self.push.payload_at..], stamp_ns);
        self.http.exchange(&self.push.request).await?;
        Ok(())
    }

    async fn claim(&mut self, limit: usize, wait_ms: u64, held: &mut Vec<Held>) -> io::Result<()> {
        if self.claim.for_arguments != Some((limit, wait_ms)) {
            self.prepare_claim(limit, wait_ms)?;
        }
        let body = self.http.exchange(&self.claim.request).await?;
        held.extend(read_claimed(self.format, body)?);
        Ok(())
    }

    async fn finish(&mut self, held: &[Held]) -> io::Result<()> {
        self.write_settle(held, None)?;
        let answer: SettleAnswer<'_> = self.format.read(self.http.exchange(&self.request).await?)?;
        all_settled(&answer, held.len())
    }

    /// Finishes and claims in one call, as a worker would.
    async fn turn(&mut self, held: &mut Vec<Held>, limit: usize) -> io::Result<()> {
        if held.is_empty() {
            return self.claim(limit, 0, held).await;
        }
        self.write_settle(held, Some(limit))?;
        let answer: SettleAnswer<'_> = self.format.read(self.http.exchange(&self.request).await?)?;
        all_settled(&answer, held.len())?;
        held.clear();
        held.extend(answer.jobs.into_iter().map(held_job));
        Ok(())
    }
}

impl Native {
    fn write_settle(&mut self, held: &[Held], next: Option<usize>) -> io::Result<()> {
        let entry = |job: &Held| SettleEntry { id: job.id, token: job.token, outcome: "finish" };
        let Shape { queue, pattern, .. } = &self.shape;
        let claim =
            |limit| ClaimBody { queues: [queue], name: pattern, limit, wait_ms: 0, lease_ms: LEASE_MS };
        let body = SettleBody { settle: held.iter().map(entry).collect(), claim: next.map(claim) };
        self.format.write(&body, &mut self.body)?;
        self.settle_head.write(&self.body, &mut self.request);
        Ok(())
    }
}

fn all_settled(answer: &SettleAnswer<'_>, expected: usize) -> io::Result<()> {
    match answer.settled.iter().filter(|entry| entry.ok).count() {
        settled if settled == expected => Ok(()),
        settled => Err(io::Error::other(format!("only {settled} of {expected} jobs could be finished"))),
    }
}

fn read_claimed(format: Format, body: &[u8]) -> io::Result<impl Iterator<Item = Held>> {
    let answer: ClaimAnswer<'_> = format.read(body)?;
    Ok(answer.jobs.into_iter().map(held_job))
}

fn held_job(job: ClaimedJob<'_>) -> Held {
    Held { id: job.id, token: job.token, pushed_ns: read_stamp(job.payload.as_bytes()) }
}

fn new_job<'a>(shape: &'a Shape, payload: &'a str) -> NewJob<'a> {
    NewJob { name: &shape.name, queue: &shape.queue, keep: Keep { completed_ms: 0 }, payload }
}

fn as_text(payload: &[u8]) -> io::Result<&str> {
    std::str::from_utf8(payload).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_answer_is_read_in_both_formats() {
        let answer = json!({"jobs": [
            {"id": 7, "token": 65537, "name": "n", "payload": "00000000000000000042xx", "tags": ["a"], "lease_until": null},
            {"id": 8, "token": 65538, "payload": "no stamp"},
        ]});
        let expected =
            [Held { id: 7, token: 65537, pushed_ns: 42 }, Held { id: 8, token: 65538, pushed_ns: 0 }];
        for format in [Format::Json, Format::Msgpack] {
            let mut bytes = Vec::new();
            format.write(&answer, &mut bytes).unwrap();
            assert_eq!(read_claimed(format, &bytes).unwrap().collect::<Vec<_>>(), expected, "{format:?}");
        }
    }

    #[test]
    fn a_new_job_is_deleted_when_finished() {
        let shape = Shape::new("q", 20);
        let mut bytes = Vec::new();
        Format::Json.write(&new_job(&shape, "p"), &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text, r#"{"name":"bench.job","queue":"q","keep":{"completed_ms":0},"payload":"p"}"#);
    }
}
