//! Throughput of the engine on a store:
//! `cargo run --release -p windlass-engine --example engine_bench -- sqlite:PATH`.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::{
    Event, Holder, Job, Keep, KeepFor, Name, NameMatch, Outcome, Payload, Policy, Queue, Tenant,
};
use windlass_engine::*;
use windlass_store::OpenOptions;

const JOBS: usize = 100_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let store = windlass_store::open(&url, OpenOptions::default()).await?;
    let random = Arc::new(SystemRandom::default());
    let engine = Engine::start(store, Arc::new(SystemClock), random, Options::default()).await?;
    in_batches(&engine).await?;
    one_by_one(&engine, 64).await?;
    waiting(&engine).await?;
    engine.shutdown().await;
    Ok(())
}

async fn in_batches(engine: &Engine) -> Result<(), Box<dyn Error>> {
    let tenant = Tenant::default();
    let start = Instant::now();
    for _ in 0..JOBS / 1_000 {
        engine.push(&tenant, jobs(1_000)?).await?;
    }
    show("push, batches of 1,000", JOBS, start.elapsed());
    let (mut claiming, mut settling) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..JOBS / 500 {
        let start = Instant::now();
        let claimed = engine.claim(claim(500, 0)).await?.accept();
        claiming += start.elapsed();
        let start = Instant::now();
        engine.settle(&tenant, claimed.iter().filter_map(finish).collect()).await?;
        settling += start.elapsed();
    }
    show("claim, 500 at a time", JOBS, claiming);
    show("finish, batches of 500", JOBS, settling);
    Ok(())
}

/// Each task pushes, claims and finishes one job at a time.
async fn one_by_one(engine: &Engine, tasks: usize) -> Result<(), Box<dyn Error>> {
    let rounds = 200;
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..tasks {
        let engine = engine.clone();
        let pushes: Vec<Vec<Push>> = (0..rounds).map(|_| jobs(1)).collect::<Result<_, _>>()?;
        running.spawn(async move {
            let tenant = Tenant::default();
            for push in pushes {
                engine.push(&tenant, push).await?;
                let claimed = engine.claim(claim(1, 1_000)).await?.accept();
                engine.settle(&tenant, claimed.iter().filter_map(finish).collect()).await?;
            }
            Ok::<(), EngineError>(())
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    show("push, claim, finish one by one, 64 tasks", tasks * rounds, start.elapsed());
    Ok(())
}

/// Time from the reply to a push to the reply to the waiting claim.
async fn waiting(engine: &Engine) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::new();
    for _ in 0..200 {
        let worker = engine.clone();
        let waiting = tokio::spawn(async move {
            let delivery = worker.claim(claim(1, 10_000)).await?;
            Ok::<_, EngineError>((Instant::now(), delivery.accept()))
        });
        tokio::time::sleep(Duration::from_millis(2)).await;
        let start = Instant::now();
        engine.push(&Tenant::default(), jobs(1)?).await?;
        let (woken, claimed) = waiting.await??;
        times.push(woken.duration_since(start));
        engine.settle(&Tenant::default(), claimed.iter().filter_map(finish).collect()).await?;
    }
    times.sort();
    let (median, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{:<42} {median:>12.1?} median {p99:>12.1?} p99", "push to waiting claim's answer");
    Ok(())
}

fn jobs(count: usize) -> Result<Vec<Push>, Box<dyn Error>> {
    let keep = Keep { completed: KeepFor::Drop, ..Keep::default() };
    let push = Push {
        queue: Queue::default(),
        name: Name::new("bench")?,
        payload: Payload::json(
            r#"{"to":"someone@example.org","text":"some hundred bytes of payload, more or less"}"#,
        ),
        priority: 0,
        run_at: RunAt::Now,
        policy: Arc::new(Policy { keep, ..Policy::default() }),
        extras: None,
        body: None,
    };
    Ok(vec![push; count])
}

fn claim(limit: usize, wait_ms: u64) -> Claim {
    Claim {
        tenant: Tenant::default(),
        queues: vec![],
        names: NameMatch::Any,
        priority: None,
        limit,
        wait_ms,
        lease_ms: None,
        worker: None,
    }
}

fn finish(job: &Arc<Job>) -> Option<JobEvent> {
    let by = Holder::Token(job.state().lease()?.token);
    Some(JobEvent { id: job.id, event: Event::finish(by, Outcome::default()) })
}

fn show(what: &str, count: usize, time: Duration) {
    let each = time / u32::try_from(count).unwrap_or(u32::MAX);
    println!("{what:<42} {:>10.0}/s {each:>10.1?} each", count as f64 / time.as_secs_f64());
}
