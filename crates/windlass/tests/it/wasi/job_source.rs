//! Job source in memory: takes jobs, and records the runner's reports.

use super::samples;
use async_trait::async_trait;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::Notify;
use windlass_runners::wasi::job_source::{
    Assignment, FetchError, GiveBack, JobSource, JobSourceError, News, Tickled, Verdict,
};

#[derive(Default)]
pub struct Memory {
    inside: Mutex<Inside>,
    came: Notify,
    told: Notify,
    news: Notify,
}

#[derive(Default)]
struct Inside {
    blobs: HashMap<String, Vec<u8>>,
    waiting: VecDeque<Assignment<&'static str>>,
    told: Vec<(&'static str, String)>,
    tickles: usize,
    answer: Option<Tickled>,
    unreachable: bool,
}

impl Memory {
    /// Stores a blob under a chosen name.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        self.inside.lock().unwrap().blobs.insert(name.to_owned(), bytes.to_vec());
    }

    pub fn push(&self, id: &'static str, text: &str, input: Option<&str>) {
        self.put(text, &samples::compile(text));
        self.push_as_it_is(id, text, input, None);
    }

    pub fn push_as_it_is(
        &self,
        id: &'static str,
        binary: &str,
        input: Option<&str>,
        lease: Option<Duration>,
    ) {
        let job = Assignment {
            id: id.to_owned(),
            binary: binary.to_owned(),
            input: input.map(str::to_owned),
            lease,
            ticket: id,
        };
        self.inside.lock().unwrap().waiting.push_back(job);
        self.came.notify_one();
    }

    /// Sets the answer to heartbeats from now on.
    pub fn answer(&self, answer: Tickled) {
        self.inside.lock().unwrap().answer = Some(answer);
        self.news.notify_waiters();
    }

    pub fn cut_off(&self) {
        self.inside.lock().unwrap().unreachable = true;
    }

    pub fn tickles(&self) -> usize {
        self.inside.lock().unwrap().tickles
    }

    pub fn is_empty(&self) -> bool {
        self.inside.lock().unwrap().waiting.is_empty()
    }

    /// Waits for the report on this job.
    pub async fn outcome(&self, id: &str) -> String {
        loop {
            let told = self.told.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            let inside = self.inside.lock().unwrap().told.iter().find(|(job, _)| *job == id).cloned();
            if let Some((_, outcome)) = inside {
                return outcome;
            }
            told.await;
        }
    }

    fn say(&self, ticket: &'static str, what: String) {
        self.inside.lock().unwrap().told.push((ticket, what));
        self.told.notify_waiters();
    }
}

#[async_trait]
impl JobSource for Memory {
    type Ticket = &'static str;

    async fn claim(&self, limit: usize) -> Result<Vec<Assignment<&'static str>>, JobSourceError> {
        loop {
            let came = self.came.notified();
            {
                let waiting = &mut self.inside.lock().unwrap().waiting;
                if !waiting.is_empty() {
                    let count = limit.min(waiting.len());
                    return Ok(waiting.drain(..count).collect());
                }
            }
            came.await;
        }
    }

    async fn fetch(&self, address: &str) -> Result<Vec<u8>, FetchError> {
        let inside = self.inside.lock().unwrap();
        if address == "trouble" {
            return Err(FetchError::Trouble("no answer".to_owned()));
        }
        inside.blobs.get(address).cloned().ok_or_else(|| FetchError::Missing(format!("no blob {address}")))
    }

    async fn tickle(&self, _ticket: &&'static str) -> Result<Tickled, JobSourceError> {
        let mut inside = self.inside.lock().unwrap();
        inside.tickles += 1;
        if inside.unreachable {
            return Err(JobSourceError("cut off".to_owned()));
        }
        Ok(inside.answer.clone().unwrap_or(Tickled::GoOn))
    }

    fn listen(&self, _ticket: &&'static str) -> News<'_> {
        Box::pin(self.news.notified())
    }

    async fn settle(&self, ticket: &&'static str, verdict: Verdict) -> Result<(), JobSourceError> {
        let what = match verdict {
            Verdict::Completed(stdout) => format!("completed {}", String::from_utf8_lossy(&stdout)),
            Verdict::Failed { message, exit_code, stderr } => {
                format!("failed {exit_code:?} {message} | {}", String::from_utf8_lossy(&stderr))
            }
        };
        self.say(ticket, what);
        Ok(())
    }

    async fn give_back(&self, ticket: &&'static str, how: GiveBack) -> Result<(), JobSourceError> {
        self.say(ticket, format!("given back, counts: {}, after {:?}", how.counts, how.delay));
        Ok(())
    }
}
