//! Operators' calls and the job log.

use super::world::{GIVE_UP_MS, NOT_RUN, Setup, World, eventually, report, settings, settled};
use crate::support::Keys;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::Notify;
use windlass_dialects::ServerOptions;
use windlass_dialects::auth::Role;
use windlass_dialects::miniq::Settings;
use windlass_dialects::miniq::log::LogSettings;
use windlass_dialects::runners::Report;

#[tokio::test]
async fn while_stopped_jobs_are_taken_and_none_is_started() {
    let world = World::with("acme", "t").await;
    assert_eq!(world.server.get("/").await.text(), "OK\n");
    assert_eq!(world.server.get("/stop").await.text(), "Stopped.\n");
    let id = world.add("acme", "t", "x\n").await.remove(0);
    world.job("acme", "t", &id).await;
    settled().await;
    assert!(world.fake.payloads().is_empty());
    assert_eq!(world.server.get("/start").await.text(), "Started.\n");
    assert_eq!(world.until_started(1).await, ["x"]);
}

#[tokio::test]
async fn quit_asks_the_server_to_end() {
    let quit = Arc::new(Notify::new());
    let options = ServerOptions { quit: Arc::clone(&quit), ..ServerOptions::default() };
    let world = Setup { options, ..Setup::default() }.start().await;
    assert_eq!(world.server.get("/quit").await.text(), "Quit.\n");
    quit.notified().await;
}

#[tokio::test]
async fn operators_calls_are_for_admins_and_not_for_other_web_sites() {
    let keys = Keys::for_tenants(&["acme"]);
    let world = Setup { options: keys.options(), ..Setup::default() }.start().await;
    for path in ["/start", "/stop", "/quit"] {
        assert_eq!(world.server.get(path).await.status, 401, "{path}");
        let operator = keys.of("acme", Role::Operator);
        assert_eq!(world.server.call_as(Some(operator), "GET", path, "").await.status, 403, "{path}");
    }
    let admin = keys.of("acme", Role::Admin);
    assert_eq!(world.server.call_as(Some(admin), "POST", "/stop", "").await.text(), "Stopped.\n");
    let open = World::new().await;
    for path in ["/stop", "/quit"] {
        let headers = [("sec-fetch-site", "cross-site")];
        let reply = open.server.connect().await.call("GET", path, &headers, b"").await;
        assert_eq!(reply.status, 403, "{path}");
    }
}

#[tokio::test]
async fn the_log_has_a_line_for_each_job_that_enters_starts_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.log");
    let log = LogSettings { path: path.clone(), bytes_max: 1 << 20, files_kept: 2 };
    let world =
        Setup { settings: Settings { log: Some(log), ..settings() }, ..Setup::default() }.start().await;
    world.handler("acme", "t", "{}").await;
    world.fake.answers(|payload, _| match payload {
        "bad" => Report { code: "ETIMEDOUT".to_owned(), ..report(500) },
        "back" => report(NOT_RUN),
        _ => report(200),
    });
    let ids = world.add("acme", "t", "good\nbad\n").await;
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    eventually("six lines are written", || lines().len() == 6).await;
    for (id, exitcode, code) in [(&ids[0], 200, ""), (&ids[1], 500, "ETIMEDOUT")] {
        let of_job: Vec<Value> =
            lines().into_iter().filter(|line| line["info"]["id"] == id.as_str()).collect();
        let of_job = ["job added", "job started", "job ended"].map(|message| {
            let found = of_job.iter().find(|line| line["message"] == message);
            found.unwrap_or_else(|| panic!("no {message:?}: {of_job:?}")).clone()
        });
        assert!(of_job.is_sorted_by_key(|line| line["time"].as_str().unwrap().to_owned()), "{of_job:?}");
        assert!(of_job.iter().all(|line| line["info"]["type"] == "acme-t" && line["level"] == 6));
        let ended = &of_job[2]["info"];
        assert_eq!(
            (&ended["exitcode"], &ended["code"], &ended["runMs"]),
            (&exitcode.into(), &code.into(), &7.into())
        );
        assert_eq!(of_job[0]["info"]["bytes"].as_u64(), Some(if exitcode == 200 { 4 } else { 3 }));
    } // A job that was given up is logged as a timeout, too, in its last line.
    world.later(GIVE_UP_MS);
    world.until_code("acme", "t", &ids[1], "timeout").await;
    let last = || lines().into_iter().rfind(|line| line["info"]["id"] == ids[1].as_str()).unwrap();
    eventually("its end is written", || last()["info"]["done"] == true).await;
    let last = &last()["info"];
    assert_eq!((&last["code"], &last["status"]), (&"timeout".into(), &"failed".into()), "{last}");
    // A job that was not run after all is logged as returned.
    world.add("acme", "t", "back\n").await;
    eventually("it is given back", || lines().iter().any(|line| line["message"] == "job returned")).await;
}

#[tokio::test]
async fn readiness_tells_holders_of_tokens_how_handlers_are_isolated() {
    let shown = "OK\nhandlers: isolated by nothing\n";
    assert_eq!(World::new().await.server.get("/readyz").await.text(), shown);
    let keys = Keys::for_tenants(&["acme"]);
    let world = Setup { options: keys.options(), ..Setup::default() }.start().await;
    let viewer = Some(keys.of("acme", Role::Viewer));
    assert_eq!(world.server.call_as(viewer, "GET", "/readyz", "").await.text(), shown);
    let reply = world.server.get("/readyz").await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "OK\n"));
}
