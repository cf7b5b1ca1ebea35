//! Disks that fail, fill up, or are slow.

use super::check::check;
use super::dump::Dump;
use super::history::{Outcome, Pushing};
use super::http::{Client, Reply};
use super::load::{Asker, Load};
use super::process::{Place, need_strace};
use super::quiet::{assert_kept, assert_no_panic, tally};
use super::scenario::Scenario;
use super::seed;
use super::sweep::{choose, count_calls};
use crate::server::eventually;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Like `assert_kept`, but a server on a broken disk may answer that the result is unknown.
#[track_caller]
fn assert_kept_with_doubts(load: &Load, dump: &Dump, rig: &str, seed: u64) {
    let broken = check(&load.history.records(), dump);
    if broken.iter().any(|broken| broken.invariant != 24) {
        assert_kept(load, dump, rig, seed);
    }
}

fn story(place: &Place, strace: &[&str], load: &Arc<Load>) -> Option<i32> {
    match place.start_with(strace) {
        Err(refusal) => {
            assert!(!refusal.log.trim().is_empty(), "refused without a word: {refusal:?}");
            refusal.status.code()
        }
        Ok(mut server) => {
            load.set_address(Some(server.http));
            Scenario::new(load).run(server.http);
            load.set_address(None);
            server.stop().code()
        }
    }
}

const DISK_CALLS: &str = "fsync,fdatasync,pwrite64,pread64,ftruncate";

#[test]
fn after_an_io_error_the_server_has_acknowledged_nothing_that_is_not_there() {
    need_strace();
    let seed = seed(5);
    let counts = count_calls(DISK_CALLS, &Place::new(), |place, strace| {
        story(place, strace, &Load::new());
    });
    let points = choose(&counts, 30, seed);
    let mut ended = 0;
    for (call, n) in &points {
        let (place, load) = (Place::new(), Load::new());
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error=EIO:when={n}"));
        let code = story(&place, &["-o", "/dev/null", "-e", &trace, "-e", &inject], &load);
        assert_no_panic(&place);
        // A failed fsync must not be retried and counted as success. The last calls of the scenario may not
        // be reached.
        let is_reached = *n == 1 || n * 4 <= counts[call] * 3;
        assert!(
            !(is_reached && call.contains("sync")) || code != Some(0),
            "it went on after a failed {call} ({n})"
        );
        ended += u64::from(code != Some(0));
        let mut server = place.start();
        assert_kept_with_doubts(&load, &Dump::take(server.http), &format!("eio-{call}-{n}"), seed);
        server.kill();
        assert_eq!(place.check().json()["ok"], true, "EIO at {call} {n}");
    }
    println!("EIO, seed {seed}: {} points of {counts:?}, {ended} ended the server", points.len());
}

#[test]
fn a_disk_that_is_full_at_any_write_costs_an_error_and_nothing_else() {
    need_strace();
    let seed = seed(6);
    let counts = count_calls("pwrite64", &Place::new(), |place, strace| {
        story(place, strace, &Load::new());
    });
    for (call, n) in choose(&counts, 8, seed) {
        let (place, load) = (Place::new(), Load::new());
        let inject = format!("inject={call}:error=ENOSPC:when={n}..{}", n + 2);
        let trace = format!("trace={call}");
        let Ok(mut server) = place.start_with(&["-o", "/dev/null", "-e", &trace, "-e", &inject]) else {
            assert_no_panic(&place);
            place.start().kill();
            continue;
        };
        load.set_address(Some(server.http));
        Scenario::new(&load).run(server.http);
        let what = format!("enospc-{n}");
        if !server.has_ended() {
            goes_on_by_itself(&load, &what);
            assert_kept_with_doubts(&load, &Dump::take(server.http), &what, seed);
        }
        server.kill();
        assert_no_panic(&place);
        let mut server = place.start();
        assert_kept_with_doubts(&load, &Dump::take(server.http), &what, seed);
        server.kill();
        assert_eq!(place.check().json()["ok"], true, "{what}");
    }
}

/// Checks that pushes work again without help.
#[track_caller]
fn goes_on_by_itself(load: &Arc<Load>, mark: &str) {
    let mut asker = Asker::new(Arc::clone(load), 50, 0);
    let mut tries = 0;
    eventually("a push works again", || {
        tries += 1;
        asker.push(vec![small(&format!("{mark}-again-{tries}"))]);
        let last = load.history.records().pop()?;
        if !last.is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
        last.is_ok().then_some(())
    });
}

