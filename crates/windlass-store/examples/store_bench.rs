//! Jobs per second of a store, without HTTP and engine. For profiling.
//!
//! ```text
//! cargo run --release -p windlass-store --example store_bench -- sqlite:bench.db --jobs 500000 --batch 1000 --tasks 4
//! cargo run --release -p windlass-store --example store_bench -- memory:
//! ```
//!
//! Phases: push, claim and settle in batches, each by itself; drain (claim and settle together); and single
//! jobs from 64 tasks at once, which measures group commit. `--relaxed` acknowledges before the sync; `--only
//! push,drain` runs some of the phases. The file must not exist, and is kept for inspection.
//!
//! `--only old,push` fills a file and `--only start` measures the start on it: `old` adds finished jobs, one of
//! them with a name of its own, for which `start` searches.

use std::error::Error;
use std::future::Future;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use windlass_core::event::Finish;
use windlass_core::{Event, Holder, Job, JobSpec, Keep, KeepFor, Name, NameMatch, Outcome, Payload, Policy};
use windlass_core::{Queue, Tenant, Timestamp, apply};
use windlass_store::{ClaimAsk, Durability, Filter, NewJob, OpenOptions, Step, Store, Verdict, open};

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Tasks that handle one job at a time: the number of connections in the speed target.
const SINGLES_TASKS: usize = 64;
/// Finished jobs of the phase `old`, and the name of one of them.
const OLD_JOBS: usize = 5_000;
const RARE: &str = "bench.rare";

#[derive(Clone)]
struct Options {
    url: String,
    jobs: usize,
    batch: usize,
    tasks: usize,
    payload_bytes: usize,
    durability: Durability,
    only: Vec<String>,
}

fn main() -> Fallible<()> {
    let options = parse_options(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(options))
}

fn parse_options(mut words: impl Iterator<Item = String>) -> Fallible<Options> {
    let mut options = Options {
        url: "memory:".to_owned(),
        jobs: 200_000,
        batch: 1_000,
        tasks: 4,
        payload_bytes: 100,
        durability: Durability::Full,
        only: Vec::new(),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--jobs" => options.jobs = value()?.parse()?,
            "--batch" => options.batch = value()?.parse::<usize>()?.max(1),
            "--tasks" => options.tasks = value()?.parse::<usize>()?.max(1),
            "--payload" => options.payload_bytes = value()?.parse()?,
            "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
            "--relaxed" => options.durability = Durability::Relaxed,
            flag if flag.starts_with("--") => return Err(format!("unknown option {flag}").into()),
            url => options.url = url.to_owned(),
        }
    }
    Ok(options)
}

async fn run(options: Options) -> Fallible<()> {
    let (begun, cpu_before) = (Instant::now(), cpu_time());
    let store =
        open(&options.url, OpenOptions { durability: options.durability, ..OpenOptions::default() }).await?;
    let (time, cpu) = (begun.elapsed(), cpu_time().saturating_sub(cpu_before));
    let bench = Arc::new(Bench::new(store, &options));
    let wanted = |phase: &str| options.only.is_empty() || options.only.iter().any(|only| only == phase);
    let (jobs, batch, tasks) = (options.jobs, options.batch, options.tasks);
    let asked = |phase: &str| options.only.iter().any(|only| only == phase);
    if asked("start") {
        return start(&bench, time, cpu).await;
    }
    if asked("old") {
        old(&bench).await?;
    }
    // Claim and drain need pushed jobs; the settle phase needs the claimed ones.
    if wanted("push") || wanted("claim") || wanted("settle") {
        measure("push", jobs, spread(&bench, jobs, batch, tasks, push)).await?;
    }
    if wanted("claim") || wanted("settle") {
        measure("claim", jobs, spread(&bench, jobs, batch, tasks, claim)).await?;
        measure("settle", jobs, spread(&bench, jobs, batch, tasks, settle)).await?;
    }
    if wanted("drain") {
        measure("(fill)", jobs, spread(&bench, jobs, batch, tasks, push)).await?;
        measure("drain", jobs, spread(&bench, jobs, batch, tasks, drain)).await?;
    }
    if wanted("singles") {
        let singles = (jobs / 4).max(1);
        measure("push x1", singles, spread(&bench, singles, 1, SINGLES_TASKS, push)).await?;
        measure("drain x1", singles, spread(&bench, singles, 1, SINGLES_TASKS, drain)).await?;
        measure("cycle x1", singles, spread(&bench, singles, 1, SINGLES_TASKS, cycle)).await?;
    }
    bench.store.close().await?;
    Ok(())
}

