//! Single guest processes.

use super::{limits, program, samples};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;
use windlass_runners::wasi::child::{Child, RunEnd};
use windlass_runners::wasi::job_source::FetchError;
use windlass_runners::wasi::message::{GuestEnd, How, Limits};

async fn start(limits: Limits) -> Child {
    Child::start(&program(), limits).await.unwrap()
}

/// Runs the module with this text, which is also its name.
async fn run(child: &mut Child, text: &str, input: &[u8]) -> RunEnd {
    let bytes = samples::compile(text);
    child.run(text, input.to_vec(), async { Ok(bytes) }).await
}

fn ended(end: RunEnd) -> GuestEnd {
    match end {
        RunEnd::Ended(ended) => ended,
        other => panic!("{other:?}"),
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.pid().unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn one_process_runs_many_modules_and_outlives_all_their_troubles() {
    let mut child = start(Limits { time_limit_ms: 2_000, ..limits() }).await;
    let pid = child.pid();
    let mut hows = Vec::new();
    let exit = samples::exit(3);
    for text in [samples::LOOP, samples::TRAP, samples::MEMORY_BOMB, samples::OUTPUT_BOMB, &exit] {
        hows.push(ended(run(&mut child, text, b"").await).how);
    }
    let words: Vec<&str> = hows
        .iter()
        .map(|how| match how {
            How::Failed(why) | How::TooMuchOutput(why) => why.split([';', ':']).next().unwrap(),
            How::Exit(_) => "exit",
        })
        .collect();
    assert_eq!(words[0], "the module exceeded its time limit of 2 s");
    assert_eq!(words[1..3], ["wasm trap", "wasm trap"]);
    assert_eq!(words[3..], ["the output exceeds the limit of 1048576 bytes", "exit"]);
    assert_eq!(ended(run(&mut child, samples::UPPER, b"still here").await).stdout, b"STILL HERE");
    assert_eq!(child.pid(), pid, "the same process");
}

#[tokio::test]
async fn a_module_is_asked_for_once_and_one_that_is_missing_harms_nobody() {
    let mut child = start(limits()).await;
    let missing = child.run("a", Vec::new(), async { Err(FetchError::Missing("gone".to_owned())) }).await;
    assert!(matches!(missing, RunEnd::NoModule(FetchError::Missing(_))), "{missing:?}");
    let bytes = samples::compile(samples::UPPER);
    let first = child.run("a", b"one".to_vec(), async { Ok(bytes) }).await;
    assert_eq!(ended(first).stdout, b"ONE");
    let never = async { panic!("it has this module") };
    assert_eq!(ended(child.run("a", b"two".to_vec(), never).await).stdout, b"TWO");
}

#[tokio::test]
async fn large_input_and_output_pass_through() {
    let mut child = start(Limits { output_bytes_max: 32 << 20, ..limits() }).await;
    let input = b"abcdefgh".repeat(1 << 20);
    let ended = ended(run(&mut child, samples::UPPER, &input).await);
    assert_eq!(ended.stdout.len(), input.len());
    assert!(ended.stdout.starts_with(b"ABCDEFGHABC"));
}

#[tokio::test]
async fn the_process_is_confined_before_it_sees_a_module() {
    let child = start(limits()).await;
    assert!(child.confined.contains(&"limits".to_owned()), "{:?}", child.confined);
    if !cfg!(target_os = "linux") {
        return;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.pid().unwrap())).unwrap();
    let line = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(line("Seccomp:"), "2", "filtered\n{status}");
    assert_eq!(line("NoNewPrivs:"), "1");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.pid().unwrap())).unwrap();
    let row = |name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(row("Max processes").contains(" 0 "), "{limits}");
    assert!(row("Max core file size").contains(" 0 "), "{limits}");
}

/// Sends a signal while a guest runs: the signal decides who is to blame for the end.
async fn struck_by(signal: Signal) -> RunEnd {
    let mut child = start(limits()).await;
    let victim = pid(&child);
    let strike = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        kill_process(victim, signal).unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        end = run(&mut child, samples::LOOP, b"") => end,
        () = strike => unreachable!(),
    }
}

#[tokio::test]
async fn a_process_that_is_killed_from_outside_is_not_the_modules_fault() {
    let end = struck_by(Signal::KILL).await;
    assert!(matches!(&end, RunEnd::Lost(why) if why.contains("signal: 9")), "{end:?}");
    assert!(!end.leaves_it_usable());
}

#[tokio::test]
async fn a_process_that_breaks_is_the_modules_fault() {
    let end = struck_by(Signal::ABORT).await;
    assert!(matches!(&end, RunEnd::Killed(why) if why.contains("signal: 6")), "{end:?}");
}

#[tokio::test]
async fn a_process_that_no_longer_keeps_its_own_time_is_stopped_from_outside() {
    let mut child = start(Limits { time_limit_ms: 10, ..limits() }).await;
    kill_process(pid(&child), Signal::STOP).unwrap();
    let end = run(&mut child, samples::LOOP, b"").await;
    assert!(matches!(&end, RunEnd::Killed(why) if why.contains("was killed")), "{end:?}");
}

#[tokio::test]
async fn what_is_no_guest_program_is_an_error_and_not_a_hang() {
    let mut other = program();
    other.args = vec!["--version".to_owned()];
    assert!(Child::start(&other, limits()).await.is_err());
    other.path = "/no/such/program".into();
    assert!(Child::start(&other, limits()).await.is_err());
}
