//! Workloads: each is one function over any [`Target`].

use super::client::{Client, Held, Shape, Target, now_ns};
use super::procfs;
use super::report::{Latency, Sample};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Duration of a consumer's long-poll claim.
const WAIT_MS: u64 = 1_000;
/// Lateness of a push beyond which latency counts from its planned time, as the producer was held up. Smaller
/// delays are the precision of the client's timer.
const TIMER_GRAIN: Duration = Duration::from_millis(2);

/// Size of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub jobs: usize,
    pub connections: usize,
    /// Jobs per call or pipelined write.
    pub batch: usize,
    /// Time limit of a run; a run cut short counts the jobs done by then.
    pub at_most: Duration,
}

/// State shared by the connections of a run. Single-threaded, so without locks.
struct Run {
    left: Cell<usize>,
    done: Cell<usize>,
    /// Number of jobs pushed in a mix, and of producers still pushing.
    pushed: Cell<usize>,
    producing: Cell<usize>,
    until: Instant,
    latencies_ns: RefCell<Vec<u64>>,
    finished: tokio::sync::Notify,
}

impl Run {
    fn new(load: Load) -> Rc<Run> {
        // Starts the clock before the first push, since a late push is stamped with a time in the past.
        now_ns();
        Rc::new(Run {
            left: Cell::new(load.jobs),
            done: Cell::new(0),
            pushed: Cell::new(0),
            producing: Cell::new(load.connections),
            until: Instant::now() + load.at_most,
            latencies_ns: RefCell::new(Vec::with_capacity(load.jobs / load.batch + load.connections)),
            finished: tokio::sync::Notify::new(),
        })
    }

    /// Takes a share of the remaining jobs; 0 ends the work of the connection.
    fn take(&self, batch: usize) -> usize {
        if Instant::now() >= self.until {
            return 0;
        }
        let share = batch.min(self.left.get());
        self.left.set(self.left.get() - share);
        share
    }

    /// Signals the end of a mix when every pushed job is finished, so that only complete cycles are counted.
    fn end_when_all_is_done(&self) {
        if self.producing.get() == 0 && self.done.get() == self.pushed.get() {
            self.finished.notify_one();
        }
    }

    fn producer_ends(&self) {
        self.producing.set(self.producing.get() - 1);
        self.end_when_all_is_done();
    }

    fn add(&self, jobs: usize, latency_ns: u64) {
        self.done.set(self.done.get() + jobs);
        self.latencies_ns.borrow_mut().push(latency_ns);
    }
}

/// Wall time and CPU time from `start` to `stop`.
struct Stopwatch {
    begun: Instant,
    pid: Option<u32>,
    server_cpu: Option<Duration>,
    client_cpu: Option<Duration>,
    machine: Option<(Duration, Duration)>,
}

impl Stopwatch {
    fn start(pid: Option<u32>) -> Stopwatch {
        let server_cpu = pid.and_then(procfs::cpu_time);
        let client_cpu = procfs::cpu_time(std::process::id());
        Stopwatch { begun: Instant::now(), pid, server_cpu, client_cpu, machine: procfs::machine_time() }
    }

    fn stop(self, run: &Run) -> Sample {
        let seconds = self.begun.elapsed().as_secs_f64();
        let since = |before: Option<Duration>, now: Option<Duration>| Some(now?.saturating_sub(before?));
        let server = since(self.server_cpu, self.pid.and_then(procfs::cpu_time));
        let client = since(self.client_cpu, procfs::cpu_time(std::process::id()));
        let jobs = run.done.get();
        let per_job_us = |cpu: Duration| cpu.as_secs_f64() * 1e6 / jobs.max(1) as f64;
        Sample {
            jobs,
            seconds,
            server_us: server.map(per_job_us),
            client_us: client.map(per_job_us),
            others_percent: others_percent(
                self.machine,
                server.zip(client).map(|(server, client)| server + client),
            ),
            latency: Latency::of(&mut run.latencies_ns.borrow_mut()),
        }
    }
}

fn others_percent(before: Option<(Duration, Duration)>, ours: Option<Duration>) -> Option<f64> {
    let (busy_before, total_before) = before?;
    let (busy, total) = procfs::machine_time()?;
    let others = busy.saturating_sub(busy_before).saturating_sub(ours?);
    Some(100.0 * others.as_secs_f64() / total.saturating_sub(total_before).as_secs_f64().max(1e-9))
}

