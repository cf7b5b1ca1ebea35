//! How fast no-op WASI jobs go through a real server, and how soon a guest starts.
//!
//! ```sh
//! cargo build --release && cargo build --release -p windlass-runners --features wasi --example wasi_bench
//! taskset -c 0 target/release/examples/wasi_bench                  # everything, the client too, on one core
//! target/release/examples/wasi_bench 20000 4 16 relaxed            # jobs, workers, connections, durability
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on should say where"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, Stdio};
use std::time::{Duration, Instant};
use windlass_runners::wasi::child::{Child, GuestProgram, RunEnd};
use windlass_runners::wasi::machine::monotonic_ns;
use windlass_runners::wasi::message::Limits;

const NOOP: &str = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;
const STARTS: usize = 5_000;

struct Setup {
    windlass: PathBuf,
    jobs: usize,
    workers: usize,
    connections: usize,
    durability: String,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default: usize| args.next().map_or(default, |text| text.parse().unwrap());
    let (jobs, workers, connections) = (number(10_000), number(4), number(16));
    let durability = args.next().unwrap_or_else(|| "full".to_owned());
    // target/release/examples/wasi_bench stands beside target/release/windlass.
    let own = std::env::current_exe().unwrap();
    let windlass = own.parent().and_then(Path::parent).unwrap().join("windlass");
    assert!(windlass.exists(), "build it first: cargo build --release");
    let setup = Setup { windlass, jobs, workers, connections, durability };
    starts(&setup);
    whole_way(&setup);
}

/// From handing a run to a guest process to the first moment of the guest, with the module in its cache.
fn starts(setup: &Setup) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let program =
            GuestProgram { path: setup.windlass.clone(), args: vec!["run-wasi-guest".to_owned()] };
        let mut child = Child::start(&program, Limits::default()).await.unwrap();
        let module = wat::parse_str(NOOP).unwrap();
        let mut waits = Vec::with_capacity(STARTS);
        let began = Instant::now();
        for _ in 0..STARTS {
            let bytes = module.clone();
            let asked = monotonic_ns();
            let RunEnd::Ended(ended) = child.run("noop", Vec::new(), async { Ok(bytes) }).await else {
                panic!("it did not end");
            };
            waits.push(ended.began_ns.saturating_sub(asked));
        }
        let per_second = STARTS as f64 / began.elapsed().as_secs_f64();
        waits.sort_unstable();
        let at = |share: f64| waits[((STARTS - 1) as f64 * share) as usize] as f64 / 1_000.0;
        println!(
            "guest start, warm: median {:.0} µs, 99 % {:.0} µs, worst {:.0} µs; {per_second:.0} runs/s in one process",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    });
}

/// Create, claim, run, complete.
fn whole_way(setup: &Setup) {
    let folder = std::env::temp_dir().join(format!("wasi-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut server = start_server(setup, &folder);
    let address = wait_for_address(&folder.join("ready.json"));
    let mut connection = Connection::open(&address);
    let binary = connection.call("PUT", "/blob", &wat::parse_str(NOOP).unwrap());
    let ask = format!("{{\"binary_addr\":\"{}\"}}", binary.trim());
    // Every process has compiled the module before time is taken.
    push(&address, &ask, setup.workers * 50, 1);
    wait_until_completed(&mut connection, setup.workers * 50);
    let cpu_before = cpu_ms(&server);
    let began = Instant::now();
    push(&address, &ask, setup.jobs, setup.connections);
    let pushed = began.elapsed();
    wait_until_completed(&mut connection, setup.workers * 50 + setup.jobs);
    let took = began.elapsed().as_secs_f64();
    let cpu = (cpu_ms(&server) - cpu_before) as f64;
    println!(
        "whole way: {} jobs in {took:.2} s, {:.0} jobs/s ({} workers, {} connections, {}; all created after {:.2} s); \
         server and guests {:.0} µs CPU per job",
        setup.jobs,
        setup.jobs as f64 / took,
        setup.workers,
        setup.connections,
        setup.durability,
        pushed.as_secs_f64(),
        cpu * 1_000.0 / setup.jobs as f64
    );
    server.kill().unwrap();
    server.wait().unwrap();
    let _ = std::fs::remove_dir_all(&folder);
}

fn start_server(setup: &Setup, folder: &Path) -> Process {
    let workers = format!("wasi.workers={}", setup.workers);
    Command::new(&setup.windlass)
        .args(["serve", "--http", "127.0.0.1:0", "--bedrock", "off", "--mdns", "off", "--data"])
        .arg(folder.join("data"))
        .args(["--durability", &setup.durability, "--set", &workers, "--ready-file"])
        .arg(folder.join("ready.json"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn wait_for_address(ready: &Path) -> String {
    for _ in 0..3_000 {
        if let Ok(text) = std::fs::read_to_string(ready)
            && let Some(address) = text.split('"').nth(3)
        {
            return address.to_owned();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the server does not start");
}

fn push(address: &str, ask: &str, jobs: usize, connections: usize) {
    std::thread::scope(|scope| {
        for number in 0..connections {
            let share = jobs / connections + usize::from(number < jobs % connections);
            scope.spawn(move || {
                let mut connection = Connection::open(address);
                for _ in 0..share {
                    connection.call("POST", "/jobs/create", ask.as_bytes());
                }
            });
        }
    });
}

fn wait_until_completed(connection: &mut Connection, jobs: usize) {
    let wanted = format!("windlass_jobs{{tenant=\"default\",queue=\"queuey\",state=\"completed\"}} {jobs}");
    for _ in 0..60_000 {
        let metrics = connection.call("GET", "/metrics", b"");
        if metrics.lines().any(|line| line == wanted) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not all jobs end; {wanted} never came");
}

/// Of the server and its guest processes so far.
fn cpu_ms(server: &Process) -> u64 {
    let mut pids = vec![server.id()];
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    for task in tasks.flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    pids.into_iter().filter_map(process_cpu_ms).sum()
}

fn process_cpu_ms(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = stat.rsplit_once(')')?.1;
    let ticks = |field: usize| rest.split_whitespace().nth(field)?.parse::<u64>().ok();
    // Hundredths of a second in user and system mode.
    Some((ticks(11)? + ticks(12)?) * 10)
}

/// Just enough HTTP for one kept connection.
struct Connection {
    stream: BufReader<TcpStream>,
    address: String,
}

impl Connection {
    fn open(address: &str) -> Connection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { stream: BufReader::new(stream), address: address.to_owned() }
    }

    fn call(&mut self, method: &str, path: &str, body: &[u8]) -> String {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.stream.get_mut().write_all(&request).unwrap();
        let mut length = 0;
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 2"), "{line}");
        loop {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }
}
