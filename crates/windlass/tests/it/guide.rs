//! The guide is true: its transcripts are run, and its programs are the ones that run here.

mod jobs;
mod lease;
mod limits;
mod retry;
mod tenants;

use crate::jq::{Killed, python};
use crate::server::{Ran, Server, eventually, request_with};
use crate::transcripts::{self, blocks};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use windlass_client::jq::{Client, NewJob, Status};

const PAGE: &str = include_str!("../../../../docs/guide.md");

#[test]
fn the_transcripts_of_the_guide_happen_as_shown() {
    let server = Server::start(&[]);
    let steps = transcripts::run(&server, PAGE);
    assert!(steps > 60, "{steps} commands are in the guide");
}

#[test]
fn the_programs_in_rust_are_those_that_the_tests_run() {
    let files = [
        include_str!("guide/jobs.rs"),
        include_str!("guide/lease.rs"),
        include_str!("guide/retry.rs"),
        include_str!("guide/limits.rs"),
        include_str!("guide/tenants.rs"),
    ];
    let shown = blocks(PAGE, "rust");
    for (shown, file) in shown.iter().zip(files) {
        assert_eq!(*shown, file, "a program of docs/guide.md differs from its file in tests/it/guide");
    }
    assert_eq!(shown.len(), files.len());
}

fn one(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_programs_in_rust_do_what_the_guide_says() {
    let server = Server::start(&["--set", "jq.backoff_base_ms=1"]);
    let jq = format!("{}/jq", server.url());
    assert_eq!(jobs::add(&jq).await.unwrap(), Some(3));

    let page = one("url", "https://a.example/");
    assert_eq!(lease::fetch(&jq, page.clone()).await.unwrap().as_deref(), Some("attempt 2 after 1s"));

    let sent = retry::deliver(&jq, one("to", "ann@example.org")).await.unwrap().unwrap();
    assert_eq!((sent.status, sent.retry_count), (Status::Done, 2));
    let refused = retry::deliver(&jq, BTreeMap::new()).await.unwrap().unwrap();
    assert_eq!((refused.status, refused.retry_count), (Status::Error, 0));
    assert_eq!(refused.message.as_deref(), Some("no recipient"));

    let limit = json!({"matcher": {"name": "crawl"}, "rate": {"per_second": 0.01}});
    assert_eq!(server.call("PUT", "/api/v1/limits/slow", Some(limit)).0, 200);
    assert_eq!(limits::twice(&jq, page).await.unwrap().as_deref(), Some("slow"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_the_client_belongs_to_the_tenant_of_its_token() {
    let server = Server::start(&[]);
    let jq = format!("{}/jq", server.url());
    let create = |ask: Value, headers: &str| {
        let body = ask.to_string();
        let (status, text) = request_with(server.http, "POST", "/api/v1/tokens", headers, &body).unwrap();
        assert_eq!(status, 201, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["token"].as_str().unwrap().to_owned()
    };
    let admin = create(json!({"role": "admin"}), "");
    let admin = format!("Authorization: Bearer {admin}\r\n");
    let shop = create(json!({"role": "worker", "tenant": "shop"}), &admin);
    let id = tenants::send(&jq, &shop).await.unwrap();
    let path = format!("/api/v1/jobs/{id}?tenant=shop");
    let (status, text) = request_with(server.http, "GET", &path, &admin, "").unwrap();
    assert!(status == 200 && text.contains(r#""tenant":"shop""#), "{text}");
    let nobody = Client::new(&jq).unwrap().enqueue(&NewJob::new("mail", one("to", "ann"))).await;
    assert!(nobody.is_err(), "a call without a token is refused");
}

/// Program of the guide that begins with this comment, for the server at this address.
fn program(server: &Server, name: &str) -> PathBuf {
    let programs = blocks(PAGE, "python");
    let program = programs.iter().find(|program| program.starts_with(&format!("# {name}\n"))).unwrap();
    let url = format!("{}/sidejob", server.url());
    let program = program
        .replace("Client()", &format!("Client({url:?})"))
        .replace("concurrency=", &format!("url={url:?}, concurrency="));
    let path = server.folder().join(name);
    std::fs::write(&path, program).unwrap();
    path
}

fn python_with_library() -> Command {
    let mut command = Command::new(python());
    let library = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/python/src");
    command.env("PYTHONPATH", library).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    command
}

#[test]
fn the_programs_with_tasks_do_what_the_guide_says() {
    let server = Server::start(&[]);
    let start = |name: &str| {
        let mut command = python_with_library();
        command.arg(program(&server, name)).env("WINDLASS_SERVER", server.url());
        command
    };
    for (name, said) in [
        ("states.py", "delayed\nhello ann\ncompleted\n"),
        ("unique.py", "True\n"),
        ("retention.py", "small-a.jpg\n7 days\n"),
        ("steps.py", "ch_5, approved by ann\n"),
    ] {
        let ran = Ran::of(&mut start(name));
        assert_eq!((ran.stdout.as_str(), ran.code), (said, 0), "{name}: {}", ran.stderr);
    }
    let _worker = Killed(start("schedule.py").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let rule = eventually("the schedule is there", || {
        let (_, schedules) = server.call("GET", "/api/v1/schedules", None);
        schedules["jobs"][0]["repeat"].as_str().map(str::to_owned)
    });
    assert!(rule.contains("0 9 * * MON-FRI") && rule.contains("Europe/Berlin"), "{rule}");
}

#[test]
fn the_programs_in_python_do_what_the_guide_says() {
    let server = Server::start(&[]);
    let python = python_with_library;
    let mut worker = python();
    worker.arg(program(&server, "album_worker.py")).stdout(Stdio::null()).stderr(Stdio::null());
    let _worker = Killed(worker.spawn().unwrap());
    eventually("the classes are registered", || {
        let (status, classes) = server.call("GET", "/sidejob/workers/photos", None);
        (status == 200 && classes.as_object().is_some_and(|classes| classes.len() == 2)).then_some(())
    });
    let ran = Ran::of(python().arg(program(&server, "album.py")));
    assert_eq!((ran.stdout.as_str(), ran.code), ("3\n", 0), "{}", ran.stderr);
}