/// State shared by the phases.
struct Bench {
    store: Arc<dyn Store>,
    tenant: Tenant,
    queue: Queue,
    name: Option<Name>,
    payload: Payload,
    policy: Arc<Policy>,
    held: parking_lot::Mutex<Vec<Arc<Job>>>,
}

impl Bench {
    fn new(store: Arc<dyn Store>, options: &Options) -> Bench {
        let keep = Keep { completed: KeepFor::Drop, ..Keep::default() };
        Bench {
            store,
            tenant: Tenant::default(),
            queue: Queue::default(),
            name: Name::new("bench.job").ok(),
            payload: Payload::json(&format!("\"{}\"", "x".repeat(options.payload_bytes.saturating_sub(2)))),
            policy: Arc::new(Policy { keep, ..Policy::default() }),
            held: parking_lot::Mutex::default(),
        }
    }

    fn new_job(&self, now: Timestamp) -> Fallible<NewJob> {
        let spec = JobSpec {
            tenant: self.tenant.clone(),
            queue: self.queue.clone(),
            name: self.name.clone().ok_or("the name was refused")?,
            // Each request has its own copy of the bytes.
            payload: Payload::new(self.payload.format, self.payload.bytes.to_vec()),
            priority: 0,
            created_at: now,
            policy: self.policy.clone(),
            extras: None,
        };
        Ok(NewJob { spec: Arc::new(spec), run_at: now, body: None, held_by_parent: false })
    }

    fn ask(&self, limit: usize) -> ClaimAsk {
        ClaimAsk {
            scope: windlass_core::Scope::default(),
            tenant: self.tenant.clone(),
            queues: vec![self.queue.clone()],
            names: NameMatch::Exact("bench.job".into()),
            priority: None,
            limit,
            worker: Some("bench".into()),
            lease_ms: Some(600_000),
            seed: 7,
            gate: None,
        }
    }

    fn held(&self) -> parking_lot::MutexGuard<'_, Vec<Arc<Job>>> {
        self.held.lock()
    }

    async fn claim(&self, jobs: usize) -> Fallible<Vec<Arc<Job>>> {
        // Slightly ahead of the clock, so that jobs pushed by other tasks in the same millisecond are due.
        let claimed = self.store.claim(self.ask(jobs), now().plus_ms(100)).await?;
        if claimed.len() != jobs {
            Err(format!("asked for {jobs}, got {}", claimed.len()).into())
        } else {
            Ok(claimed)
        }
    }

    /// Finishes with one step per job, like the engine, so that a stale job does not affect the others.
    async fn finish(&self, jobs: Vec<Arc<Job>>) -> Fallible<()> {
        let now = now();
        let mut steps = Vec::with_capacity(jobs.len());
        for job in jobs {
            let token = job.state().lease().ok_or("a claimed job without a lease")?.token;
            let finish = Finish {
                by: Holder::Token(token),
                outcome: Outcome::default(),
                payload: None,
                ignore_repeat: false,
            };
            let after =
                apply(&job, Event::Finish(finish), now).map_err(|refused| format!("{refused:?}"))?.job;
            steps.push(Step::change(job, after));
        }
        let verdicts = self.store.commit(steps, now).await?;
        match verdicts.iter().all(|verdict| matches!(verdict, Verdict::Done(_))) {
            true => Ok(()),
            false => Err("a finish was stale".into()),
        }
    }
}

async fn push(bench: Arc<Bench>, jobs: usize) -> Fallible<()> {
    let now = now();
    let inserts = (0..jobs).map(|_| bench.new_job(now)).collect::<Fallible<Vec<_>>>()?;
    bench.store.commit(vec![Step::insert(inserts)], now).await?;
    Ok(())
}

async fn claim(bench: Arc<Bench>, jobs: usize) -> Fallible<()> {
    let claimed = bench.claim(jobs).await?;
    bench.held().extend(claimed);
    Ok(())
}

async fn settle(bench: Arc<Bench>, jobs: usize) -> Fallible<()> {
    let mine = {
        let mut held = bench.held();
        let from = held.len().saturating_sub(jobs);
        held.split_off(from)
    };
    bench.finish(mine).await
}

async fn drain(bench: Arc<Bench>, jobs: usize) -> Fallible<()> {
    let claimed = bench.claim(jobs).await?;
    bench.finish(claimed).await
}

