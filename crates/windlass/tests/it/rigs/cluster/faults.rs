//! Faults of the database: restarts, cut connections, and silence. Clients get retryable errors, no
//! acknowledged change is lost, and everything recovers by itself.

use super::Cluster;
use super::postgres_server::{Disk, PostgresServer};
use crate::rigs::check::check;
use crate::rigs::dump::Dump;
use crate::rigs::load::Load;
use crate::rigs::quiet::{assert_kept, drain, release_held, tally};
use crate::rigs::{note, seed, setting};
use crate::server::eventually;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CLIENTS: u64 = 4;
/// Longest time to a response, whatever the database does.
const ANSWER_MAX: Duration = Duration::from_secs(18);
/// Longest time to a regular response after the recovery.
const BACK_MAX: Duration = Duration::from_secs(15);

/// Response to a push with its headers.
#[derive(Clone, Debug)]
struct Probe {
    took: Duration,
    status: u16,
    retry_after: bool,
    body: String,
}

impl Probe {
    fn send(to: SocketAddr) -> std::io::Result<Probe> {
        let began = Instant::now();
        let mut stream = TcpStream::connect(to)?;
        stream.set_read_timeout(Some(2 * ANSWER_MAX))?;
        let body = r#"{"name":"probe","queue":"probes"}"#;
        write!(
            stream,
            "POST /api/v1/jobs HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let retry_after = head.to_ascii_lowercase().contains("\r\nretry-after:");
        Ok(Probe { took: began.elapsed(), status, retry_after, body: body.to_owned() })
    }

    /// Expects 503 with `Retry-After` and an error code; 500 only for an unknown result.
    fn check(&self) {
        let code = serde_json::from_str::<Value>(&self.body).unwrap_or_default();
        let code = code["error"]["code"].as_str().unwrap_or_default().to_owned();
        match self.status {
            201 => {}
            503 => assert!(self.retry_after && code == "store_unavailable", "{self:?}"),
            500 => assert_eq!(code, "outcome_unknown", "{self:?}"),
            _ => panic!("{self:?}"),
        }
        assert!(self.took < ANSWER_MAX, "{self:?}");
    }
}

/// Load and probes on a cluster during faults of its database.
pub struct Rig {
    pub cluster: Cluster,
    pub load: Arc<Load>,
    clients: Vec<JoinHandle<()>>,
    over: Arc<AtomicBool>,
    prober: JoinHandle<Vec<Probe>>,
    seed: u64,
}

impl Rig {
    pub fn start(url: &str, flags: &[&str], seed: u64) -> Rig {
        let cluster = Cluster::start_on(url, 2, flags);
        let load = Load::new();
        load.set_addresses(cluster.addresses());
        let clients = (0..CLIENTS).map(|number| load.client(number, seed)).collect();
        let over = Arc::new(AtomicBool::new(false));
        let (ending, to) = (Arc::clone(&over), cluster.http(0));
        let prober = std::thread::spawn(move || {
            let mut probes = Vec::new();
            while !ending.load(Ordering::Acquire) {
                probes.push(Probe::send(to).unwrap_or_else(|error| panic!("no answer at all: {error}")));
                std::thread::sleep(Duration::from_millis(20));
            }
            probes
        });
        std::thread::sleep(Duration::from_millis(500));
        Rig { cluster, load, clients, over, prober, seed }
    }

    /// Waits until every server refuses pushes with `Retry-After`.
    pub fn until_refused(&self) {
        for to in self.cluster.addresses() {
            eventually("a push is refused", || {
                let pushed = Probe::send(to).ok()?;
                (pushed.status == 503).then(|| pushed.check())
            });
        }
    }

    /// Waits until the servers are ready and respond as usual.
    pub fn until_back(&self) {
        let began = Instant::now();
        for to in self.cluster.addresses() {
            eventually("a push works again", || {
                let pushed = Probe::send(to).ok()?;
                (pushed.status == 201).then_some(())
            });
        }
        let took = began.elapsed();
        assert!(took < BACK_MAX, "it took {took:?} until pushes worked again");
    }

    /// Ends the load without a check, for databases that may lose acknowledged changes.
    pub fn end_unchecked(self) {
        self.over.store(true, Ordering::Release);
        self.load.end();
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        self.prober.join().unwrap().iter().for_each(Probe::check);
        self.cluster.stop();
    }

