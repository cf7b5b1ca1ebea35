//! Steps of the system clock while the server runs and while it is down: durations are unaffected, and dates
//! follow the clock.

use super::http::{Client, Reply};
use super::process::{Place, Process};
use crate::server::{eventually, windlass};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// More than anything here takes on a busy machine, and much less than a clock step.
const SOON: Duration = Duration::from_secs(60);
const HOUR_S: i64 = 3_600;

/// Library to preload for a process whose clock is set; found with its wrapper program.
pub fn library() -> String {
    let told = Command::new("faketime").args(["-f", "+0s", "sh", "-c", "echo $LD_PRELOAD"]).output();
    let told = told.expect("this rig needs faketime (apt-get install faketime)");
    let library = String::from_utf8(told.stdout).unwrap().trim().to_owned();
    assert!(library.contains("faketime"), "this rig needs faketime (apt-get install faketime)");
    library
}

/// Server whose clock is set by a file.
struct Clocked {
    place: Place,
    library: String,
    file: PathBuf,
}

impl Clocked {
    fn new() -> Clocked {
        let library = library();
        let place = Place::new();
        let file = place.path().join("clock");
        let clocked = Clocked { place, library, file };
        clocked.set(0);
        clocked
    }

    fn start(&self) -> Process {
        let mut command = windlass();
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("DONT_FAKE_MONOTONIC", "1");
        let started = self.place.start_command(command, &[]);
        started.unwrap_or_else(|refusal| panic!("the server did not start: {refusal:?}"))
    }

    /// Sets the offset of the clock, effective at once.
    fn set(&self, off_s: i64) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{off_s:+}s\n")).unwrap();
        std::fs::rename(&new, &self.file).unwrap();
    }

    fn until_noticed(&self, steps: usize) {
        eventually("the step is noticed", || {
            (self.place.log().matches("the clock was set").count() == steps).then_some(())
        });
    }
}

#[track_caller]
fn ask(server: &Process, method: &str, path: &str, body: &Value) -> Value {
    match Client::default().call(server.http, method, path, Some(body)) {
        Reply::Answer(200..=299, answer) => answer,
        other => panic!("{method} {path} {body}: {other:?}"),
    }
}

fn push(server: &Process, body: &Value) -> u64 {
    ask(server, "POST", "/api/v1/jobs", body)["id"].as_u64().expect("a push has an id")
}

fn claim(server: &Process, name: &str, wait_ms: u64, lease_ms: u64) -> Option<Value> {
    let body = json!({ "name": name, "limit": 1, "wait_ms": wait_ms, "lease_ms": lease_ms });
    ask(server, "POST", "/api/v1/claim", &body)["jobs"].as_array()?.first().cloned()
}

/// Claims a job that must be due within `SOON`, not after a clock step.
#[track_caller]
fn claim_soon(server: &Process, name: &str) -> Value {
    let asked = Instant::now();
    while asked.elapsed() < SOON {
        if let Some(job) = claim(server, name, 5_000, 600_000) {
            return job;
        }
    }
    panic!("{name} does not come");
}

fn right_ms() -> i64 {
    i64::try_from(UNIX_EPOCH.elapsed().unwrap_or_default().as_millis()).unwrap()
}

#[test]
fn a_clock_that_is_set_delays_and_hastens_nothing() {
    let clock = Clocked::new();
    let server = clock.start();
    let steps = [-HOUR_S, HOUR_S, 0];
    for (number, off_s) in steps.into_iter().enumerate() {
        push(&server, &json!({ "name": "leased", "retry": 9 }));
        assert!(claim(&server, "leased", 5_000, 4_000).is_some());
        let delayed_at = Instant::now();
        push(&server, &json!({ "name": "delayed", "delay_ms": 3_000 }));
        push(&server, &json!({ "name": "far", "delay_ms": HOUR_S * 1_000 / 2 }));
        clock.set(off_s);
        clock.until_noticed(number + 1);
        claim_soon(&server, "delayed");
        assert!(delayed_at.elapsed() >= Duration::from_millis(2_900), "a delay was cut short at {off_s}");
        let again = claim_soon(&server, "leased");
        assert_eq!(again["attempt"], 2, "{again}");
        let finish = json!({ "id": again["id"], "token": again["token"], "outcome": "finish" });
        ask(&server, "POST", "/api/v1/settle", &json!({ "settle": [finish] }));
        assert!(claim(&server, "far", 0, 1_000).is_none(), "a delay was cut short at {off_s}");
        // Displayed times follow the clock.
        let id = push(&server, &json!({ "name": "shown" }));
        let shown = Client::default().get(server.http, &format!("/api/v1/jobs/{id}"));
        let off_ms = shown["created_at"].as_i64().unwrap() - right_ms() - off_s * 1_000;
        assert!(off_ms.abs() < 60_000, "{shown} is off by {off_ms} ms at {off_s}");
    }
}

#[test]
fn a_date_is_by_the_clock_as_it_is_set() {
    let clock = Clocked::new();
    let server = clock.start();
    let date = right_ms() + HOUR_S * 1_000 * 3 / 2;
    push(&server, &json!({ "name": "dated", "run_at": date }));
    push(&server, &json!({ "name": "delayed", "delay_ms": HOUR_S * 1_000 * 3 / 2 }));
    clock.set(HOUR_S);
    clock.until_noticed(1);
    assert!(claim(&server, "dated", 1_000, 1_000).is_none(), "it came half an hour early");
    clock.set(2 * HOUR_S);
    claim_soon(&server, "dated");
    assert!(claim(&server, "delayed", 0, 1_000).is_none(), "a delay was cut short");
    // Cron follows the clock, too: the next minute is within this one.
    let due = |server: &Process| {
        let id = push(server, &json!({ "name": "minutely", "repeat": "* * * * *" }));
        Client::default().get(server.http, &format!("/api/v1/jobs/{id}"))["run_at"].as_i64().unwrap()
    };
    let ahead_ms = due(&server) - right_ms() - 2 * HOUR_S * 1_000;
    assert!((-1_000..=60_000).contains(&ahead_ms), "{ahead_ms}");
}

#[test]
fn a_server_that_is_started_with_its_clock_behind_goes_on_where_it_was() {
    let clock = Clocked::new();
    clock.set(2 * HOUR_S);
    let mut server = clock.start();
    push(&server, &json!({ "name": "leased", "retry": 9 }));
    assert!(claim(&server, "leased", 5_000, 4_000).is_some());
    push(&server, &json!({ "name": "delayed", "delay_ms": 4_000 }));
    server.kill();
    clock.set(0);
    let server = clock.start();
    claim_soon(&server, "delayed");
    claim_soon(&server, "leased");
}
