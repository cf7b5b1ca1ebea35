//! Kills during adds: acknowledged jobs exist, once.

use super::{add, all_jobs, set_handler, until_code};
use crate::rigs::process::{Place, need_strace};
use crate::server::{Server, eventually};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Default of `WINDLASS_KILLS`.
const KILLS: usize = 12;
const CLIENTS: usize = 3;

#[test]
fn what_was_acknowledged_survives_many_kills_and_makes_one_job_each() {
    let folder = tempfile::tempdir().unwrap();
    let kills = std::env::var("WINDLASS_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let mut kept: BTreeMap<String, String> = BTreeMap::new();
    for round in 0..kills {
        // No handler runs, so every job stays.
        let mut server = Server::start_in(folder.path(), &["--set", "miniq.run=false"]);
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let adder = |client: usize| {
            let (http, stop, answered) = (server.http, Arc::clone(&stop), Arc::clone(&answered));
            std::thread::spawn(move || {
                let mut acknowledged = Vec::new();
                for n in 0..100 {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let payloads: Vec<String> =
                        (0..6).map(|line| format!("{round}.{client}.{n}.{line}")).collect();
                    match add(http, "acme", "t", &payloads.join("\n")) {
                        Some(ids) => {
                            acknowledged.extend(ids.into_iter().zip(payloads));
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        None => break,
                    }
                }
                acknowledged
            })
        };
        let adders: Vec<_> = (0..CLIENTS).map(adder).collect();
        eventually("something is acknowledged", || (answered.load(Ordering::Relaxed) > 0).then_some(()));
        // Varies the moment of the kill.
        std::thread::sleep(Duration::from_millis((round as u64 * 37) % 200));
        server.kill();
        stop.store(true, Ordering::Relaxed);
        for adder in adders {
            kept.extend(adder.join().unwrap());
        }
    }
    let mut server = Server::start_in(folder.path(), &["--set", "miniq.run=false"]);
    eventually("everything is taken in", || {
        let stored: BTreeMap<String, String> = all_jobs(&server, "acme").into_iter().collect();
        kept.keys().all(|id| stored.contains_key(id)).then_some(())
    });
    let stored = all_jobs(&server, "acme");
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (id, payload) in &stored {
        assert_eq!(seen.insert(id, payload), None, "{id} is there twice");
    }
    for (id, payload) in &kept {
        assert_eq!(seen.get(id.as_str()), Some(&payload.as_str()));
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn jobs_that_a_job_asked_for_survive_a_kill_right_after_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut asked_for = Vec::new();
    for round in 0..4 {
        let mut server = Server::start_in(folder.path(), &[]);
        let body = "read -r line; echo \"J: child|$line.child\"";
        set_handler(&server, "acme", "parent", serde_json::json!({"lang": "sh", "body": body}));
        let id = add(server.http, "acme", "parent", &format!("{round}\n")).unwrap().remove(0);
        until_code(&server, "acme", "parent", &id, "ok");
        server.kill();
        asked_for.push(format!("{round}.child"));
    }
    let server = Server::start_in(folder.path(), &["--set", "miniq.run=false"]);
    eventually("all of them are there", || {
        let payloads: Vec<String> =
            all_jobs(&server, "acme").into_iter().map(|(_, payload)| payload).collect();
        asked_for.iter().all(|payload| payloads.contains(payload)).then_some(())
    });
}

/// Injects a slow or failing fsync of the journal's file.
#[test]
fn an_add_is_answered_when_its_lines_are_on_disk_and_not_before() {
    need_strace();
    let server_where = |fault: &str| {
        let place = Place::new();
        let file = place.data().join("journal/00000001.log").to_string_lossy().into_owned();
        let inject = format!("inject=fdatasync:{fault}");
        let strace = ["-o", "/dev/null", "-P", &file, "-e", "trace=fdatasync", "-e", &inject];
        let server = place.start_with(&strace).unwrap();
        (place, server)
    };
    let (_place, slow) = server_where("delay_enter=2000000");
    let began = Instant::now();
    assert_eq!(add(slow.http, "acme", "t", "x\n").map(|ids| ids.len()), Some(1));
    assert!(began.elapsed() >= Duration::from_secs(2), "it was answered before its sync had ended");
    let (_place, broken) = server_where("error=EIO");
    assert_eq!(add(broken.http, "acme", "t", "x\n"), None, "what may not be there is not acknowledged");
}
