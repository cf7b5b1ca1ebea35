//! Power cuts: the server's data is on a file system of its own, xfs or ext4 in a file, which is shut down
//! under load without writing its log. Unlike after `kill -9`, data that was not synced is lost then,
//! including names and lengths of files. Written sectors keep their order; torn and reordered sectors are not
//! simulated.
//!
//! Needs root, loop devices, and the file system's `mkfs`.

use super::http::{Client, Reply};
use super::process::{Place, Process};
use super::{note, setting};
use crate::server::eventually;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Smallest size for `mkfs.xfs`. The file is sparse.
const DISK_BYTES: u64 = 400 << 20;
/// `XFS_IOC_GOINGDOWN`, which ext4 has too, with "do not write the log". Just before, a file is written
/// without a sync: if it exists afterwards, the cut has not worked.
const SHUT_DOWN: &str = "import fcntl, os, struct, sys
disk = os.open(sys.argv[1], os.O_RDONLY)
probe = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
os.write(probe, b'never synced')
fcntl.ioctl(disk, 0x8004587d, struct.pack('I', 2))";
const PUSHERS: u64 = 3;
const WORKERS: u64 = 3;
/// Expires soon after the cut, for jobs whose workers ended with it.
const LEASE_MS: u64 = 3_000;

/// File system in a file, unmounted on drop.
struct Disk {
    folder: tempfile::TempDir,
    kind: &'static str,
}

