//! How fast JQ is end to end: jobs that do nothing, enqueued one by one over many connections, pushed to four workers with 64
//! places each, every answer on disk. Then the same again under a rate that never holds anything.
//!
//! ```sh
//! cargo run --release -p windlass-dialects --example jq_bench           # 10,000 jobs, five rounds of each
//! cargo run --release -p windlass-dialects --example jq_bench 2000 1
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on ends, and prints"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use windlass_dialects::{ServerOptions, serve};
use windlass_engine::{Engine, Options, SystemClock, SystemRandom};
use windlass_store::OpenOptions;

const PUSHERS: usize = 64;
const WORKERS: usize = 4;
const MAX_JOBS: usize = 64;
/// Connections on which one worker tells how its jobs ended.
const ANSWERS: usize = 16;

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let jobs: usize = args.next().and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let rounds: usize = args.next().and_then(|text| text.parse().ok()).unwrap_or(5);
    println!("{jobs} jobs, {PUSHERS} pushers, {WORKERS} workers with {MAX_JOBS} places, jobs/s end to end");
    let mut best = [0.0_f64; 2];
    for round in 1..=rounds {
        // In turns, so that a busy moment of the machine hits both alike.
        let rates = [run(jobs, false).await, run(jobs, true).await];
        println!("round {round}: {:>8.0} free, {:>8.0} under a rate that holds nothing", rates[0], rates[1]);
        best = [best[0].max(rates[0]), best[1].max(rates[1])];
    }
    let cost = (1.0 - best[1] / best[0]) * 100.0;
    println!("best:    {:>8.0} free, {:>8.0} under the rate: it costs {cost:.1} %", best[0], best[1]);
}

async fn run(jobs: usize, constrained: bool) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let store = windlass_store::open(&url, OpenOptions::default()).await.unwrap();
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom::default()));
    let engine = Engine::start(store, clock, random, Options::default()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let master = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(serve(listener, engine.clone(), ServerOptions::default(), async {
        let _ = stopped.await;
    }));
    if constrained {
        let limit = br#"{"matcher":{"all":[]},"rate":{"per_second":1000000,"burst":1000000}}"#;
        let (status, _) = Wire::to(master).await.call("PUT", "/jq/constraint/all", "", limit).await;
        assert_eq!(status, 200);
    }
    let (tell, mut ended) = unbounded_channel();
    for _ in 0..WORKERS {
        worker(master, tell.clone()).await;
    }
    let started = Instant::now();
    for lane in 0..PUSHERS {
        tokio::spawn(async move {
            let mut wire = Wire::to(master).await;
            for _ in (lane..jobs).step_by(PUSHERS) {
                let (status, _) = wire.call("POST", "/jq/job", "", br#"{"name":"noop","argument":{}}"#).await;
                assert_eq!(status, 201);
            }
        });
    }
    for _ in 0..jobs {
        ended.recv().await.unwrap();
    }
    let rate = jobs as f64 / started.elapsed().as_secs_f64();
    let _ = stop.send(());
    serving.await.unwrap().unwrap();
    engine.shutdown().await;
    rate
}

/// A worker that says yes and is done at once.
async fn worker(master: SocketAddr, tell: UnboundedSender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let register = format!(
        r#"{{"name":"noop","max_jobs":{MAX_JOBS},"port":{}}}"#,
        listener.local_addr().unwrap().port()
    );
    let (status, answer) = Wire::to(master).await.call("POST", "/jq/worker", "", register.as_bytes()).await;
    assert_eq!(status, 201);
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    let id: Arc<str> = answer["worker_id"].as_str().unwrap().into();
    let (give, given) = unbounded_channel::<String>();
    let given = Arc::new(tokio::sync::Mutex::new(given));
    for _ in 0..ANSWERS {
        let (given, id, tell) = (given.clone(), id.clone(), tell.clone());
        tokio::spawn(async move {
            let mut wire = Wire::to(master).await;
            loop {
                let Some(job) = given.lock().await.recv().await else { return };
                let end = format!(r#"{{"job_id":"{job}","type":"success"}}"#);
                let (status, _) = wire.call("POST", "/jq/done", &id, end.as_bytes()).await;
                assert_eq!(status, 204);
                if tell.send(()).is_err() {
                    return;
                }
            }
        });
    }
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            tokio::spawn(take(Wire { stream, buffer: Vec::new() }, give.clone()));
        }
    });
}

async fn take(mut wire: Wire, give: UnboundedSender<String>) -> Option<()> {
    loop {
        let (_, body) = wire.message().await?;
        let job: serde_json::Value = rmp_serde::from_slice(&body).ok()?;
        wire.stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await.ok()?;
        give.send(job["job_id"].as_str()?.to_owned()).ok()?;
    }
}

/// The least that is HTTP: requests and answers with a length, on a connection that stays.
struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    async fn to(addr: SocketAddr) -> Wire {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Wire { stream, buffer: Vec::new() }
    }

    async fn call(&mut self, method: &str, path: &str, worker: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nworker-id: {worker}\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request).await.unwrap();
        let (first, body) = self.message().await.expect("an answer");
        (first.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0), body)
    }

    /// The first line and the body of what comes next; `None` at the end.
    async fn message(&mut self) -> Option<(String, Vec<u8>)> {
        let head_end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let end = head_end + length.unwrap_or(0);
        while self.buffer.len() < end {
            self.more().await?;
        }
        let body = self.buffer[head_end..end].to_vec();
        self.buffer.drain(..end);
        Some((head.lines().next()?.to_owned(), body))
    }

    async fn more(&mut self) -> Option<()> {
        let read = self.stream.read_buf(&mut self.buffer).await.ok()?;
        (read > 0).then_some(())
    }
}
