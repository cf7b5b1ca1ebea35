//! Load on all connections at once, a thread for each.

use super::workers::{Held, Worker};
use crate::fault::{Fault, Outcome};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Longest time that a claim waits for a job; after it the thread looks whether the measurement is over.
const WAIT_MS: u64 = 500;
/// Lateness of a push beyond which its latency counts from the planned time. Smaller delays are the precision of the timer.
const TIMER_GRAIN: Duration = Duration::from_millis(2);

/// Set by a signal: measurements end after their calls in flight.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

pub(super) fn interrupt() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

pub(super) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Size of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub jobs: usize,
    /// Jobs per call.
    pub batch: usize,
    /// A measurement that takes longer is cut short and counts the jobs done by then.
    pub at_most: Duration,
}

/// Result of a measurement.
pub(super) struct Sample {
    pub jobs: usize,
    seconds: f64,
    /// Sorted latencies.
    spans: Vec<Duration>,
}

impl Sample {
    fn new(jobs: usize, begun: Instant, mut spans: Vec<Duration>) -> Sample {
        let seconds = begun.elapsed().as_secs_f64();
        spans.sort_unstable();
        Sample { jobs, seconds, spans }
    }

    pub(super) fn rate(&self) -> f64 {
        self.jobs as f64 / self.seconds.max(1e-9)
    }

    /// Nearest-rank percentile: the smallest value not exceeded by at least this fraction of the values.
    pub(super) fn percentile_ms(&self, fraction: f64) -> f64 {
        let rank = (fraction * self.spans.len() as f64).ceil() as usize;
        self.spans.get(rank.saturating_sub(1)).map_or(0.0, |span| span.as_secs_f64() * 1e3)
    }

    pub(super) fn json(&self, what: &str) -> Value {
        json!({"what": what, "jobs": self.jobs, "jobs_per_s": self.rate(), "p50_ms": self.percentile_ms(0.5),
            "p99_ms": self.percentile_ms(0.99), "max_ms": self.percentile_ms(1.0)})
    }
}

/// Connection with the jobs it has claimed.
pub(super) struct Hand {
    worker: Box<dyn Worker>,
    held: Vec<Held>,
}

/// Each verb handles up to the given number of jobs and returns how many it was; 0 ends the work of the connection.
impl Hand {
    pub(super) fn new(worker: Box<dyn Worker>) -> Hand {
        Hand { worker, held: Vec::new() }
    }

    pub(super) fn push(&mut self, jobs: usize) -> Outcome<usize> {
        self.worker.push(jobs, 0).map(|()| jobs)
    }

    pub(super) fn claim(&mut self, jobs: usize) -> Outcome<usize> {
        let claimed = self.worker.claim(jobs, 0)?;
        let number = claimed.len();
        self.held.extend(claimed);
        Ok(number)
    }

    pub(super) fn finish(&mut self, jobs: usize) -> Outcome<usize> {
        let some = self.held.split_off(self.held.len().saturating_sub(jobs));
        match some.is_empty() {
            true => Ok(0),
            false => self.worker.finish(&some).map(|()| some.len()),
        }
    }

    pub(super) fn drain(&mut self, jobs: usize) -> Outcome<usize> {
        self.claim(jobs)?;
        self.finish(jobs)
    }
}

/// Finishes what the connections hold and what is left in the queue, after an interrupt.
pub(super) fn clear(hands: &mut [Hand], rest: Load) -> Outcome {
    let nothing = || false;
    each_until(hands, rest, Hand::finish, nothing)?;
    each_until(hands, rest, Hand::drain, nothing)?;
    Ok(())
}

/// Repeats a verb on every connection until the jobs, the connection's work or the time are over, or a signal comes.
pub(super) fn each(
    hands: &mut [Hand],
    load: Load,
    verb: impl Fn(&mut Hand, usize) -> Outcome<usize> + Sync,
) -> Outcome<Sample> {
    each_until(hands, load, verb, is_interrupted)
}