/// Runs `work` on every connection; measures until the last one ends.
async fn on_every_connection<T: Target, F>(
    target: &T,
    shape: &Shape,
    load: Load,
    work: impl Fn(T::Client, Rc<Run>, usize) -> F,
) -> io::Result<Sample>
where
    F: Future<Output = io::Result<()>> + 'static,
{
    let run = Run::new(load);
    let clients = connect(target, shape, load.connections).await?;
    let watch = Stopwatch::start(target.pid());
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn_local(work(client, run.clone(), load.batch));
    }
    all_end_well(tasks).await?;
    Ok(watch.stop(&run))
}

/// W1, W2, W3: pushes as fast as the connections allow. Latency is that of a call.
pub(super) async fn push<T: Target>(target: &T, shape: &Shape, load: Load) -> io::Result<Sample> {
    on_every_connection(target, shape, load, keep_pushing).await
}

async fn keep_pushing(mut client: impl Client, run: Rc<Run>, batch: usize) -> io::Result<()> {
    loop {
        let jobs = run.take(batch);
        if jobs == 0 {
            return Ok(());
        }
        let begun = now_ns();
        client.push(jobs, begun).await?;
        run.add(jobs, now_ns() - begun);
    }
}

/// W4: claims and finishes until the queue is empty. Latency is that of a claim and a finish together.
pub(super) async fn drain<T: Target>(target: &T, shape: &Shape, load: Load) -> io::Result<Sample> {
    on_every_connection(target, shape, load, keep_draining).await
}

async fn keep_draining(mut client: impl Client, run: Rc<Run>, batch: usize) -> io::Result<()> {
    let mut held = Vec::with_capacity(batch);
    client.claim(batch, 0, &mut held).await?;
    while !held.is_empty() && Instant::now() < run.until {
        let (begun, finished) = (now_ns(), held.len());
        client.turn(&mut held, batch).await?;
        run.add(finished, now_ns() - begun);
    }
    Ok(())
}

/// Verbs of [`each_verb`], in their order.
#[derive(Clone, Copy)]
enum Verb {
    Push,
    Claim,
    Finish,
}

/// B1: pushes all, then claims all, then finishes all, each measured separately.
pub(super) async fn each_verb<T: Target>(target: &T, shape: &Shape, load: Load) -> io::Result<Vec<Sample>> {
    let clients = connect(target, shape, load.connections).await?;
    let mut hands: Vec<(T::Client, Vec<Held>)> =
        clients.into_iter().map(|client| (client, Vec::new())).collect();
    let mut samples = Vec::new();
    for verb in [Verb::Push, Verb::Claim, Verb::Finish] {
        let run = Run::new(load);
        let watch = Stopwatch::start(target.pid());
        let mut tasks = JoinSet::new();
        for (client, held) in hands.drain(..) {
            tasks.spawn_local(keep_doing(verb, client, held, run.clone(), load.batch));
        }
        while let Some(ended) = tasks.join_next().await {
            hands.push(ended.map_err(io::Error::other)??);
        }
        samples.push(watch.stop(&run));
    }
    Ok(samples)
}

/// Repeats a call; `pid` is the process whose CPU time counts.
pub(super) async fn repeat(
    pid: Option<u32>,
    load: Load,
    mut call: impl AsyncFnMut() -> io::Result<()>,
) -> io::Result<Sample> {
    let run = Run::new(load);
    let watch = Stopwatch::start(pid);
    while run.take(1) > 0 {
        let begun = now_ns();
        call().await?;
        run.add(1, now_ns() - begun);
    }
    Ok(watch.stop(&run))
}