    /// Ends the load, drains the jobs, and checks every invariant.
    pub fn end(self, what: &str) {
        let Rig { cluster, load, clients, over, prober, seed } = self;
        over.store(true, Ordering::Release);
        load.end();
        clients.into_iter().for_each(|client| client.join().unwrap());
        let probes = prober.join().unwrap();
        probes.iter().for_each(Probe::check);
        // A cut connection may be noticed only now, by its first use.
        eventually("nothing is held any more", || {
            release_held(&load, cluster.http(0));
            Dump::take(cluster.http(0)).jobs.iter().all(|job| job["state"] != "running").then_some(())
        });
        finish_probes(cluster.http(0));
        drain(&load, cluster.http(0));
        let dump = Dump::take(cluster.http(0));
        let acknowledged = probes.iter().filter(|probe| probe.status == 201).count();
        assert_kept_with_doubts(&load, &without_probes(dump, acknowledged), what, seed);
        note(&format!("{what}, seed {seed}: {:?}, {:?}", by_status(&probes), tally(&load)));
        cluster.stop();
    }
}

/// The probes have a queue of their own, which the draining of the load ignores.
fn finish_probes(to: SocketAddr) {
    loop {
        let ask = |path: &str, body| super::ask(to, "POST", path, &body);
        let claimed =
            ask("/api/v1/claim", json!({ "queues": ["probes"], "limit": 1_000, "lease_ms": 60_000 }));
        let jobs = claimed["jobs"].as_array().cloned().unwrap_or_default();
        if jobs.is_empty() {
            return;
        }
        let entry = |job: &Value| json!({ "id": job["id"], "token": job["token"], "outcome": "finish" });
        let settled = ask("/api/v1/settle", json!({ "settle": jobs.iter().map(entry).collect::<Vec<_>>() }));
        let all = settled["settled"].as_array().into_iter().flatten();
        assert!(all.into_iter().all(|entry| entry["ok"] == true), "{settled}");
    }
}

/// Checks that the acknowledged probes exist, and removes all probes for the checker of histories.
fn without_probes(mut dump: Dump, acknowledged: usize) -> Dump {
    let is_probe = |job: &Value| job["queue"] == "probes";
    let there = dump.jobs.iter().filter(|job| is_probe(job)).count();
    assert!(there >= acknowledged, "{acknowledged} probes were acknowledged, {there} are there");
    dump.jobs.retain(|job| !is_probe(job));
    dump.queues.retain(|queue| queue["queue"] != "probes");
    dump
}

/// Allows invariant 24 to be violated: a server that lost its database during a commit may not know its
/// result.
fn assert_kept_with_doubts(load: &Load, dump: &Dump, rig: &str, seed: u64) {
    if check(&load.history.records(), dump).iter().any(|broken| broken.invariant != 24) {
        assert_kept(load, dump, rig, seed);
    }
}

fn by_status(probes: &[Probe]) -> std::collections::BTreeMap<u16, usize> {
    let mut counts = std::collections::BTreeMap::new();
    probes.iter().for_each(|probe| *counts.entry(probe.status).or_default() += 1);
    counts
}

pub fn rounds() -> u64 {
    setting("WINDLASS_FAULTS", 1)
}

#[test]
fn a_database_that_is_restarted_under_load_costs_errors_and_nothing_else() {
    let database = PostgresServer::start(Disk::Safe, &[]);
    let rig = Rig::start(&database.new_database_url(), &[], seed(30));
    for _ in 0..rounds() {
        database.restart();
        rig.until_back();
        std::thread::sleep(Duration::from_millis(300));
        database.kill();
        rig.until_refused();
        std::thread::sleep(Duration::from_millis(700));
        database.resume();
        rig.until_back();
        std::thread::sleep(Duration::from_millis(300));
    }
    rig.end("restarted");
}

#[test]
fn connections_that_are_cut_are_made_anew() {
    let database = PostgresServer::start(Disk::Safe, &[]);
    let rig = Rig::start(&database.new_database_url(), &[], seed(31));
    for _ in 0..8 * rounds() {
        database.sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        );
        std::thread::sleep(Duration::from_millis(150));
    }
    rig.until_back();
    rig.end("cut");
}

/// The database's clock continues while it is silent, so leases expire meanwhile, including those of claims
/// in flight.
#[test]
fn a_database_that_is_frozen_for_five_seconds_is_survived() {
    let database = PostgresServer::start(Disk::Safe, &[]);
    let rig = Rig::start(&database.new_database_url(), &[], seed(33));
    for _ in 0..rounds() {
        database.freeze();
        std::thread::sleep(Duration::from_secs(5));
        database.thaw();
        rig.until_back();
        std::thread::sleep(Duration::from_millis(300));
    }
    // Requests during the silence get a retryable error, or a response after it: in time, either way.
    rig.end("frozen");
}

/// As when other clients use all connections: the database reports the same error.
#[test]
fn a_database_without_a_free_connection_is_survived() {
    let database = PostgresServer::start(Disk::Safe, &[]);
    let url = database.new_database_url();
    let name = url.rsplit('/').next().unwrap();
    // Not as superuser, to whom this limit does not apply.
    database.sql("CREATE ROLE app LOGIN");
    database.sql(&format!("ALTER DATABASE {name} OWNER TO app"));
    let rig = Rig::start(&url.replace("postgres@", "app@"), &[], seed(35));
    for _ in 0..rounds() {
        database.sql(&format!("ALTER DATABASE {name} CONNECTION LIMIT 0"));
        eventually("no server has a connection", || {
            let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app'";
            (database.sql(ended) == "0").then_some(())
        });
        rig.until_refused();
        std::thread::sleep(Duration::from_secs(1));
        database.sql(&format!("ALTER DATABASE {name} CONNECTION LIMIT -1"));
        rig.until_back();
        std::thread::sleep(Duration::from_millis(300));
    }
    rig.end("exhausted");
}

#[test]
fn a_network_that_loses_everything_for_five_seconds_is_survived() {
    let database = PostgresServer::start(Disk::Safe, &[]);
    let wire = super::wire::Wire::to(database.port());
    let url =
        database.new_database_url().replace(&format!(":{}/", database.port()), &format!(":{}/", wire.port()));
    let rig = Rig::start(&url, &[], seed(34));
    for _ in 0..rounds() {
        // Connections that hang first, then none at all, as with an unstable route.
        wire.stall();
        std::thread::sleep(Duration::from_secs(3));
        wire.cut();
        std::thread::sleep(Duration::from_secs(2));
        wire.mend();
        rig.until_back();
        std::thread::sleep(Duration::from_millis(300));
    }
    // Requests meanwhile get a retryable error, or a response afterwards: in time, either way.
    rig.end("cut off");
}