fn small(mark: &str) -> Pushing {
    Pushing { mark: mark.to_owned(), queue: "red".to_owned(), max_attempts: 3, ..Pushing::default() }
}

#[test]
fn on_a_slow_disk_everything_is_right_only_later() {
    need_strace();
    let seed = seed(7);
    let (place, load) = (Place::new(), Load::new());
    let slow = "inject=fsync,fdatasync:delay_exit=30000";
    let mut server =
        place.start_with(&["-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", slow]).unwrap();
    load.set_address(Some(server.http));
    let clients: Vec<_> = (0..4).map(|number| load.client(number, seed)).collect();
    std::thread::sleep(Duration::from_secs(3));
    load.in_silence(|| assert_kept(&load, &Dump::take(server.http), "slow", seed));
    std::thread::sleep(Duration::from_millis(200));
    server.kill();
    load.set_address(None);
    load.end();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let server = place.start();
    assert_kept(&load, &Dump::take(server.http), "slow", seed);
    println!("slow disk, seed {seed}: {:?}", tally(&load));
}

// --- full disks
// --------------------------------------------------------------------------------------------------

/// Small file system, unmounted on drop.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// `None`: not permitted here.
    fn mount(megabytes: u64) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(folder.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(SmallDisk { folder }),
            other => {
                super::note(&format!("SKIPPED: a small disk cannot be mounted here (needs root): {other:?}"));
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// File that takes up space, to be removed later.
    fn ballast(&self, bytes: usize) -> PathBuf {
        let path = self.path().join("ballast");
        std::fs::write(&path, vec![1; bytes]).unwrap();
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Pushes until the disk is full; the last response must report that.
#[track_caller]
fn fill(load: &Arc<Load>, number: u64) {
    let mut asker = Asker::new(Arc::clone(load), number, 0);
    for batch in 0..1_000 {
        let jobs = (0..100).map(|job| small(&format!("f{number}-{batch}-{job}"))).collect();
        asker.push(jobs);
        match load.history.records().pop().map(|record| record.outcome) {
            Some(Outcome::Ok) => {}
            Some(Outcome::Fail(why)) => {
                assert_eq!(why, "507 store_full");
                return;
            }
            other => panic!("on a full disk: {other:?}"),
        }
    }
    panic!("the disk never filled up");
}

fn readiness(to: SocketAddr) -> u16 {
    match Client::default().call(to, "GET", "/readyz", None) {
        Reply::Answer(status, _) => status,
        other => panic!("/readyz: {other:?}"),
    }
}

#[test]
fn on_a_full_disk_clients_are_told_nothing_is_lost_and_with_room_it_goes_on() {
    let Some(disk) = SmallDisk::mount(8) else { return };
    let seed = seed(8);
    let ballast = disk.ballast(3 << 20);
    let (place, load) = (Place::with_data(&disk.path().join("data")), Load::new());
    let mut server = place.start();
    load.set_address(Some(server.http));
    fill(&load, 1);
    assert_eq!(readiness(server.http), 503);
    assert_kept(&load, &Dump::take(server.http), "full", seed);
    std::fs::remove_file(&ballast).unwrap();
    // Without any request: load balancers wait for this.
    eventually("there is room again, and it says that it is ready", || {
        (readiness(server.http) == 200).then_some(())
    });
    goes_on_by_itself(&load, "full");
    assert_eq!(readiness(server.http), 200);
    assert_kept(&load, &Dump::take(server.http), "full", seed);
    // Again, with a kill while the disk is full.
    fill(&load, 2);
    server.kill();
    assert_no_panic(&place);
    match place.start_with(&[]) {
        Ok(server) => assert_kept(&load, &Dump::take(server.http), "full", seed),
        Err(refusal) => {
            assert!(refusal.log.contains("No space left"), "{refusal:?}");
            assert_eq!(refusal.status.code(), Some(1), "{refusal:?}");
        }
    }
    let more = Command::new("mount").args(["-o", "remount,size=32m"]).arg(disk.path()).status().unwrap();
    assert!(more.success());
    let server = place.start();
    assert_kept(&load, &Dump::take(server.http), "full", seed);
    println!("full disk, seed {seed}: {:?}", tally(&load));
}
