//! How fast lines are added through the journal, against the native durable push of as many jobs in batches of the same
//! size; and what scheduling costs per job.
//!
//! ```sh
//! cargo run --release -p windlass-dialects --example miniq_bench             # 100,000 lines, posts of 1,000, three rounds
//! cargo run --release -p windlass-dialects --example miniq_bench 20000 1
//! cargo run --release -p windlass-dialects --example miniq_bench 20000 0 10 10   # scheduling alone, batches of 10, twice
//! ```
//!
//! * *acknowledged*: from the first post to the answer to the last one. Both are on disk by then.
//! * *in the store*: until all of them are in the store as well.
//! * *raw file*: the same bytes as the journal's blocks appended to a file with an fsync for each post, and nothing else.
//! * *scheduling*: jobs that end as soon as they are started, from the start of the first to the end of the last, by their
//!   number: choosing, claiming, starting, settling.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on ends, and prints"
)]

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use windlass_core::handler::HandlerText;
use windlass_core::{Queue, Tenant};
use windlass_dialects::dialect::Soon;
use windlass_dialects::runners::{Batch, Booking, Ended, NoRoom, Report, Resource, Run, Runners};
use windlass_dialects::{ServerOptions, serve};
use windlass_engine::journal::format::{self, NewLine};
use windlass_engine::journal::{Location, Settings};
use windlass_engine::{Engine, Options, SystemClock, SystemRandom};
use windlass_store::OpenOptions;

const POST: usize = 1_000;
/// Connections that post side by side.
const LANES: [usize; 2] = [1, 4];
const PAYLOAD: &str = "{\"user\":12345,\"action\":\"resize\",\"size\":\"640x480\"}";

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let lines: usize = args.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let rounds: usize = args.next().and_then(|text| text.parse().ok()).unwrap_or(3);
    println!("{lines} jobs in posts of {POST}, jobs/s; times until acknowledged, and until in the store");
    for lanes in LANES {
        for round in 1..=rounds {
            // In turns, so that a busy moment of the machine hits all alike.
            let native = native(lines, lanes).await;
            let (acknowledged, stored) = miniq(lines, lanes).await;
            let raw = raw_file(lines);
            println!(
                "{lanes} connections, round {round}: native {native:>8.0}, miniq {acknowledged:>8.0} acknowledged \
                 ({:.1}x), {stored:>8.0} in the store; raw file {raw:>8.0}",
                acknowledged / native
            );
        }
    }
    let asked: Vec<usize> = args.filter_map(|text| text.parse().ok()).collect();
    for size in if asked.is_empty() { vec![1, 10, 40, 500] } else { asked } {
        let cost = scheduling(lines.min(50_000), size).await;
        println!("scheduling, batches of {size}: {cost:.1} us per job");
    }
}

struct World {
    addr: SocketAddr,
    engine: Engine,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<std::io::Result<()>>,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start(runners: Option<Arc<dyn Runners>>) -> World {
        let folder = tempfile::tempdir_in(".").unwrap();
        let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
        let store = windlass_store::open(&url, OpenOptions::default()).await.unwrap();
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom::default()));
        let engine = Engine::start(store, clock, random, Options::default()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let journal =
            Settings { home: Location::Folder(folder.path().join("journal")), ..Settings::default() };
        let options = ServerOptions { journal, runners, ..ServerOptions::default() };
        let serving = tokio::spawn(serve(listener, engine.clone(), options, async {
            let _ = stopped.await;
        }));
        World { addr, engine, stop, serving, _folder: folder }
    }

    async fn in_store(&self, queue: &str) -> usize {
        let counts = self.engine.counts(None).await.unwrap();
        let queue = Queue::new(queue).unwrap();
        counts
            .iter()
            .filter(|one| one.queue == queue)
            .map(|one| one.by_state.iter().sum::<u64>() as usize)
            .sum()
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        self.serving.await.unwrap().unwrap();
        self.engine.shutdown().await;
    }
}