fn each_until(
    hands: &mut [Hand],
    load: Load,
    verb: impl Fn(&mut Hand, usize) -> Outcome<usize> + Sync,
    is_over: impl Fn() -> bool + Sync,
) -> Outcome<Sample> {
    let left = AtomicUsize::new(load.jobs);
    let begun = Instant::now();
    let work = |hand: &mut Hand| -> Outcome<(usize, Vec<Duration>)> {
        let (mut jobs, mut spans) = (0, Vec::new());
        while begun.elapsed() < load.at_most && !is_over() {
            let called = Instant::now();
            let share = take(&left, load.batch);
            let done = if share == 0 { 0 } else { verb(hand, share)? };
            if done == 0 {
                break;
            }
            jobs += done;
            spans.push(called.elapsed());
        }
        Ok((jobs, spans))
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = hands.iter_mut().map(|hand| scope.spawn(|| work(hand))).collect();
        threads.into_iter().map(joined).collect()
    });
    let (mut jobs, mut spans) = (0, Vec::new());
    for ended in ended {
        let (done, times) = ended?;
        jobs += done;
        spans.extend(times);
    }
    Ok(Sample::new(jobs, begun, spans))
}

/// Takes a share of the jobs that are left.
fn take(left: &AtomicUsize, batch: usize) -> usize {
    let before =
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(batch)));
    before.unwrap_or_default().min(batch)
}

fn joined<T>(thread: ScopedJoinHandle<'_, Outcome<T>>) -> Outcome<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(Fault::failed("internal error: the thread of a connection panicked")))
}

/// Latency from the start of a push to the response of its claim: one producer pushes by the clock, the others wait.
pub(super) fn pick_up(mut producer: Hand, hands: &mut [Hand], load: Load, rate: u32) -> Outcome<Sample> {
    let between = Duration::from_secs(1) / rate;
    let planned = (load.at_most.as_secs_f64() / between.as_secs_f64()) as usize;
    let jobs = load.jobs.min(planned).max(1);
    let done = AtomicUsize::new(0);
    let begun = Instant::now();
    let is_over =
        || done.load(Ordering::Relaxed) >= jobs || begun.elapsed() > load.at_most * 3 || is_interrupted();
    let consume = |hand: &mut Hand| -> Outcome<Vec<Duration>> {
        let mut spans = Vec::new();
        while !is_over() {
            for job in hand.worker.claim(1, WAIT_MS)? {
                spans.push(begun.elapsed().saturating_sub(Duration::from_nanos(job.pushed_ns)));
                done.fetch_add(1, Ordering::Relaxed);
                hand.worker.finish(&[job])?;
            }
        }
        Ok(spans)
    };
    let mut produce = || -> Outcome<Vec<Duration>> {
        for number in 0..u32::try_from(jobs).unwrap_or(u32::MAX) {
            let planned = between * number;
            std::thread::sleep(planned.saturating_sub(begun.elapsed()));
            if is_over() {
                break;
            }
            let stamp = push_began(planned, begun.elapsed());
            producer.worker.push(1, u64::try_from(stamp.as_nanos()).unwrap_or(u64::MAX))?;
        }
        Ok(Vec::new())
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let mut threads: Vec<_> = hands.iter_mut().map(|hand| scope.spawn(|| consume(hand))).collect();
        threads.push(scope.spawn(&mut produce));
        threads.into_iter().map(joined).collect()
    });
    let spans = ended.into_iter().collect::<Outcome<Vec<_>>>()?.concat();
    Ok(Sample::new(spans.len(), begun, spans))
}

/// Time at which a push counts as started: a producer that was held up counts from the planned time.
fn push_began(planned: Duration, now: Duration) -> Duration {
    if now > planned + TIMER_GRAIN { planned } else { now }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sample = |spans: &[u64]| {
            Sample::new(1, Instant::now(), spans.iter().copied().map(Duration::from_millis).collect())
        };
        let hundred: Vec<u64> = (1..=100).rev().collect();
        for (fraction, expected) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.001, 1.0)] {
            assert_eq!(sample(&hundred).percentile_ms(fraction), expected, "{fraction}");
        }
        assert_eq!(sample(&[7]).percentile_ms(0.99), 7.0);
        assert_eq!(sample(&[]).percentile_ms(0.5), 0.0);
    }

    #[test]
    fn a_push_that_was_held_up_counts_from_when_it_was_planned() {
        let ms = Duration::from_millis;
        assert_eq!(push_began(ms(100), ms(130)), ms(100));
        assert_eq!(push_began(ms(100), ms(101)), ms(101), "the grain of the timer is not the server's doing");
    }

    #[test]
    fn shares_add_up_to_the_jobs() {
        let left = AtomicUsize::new(7);
        assert_eq!([3, 3, 3, 3].map(|batch| take(&left, batch)), [3, 3, 1, 0]);
    }
}
