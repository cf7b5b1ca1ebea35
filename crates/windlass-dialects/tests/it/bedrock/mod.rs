//! The Bedrock::Jobs dialect over a real socket, with a manual clock, on every store.

mod changing;
mod connections;
mod creating;
mod edges;
mod families;
mod framing;
mod getting;
mod mocking;
mod querying;
mod repeating;
mod retrying;
mod settling;
mod transcripts;
mod waiting;

use crate::stores::{Chosen, Kind, repeat_on};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use windlass_core::Timestamp;
use windlass_dialects::ServerOptions;
use windlass_dialects::bedrock::{Profile, Settings};
use windlass_dialects::settings::DialectSettings;
use windlass_engine::{Engine, ManualClock, Options, SeededRandom};
use windlass_store::Store;

/// 2024-01-31 12:00:00, a Wednesday.
pub const START_MS: i64 = 1_706_702_400_000;
pub const START: &str = "2024-01-31 12:00:00";

/// Far longer than any test needs, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub const BOTH: [Profile; 2] = [Profile::Seed, Profile::Current];

pub struct Bedrock {
    pub addr: SocketAddr,
    pub engine: Engine,
    pub clock: Arc<ManualClock>,
    stop: Option<oneshot::Sender<()>>,
    pub serving: JoinHandle<std::io::Result<()>>,
    /// Folder of the store, if it has one.
    _folder: Option<TempDir>,
}

impl Bedrock {
    pub async fn start(profile: Profile) -> Bedrock {
        let settings = Settings { profile, ..Settings::default() };
        Bedrock::with(ServerOptions { settings: DialectSettings::of(settings), ..ServerOptions::default() })
            .await
    }

    pub async fn seed() -> Bedrock {
        Bedrock::start(Profile::Seed).await
    }

    pub async fn current() -> Bedrock {
        Bedrock::start(Profile::Current).await
    }

    pub async fn with(options: ServerOptions) -> Bedrock {
        let Chosen { store, folder } = Chosen::new().await;
        Bedrock { _folder: folder, ..Bedrock::on(store, options).await }
    }

    pub async fn on(store: Arc<dyn Store>, mut options: ServerOptions) -> Bedrock {
        options.guests.get_or_insert_with(crate::bedrock_query::guests);
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START_MS)));
        let random = Arc::new(SeededRandom::new(1));
        let engine = Engine::start(store, clock.clone(), random, Options::default()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving =
            tokio::spawn(crate::support::serve_port("bedrock", listener, engine.clone(), options, async {
                let _ = stopped.await;
            }));
        Bedrock { addr, engine, clock, stop: Some(stop), serving, _folder: None }
    }

    pub async fn connect(&self) -> Conn {
        Conn { stream: TcpStream::connect(self.addr).await.unwrap(), buffer: Vec::new() }
    }

    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub fn advance_s(&self, seconds: i64) {
        self.clock.advance(seconds * 1_000);
    }

    /// Waits until `count` claims wait.
    pub async fn waiters(&self, count: usize) {
        eventually(async || self.engine.waiters() == count).await;
    }
}

pub struct Conn {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn ok(self) -> Reply {
        assert_eq!(self.status, "200 OK");
        self
    }

    #[track_caller]
    pub fn job_id(&self) -> u64 {
        self.json()["jobID"].as_u64().unwrap_or_else(|| panic!("no jobID: {self:?}"))
    }
}

impl Conn {
    pub async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    pub async fn send_request(&mut self, verb: &str, headers: &[(&str, &str)]) {
        let mut text = format!("{verb}\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {}\r\n", value.replace('\\', "\\\\")));
        }
        text.push_str("\r\n");
        self.send(&text).await;
    }

    pub async fn ask(&mut self, verb: &str, headers: &[(&str, &str)]) -> Reply {
        self.send_request(verb, headers).await;
        self.reply().await.expect("a reply")
    }

    /// Sends a request and returns the status line.
    pub async fn status(&mut self, verb: &str, headers: &[(&str, &str)]) -> String {
        self.ask(verb, headers).await.status
    }

    /// Reads a reply; `None`: the connection was closed.
    pub async fn reply(&mut self) -> Option<Reply> {
        let head = self.until(b"\r\n\r\n").await?;
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().to_owned();
        let split =
            |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
        let headers: Vec<(String, String)> = lines.filter_map(split).collect();
        let (last, length) = headers.last().unwrap();
        assert_eq!(last, "Content-Length", "the length is last");
        let length = length.parse().unwrap();
        while self.buffer.len() < length {
            self.more().await?;
        }
        let body = String::from_utf8(self.buffer.drain(..length).collect()).unwrap();
        Some(Reply { status, headers, body })
    }

    async fn until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|window| window == mark) {
                return Some(self.buffer.drain(..at + mark.len()).collect());
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Option<()> {
        let mut chunk = vec![0; 16 * 1024];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut chunk)).await;
        match read.expect("something within a minute") {
            Ok(0) | Err(_) => None,
            Ok(bytes) => {
                self.buffer.extend_from_slice(&chunk[..bytes]);
                Some(())
            }
        }
    }

    // --- frequent commands ---------------------------------------------------------------------------------

    pub async fn create(&mut self, name: &str, headers: &[(&str, &str)]) -> u64 {
        let mut all = vec![("name", name)];
        all.extend_from_slice(headers);
        self.ask("CreateJob", &all).await.ok().job_id()
    }

    pub async fn get(&mut self, name: &str) -> Value {
        self.ask("GetJob", &[("name", name)]).await.ok().json()
    }

    /// Returns the result of QueryJob.
    pub async fn query(&mut self, id: u64) -> Value {
        self.ask("QueryJob", &[("jobID", &id.to_string())]).await.ok().json()
    }

    /// Returns the state; `gone`: there is no such job.
    pub async fn state(&mut self, id: u64) -> String {
        let reply = self.ask("QueryJob", &[("jobID", &id.to_string())]).await;
        if reply.status.starts_with("404") {
            return "gone".to_owned();
        }
        reply.json()["state"].as_str().unwrap().to_owned()
    }

    pub async fn next_run(&mut self, id: u64) -> String {
        self.query(id).await["nextRun"].as_str().unwrap().to_owned()
    }

    pub async fn to(&mut self, verb: &str, id: u64, headers: &[(&str, &str)]) -> String {
        let id = id.to_string();
        let mut all = vec![("jobID", id.as_str())];
        all.extend_from_slice(headers);
        self.status(verb, &all).await
    }

    pub async fn finish(&mut self, id: u64) {
        assert_eq!(self.to("FinishJob", id, &[]).await, "200 OK");
    }

    /// Waits until the scheduler has moved the job into this state.
    pub async fn becomes(&mut self, id: u64, state: &str) {
        let began = Instant::now();
        while self.state(id).await != state {
            assert!(began.elapsed() < PATIENCE, "job {id} is {}, not {state}", self.state(id).await);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

pub async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "it never came to be");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Runs all tests here and in [`crate::bedrock_query`]; the engine's manual clock applies to every store.
#[test]
fn all_of_this_holds_on_the_embedded_store() {
    repeat_on(Kind::Sqlite, "bedrock", "bedrock::all_of_this_holds_on");
}

#[test]
fn all_of_this_holds_on_postgresql() {
    repeat_on(Kind::Postgres, "bedrock", "bedrock::all_of_this_holds_on");
}
