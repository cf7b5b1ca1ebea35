//! Guarantees across several servers: families, repeats, limits, timers, wake-ups.

use super::{Cluster, ask};
use crate::rigs::history::now_us;
use crate::rigs::http::{Client, Reply};
use crate::rigs::setting;
use crate::server::eventually;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SERVERS: usize = 3;

fn push(to: SocketAddr, job: &Value) -> u64 {
    ask(to, "POST", "/api/v1/jobs", job)["id"].as_u64().unwrap()
}

fn claim(to: SocketAddr, name: &str, limit: u64, wait_ms: u64, lease_ms: u64) -> Vec<Value> {
    let body = json!({ "name": name, "limit": limit, "wait_ms": wait_ms, "lease_ms": lease_ms });
    ask(to, "POST", "/api/v1/claim", &body)["jobs"].as_array().cloned().unwrap_or_default()
}

fn finish(to: SocketAddr, job: &Value) -> Value {
    let entry = json!({ "id": job["id"], "token": job["token"], "outcome": "finish" });
    ask(to, "POST", "/api/v1/settle", &json!({ "settle": [entry] }))["settled"][0].clone()
}

fn state(to: SocketAddr, id: u64) -> String {
    let reply = Client::default().call(to, "GET", &format!("/api/v1/jobs/{id}"), None);
    match reply {
        Reply::Answer(200, job) => job["state"].as_str().unwrap_or_default().to_owned(),
        Reply::Answer(404, _) => "gone".to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_parent_whose_children_end_on_several_servers_at_once_runs_once_more() {
    const PARENTS: usize = 25;
    const CHILDREN: usize = 4;
    let cluster = Cluster::start(SERVERS);
    let servers = cluster.addresses();
    let batch: Vec<Value> = (0..PARENTS).map(|_| json!({ "name": "parent" })).collect();
    ask(servers[0], "POST", "/api/v1/jobs", &json!({ "jobs": batch }));
    let parents = claim(servers[0], "parent", PARENTS as u64, 0, 60_000);
    assert_eq!(parents.len(), PARENTS);
    for (number, parent) in parents.iter().enumerate() {
        let children: Vec<Value> =
            (0..CHILDREN).map(|_| json!({ "name": "child", "parent": parent["id"] })).collect();
        ask(servers[number % SERVERS], "POST", "/api/v1/jobs", &json!({ "jobs": children }));
        assert_eq!(finish(servers[(number + 1) % SERVERS], parent)["state"], "waiting");
    }
    // The children of one parent have consecutive ids: each goes to another thread, and all end at the same
    // time.
    let children = claim(servers[0], "child", (PARENTS * CHILDREN) as u64, 0, 60_000);
    assert_eq!(children.len(), PARENTS * CHILDREN);
    let barrier = Arc::new(std::sync::Barrier::new(CHILDREN));
    let threads: Vec<_> = (0..CHILDREN)
        .map(|thread| {
            let (barrier, server) = (Arc::clone(&barrier), servers[thread % SERVERS]);
            let mine: Vec<Value> = children.iter().skip(thread).step_by(CHILDREN).cloned().collect();
            thread::spawn(move || {
                for child in &mine {
                    barrier.wait();
                    assert_eq!(finish(server, child)["ok"], true, "{child}");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut runs: BTreeMap<u64, u32> = BTreeMap::new();
    for round in 0..2 * PARENTS {
        let server = servers[round % SERVERS];
        for parent in claim(server, "parent", 5, 0, 60_000) {
            *runs.entry(parent["id"].as_u64().unwrap()).or_default() += 1;
            assert_eq!(finish(server, &parent)["ok"], true);
        }
    }
    assert_eq!(runs.len(), PARENTS, "every parent has its second run");
    assert!(runs.values().all(|runs| *runs == 1), "and no third one: {runs:?}");
    for parent in &parents {
        let id = parent["id"].as_u64().unwrap();
        assert!(matches!(state(servers[2], id).as_str(), "completed" | "gone"), "parent {id}");
    }
    cluster.stop();
}

#[test]
fn a_repeating_job_has_one_turn_at_a_time_whoever_ends_it() {
    const JOBS: usize = 8;
    let mut cluster = Cluster::start(SERVERS);
    let batch: Vec<Value> =
        (0..JOBS).map(|n| json!({ "name": format!("turn-{n}"), "repeat": "every 300ms" })).collect();
    ask(cluster.http(0), "POST", "/api/v1/jobs", &json!({ "jobs": batch }));
    let over = Arc::new(AtomicBool::new(false));
    let turns: Arc<Mutex<Vec<(u64, i64)>>> = Arc::default();
    let workers: Vec<_> = cluster
        .addresses()
        .into_iter()
        .map(|server| {
            let (over, turns) = (Arc::clone(&over), Arc::clone(&turns));
            thread::spawn(move || {
                let mut client = Client::default();
                while !over.load(Ordering::Acquire) {
                    take_turns(&mut client, server, &turns);
                }
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(1_500));
    cluster.kill(1);
    thread::sleep(Duration::from_millis(1_500));
    over.store(true, Ordering::Release);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let mut turns = turns.lock().unwrap().clone();
    turns.sort_unstable();
    let all = turns.len();
    turns.dedup();
    assert_eq!(turns.len(), all, "a turn was finished twice");
    assert!(all >= JOBS * 2, "{all} turns in 3 seconds");
    for n in 0..JOBS {
        let page = ask_get(cluster.http(0), &format!("/api/v1/jobs?name=turn-{n}"));
        assert_eq!(page["jobs"].as_array().map(Vec::len), Some(1), "one successor each: {page}");
    }
    cluster.stop();
}

fn ask_get(to: SocketAddr, path: &str) -> Value {
    Client::default().get(to, path)
}

/// Claims and finishes runs, and records each run by its due time. Ignores a server that is down.
fn take_turns(client: &mut Client, server: SocketAddr, turns: &Mutex<Vec<(u64, i64)>>) {
    let body = json!({ "name": "turn-*", "limit": 3, "wait_ms": 100, "lease_ms": 60_000 });
    let Reply::Answer(200, claimed) = client.call(server, "POST", "/api/v1/claim", Some(&body)) else {
        return thread::sleep(Duration::from_millis(20));
    };
    for job in claimed["jobs"].as_array().into_iter().flatten() {
        let entry = json!({ "id": job["id"], "token": job["token"], "outcome": "finish" });
        let body = json!({ "settle": [entry] });
        let reply = client.call(server, "POST", "/api/v1/settle", Some(&body));
        if let Reply::Answer(200, answer) = reply
            && answer["settled"][0]["ok"] == true
        {
            let turn = (job["id"].as_u64().unwrap(), job["run_at"].as_i64().unwrap());
            turns.lock().unwrap().push(turn);
        }
    }
}

#[test]
fn a_waiting_claim_on_one_server_hears_of_a_push_on_another() {
    const PUSHES: usize = 15;
    let cluster = Cluster::start(2);
    let (listening, pushing) = (cluster.http(0), cluster.http(1));
    let mut took: Vec<Duration> = Vec::new();
    for round in 0..PUSHES {
        let waiter = thread::spawn(move || {
            let claimed = claim(listening, "wake", 1, 10_000, 60_000);
            (claimed, Instant::now())
        });
        // Long enough for the claim to have found nothing and to wait.
        thread::sleep(Duration::from_millis(120));
        push(pushing, &json!({ "name": "wake", "payload": round }));
        let pushed = Instant::now();
        let (claimed, heard) = waiter.join().unwrap();
        assert_eq!(claimed.len(), 1, "the claim came back empty");
        took.push(heard.saturating_duration_since(pushed));
    }
    took.sort_unstable();
    let median = took[PUSHES / 2];
    crate::rigs::note(&format!("woken across servers: median {median:?}, worst {:?}", took[PUSHES - 1]));
    // Some milliseconds on a quiet machine. A slow median would mean that notifications do not work and
    // servers poll.
    assert!(median < Duration::from_millis(250), "woken after {took:?}");
    assert!(took[PUSHES - 1] < Duration::from_secs(5), "one was not told, and did not look: {took:?}");
    cluster.stop();
}

#[test]
fn the_timers_of_a_killed_server_are_kept_by_another() {
    let mut cluster = Cluster::start(2);
    let (doomed, other) = (cluster.http(0), cluster.http(1));
    let leased = push(doomed, &json!({ "name": "leased", "retry": 5 }));
    let held = claim(doomed, "leased", 1, 0, 1_000);
    assert_eq!(held.len(), 1);
    let delayed = push(doomed, &json!({ "name": "delayed", "delay_ms": 1_000 }));
    let kept = push(doomed, &json!({ "name": "kept", "keep": { "completed_ms": 1_000 } }));
    let run = claim(doomed, "kept", 1, 0, 60_000);
    finish(doomed, &run[0]);
    let killed = Instant::now();
    cluster.kill(0);
    let waiter = thread::spawn(move || (claim(other, "delayed", 1, 10_000, 60_000), Instant::now()));
    let again = claim(other, "leased", 1, 10_000, 60_000);
    let lapsed = killed.elapsed();
    assert_eq!(again.first().and_then(|job| job["id"].as_u64()), Some(leased), "{again:?}");
    assert_eq!(again[0]["attempt"], 2);
    let (late, at) = waiter.join().unwrap();
    assert_eq!(late.first().and_then(|job| job["id"].as_u64()), Some(delayed), "{late:?}");
    eventually("its keep time is over", || (state(other, kept) == "gone").then_some(()));
    let forgotten = killed.elapsed();
    // Each was due at most a second after the kill, and two more are allowed; the rest is for a busy machine.
    for (what, took) in
        [("lease", lapsed), ("delay", at.saturating_duration_since(killed)), ("keep time", forgotten)]
    {
        assert!(took < Duration::from_millis(4_500), "the {what} was kept {took:?} after the kill");
    }
    cluster.stop();
}

/// Sets a limit and waits until each server knows it.
fn set_limit(cluster: &Cluster, id: &str, limit: &Value) {
    ask(cluster.http(0), "PUT", &format!("/api/v1/limits/{id}"), limit);
    for server in cluster.addresses() {
        eventually("a limit is known to every server", || {
            let limits = ask_get(server, "/api/v1/limits");
            limits["limits"].as_array().filter(|limits| !limits.is_empty()).map(drop)
        });
    }
}

/// Time from the response of the claim to the request of the settle: the job certainly ran then, and possibly
/// slightly longer.
type Run = (i64, i64);

/// Runs workers at every server that claim jobs, hold them for a moment, and record the time.
fn work_for(cluster: &mut Cluster, name: &'static str, time: Duration, with_kill: bool) -> Vec<Run> {
    let over = Arc::new(AtomicBool::new(false));
    let runs: Arc<Mutex<Vec<Run>>> = Arc::default();
    let workers: Vec<_> = (0..2 * SERVERS)
        .map(|number| {
            let (over, runs) = (Arc::clone(&over), Arc::clone(&runs));
            let servers = cluster.addresses();
            thread::spawn(move || {
                let mut client = Client::default();
                let mut turn = number;
                while !over.load(Ordering::Acquire) {
                    turn += 1;
                    hold_some(&mut client, &servers, turn, name, &runs);
                }
            })
        })
        .collect();
    thread::sleep(time / 2);
    if with_kill {
        cluster.kill(SERVERS - 1);
    }
    thread::sleep(time / 2);
    over.store(true, Ordering::Release);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    runs.lock().unwrap().clone()
}

fn hold_some(client: &mut Client, servers: &[SocketAddr], turn: usize, name: &str, runs: &Mutex<Vec<Run>>) {
    // Jobs handed out by a killed server with a lost response come back when their leases expire.
    let body = json!({ "name": name, "limit": 4, "wait_ms": 50, "lease_ms": 3_000 });
    let server = servers[turn % servers.len()];
    let Reply::Answer(200, claimed) = client.call(server, "POST", "/api/v1/claim", Some(&body)) else {
        return thread::sleep(Duration::from_millis(5));
    };
    let began = now_us();
    let jobs = claimed["jobs"].as_array().cloned().unwrap_or_default();
    if jobs.is_empty() {
        return;
    }
    thread::sleep(Duration::from_millis(15));
    let entry = |job: &Value| json!({ "id": job["id"], "token": job["token"], "outcome": "finish" });
    let body = json!({ "settle": jobs.iter().map(entry).collect::<Vec<_>>() });
    let ended = now_us();
    runs.lock().unwrap().extend(jobs.iter().map(|_| (began, ended)));
    // At another server, until one accepts it: a run that never ends would occupy its slot.
    for try_at in 1.. {
        let server = servers[(turn + try_at) % servers.len()];
        if let Reply::Answer(200, _) = client.call(server, "POST", "/api/v1/settle", Some(&body)) {
            return;
        }
        assert!(try_at < 200, "no server takes a settle");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Largest number of concurrent runs.
fn most_at_once(runs: &[Run]) -> usize {
    let mut edges: Vec<(i64, i64)> =
        runs.iter().flat_map(|(began, ended)| [(*began, 1), (*ended, -1)]).collect();
    edges.sort_unstable();
    let mut running = 0;
    let counts = edges.iter().map(|(_, change)| {
        running += change;
        running
    });
    counts.max().unwrap_or(0) as usize
}

fn fill(to: SocketAddr, name: &str, count: usize) {
    let batch: Vec<Value> = (0..count).map(|n| json!({ "name": name, "payload": n })).collect();
    ask(to, "POST", "/api/v1/jobs", &json!({ "jobs": batch }));
}

#[test]
fn no_more_jobs_run_at_once_than_their_limit_says_on_all_servers_together() {
    const MAX: usize = 3;
    let seconds = setting("WINDLASS_RIG_SECONDS", 3);
    let mut cluster = Cluster::start(SERVERS);
    let limit = json!({ "matcher": { "name": "few" }, "max_running": MAX });
    set_limit(&cluster, "few", &limit);
    fill(cluster.http(1), "few", 5_000);
    let runs = work_for(&mut cluster, "few", Duration::from_secs(seconds), true);
    let most = most_at_once(&runs);
    assert!(most <= MAX, "{most} ran at once of {MAX}, {} in all", runs.len());
    assert!(runs.len() > 5 * seconds as usize, "only {} ran: places leak", runs.len());
    // Nothing runs any more, so all slots are free.
    let freed = eventually("all places are free", || {
        let mut claimed = Vec::new();
        for number in [0, 1] {
            claimed.extend(claim(cluster.http(number), "few", 10, 0, 60_000));
        }
        let count = claimed.len();
        claimed.iter().for_each(|job| drop(finish(cluster.http(0), job)));
        (count >= MAX).then_some(count)
    });
    assert_eq!(freed, MAX);
    cluster.stop();
}

#[test]
fn no_more_jobs_start_in_a_time_than_their_rate_says_on_all_servers_together() {
    const RATE: f64 = 20.0;
    const BURST: u32 = 5;
    let seconds = setting("WINDLASS_RIG_SECONDS", 3);
    let mut cluster = Cluster::start(SERVERS);
    let limit = json!({ "matcher": { "name": "slow" }, "rate": { "per_second": RATE, "burst": BURST } });
    set_limit(&cluster, "slow", &limit);
    fill(cluster.http(1), "slow", 2_000);
    let began = Instant::now();
    let runs = work_for(&mut cluster, "slow", Duration::from_secs(seconds), true);
    let most = f64::from(BURST) + RATE * began.elapsed().as_secs_f64();
    // Exact bound: tokens of a rate are spent once, whichever server claims.
    assert!((runs.len() as f64) <= most, "{} started of {most:.1}", runs.len());
    assert!(runs.len() as f64 >= most / 4.0, "{} started of {most:.0}: the rate is not reached", runs.len());
    cluster.stop();
}