/// Repeats a verb, and returns the connection and the jobs it holds.
async fn keep_doing<C: Client>(
    verb: Verb,
    mut client: C,
    mut held: Vec<Held>,
    run: Rc<Run>,
    batch: usize,
) -> io::Result<(C, Vec<Held>)> {
    loop {
        let share = match verb {
            Verb::Push | Verb::Claim => run.take(batch),
            Verb::Finish => batch.min(held.len()),
        };
        if share == 0 {
            return Ok((client, held));
        }
        let begun = now_ns();
        let done = match verb {
            Verb::Push => {
                client.push(share, begun).await?;
                share
            }
            Verb::Claim => {
                let before = held.len();
                client.claim(share, 0, &mut held).await?;
                held.len() - before
            }
            Verb::Finish => {
                let some = held.split_off(held.len() - share);
                client.finish(&some).await?;
                share
            }
        };
        if done == 0 {
            return Ok((client, held));
        }
        run.add(done, now_ns() - begun);
    }
}

/// Runs `produce` on some connections and `consume` on as many others; measures until every pushed job is finished.
async fn mix<T: Target, P, C>(
    target: &T,
    shape: &Shape,
    load: Load,
    produce: impl Fn(usize, T::Client, Rc<Run>) -> P,
    consume: impl Fn(T::Client, Rc<Run>) -> C,
) -> io::Result<Sample>
where
    P: Future<Output = io::Result<()>> + 'static,
    C: Future<Output = io::Result<()>> + 'static,
{
    let run = Run::new(load);
    let producers = connect(target, shape, load.connections).await?;
    let consumers = connect(target, shape, load.connections).await?;
    let watch = Stopwatch::start(target.pid());
    let mut tasks = JoinSet::new();
    for (number, client) in producers.into_iter().enumerate() {
        tasks.spawn_local(produce(number, client, run.clone()));
    }
    for client in consumers {
        tasks.spawn_local(consume(client, run.clone()));
    }
    until_done(tasks, &run, load).await?;
    Ok(watch.stop(&run))
}

/// W5 at full speed: producers and consumers, `connections` of each, one job per call, until every job is
/// finished.
pub(super) async fn mix_at_full_speed<T: Target>(
    target: &T,
    shape: &Shape,
    load: Load,
) -> io::Result<Sample> {
    let produce = |_, client, run| keep_producing(client, run);
    mix(target, shape, load, produce, keep_consuming).await
}

async fn keep_producing(mut client: impl Client, run: Rc<Run>) -> io::Result<()> {
    while run.take(1) == 1 {
        // Before the push: a consumer may finish the job before the producer gets its response.
        run.pushed.set(run.pushed.get() + 1);
        client.push(1, now_ns()).await?;
    }
    run.producer_ends();
    Ok(())
}

/// W5 at a steady rate: producers push by the clock, whatever the server does; consumers wait for jobs.
/// Latency is from the start of the push to the response of the claim.
pub(super) async fn mix_at_rate<T: Target>(
    target: &T,
    shape: &Shape,
    load: Load,
    rate: f64,
) -> io::Result<Sample> {
    let between = Duration::from_secs_f64(load.connections as f64 / rate);
    let produce = |number: usize, client, run| {
        let first = Instant::now() + between.mul_f64(number as f64 / load.connections as f64);
        push_by_the_clock(client, run, first, between)
    };
    mix(target, shape, load, produce, wait_for_each).await
}

async fn push_by_the_clock(
    mut client: impl Client,
    run: Rc<Run>,
    first: Instant,
    between: Duration,
) -> io::Result<()> {
    let mut planned = first;
    while run.take(1) == 1 {
        tokio::time::sleep_until(planned.into()).await;
        run.pushed.set(run.pushed.get() + 1);
        client.push(1, stamp_of_push(now_ns(), planned.elapsed())).await?;
        planned += between;
    }
    run.producer_ends();
    Ok(())
}

/// Time at which a push counts as started, if it is this late.
fn stamp_of_push(now_ns: u64, late: Duration) -> u64 {
    if late > TIMER_GRAIN { now_ns.saturating_sub(late.as_nanos() as u64) } else { now_ns }
}

/// Waits until the last job is finished, then aborts all tasks.
async fn until_done(tasks: JoinSet<io::Result<()>>, run: &Rc<Run>, load: Load) -> io::Result<()> {
    // Producers stop at the time limit; consumers then need time to catch up.
    let far_too_long = tokio::time::sleep_until((run.until + load.at_most * 3).into());
    tokio::select! {
        () = run.finished.notified() => Ok(()),
        () = far_too_long => Err(io::Error::other("jobs that were pushed were never finished")),
        ended = all_end_well(tasks) => ended,
    }
}

