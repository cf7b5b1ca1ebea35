//! Servers with a wrong clock: the database's clock decides. Steps of the database's clock affect dates only.

use super::postgres_server::PostgresServer;
use super::{Cluster, ask};
use crate::rigs::process::Place;
use crate::server::{eventually, windlass};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

/// Command with an offset of its clock.
fn windlass_with_clock(offset: &str) -> Command {
    let plain = windlass();
    let mut command = Command::new("faketime");
    // Only the wall clock, not its speed.
    command.env("DONT_FAKE_MONOTONIC", "1").args(["-f", offset]).arg(plain.get_program());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn claim(to: SocketAddr, name: &str, wait_ms: u64, lease_ms: u64) -> Vec<Value> {
    let body = json!({ "name": name, "limit": 1, "wait_ms": wait_ms, "lease_ms": lease_ms });
    ask(to, "POST", "/api/v1/claim", &body)["jobs"].as_array().cloned().unwrap_or_default()
}

fn need_faketime() {
    let tried = Command::new("faketime").args(["-f", "+1s", "true"]).output();
    assert!(
        tried.is_ok_and(|ran| ran.status.success()),
        "this rig needs faketime (apt-get install faketime)"
    );
}

#[test]
fn a_server_with_a_wrong_clock_ends_no_lease_early_and_delays_nothing() {
    need_faketime();
    let url = PostgresServer::shared().new_schema_url();
    let cluster = Cluster::start_on(&url, 1, &super::NOT_SAFE);
    let right = cluster.http(0);
    for offset in ["+3600s", "-3600s"] {
        let place = Place::new();
        let started =
            place.start_command(windlass_with_clock(offset), &["--store", &url, "--durability", "relaxed"]);
        let mut wrong = started.unwrap_or_else(|refusal| panic!("{refusal:?}"));
        // Leased at one server, visible at the other.
        ask(right, "POST", "/api/v1/jobs", &json!({ "name": "held", "retry": 9 }));
        let held = claim(right, "held", 0, 20_000);
        assert_eq!(held.len(), 1, "{offset}");
        assert!(claim(wrong.http, "held", 1_500, 20_000).is_empty(), "{offset}: a lease was ended early");
        let settle = json!({ "id": held[0]["id"], "token": held[0]["token"], "outcome": "finish" });
        let settled = ask(wrong.http, "POST", "/api/v1/settle", &json!({ "settle": [settle] }));
        assert_eq!(settled["settled"][0]["ok"], true, "{offset}: {settled}");
        // Delays and leases requested at one server end in time at the other.
        for (from, to, which) in [(wrong.http, right, "of the wrong"), (right, wrong.http, "of the right")] {
            let asked = Instant::now();
            ask(from, "POST", "/api/v1/jobs", &json!({ "name": "later", "delay_ms": 700, "retry": 9 }));
            assert!(claim(to, "later", 0, 800).is_empty(), "{offset}: a job {which} server came early");
            assert_eq!(claim(to, "later", 8_000, 800).len(), 1, "{offset}: a job {which} server is late");
            assert!(
                asked.elapsed() > Duration::from_millis(650),
                "{offset}: a job {which} server came early"
            );
            let again = claim(from, "later", 8_000, 60_000);
            assert_eq!(again.len(), 1, "{offset}: a lease {which} server never ends");
            let settle = json!({ "id": again[0]["id"], "token": again[0]["token"], "outcome": "finish" });
            ask(to, "POST", "/api/v1/settle", &json!({ "settle": [settle] }));
        }
        wrong.kill();
    }
    cluster.stop();
}

/// Claims the job again when its lease or delay is over, not after a clock step.
fn claim_soon(to: SocketAddr, name: &str) -> Value {
    let asked = Instant::now();
    while asked.elapsed() < Duration::from_secs(60) {
        if let Some(job) = claim(to, name, 5_000, 600_000).pop() {
            return job;
        }
    }
    panic!("{name} does not come");
}

#[test]
fn a_database_whose_clock_is_set_delays_and_hastens_nothing() {
    const HOUR_S: i64 = 3_600;
    let database = PostgresServer::start_with_clock(&crate::rigs::clock::library());
    let mut cluster = Cluster::start_on(&database.url(), 2, &super::NOT_SAFE);
    let push = |to: SocketAddr, body: Value| ask(to, "POST", "/api/v1/jobs", &body);
    let noticed = |cluster: &Cluster| -> usize {
        let words = "the clock of the database was set";
        cluster.places.iter().map(|place| place.log().matches(words).count()).sum()
    };
    for off_s in [-HOUR_S, HOUR_S, 0] {
        let (one, other) = (cluster.http(0), cluster.http(1));
        push(one, json!({ "name": "leased", "retry": 9 }));
        assert_eq!(claim(one, "leased", 5_000, 5_000).len(), 1);
        let asked = Instant::now();
        push(other, json!({ "name": "delayed", "delay_ms": 4_000 }));
        push(other, json!({ "name": "far", "delay_ms": HOUR_S * 500 }));
        let before = noticed(&cluster);
        database.set_clock(off_s);
        eventually("the step is noticed", || (noticed(&cluster) > before).then_some(()));
        // A push by SQL is claimable at once, too.
        database.sql("SELECT windlass.push('by-sql')");
        claim_soon(other, "by-sql");
        claim_soon(one, "delayed");
        assert!(asked.elapsed() > Duration::from_millis(3_000), "{off_s}: a delay was cut short");
        claim_soon(other, "leased");
        assert!(claim(one, "far", 0, 1_000).is_empty(), "{off_s}: a delay was cut short");
        // A server that starts now has the same time.
        push(one, json!({ "name": "later", "delay_ms": 4_000 }));
        cluster.kill(1);
        cluster.resume(1);
        claim_soon(cluster.http(1), "later");
    }
    // A server that starts when none was running during the step has it, too.
    push(cluster.http(0), json!({ "name": "later", "delay_ms": 4_000 }));
    (0..2).for_each(|number| cluster.kill(number));
    database.set_clock(-3 * HOUR_S);
    cluster.resume(0);
    claim_soon(cluster.http(0), "later");
    cluster.stop();
}

#[test]
fn a_rate_goes_on_when_the_clock_of_the_database_is_set() {
    let database = PostgresServer::start_with_clock(&crate::rigs::clock::library());
    let cluster = Cluster::start_on(&database.url(), 1, &super::NOT_SAFE);
    let server = cluster.http(0);
    // Claims read the database's time several times a second: also between the step and its detection.
    let limit = json!({ "matcher": { "name": "few" }, "rate": { "per_second": 5, "burst": 1 } });
    ask(server, "PUT", "/api/v1/limits/few", &limit);
    let jobs: Vec<Value> = (0..500).map(|_| json!({ "name": "few" })).collect();
    ask(server, "POST", "/api/v1/jobs", &json!({ "jobs": jobs }));
    let run_on = |seconds: u64| {
        let began = Instant::now();
        let mut most = Duration::ZERO;
        let mut last = began;
        while began.elapsed() < Duration::from_secs(seconds) {
            if !claim(server, "few", 250, 600_000).is_empty() {
                most = most.max(last.elapsed());
                last = Instant::now();
            }
        }
        most.max(last.elapsed())
    };
    assert!(run_on(2) < Duration::from_secs(2), "jobs come by the rate");
    for off_s in [3_600, 0] {
        database.set_clock(off_s);
        let pause = run_on(10);
        assert!(pause < Duration::from_secs(8), "{off_s}: nothing came for {pause:?}");
    }
    cluster.stop();
}
