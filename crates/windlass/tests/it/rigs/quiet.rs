//! Load without faults: the checker finds nothing, a clean stop changes nothing, and every job is done.

use super::check::check;
use super::dump::Dump;
use super::history::{Action, How};
use super::load::{Asker, Load, QUEUES};
use super::process::{Place, Process};
use super::{seed, setting};
use crate::server::PATIENCE;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Enough to keep two cores busy.
pub const CLIENTS: u64 = 4;

/// Fails with every violation, the seed, and the path of the history.
#[track_caller]
pub fn assert_kept(load: &Load, dump: &Dump, rig: &str, seed: u64) {
    let broken = check(&load.history.records(), dump);
    if !broken.is_empty() {
        let path = load.history.save(&format!("{rig}-{seed}"));
        let lines: Vec<String> = broken.iter().take(20).map(ToString::to_string).collect();
        let count = broken.len();
        panic!("{rig}, seed {seed}: {count} broken, see {}\n{}", path.display(), lines.join("\n"));
    }
}

/// Checks that no thread panicked.
#[track_caller]
pub fn assert_no_panic(place: &Place) {
    let log = place.log();
    assert!(!log.contains("panicked"), "{log}");
}

/// Number of operations by kind and outcome.
pub fn tally(load: &Load) -> BTreeMap<String, u64> {
    let mut tally = BTreeMap::new();
    for record in load.history.records() {
        let what = format!("{:?}", record.what);
        let what = what.split([' ', '(', '{']).next().unwrap_or_default().to_lowercase();
        let outcome = format!("{:?}", record.outcome);
        let outcome = outcome.split('(').next().unwrap_or_default().to_lowercase();
        *tally.entry(format!("{what} {outcome}")).or_default() += 1;
    }
    tally
}

fn open(job: &serde_json::Value) -> bool {
    matches!(job["state"].as_str(), Some("ready" | "running" | "waiting" | "suspended"))
}

/// Invariants 9 and 18: once faults stop, every job that can run is run, and every parent runs.
pub fn drain(load: &Arc<Load>, to: SocketAddr) {
    let mut asker = Asker::new(Arc::clone(load), 99, 0);
    asker.pause(QUEUES[2], false);
    let mut last_grant = Instant::now();
    loop {
        let granted = asker.claim(QUEUES.map(str::to_owned).to_vec(), 200, 60_000, 50);
        for grant in &granted {
            asker.settle(grant.id, grant.token, How::Finish, 0);
        }
        let dump = Dump::take(to);
        // Repeated: a job that waits for its children cannot be cancelled yet.
        for job in dump.jobs.iter().filter(|job| job["repeat"].is_string() && open(job)) {
            asker.act(job["id"].as_u64().unwrap_or_default(), Action::CancelNow);
        }
        if !granted.is_empty() {
            last_grant = Instant::now();
            continue;
        }
        let stuck: Vec<_> = dump.jobs.iter().filter(|job| open(job)).collect();
        if stuck.is_empty() {
            return;
        }
        if last_grant.elapsed() > PATIENCE {
            let path = load.history.save("drain");
            let lines: Vec<String> = stuck.iter().take(5).map(ToString::to_string).collect();
            panic!("{} never end, see {}, such as\n{}", stuck.len(), path.display(), lines.join("\n"));
        }
    }
}

/// Releases abandoned leases, so that draining need not wait a minute for them.
pub fn release_held(load: &Arc<Load>, to: SocketAddr) {
    let mut asker = Asker::new(Arc::clone(load), 98, 0);
    for job in Dump::take(to).jobs.iter().filter(|job| job["state"] == "running") {
        asker.act(job["id"].as_u64().unwrap_or_default(), Action::RetryForce);
    }
}

fn restart(place: &Place, mut server: Process, load: &Load) -> Process {
    load.set_address(None);
    assert_eq!(server.stop().code(), Some(0), "{}", place.log());
    assert_no_panic(place);
    let server = place.start();
    load.set_address(Some(server.http));
    server
}

/// Control: with any job removed from the dump, the checker must report a violation.
fn assert_losses_are_noticed(load: &Load, dump: &Dump) {
    let records = load.history.records();
    for place in (0..dump.jobs.len()).step_by(dump.jobs.len().div_ceil(10)) {
        let mut less = dump.clone();
        let job = less.jobs.remove(place);
        assert!(!check(&records, &less).is_empty(), "nobody missed {job}");
    }
}

#[test]
fn under_load_every_promise_is_kept_and_a_clean_stop_changes_nothing() {
    let seed = seed(1);
    let place = Place::new();
    let mut server = place.start();
    let load = Load::new();
    load.set_address(Some(server.http));
    let clients: Vec<_> = (0..CLIENTS).map(|number| load.client(number, seed)).collect();
    for _ in 0..setting("WINDLASS_RIG_SECONDS", 4).max(1) {
        std::thread::sleep(Duration::from_secs(1));
        server = load.in_silence(|| {
            // Leases must not expire between the two dumps.
            release_held(&load, server.http);
            let before = Dump::take(server.http);
            assert_kept(&load, &before, "quiet", seed);
            let server = restart(&place, server, &load);
            let after = Dump::take(server.http);
            assert_eq!(before.essence(), after.essence(), "a clean stop changed something");
            server
        });
    }
    load.end();
    clients.into_iter().for_each(|client| client.join().unwrap());
    release_held(&load, server.http);
    drain(&load, server.http);
    let dump = Dump::take(server.http);
    assert_kept(&load, &dump, "quiet", seed);
    assert_losses_are_noticed(&load, &dump);
    println!("quiet, seed {seed}: {:?}", tally(&load));
    server.stop();
    assert_no_panic(&place);
}