async fn cycle(bench: Arc<Bench>, jobs: usize) -> Fallible<()> {
    push(bench.clone(), jobs).await?;
    drain(bench, jobs).await
}

/// Finishes a few thousand jobs that are kept, one of them with a name of its own.
async fn old(bench: &Bench) -> Fallible<()> {
    let now = now();
    let mut inserts = (0..OLD_JOBS).map(|_| bench.new_job(now)).collect::<Fallible<Vec<_>>>()?;
    for new in &mut inserts {
        Arc::make_mut(&mut new.spec).policy = Arc::default();
    }
    if let Some(first) = inserts.first_mut() {
        Arc::make_mut(&mut first.spec).name = Name::new(RARE)?;
    }
    bench.store.commit(vec![Step::insert(inserts)], now).await?;
    let ask = ClaimAsk { names: NameMatch::Any, ..bench.ask(OLD_JOBS) };
    let claimed = bench.store.claim(ask, now).await?;
    bench.finish(claimed).await
}

/// Prints the cost of the start, of the first claim after it, and of the search for an old job by its name.
async fn start(bench: &Bench, time: Duration, cpu: Duration) -> Fallible<()> {
    let counts = bench.store.counts(None, now()).await?;
    let jobs: u64 = counts.iter().map(|queue| queue.by_state.iter().sum::<u64>()).sum();
    let begun = Instant::now();
    bench.claim(1).await?;
    let first = begun.elapsed();
    let memory = memory();
    let begun = Instant::now();
    let mut filter = Filter { names: NameMatch::Exact(RARE.into()), limit: 50, ..Filter::default() };
    let mut found = 0;
    loop {
        let page = bench.store.list(filter.clone()).await?;
        found += page.jobs.len();
        filter.before = page.next;
        if page.next.is_none() {
            break;
        }
    }
    let searched = begun.elapsed();
    writeln!(
        std::io::stdout(),
        "start     {jobs} jobs in {:.2} s, {:.2} s CPU; first claim {:.1} ms; {memory}; {found} old job found in {:.1} ms",
        time.as_secs_f64(),
        cpu.as_secs_f64(),
        first.as_secs_f64() * 1e3,
        searched.as_secs_f64() * 1e3,
    )?;
    bench.store.close().await?;
    Ok(())
}

/// Memory of this process now and at its highest, from `/proc`; empty where there is none.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines().filter(|line| line.starts_with("RssAnon") || line.starts_with("VmHWM"));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ")
}

/// Hands out `jobs` in batches to `tasks` tasks until none is left.
async fn spread<F, W>(bench: &Arc<Bench>, jobs: usize, batch: usize, tasks: usize, work: F) -> Fallible<()>
where
    F: Fn(Arc<Bench>, usize) -> W + Copy + Send + 'static,
    W: Future<Output = Fallible<()>> + Send,
{
    let taken = Arc::new(AtomicUsize::new(0));
    let mut running = tokio::task::JoinSet::<Fallible<()>>::new();
    for _ in 0..tasks {
        let (bench, taken) = (bench.clone(), taken.clone());
        running.spawn(async move {
            loop {
                let from = taken.fetch_add(batch, Ordering::Relaxed);
                if from >= jobs {
                    return Ok(());
                }
                work(bench.clone(), batch.min(jobs - from)).await?;
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

async fn measure(phase: &str, jobs: usize, work: impl Future<Output = Fallible<()>>) -> Fallible<()> {
    let (begun, cpu_before) = (Instant::now(), cpu_time());
    work.await?;
    let (time, cpu) = (begun.elapsed(), cpu_time().saturating_sub(cpu_before));
    writeln!(
        std::io::stdout(),
        "{phase:<9} {:>10.0} jobs/s   {:>6.2} us/job   {:>6.2} us CPU/job",
        jobs as f64 / time.as_secs_f64(),
        time.as_secs_f64() * 1e6 / jobs as f64,
        cpu.as_secs_f64() * 1e6 / jobs as f64,
    )?;
    Ok(())
}

/// User and system time of this process, from `/proc` in ticks of 10 ms; zero where there is none.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_ascii_whitespace().skip(11).take(2));
    let ticks: u32 = fields.into_iter().flatten().filter_map(|field| field.parse::<u32>().ok()).sum();
    Duration::from_millis(10) * ticks
}

fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(since_epoch.as_millis() as i64)
}
