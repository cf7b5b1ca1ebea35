//! Runner with a job source in memory and real guest processes.

use super::job_source::Memory;
use super::{limits, program, samples};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use windlass_runners::wasi::job_source::Tickled;
use windlass_runners::wasi::message::Limits;
use windlass_runners::wasi::runner::{Options, Runner, Stopping};

struct Rig {
    source: Arc<Memory>,
    stop: watch::Sender<Stopping>,
    runner: JoinHandle<()>,
}

fn rig(workers: usize, limits: Limits) -> Rig {
    let source = Arc::new(Memory::default());
    let (stop, stopping) = watch::channel(Stopping::No);
    let options = Options { workers, limits, program: program(), strict: true };
    let runner = tokio::spawn(Runner::new(source.clone(), options, stopping).run());
    Rig { source, stop, runner }
}

impl Rig {
    /// Waits until a guest runs the job: it is claimed, and a heartbeat was sent.
    async fn wait_until_it_runs(&self) {
        while !self.source.is_empty() || self.source.tickles() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn jobs_are_run_and_each_end_is_told_as_it_was() {
    let rig = rig(2, Limits { time_limit_ms: 2_000, ..limits() });
    let source = &rig.source;
    source.put("hello", b"hello");
    source.push("upper", samples::UPPER, Some("hello"));
    source.push("silent", samples::UPPER, None);
    source.push("exit", &samples::exit(3), None);
    source.push("trap", samples::TRAP, None);
    source.push("loop", samples::LOOP, None);
    source.put("junk", b"junk");
    source.push_as_it_is("junk", "junk", None, None);
    assert_eq!(source.outcome("upper").await, "completed HELLO");
    assert_eq!(source.outcome("silent").await, "completed ");
    assert_eq!(source.outcome("exit").await, "failed Some(3) exit code 3 | err");
    let trap = source.outcome("trap").await;
    assert!(
        trap.starts_with("failed None wasm trap: ") && trap.contains("| err\nwindlass: wasm trap"),
        "{trap}"
    );
    let late = "the module exceeded its time limit of 2 s";
    assert_eq!(source.outcome("loop").await, format!("failed None {late} | windlass: {late}\n"));
    let junk = source.outcome("junk").await;
    assert!(junk.contains("the module cannot be loaded"), "{junk}");
    rig.stop.send_replace(Stopping::Finish);
    rig.runner.await.unwrap();
}

#[tokio::test]
async fn a_missing_blob_fails_its_job_and_trouble_with_blobs_gives_it_back() {
    let rig = rig(1, limits());
    let source = &rig.source;
    source.push_as_it_is("no binary", "nowhere", None, None);
    source.push("no input", samples::UPPER, Some("nothing"));
    source.push("trouble", samples::UPPER, Some("trouble"));
    source.push_as_it_is("binary trouble", "trouble", None, None);
    source.push("fine", samples::UPPER, None);
    let missing = source.outcome("no binary").await;
    assert!(missing.contains("failed None the binary is not available: no blob nowhere |"), "{missing}");
    let missing = source.outcome("no input").await;
    assert!(missing.contains("failed None the input is not available: no blob nothing |"), "{missing}");
    assert_eq!(source.outcome("trouble").await, "given back, counts: true, after 5s");
    assert_eq!(source.outcome("binary trouble").await, "given back, counts: true, after 5s");
    assert_eq!(source.outcome("fine").await, "completed ");
}

const LEASE: Option<Duration> = Some(Duration::from_millis(300));

/// Job that runs for ever, with a short lease.
async fn busy(rig: &Rig) {
    rig.source.put("loop", &samples::compile(samples::LOOP));
    rig.source.push_as_it_is("busy", "loop", None, LEASE);
    rig.wait_until_it_runs().await;
}

#[tokio::test]
async fn a_running_job_gives_signs_of_life() {
    let rig = rig(1, Limits { time_limit_ms: 1_500, ..limits() });
    busy(&rig).await;
    let outcome = rig.source.outcome("busy").await;
    assert!(outcome.contains("exceeded its time limit"), "{outcome}");
    assert!(rig.source.tickles() >= 5, "{} in fifteen tenths of a second", rig.source.tickles());
}

#[tokio::test]
async fn a_job_that_is_cancelled_is_stopped_and_its_place_is_free() {
    let rig = rig(1, limits());
    busy(&rig).await;
    rig.source.answer(Tickled::Stop);
    assert!(rig.source.outcome("busy").await.contains("the job was cancelled"));
    rig.source.answer(Tickled::GoOn);
    rig.source.push("next", samples::UPPER, None);
    assert_eq!(rig.source.outcome("next").await, "completed ");
}

#[tokio::test]
async fn nothing_is_said_of_a_job_that_was_lost() {
    let rig = rig(1, limits());
    busy(&rig).await;
    rig.source.answer(Tickled::Lost);
    rig.source.push("next", samples::UPPER, None);
    assert_eq!(rig.source.outcome("next").await, "completed ");
    let silence = tokio::time::timeout(Duration::from_millis(50), rig.source.outcome("busy")).await;
    assert!(silence.is_err(), "{silence:?}");
}

#[tokio::test]
async fn a_runner_that_is_cut_off_until_the_lease_has_ended_stops_the_run() {
    let rig = rig(1, limits());
    busy(&rig).await;
    rig.source.cut_off();
    rig.source.push("next", samples::UPPER, None);
    assert_eq!(rig.source.outcome("next").await, "completed ");
}

#[tokio::test]
async fn a_stop_lets_the_running_job_end_and_takes_no_other() {
    let rig = rig(1, Limits { time_limit_ms: 1_000, ..limits() });
    busy(&rig).await;
    rig.stop.send_replace(Stopping::Finish);
    rig.source.push("too late", samples::UPPER, None);
    assert!(rig.source.outcome("busy").await.contains("exceeded its time limit"));
    rig.runner.await.unwrap();
    assert!(!rig.source.is_empty());
}

#[tokio::test]
async fn a_stop_at_once_gives_the_running_job_back() {
    let rig = rig(1, limits());
    busy(&rig).await;
    rig.stop.send_replace(Stopping::Now);
    assert_eq!(rig.source.outcome("busy").await, "given back, counts: false, after 0ns");
    rig.runner.await.unwrap();
}