impl Disk {
    /// `None`, with a message: not possible here.
    fn make(kind: &'static str) -> Option<Disk> {
        let disk = Disk { folder: tempfile::tempdir().unwrap(), kind };
        std::fs::create_dir(disk.path()).unwrap();
        std::fs::File::create(disk.image()).unwrap().set_len(DISK_BYTES).unwrap();
        let quiet = if kind == "ext4" { ["-q", "-F"] } else { ["-q", "-f"] };
        let made = run(Command::new(format!("mkfs.{kind}")).args(quiet).arg(disk.image()));
        match made.and_then(|()| disk.mount()) {
            Ok(()) => Some(disk),
            Err(why) => {
                note(&format!("SKIPPED: no {kind} to cut the power of (needs root and loop devices): {why}"));
                None
            }
        }
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    fn mount(&self) -> Result<(), String> {
        run(Command::new("mount").args(["-t", self.kind, "-o", "loop"]).arg(self.image()).arg(self.path()))
    }

    /// Cuts the power: nothing is written from here on, and data that was not synced is lost.
    fn cut(&self) {
        run(Command::new("python3").args(["-c", SHUT_DOWN]).arg(self.path()).arg(self.probe())).unwrap();
    }

    /// Restores the power; no process may have files open here.
    fn restore(&self) {
        run(Command::new("umount").arg(self.path())).unwrap();
        self.mount().unwrap();
        let left = std::fs::read(self.probe()).unwrap_or_default();
        assert!(left.is_empty(), "the cut of {} lost nothing", self.kind);
        let _ = std::fs::remove_file(self.probe());
    }

    fn probe(&self) -> PathBuf {
        self.path().join("probe")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    // Debian installs them outside the usual PATH.
    let path = std::env::var("PATH").unwrap_or_default();
    let output = command.env("PATH", format!("{path}:/usr/sbin:/sbin")).output();
    let output = output.map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Acknowledged changes; jobs by the mark in their payload.
#[derive(Default)]
struct Told {
    pushed: BTreeSet<String>,
    /// Finish requested: with a response, and with any result.
    finished: BTreeSet<String>,
    finishing: BTreeSet<String>,
}

struct Load {
    told: Mutex<Told>,
    stop: AtomicBool,
    marks: AtomicU64,
}

impl Load {
    fn start(server: &Process, marks: u64) -> (Arc<Load>, Vec<JoinHandle<()>>) {
        let load = Arc::new(Load {
            told: Mutex::default(),
            stop: AtomicBool::new(false),
            marks: AtomicU64::new(marks),
        });
        let http = server.http;
        let client = |is_pusher: bool| {
            let load = Arc::clone(&load);
            std::thread::spawn(move || {
                let mut client = Client::default();
                while !load.stop.load(Ordering::Relaxed) {
                    match is_pusher {
                        true => load.push(&mut client, http),
                        false => load.work(&mut client, http),
                    }
                }
            })
        };
        let clients = (0..PUSHERS + WORKERS).map(|number| client(number < PUSHERS)).collect();
        (load, clients)
    }

    fn push(&self, client: &mut Client, to: SocketAddr) {
        let marks: Vec<String> =
            (0..3).map(|_| self.marks.fetch_add(1, Ordering::Relaxed).to_string()).collect();
        let jobs: Vec<Value> = marks.iter().map(|mark| job(mark)).collect();
        let pushed = client.call(to, "POST", "/api/v1/jobs", Some(&json!({ "jobs": jobs })));
        match pushed {
            Reply::Answer(200..=299, _) => self.told.lock().unwrap().pushed.extend(marks),
            // Not done, or not known.
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }

    fn work(&self, client: &mut Client, to: SocketAddr) {
        let Some(jobs) = claim(client, to, LEASE_MS) else { return };
        let marks: Vec<String> = jobs.iter().map(mark).collect();
        self.told.lock().unwrap().finishing.extend(marks.iter().cloned());
        let settled = client.call(to, "POST", "/api/v1/settle", Some(&finish(&jobs)));
        let Reply::Answer(200, answer) = settled else { return };
        let answers = answer["settled"].as_array().cloned().unwrap_or_default();
        let done = marks.into_iter().zip(&answers).filter(|(_, answer)| answer["ok"] == true);
        self.told.lock().unwrap().finished.extend(done.map(|(mark, _)| mark));
    }
}

/// Deleted as soon as it is finished: only the journal could still have it.
fn job(mark: &str) -> Value {
    json!({ "name": "power", "payload": { "mark": mark }, "keep": { "completed_ms": 0 }, "retry": 100 })
}

fn mark(job: &Value) -> String {
    job["payload"]["mark"].as_str().unwrap_or_else(|| panic!("not a job of ours: {job}")).to_owned()
}

fn finish(jobs: &[Value]) -> Value {
    let entry = |job: &Value| json!({ "id": job["id"], "token": job["token"], "outcome": "finish" });
    json!({ "settle": jobs.iter().map(entry).collect::<Vec<_>>() })
}

/// `None`: no response, or no jobs.
fn claim(client: &mut Client, to: SocketAddr, lease_ms: u64) -> Option<Vec<Value>> {
    let asked = json!({ "name": "power", "limit": 4, "wait_ms": 50, "lease_ms": lease_ms });
    let Reply::Answer(200, answer) = client.call(to, "POST", "/api/v1/claim", Some(&asked)) else {
        std::thread::sleep(Duration::from_millis(1));
        return None;
    };
    answer["jobs"].as_array().filter(|jobs| !jobs.is_empty()).cloned()
}

/// Runs all jobs until none is left; returns the number of runs of each.
fn drain(server: &Process) -> BTreeMap<String, u64> {
    let mut client = Client::default();
    let mut runs = BTreeMap::new();
    // Journal lines reach the store in order: after this job no earlier one follows.
    let last = json!({ "name": "last", "keep": { "completed_ms": 0 } });
    let pushed = client.call(server.http, "POST", "/api/v1/jobs", Some(&last));
    assert!(matches!(pushed, Reply::Answer(200..=299, _)), "{pushed:?}");
    eventually("the journal is read", || {
        let asked = json!({ "name": "last", "limit": 1, "wait_ms": 500, "lease_ms": 100 * LEASE_MS });
        let Reply::Answer(200, answer) = client.call(server.http, "POST", "/api/v1/claim", Some(&asked))
        else {
            return None;
        };
        let jobs = answer["jobs"].as_array().filter(|jobs| !jobs.is_empty())?;
        let settled = client.call(server.http, "POST", "/api/v1/settle", Some(&finish(jobs)));
        matches!(settled, Reply::Answer(200, _)).then_some(())
    });
    eventually("everything is run", || {
        while let Some(jobs) = claim(&mut client, server.http, 100 * LEASE_MS) {
            jobs.iter().for_each(|job| *runs.entry(mark(job)).or_default() += 1);
            let settled = client.call(server.http, "POST", "/api/v1/settle", Some(&finish(&jobs)));
            assert!(matches!(settled, Reply::Answer(200, _)), "{settled:?}");
        }
        let listed = client.get(server.http, "/api/v1/jobs?limit=1");
        listed["jobs"].as_array().is_some_and(Vec::is_empty).then_some(())
    });
    runs
}

/// Compares the server's state after the cut with the acknowledged changes.
fn judge(told: &Told, runs: &BTreeMap<String, u64>) {
    let lost: Vec<&String> = told
        .pushed
        .iter()
        .filter(|mark| !runs.contains_key(*mark) && !told.finishing.contains(*mark))
        .collect();
    assert!(lost.is_empty(), "promise 1: {} acknowledged jobs are gone: {lost:?}", lost.len());
    let again: Vec<&String> = told.finished.iter().filter(|mark| runs.contains_key(*mark)).collect();
    assert!(again.is_empty(), "promise 10: {} finished jobs run again: {again:?}", again.len());
    let twice: Vec<_> = runs.iter().filter(|(_, runs)| **runs > 1).collect();
    assert!(twice.is_empty(), "promise 3: there twice: {twice:?}");
}

/// Jobs of all crashes of a test.
#[derive(Default)]
pub(super) struct Counts {
    pushed: usize,
    finished: usize,
    left: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { pushed, finished, left } = self;
        write!(
            f,
            "{pushed} acknowledged pushes, {finished} acknowledged finishes, {left} jobs found and run afterwards"
        )
    }
}

impl Counts {
    /// Starts a server, kills it under load, and starts it again: it keeps all promises. `started`, `cut` and `restore`
    /// run after the first start, before the kill and before the second start.
    pub(super) fn crash<S>(
        &mut self,
        (place, flags): (&Place, &[&str]),
        number: u64,
        started: impl FnOnce() -> S,
        cut: impl FnOnce(),
        restore: impl FnOnce(S),
    ) {
        let mut server = place.start_flags(flags);
        let state = started();
        let (load, clients) = Load::start(&server, number * 1_000_000_000);
        // Long enough for some jobs to be finished, and varied; nothing depends on the length.
        let enough = 20 + number * 37 % 400;
        eventually("the load is under way", || {
            (load.told.lock().unwrap().finished.len() as u64 > enough).then_some(())
        });
        cut();
        server.kill();
        load.stop.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
        restore(state);
        let mut server = place.start_flags(flags);
        let runs = drain(&server);
        let told = load.told.lock().unwrap();
        judge(&told, &runs);
        self.pushed += told.pushed.len();
        self.finished += told.finished.len();
        self.left += runs.len();
        server.kill();
    }
}

fn cut_the_power(kind: &'static str, flags: &[&str]) {
    let Some(disk) = Disk::make(kind) else { return };
    let long = std::env::var_os("WINDLASS_LONG").is_some();
    let cuts = setting("WINDLASS_CUTS", if long { 20 } else { 2 });
    let place = Place::with_data(&disk.path().join("data"));
    let mut counts = Counts::default();
    for cut in 0..cuts {
        counts.crash((&place, flags), cut, || (), || disk.cut(), |()| disk.restore());
    }
    assert_eq!(place.check().json()["ok"], true);
    drop(place);
    note(&format!("power cuts on {kind} with {flags:?}: {cuts} cuts, {counts}"));
}

const JOURNALED: [&str; 2] = ["--set", "journal.native=true"];

#[test]
fn a_power_cut_on_xfs_loses_and_repeats_nothing_of_the_journal() {
    cut_the_power("xfs", &JOURNALED);
}

#[test]
fn a_power_cut_on_ext4_loses_and_repeats_nothing_of_the_journal() {
    cut_the_power("ext4", &JOURNALED);
}

#[test]
fn a_power_cut_on_xfs_loses_and_repeats_nothing_of_the_store() {
    cut_the_power("xfs", &[]);
}

#[test]
fn a_power_cut_on_ext4_loses_and_repeats_nothing_of_the_store() {
    cut_the_power("ext4", &[]);
}
