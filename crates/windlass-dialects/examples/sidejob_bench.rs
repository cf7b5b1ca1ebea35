//! Cost of SideJob calls, every answer on disk: creating and running with few and with many jobs waiting, and writing
//! to ports over sixteen connections.
//!
//! ```sh
//! cargo run --release -p windlass-dialects --example sidejob_bench           # 20,000 waiting jobs, 40,000 writes
//! cargo run --release -p windlass-dialects --example sidejob_bench 1000 2000
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on ends, and prints"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use windlass_dialects::{ServerOptions, serve};
use windlass_engine::{Engine, Options, SystemClock, SystemRandom};
use windlass_store::OpenOptions;

const CONNECTIONS: usize = 16;
/// Calls of each kind that are timed, one after another on one connection.
const SAMPLES: usize = 200;
const FEW: usize = 100;
const CLASSES: &[u8] = br#"{"W":{},"IO":{"inports":{"a":{}},"outports":{"x":{}}}}"#;

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let many: usize = args.next().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let writes: usize = args.next().and_then(|text| text.parse().ok()).unwrap_or(40_000);
    waiting(many).await;
    println!();
    println!("{writes} port writes, {CONNECTIONS} connections, every answer on disk");
    // Where each writes to, and how many values it lets gather before it reads them all.
    for (what, jobs, depth) in [
        ("a job each, read every 100", CONNECTIONS, 100),
        ("a job each, read every 1,000", CONNECTIONS, 1_000),
        ("one job, one port, read every 100 by each", 1, 100),
    ] {
        let rate = port_writes(jobs, writes, depth).await;
        println!("  {what:<44} {rate:>8.0} writes/s");
    }
    let rate = pushes(writes).await;
    println!("  {:<44} {rate:>8.0} jobs/s", "for comparison: pushes of the native API");
}

struct Bench {
    at: SocketAddr,
    engine: Engine,
    stop: tokio::sync::oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<std::io::Result<()>>,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn start() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
        let store = windlass_store::open(&url, OpenOptions::default()).await.unwrap();
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom::default()));
        let engine = Engine::start(store, clock, random, Options::default()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(serve(listener, engine.clone(), ServerOptions::default(), async {
            let _ = stopped.await;
        }));
        let bench = Bench { at, engine, stop, serving, _folder: folder };
        bench.wire().await.call("PUT", "/sidejob/workers/q", CLASSES).await;
        bench
    }

    async fn wire(&self) -> Wire {
        Wire { stream: TcpStream::connect(self.at).await.unwrap() }
    }

    async fn end(self) {
        let _ = self.stop.send(());
        self.serving.await.unwrap().unwrap();
        self.engine.shutdown().await;
    }
}

/// Creating a job, and running one that waits already, with more and more jobs waiting.
async fn waiting(many: usize) {
    println!("one connection, one call at a time, median of {SAMPLES}");
    println!("{:>10} {:>14} {:>14}", "waiting", "create", "run");
    let bench = Bench::start().await;
    let mut made = 0;
    for target in [FEW, many] {
        made += create_many(&bench, target.saturating_sub(made)).await;
        let mut wire = bench.wire().await;
        let (mut creating, mut running) = (vec![], vec![]);
        for sample in 0..SAMPLES {
            let began = Instant::now();
            wire.call("POST", "/sidejob/jobs", br#"{"queue":"q","class":"W"}"#).await;
            creating.push(began.elapsed());
            // One that rests is run: the call that the original pays for with a look through the whole queue.
            let id = 1 + sample % made;
            wire.call("POST", &format!("/sidejob/jobs/{id}/status"), br#"{"status":"completed"}"#).await;
            let began = Instant::now();
            wire.call("POST", &format!("/sidejob/jobs/{id}/run"), b"{}").await;
            running.push(began.elapsed());
        }
        made += SAMPLES;
        let [create, run] = [creating, running].map(median).map(|time| time.as_secs_f64() * 1_000.0);
        println!("{target:>10} {create:>11.3} ms {run:>11.3} ms");
    }
    bench.end().await;
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

async fn create_many(bench: &Bench, count: usize) -> usize {
    let mut tasks = vec![];
    for lane in 0..CONNECTIONS {
        let mut wire = bench.wire().await;
        tasks.push(tokio::spawn(async move {
            for _ in (lane..count).step_by(CONNECTIONS) {
                wire.call("POST", "/sidejob/jobs", br#"{"queue":"q","class":"W"}"#).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    count
}

async fn port_writes(jobs: usize, writes: usize, depth: usize) -> f64 {
    let bench = Bench::start().await;
    let mut wire = bench.wire().await;
    for _ in 0..jobs {
        wire.call("POST", "/sidejob/jobs", br#"{"queue":"q","class":"IO"}"#).await;
    }
    let each = writes / CONNECTIONS;
    let mut tasks = vec![];
    let began = Instant::now();
    for lane in 0..CONNECTIONS {
        let mut wire = bench.wire().await;
        tasks.push(tokio::spawn(async move {
            let port = format!("/sidejob/jobs/{}/inports/a", 1 + lane % jobs);
            for number in 1..=each {
                let body = format!("{{\"data\":{{\"number\":{number}}}}}");
                wire.call("POST", &format!("{port}/write"), body.as_bytes()).await;
                if number % depth == 0 {
                    wire.call("POST", &format!("{port}/entries"), b"").await;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let rate = (each * CONNECTIONS) as f64 / began.elapsed().as_secs_f64();
    bench.end().await;
    rate
}

/// Throughput of a call that writes one new row, for comparison.
async fn pushes(count: usize) -> f64 {
    let bench = Bench::start().await;
    let mut tasks = vec![];
    let began = Instant::now();
    for _ in 0..CONNECTIONS {
        let mut wire = bench.wire().await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..count / CONNECTIONS {
                wire.call("POST", "/api/v1/jobs", br#"{"name":"w","payload":{"number":1}}"#).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let rate = (count / CONNECTIONS * CONNECTIONS) as f64 / began.elapsed().as_secs_f64();
    bench.end().await;
    rate
}

/// The smallest client that does the work: one connection, kept open.
struct Wire {
    stream: TcpStream,
}

impl Wire {
    async fn call(&mut self, method: &str, path: &str, body: &[u8]) {
        let mut bytes = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        self.stream.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        let mut chunk = vec![0; 16 * 1024];
        loop {
            let read = self.stream.read(&mut chunk).await.unwrap();
            assert!(read > 0, "{path}: the server hung up");
            answer.extend_from_slice(&chunk[..read]);
            let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |text| text.parse().unwrap());
            if answer.len() >= end + 4 + length {
                assert!(head.starts_with("http/1.1 20"), "{path}: {}", String::from_utf8_lossy(&answer));
                return;
            }
        }
    }
}