/// Worker under full load: finishes and claims in one round trip, and waits only if there are no jobs.
async fn keep_consuming(mut client: impl Client, run: Rc<Run>) -> io::Result<()> {
    let mut held: Vec<Held> = Vec::with_capacity(1);
    loop {
        if held.is_empty() {
            client.claim(1, WAIT_MS, &mut held).await?;
        }
        let Some(job) = held.first() else { continue };
        let waited_ns = now_ns().saturating_sub(job.pushed_ns);
        client.turn(&mut held, 1).await?;
        run.add(1, waited_ns);
        run.end_when_all_is_done();
    }
}

/// Worker that waits for every job.
async fn wait_for_each(mut client: impl Client, run: Rc<Run>) -> io::Result<()> {
    let mut held: Vec<Held> = Vec::with_capacity(1);
    loop {
        client.claim(1, WAIT_MS, &mut held).await?;
        let Some(job) = held.first() else { continue };
        let waited_ns = now_ns().saturating_sub(job.pushed_ns);
        client.finish(&held).await?;
        held.clear();
        run.add(1, waited_ns);
        run.end_when_all_is_done();
    }
}

/// Response time per job of each verb, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub push_us: f64,
    pub claim_us: f64,
    pub finish_us: f64,
}

/// W7: costs on two servers or for two shapes, measured alternately, so that other load on the machine
/// affects both alike. Uses the median of all calls, so that a checkpoint during one of them does not count.
pub(super) async fn costs_in_turns<T: Target>(
    sides: [(&T, &Shape); 2],
    load: Load,
) -> io::Result<[Costs; 2]> {
    let mut clients = [sides[0].0.connect(sides[0].1).await?, sides[1].0.connect(sides[1].1).await?];
    let mut spans: [Spans; 2] = Default::default();
    let run = Run::new(load);
    while run.take(load.batch) == load.batch {
        for (client, spans) in clients.iter_mut().zip(&mut spans) {
            cycle(client, load.batch, spans).await?;
        }
    }
    Ok(spans.map(|spans| spans.costs(load.batch)))
}

#[derive(Default)]
struct Spans {
    push_ns: Vec<u64>,
    claim_ns: Vec<u64>,
    finish_ns: Vec<u64>,
}

impl Spans {
    fn costs(mut self, batch: usize) -> Costs {
        let median_us = |spans: &mut [u64]| Latency::of(spans).p50_ms * 1e3 / batch as f64;
        Costs {
            push_us: median_us(&mut self.push_ns),
            claim_us: median_us(&mut self.claim_ns),
            finish_us: median_us(&mut self.finish_ns),
        }
    }
}

/// Pushes, claims and finishes the same number of jobs, so that the number of waiting jobs stays constant.
async fn cycle(client: &mut impl Client, batch: usize, spans: &mut Spans) -> io::Result<()> {
    let mut held = Vec::with_capacity(batch);
    let begun = now_ns();
    client.push(batch, begun).await?;
    let pushed = now_ns();
    client.claim(batch, 0, &mut held).await?;
    let claimed = now_ns();
    if held.len() != batch {
        return Err(io::Error::other(format!("claimed {} of {batch} waiting jobs", held.len())));
    }
    client.finish(&held).await?;
    spans.push_ns.push(pushed - begun);
    spans.claim_ns.push(claimed - pushed);
    spans.finish_ns.push(now_ns() - claimed);
    Ok(())
}

async fn connect<T: Target>(target: &T, shape: &Shape, connections: usize) -> io::Result<Vec<T::Client>> {
    let mut clients = Vec::with_capacity(connections);
    for _ in 0..connections {
        clients.push(target.connect(shape).await?);
    }
    Ok(clients)
}

async fn all_end_well(mut tasks: JoinSet<io::Result<()>>) -> io::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(io::Error::other)??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_that_was_held_up_counts_from_when_it_was_planned() {
        let ms = Duration::from_millis;
        assert_eq!(stamp_of_push(100_000_000, ms(30)), 70_000_000);
        assert_eq!(
            stamp_of_push(100_000_000, ms(1)),
            100_000_000,
            "the grain of the timer is not the server's doing"
        );
        assert_eq!(stamp_of_push(5_000_000, ms(30)), 0, "later than the clock is old");
    }
}
