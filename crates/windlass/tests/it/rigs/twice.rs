//! Calls that take two commits: a crash or a full disk in between must not be visible.

use super::dump::Dump;
use super::history::{Key, Pushing};
use super::http::{Client, Reply};
use super::load::{Asker, Load};
use super::process::{Place, need_strace};
use super::quiet::assert_kept;
use serde_json::json;
use std::sync::Arc;

/// Pushes before the fault: the start makes the same system calls, and a fault there proves nothing.
const LEAD: u64 = 10;

fn job(mark: &str, queue: &str) -> Pushing {
    Pushing { mark: mark.to_owned(), queue: queue.to_owned(), max_attempts: 3, ..Pushing::default() }
}

#[test]
fn a_child_that_was_not_made_is_not_waited_for_after_a_crash_either() {
    need_strace();
    for n in LEAD..LEAD + 8 {
        let (place, load) = (Place::new(), Load::new());
        let inject = format!("inject=fdatasync:signal=KILL:when={n}");
        if let Ok(server) = place.start_with(&["-o", "/dev/null", "-e", "trace=fdatasync", "-e", &inject]) {
            load.set_address(Some(server.http));
            let mut asker = Asker::new(Arc::clone(&load), 1, 1);
            (0..LEAD).for_each(|n| asker.push(vec![job(&format!("lead{n}"), "green")]));
            let key = Some(Key { key: "one".to_owned(), forever: false, refuse: false });
            asker.push(vec![Pushing { key: key.clone(), ..job("holder", "red") }]);
            asker.push(vec![job("parent", "blue")]);
            if let Some(parent) = asker.claim(vec!["blue".to_owned()], 1, 60_000, 0).pop() {
                asker.push(vec![Pushing { key, parent: Some(parent.id), ..job("unmade", "red") }]);
            }
        }
        let server = place.start();
        assert_kept(&load, &Dump::take(server.http), &format!("unmade-{n}"), 0);
    }
}

#[test]
fn a_batch_that_was_refused_for_want_of_room_has_made_nothing() {
    need_strace();
    for n in 4 * LEAD..10 * LEAD {
        let place = Place::new();
        let inject = format!("inject=pwrite64:error=ENOSPC:when={n}");
        let strace = ["-o", "/dev/null", "-e", "trace=pwrite64", "-e", &inject];
        let Ok(server) = place.start_with(&strace) else { continue };
        let mut client = Client::default();
        for _ in 0..LEAD {
            client.call(server.http, "POST", "/api/v1/jobs", Some(&json!({ "name": "lead" })));
        }
        let update = json!({ "key": "one", "on_conflict": "update" });
        let holder = json!({ "name": "holder", "unique": update, "payload": 1 });
        let first = client.call(server.http, "POST", "/api/v1/jobs", Some(&holder));
        let batch =
            json!({ "jobs": [{ "name": "fresh" }, { "name": "holder", "unique": update, "payload": 2 }] });
        let second = client.call(server.http, "POST", "/api/v1/jobs", Some(&batch));
        if let (Reply::Answer(201, _), Reply::Answer(507, answer)) = (first, second) {
            let fresh = client.get(server.http, "/api/v1/jobs?name=fresh");
            assert_eq!(fresh["jobs"], json!([]), "answered with {answer} (write {n})");
        }
    }
}
