//! [`JobSource`] of a server over HTTP, by the queuey-queue protocol, which is open to runners in any
//! language.

use super::{Clients, Storage};
use crate::client::{Client, ClientError};
use async_trait::async_trait;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use tracing::info;
use windlass_runners::wasi::job_source::{
    Assignment, FetchError, GiveBack, JobSource, JobSourceError, Tickled, Verdict,
};
use windlass_store::blobs::BlobAddr;

/// Backoff between polls without a job: the protocol has no waiting claim.
const POLL_FIRST: Duration = Duration::from_millis(50);
const POLL_MOST: Duration = Duration::from_secs(1);

pub(crate) struct Remote {
    jobs: Clients,
    /// Blob storage; the server itself unless another is configured.
    storage: Storage,
    runner_id: String,
    abandoned_age: Duration,
    pause: Mutex<Duration>,
}

/// Fields of a job used by the runner.
#[derive(Deserialize)]
struct Claimed {
    job_id: Option<String>,
    /// Name of the field in the protocol's first implementation.
    id: Option<String>,
    binary_addr: Option<String>,
    input_addr: Option<String>,
}

impl Remote {
    pub(crate) fn new(server: Client, storage: Option<Client>, abandoned_age: Duration) -> Remote {
        let storage = Storage::new(storage.unwrap_or_else(|| server.another()));
        let jobs = Clients::new(server);
        Remote { jobs, storage, runner_id: random_uuid(), abandoned_age, pause: Mutex::new(POLL_FIRST) }
    }

    pub(crate) fn runner_id(&self) -> &str {
        &self.runner_id
    }

    async fn post(&self, path: String, body: Value) -> Result<(u16, Vec<u8>), JobSourceError> {
        let body = body.to_string().into_bytes();
        self.jobs
            .call("POST", path, Some(body))
            .await
            .map_err(|error: ClientError| JobSourceError(error.to_string()))
    }

    async fn claim_one(&self) -> Result<Option<Assignment<String>>, JobSourceError> {
        let (status, body) =
            self.post("/jobs/claim".to_owned(), json!({"runner_id": self.runner_id})).await?;
        match status {
            204 => Ok(None),
            200 => {
                let job = serde_json::from_slice(&body).ok().and_then(|job| self.assignment(job));
                job.map(Some).ok_or_else(|| {
                    JobSourceError(format!("the response to a claim is not a job: {}", text(&body)))
                })
            }
            _ => Err(refused(status, &body)),
        }
    }

    fn assignment(&self, job: Claimed) -> Option<Assignment<String>> {
        let id = job.job_id.or(job.id)?;
        let binary = job.binary_addr.unwrap_or_default();
        Some(Assignment {
            id: id.clone(),
            // Normalized, so that a module with several notations of its address is compiled once.
            binary: BlobAddr::parse(&binary).map_or(binary, |address| address.to_string()),
            input: job.input_addr,
            lease: Some(self.abandoned_age),
            ticket: id,
        })
    }

    /// Returns the current pause, and doubles the next one unless a job was found.
    fn next_pause(&self, found: bool) -> Duration {
        let mut pause = self.pause.lock();
        let now = *pause;
        *pause = if found { POLL_FIRST } else { (now * 2).min(POLL_MOST) };
        now
    }
}

#[async_trait]
impl JobSource for Remote {
    type Ticket = String;

    async fn claim(&self, limit: usize) -> Result<Vec<Assignment<String>>, JobSourceError> {
        let mut jobs = Vec::new();
        while jobs.len() < limit {
            match self.claim_one().await {
                Ok(Some(job)) => jobs.push(job),
                Ok(None) => break,
                // Returns the jobs claimed so far, which must be run.
                Err(_) if !jobs.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        let pause = self.next_pause(!jobs.is_empty());
        if jobs.is_empty() {
            tokio::time::sleep(pause).await;
        }
        Ok(jobs)
    }

    async fn fetch(&self, address: &str) -> Result<Vec<u8>, FetchError> {
        self.storage.fetch(address).await
    }

    async fn tickle(&self, job: &String) -> Result<Tickled, JobSourceError> {
        let body = json!({"runner_id": self.runner_id});
        let (status, body) = self.post(format!("/jobs/{job}/tickle"), body).await?;
        match status {
            200..300 => Ok(Tickled::GoOn),
            400 | 404 | 409 => Ok(Tickled::Lost),
            _ => Err(refused(status, &body)),
        }
    }

    async fn settle(&self, job: &String, verdict: Verdict) -> Result<(), JobSourceError> {
        let (word, output) = match verdict {
            Verdict::Completed(stdout) => ("completed", stdout),
            Verdict::Failed { stderr, .. } => ("failed", stderr),
        };
        let address = self.storage.put(output).await?;
        let body = json!({"status": word, "output_addr": address, "runner_id": self.runner_id});
        let (status, body) = self.post(format!("/jobs/{job}/complete"), body).await?;
        match status {
            200..300 => Ok(()),
            400 | 404 | 409 => {
                info!(%job, "cannot complete job {job}: it no longer belongs to this runner: {}", text(&body));
                Ok(())
            }
            _ => Err(refused(status, &body)),
        }
    }

    /// Does nothing: the protocol has no release, so the job is given to another runner when heartbeats stop.
    async fn give_back(&self, job: &String, _how: GiveBack) -> Result<(), JobSourceError> {
        let age = self.abandoned_age.as_secs_f64();
        info!(%job, "job {job} was released: it runs again after {age} s without a heartbeat");
        Ok(())
    }
}

fn refused(status: u16, body: &[u8]) -> JobSourceError {
    let hint = if status == 401 { " (set a token with --token or WINDLASS_TOKEN)" } else { "" };
    JobSourceError(format!("the server responded with status {status}: {}{hint}", text(body)))
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).trim().chars().take(200).collect()
}

/// Random UUID version 4.
pub(crate) fn random_uuid() -> String {
    let mut bytes = [0_u8; 16];
    // Fails only at boot, before the kernel's random generator is initialized.
    let _ = getrandom::fill(&mut bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let number = u128::from_be_bytes(bytes);
    let hex = format!("{number:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_has_a_uuid_of_its_own() {
        let (one, two) = (random_uuid(), random_uuid());
        assert_ne!(one, two);
        let shape: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(shape, [8, 4, 4, 4, 12], "{one}");
        assert_eq!(&one[14..15], "4", "{one}");
        assert!("89ab".contains(&one[19..20]), "{one}");
    }
}
