//! Journal on a failing disk, and after kills with an outdated `head`.

use super::cluster::postgres_server::{Disk, PostgresServer};
use super::http::{Client, Reply};
use super::power::Counts;
use super::process::{Place, Process, need_strace};
use super::{note, setting};
use crate::server::eventually;
use serde_json::{Value, json};
use std::path::PathBuf;

const JOURNALED: [&str; 2] = ["--set", "journal.native=true"];

/// Starts a server whose system calls on one file of its journal are traced or made to fail.
fn start(place: &Place, file: &str, strace: &[&str]) -> Process {
    let path = place.data().join("journal").join(file).to_string_lossy().into_owned();
    let strace: Vec<&str> = ["-P", &path].into_iter().chain(strace.iter().copied()).collect();
    place.start_flags_with(&strace, &JOURNALED).unwrap_or_else(|refusal| panic!("{refusal:?}"))
}

fn push(server: &Process, name: &str) -> (u16, Value) {
    match Client::default().call(server.http, "POST", "/api/v1/jobs", Some(&json!({ "name": name }))) {
        Reply::Answer(status, answer) => (status, answer),
        other => panic!("{other:?}"),
    }
}

fn names(server: &Process) -> Vec<String> {
    let listed = Client::default().get(server.http, "/api/v1/jobs");
    let jobs = listed["jobs"].as_array().cloned().unwrap_or_default();
    jobs.iter().filter_map(|job| Some(job["name"].as_str()?.to_owned())).collect()
}

#[test]
fn after_a_failed_sync_of_the_journal_the_answer_is_unknown_and_the_server_is_not_ready() {
    need_strace();
    let place = Place::new();
    let server = start(
        &place,
        "00000001.log",
        &["-o", "/dev/null", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO"],
    );
    let ready = |server: &Process| Client::default().call(server.http, "GET", "/readyz", None);
    assert!(matches!(ready(&server), Reply::Answer(200, _)));
    let (status, answer) = push(&server, "in-doubt");
    assert_eq!((status, answer["error"]["code"].as_str()), (500, Some("outcome_unknown")), "{answer}");
    let Reply::Answer(503, answer) = ready(&server) else { panic!("it says that it is ready") };
    assert_eq!(answer["error"]["code"], "journal_unavailable", "{answer}");
    let (status, answer) = push(&server, "refused");
    assert_eq!((status, answer["error"]["code"].as_str()), (503, Some("journal_unavailable")), "{answer}");
    drop(server);
    let server = place.start_flags(&JOURNALED);
    assert!(matches!(ready(&server), Reply::Answer(200, _)));
    // The written job exists after all; the refused one does not.
    eventually("the job in doubt is there", || (names(&server) == ["in-doubt"]).then_some(()));
}

#[test]
fn lines_that_are_taken_care_of_are_ticked_off_on_disk() {
    need_strace();
    let place = Place::new();
    let trace = place.path().join("trace");
    let trace_file = trace.to_string_lossy().into_owned();
    let server = start(&place, "head", &["-o", &trace_file, "-e", "trace=pwrite64,write,fsync,fdatasync"]);
    assert_eq!(push(&server, "one").0, 202);
    eventually("the head is written and then synced", || {
        let seen = std::fs::read_to_string(&trace).unwrap_or_default();
        let written = seen.find("write")?;
        seen[written..].contains("sync(").then_some(())
    });
    assert_eq!(names(&server), ["one"]);
}

/// The file that says up to where the lines are in the store.
fn head_file(place: &Place) -> Option<PathBuf> {
    let is_journal = |path: &PathBuf| path.join("lock").exists();
    // On PostgreSQL nothing is there before the first line.
    let files = if place.data().exists() { place.files() } else { Vec::new() };
    files.into_iter().find(is_journal).map(|folder| folder.join("head"))
}

/// `kill -9` under load, with jobs that are deleted when they are finished. Before the next start the head is what it was at
/// the start before, as if no sync of it had reached the disk: all lines since then are delivered again.
fn kill_with_an_old_head(flags: &[&str]) {
    let place = Place::new();
    let kills = setting("WINDLASS_KILLS", 3);
    let flags: Vec<&str> = JOURNALED.into_iter().chain(flags.iter().copied()).collect();
    let mut counts = Counts::default();
    for kill in 0..kills {
        let read_head = || head_file(&place).and_then(|head| std::fs::read(head).ok());
        let restore = |old: Option<Vec<u8>>| {
            let head = head_file(&place).unwrap();
            match old {
                Some(old) => std::fs::write(head, old).unwrap(),
                None => std::fs::remove_file(head).unwrap(),
            }
        };
        counts.crash((&place, &flags), kill, read_head, || (), restore);
    }
    note(&format!("kills with an old head, {} flags: {kills} kills, {counts}", flags.len()));
}

#[test]
fn a_finished_job_that_is_deleted_does_not_run_again_after_a_kill_with_an_old_head() {
    kill_with_an_old_head(&[]);
}

#[test]
fn a_finished_job_that_is_deleted_does_not_run_again_after_a_kill_with_an_old_head_on_postgresql() {
    let database = PostgresServer::start(Disk::Safe, &[]);
    kill_with_an_old_head(&["--store", &database.url()]);
}
