//! Kills just before the first, second, third … system call that changes a file or sends a response.
//!
//! `strace` counts the calls per thread; nearly all of these are made by the writer. A point is a kind of
//! call and a number: the server dies when any of its threads makes that call for that time.

use super::dice::Dice;
use super::dump::Dump;
use super::history::Pushing;
use super::load::{Asker, Load};
use super::process::{Place, Process, Refusal, need_strace};
use super::quiet::{assert_kept, assert_no_panic};
use super::scenario::{Beside, Scenario};
use super::seed;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

/// System calls that change the disk, or the knowledge of a client.
const CALLS: &str = "pwrite64,write,writev,sendto,fdatasync,fsync,ftruncate,fallocate,rename,renameat,renameat2,unlink,\
                     unlinkat,openat,copy_file_range,sendfile";
/// Points in a short run.
const SAMPLE: usize = 80;

pub fn is_long() -> bool {
    std::env::var("WINDLASS_SWEEP").is_ok_and(|how| how == "all")
}

/// Number of calls of each kind by the busiest thread without faults.
pub fn count_calls(calls: &str, place: &Place, run: impl FnOnce(&Place, &[&str])) -> BTreeMap<String, u64> {
    let log = place.path().join("calls");
    let (trace, path) = (format!("trace={calls}"), log.to_string_lossy().into_owned());
    run(place, &["-o", &path, "-e", &trace]);
    let mut by_thread: BTreeMap<(String, String), u64> = BTreeMap::new();
    for line in std::fs::read_to_string(&log).unwrap().lines() {
        let mut words = line.split_whitespace();
        let (Some(thread), Some(rest)) = (words.next(), words.next()) else { continue };
        if let Some((call, _)) = rest.split_once('(') {
            *by_thread.entry((call.to_owned(), thread.to_owned())).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((call, _), count) in by_thread {
        let known = most.entry(call).or_insert(0);
        *known = count.max(*known);
    }
    most
}

/// All points, or as many as fit into a short run, with every kind of call.
pub fn choose(counts: &BTreeMap<String, u64>, sample: usize, seed: u64) -> Vec<(String, u64)> {
    let points = |(call, count): (&String, &u64)| (1..=*count).map(|n| (call.clone(), n)).collect::<Vec<_>>();
    if is_long() {
        return counts.iter().flat_map(points).collect();
    }
    let mut dice = Dice::new(seed);
    let per_call = sample.div_ceil(counts.len().max(1)) as u64;
    let mut chosen = Vec::new();
    for (call, count) in counts {
        // One from each section of the scenario.
        let stretches = per_call.min(*count).max(1);
        for stretch in 0..stretches {
            let (low, high) = (stretch * count / stretches, (stretch + 1) * count / stretches);
            chosen.push((call.clone(), dice.range(low, high.max(low + 1)) + 1));
        }
    }
    chosen
}

/// Runs the scenario on a new server, to its end and a clean stop unless a fault intervenes.
fn play(started: Result<Process, Refusal>, load: &Arc<Load>) -> (Beside, bool) {
    let mut scenario = Scenario::new(load);
    match started {
        Err(refusal) => (scenario.beside, refusal.status.signal().is_some()),
        Ok(mut server) => {
            load.set_address(Some(server.http));
            scenario.run(server.http);
            let status = server.stop();
            (scenario.beside, status.signal().is_some())
        }
    }
}

/// Checks after a fault that the server starts, and that every acknowledged change exists once.
#[track_caller]
pub fn assert_whole(place: &Place, load: &Arc<Load>, beside: &Beside, what: &str, seed: u64) {
    assert_no_panic(place);
    let mut server = place.start();
    assert_kept(load, &Dump::take(server.http), what, seed);
    beside.assert_kept(server.http);
    let checked = place.check().json();
    assert_eq!(checked["ok"], true, "{what}: {checked}");
    server.kill();
}

#[test]
fn killed_before_any_call_that_writes_nothing_acknowledged_is_lost() {
    need_strace();
    let seed = seed(3);
    let counts = count_calls(CALLS, &Place::new(), |place, strace| {
        play(place.start_with(strace), &Load::new());
    });
    let points = choose(&counts, SAMPLE, seed);
    // Alternates: only the store's thread writes, or callers write directly, which spreads the calls over
    // several threads.
    let mut killed = [0, 0];
    for (number, (call, n)) in points.iter().enumerate() {
        let place = Place::new();
        let load = Load::new();
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=KILL:when={n}"));
        let strace = ["-o", "/dev/null", "-e", &trace, "-e", &inject];
        let started = match number % 2 {
            0 => place.start_with(&strace),
            _ => place.start_where_all_write(&strace),
        };
        let (beside, died) = play(started, &load);
        killed[number % 2] += u64::from(died);
        assert_whole(&place, &load, &beside, &format!("sweep-{call}-{n}"), seed);
    }
    println!("sweep, seed {seed}: {} points of {counts:?}, {killed:?} killed", points.len());
    // Timing changes the counts a little, not by half.
    assert!(
        killed[0] * 4 > points.len() as u64,
        "only {} of {} points were reached",
        killed[0],
        points.len() / 2
    );
}

/// Data as a crash leaves it, with its history.
pub fn crashed() -> (Place, Arc<Load>, Beside) {
    let (place, load) = (Place::new(), Load::new());
    let mut server = place.start();
    load.set_address(Some(server.http));
    let mut scenario = Scenario::new(&load);
    scenario.run(server.http);
    server.kill();
    load.set_address(None);
    (place, load, scenario.beside)
}

pub fn copy_of(place: &Place) -> Place {
    let copy = Place::new();
    std::fs::create_dir_all(copy.data()).unwrap();
    for file in place.files() {
        std::fs::copy(&file, copy.data().join(file.file_name().unwrap())).unwrap();
    }
    copy
}

#[test]
fn killed_at_any_call_of_a_start_after_a_crash_the_next_start_has_everything() {
    need_strace();
    let seed = seed(4);
    let (original, load, beside) = crashed();
    let counts = count_calls(CALLS, &copy_of(&original), |place, strace| {
        place.start_with(strace).unwrap().stop();
    });
    let points = choose(&counts, SAMPLE / 2, seed);
    for (call, n) in &points {
        let place = copy_of(&original);
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=KILL:when={n}"));
        if let Ok(mut server) = place.start_with(&["-o", "/dev/null", "-e", &trace, "-e", &inject]) {
            server.stop();
        }
        assert_whole(&place, &load, &beside, &format!("start-{call}-{n}"), seed);
    }
    println!("starts, seed {seed}: {} points of {counts:?}", points.len());
}

/// Pushes until the write-ahead log is so long that a checkpoint runs while clients wait, or until the server
/// stops answering.
fn push_much(load: &Arc<Load>) {
    let mut asker = Asker::new(Arc::clone(load), 5, 5);
    for batch in 0..30 {
        let job = |job| Pushing {
            mark: format!("m{batch}-{job}"),
            queue: "red".to_owned(),
            max_attempts: 3,
            ..Pushing::default()
        };
        asker.push((0..1_000).map(job).collect());
        if !load.history.records().last().is_some_and(super::history::Record::is_ok) {
            return;
        }
    }
}

#[test]
fn killed_while_the_log_is_brought_in_nothing_acknowledged_is_lost() {
    need_strace();
    let seed = seed(11);
    let mut dice = Dice::new(seed);
    // Only writes to the database file count here: apart from a few at the start, all belong to a checkpoint.
    let points = if is_long() { 40 } else { 2 };
    let mut killed = 0;
    for _ in 0..points {
        let (place, load, n) = (Place::new(), Load::new(), dice.range(10, 3_000));
        let database = place.data().join("windlass.db").to_string_lossy().into_owned();
        let inject = format!("inject=pwrite64:signal=KILL:when={n}");
        let strace = ["-o", "/dev/null", "-P", &database, "-e", "trace=pwrite64", "-e", &inject];
        let mut server = place.start_with(&strace).unwrap();
        load.set_address(Some(server.http));
        push_much(&load);
        killed += u64::from(server.has_ended());
        server.kill();
        assert_whole(&place, &load, &Beside::default(), &format!("log-{n}"), seed);
    }
    println!("log brought in, seed {seed}: {points} points, {killed} killed");
    assert_eq!(killed, points);
}