/// Posts the same body again and again, on so many connections.
async fn post_all(
    addr: SocketAddr,
    path: &'static str,
    body: &str,
    posts: usize,
    lanes: usize,
    expected: u16,
) {
    let mut tasks = tokio::task::JoinSet::new();
    let body: Arc<str> = body.into();
    for lane in 0..lanes {
        let body = Arc::clone(&body);
        tasks.spawn(async move {
            let mut wire = Wire::to(addr).await;
            for _ in (lane..posts).step_by(lanes) {
                assert_eq!(wire.post(path, body.as_bytes()).await, expected);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

async fn native(jobs: usize, lanes: usize) -> f64 {
    let world = World::start(None).await;
    let one = format!("{{\"name\":\"resize\",\"queue\":\"bench\",\"payload\":{PAYLOAD}}}");
    let body = format!("{{\"jobs\":[{}]}}", vec![one; POST].join(","));
    let started = Instant::now();
    post_all(world.addr, "/api/v1/jobs", &body, jobs / POST, lanes, 201).await;
    let rate = jobs as f64 / started.elapsed().as_secs_f64();
    assert_eq!(world.in_store("bench").await, jobs);
    world.stop().await;
    rate
}

async fn miniq(jobs: usize, lanes: usize) -> (f64, f64) {
    let world = World::start(None).await;
    let body = format!("{PAYLOAD}\n").repeat(POST);
    let started = Instant::now();
    post_all(world.addr, "/acme/job/resize/add", &body, jobs / POST, lanes, 200).await;
    let acknowledged = jobs as f64 / started.elapsed().as_secs_f64();
    while world.in_store("miniq").await < jobs {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let stored = jobs as f64 / started.elapsed().as_secs_f64();
    world.stop().await;
    (acknowledged, stored)
}

/// Throughput of the bare disk: the upper bound.
fn raw_file(jobs: usize) -> f64 {
    let ids: Vec<String> = (0..POST).map(|n| format!("Q7TzzMq-vm-aHav-{n:03}")).collect();
    let lines = ids.iter().map(|id| NewLine { id, kind: "acme-resize", payload: PAYLOAD.as_bytes() });
    let block = format::block(lines);
    let mut file = tempfile::tempfile_in(".").unwrap();
    let started = Instant::now();
    for _ in 0..jobs / POST {
        file.write_all(&block).unwrap();
        file.sync_data().unwrap();
    }
    jobs as f64 / started.elapsed().as_secs_f64()
}

/// Jobs that are over as soon as they begin.
struct Instantly {
    size: usize,
    ended: Arc<AtomicUsize>,
}

impl Runners for Instantly {
    fn check(&self, _: &HandlerText) -> Result<(), String> {
        Ok(())
    }
    fn resource(&self, _: &HandlerText) -> Resource {
        "places"
    }
    fn book(&self, _: &str, _: &str, _: &HandlerText) -> Result<Box<dyn Booking>, NoRoom> {
        Ok(Box::new(AnyPlace { size: self.size, ended: Arc::clone(&self.ended) }))
    }
    fn room(&self) -> Soon<'static, ()> {
        Box::pin(std::future::pending())
    }
    fn warm(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn stop(&self, _: Duration) -> Soon<'_, ()> {
        Box::pin(async {})
    }
}

struct AnyPlace {
    size: usize,
    ended: Arc<AtomicUsize>,
}

impl Booking for AnyPlace {
    fn jobs_max(&self) -> usize {
        self.size
    }
    fn start(self: Box<Self>, batch: Batch) -> Box<dyn Run> {
        Box::new(Over { left: batch.jobs.len(), ended: self.ended })
    }
}

struct Over {
    left: usize,
    ended: Arc<AtomicUsize>,
}

impl Run for Over {
    fn next(&mut self) -> Soon<'_, Option<(usize, Ended)>> {
        Box::pin(async {
            self.left = self.left.checked_sub(1)?;
            self.ended.fetch_add(1, Ordering::Relaxed);
            Some((self.left, Ended::Done(Report { exitcode: 200, ..Report::default() })))
        })
    }
    fn stop(&self, _: usize) {}
    fn cut(&self) {}
}

async fn scheduling(jobs: usize, size: usize) -> f64 {
    let runners = Instantly { size, ended: Arc::default() };
    let world = World::start(Some(Arc::new(runners))).await;
    let mut wire = Wire::to(world.addr).await;
    assert_eq!(wire.post("/stop", b"").await, 200);
    assert_eq!(wire.post("/acme/handler/add/resize/add?method=sh", b"exit 0").await, 200);
    post_all(world.addr, "/acme/job/resize/add", &format!("{PAYLOAD}\n").repeat(POST), jobs / POST, 1, 200)
        .await;
    while world.in_store("miniq").await < jobs {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let started = Instant::now();
    assert_eq!(wire.post("/start", b"").await, 200);
    let tenant = Tenant::new("acme").unwrap();
    loop {
        let counts = world.engine.counts(Some(&tenant)).await.unwrap();
        if counts.iter().map(|one| one.of(windlass_core::StateName::Completed)).sum::<u64>() == jobs as u64 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let cost = started.elapsed().as_secs_f64() * 1e6 / jobs as f64;
    world.stop().await;
    cost
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

    /// The status; the answer's body is read and dropped.
    async fn post(&mut self, path: &str, body: &[u8]) -> u16 {
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request).await.unwrap();
        let head_end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0);
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let end = head_end + length.unwrap_or(0_usize);
        while self.buffer.len() < end {
            assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0);
        }
        self.buffer.drain(..end);
        head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }
}
