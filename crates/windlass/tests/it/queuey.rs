//! queuey-queue and its blobs with the real command: curl as in the documents, kills, restarts, large blobs.

use crate::server::{PATIENCE, Ran, Server, eventually, request, windlass};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const R1: &str = "0b7c1c5e-6d4f-4a51-9d5b-1f0e5a7c9e01";
const WILSON: &str = "68d5b57378f76645bf12506c88fb06a81ddb3965";

fn create(server: &Server) -> String {
    let (status, job) = server.call("POST", "/jobs/create", Some(json!({ "binary_addr": WILSON })));
    assert_eq!(status, 200);
    job["job_id"].as_str().unwrap().to_owned()
}

fn claim(server: &Server) -> Option<String> {
    let (_, job) = server.call("POST", "/jobs/claim", Some(json!({ "runner_id": R1 })));
    job["job_id"].as_str().map(str::to_owned)
}

fn get(server: &Server, id: &str) -> Value {
    let (status, job) = server.call("GET", &format!("/jobs/{id}"), None);
    assert_eq!(status, 200);
    job
}

/// Examples of the dialect's page, run with curl: only times and ids differ.
#[test]
fn the_documents_examples_are_what_curl_shows() {
    let page = include_str!("../../../../docs/dialects/queuey.md");
    let example = page.split("```console\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let server = Server::start(&[]);
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    let mut commands = 0;
    for step in example.split("$ ").filter(|step| !step.trim().is_empty()) {
        let (command, expected) = step.split_once('\n').unwrap();
        let mut command = command.replace("localhost:7373", &server.http.to_string());
        for (shown, real) in &ids {
            command = command.replace(shown, real);
        }
        let shown = Ran::of(Command::new("sh").args(["-c", &command])).ok();
        match (serde_json::from_str::<Value>(expected), serde_json::from_str::<Value>(&shown)) {
            (Ok(Value::Object(expected)), Ok(Value::Object(shown))) => {
                assert_eq!(
                    expected.keys().collect::<Vec<_>>(),
                    shown.keys().collect::<Vec<_>>(),
                    "{command}"
                );
                for (key, value) in &expected {
                    match key.as_str() {
                        "job_id" | "id" => {
                            ids.insert(value.as_str().unwrap().into(), shown[key].as_str().unwrap().into());
                        }
                        key if key.ends_with("_at") => {
                            assert_eq!(value.is_null(), shown[key].is_null(), "{command}")
                        }
                        key => assert_eq!(*value, shown[key], "{command}: {key}"),
                    }
                }
            }
            _ => assert_eq!(shown, expected.trim_end(), "{command}"),
        }
        commands += 1;
    }
    assert_eq!(commands, 7);
}

#[test]
fn s63_jobs_in_every_state_survive_a_kill_and_an_old_run_is_abandoned() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ["--set", "queuey.abandoned_age_s=2"];
    let mut server = Server::start_in(folder.path(), &settings);
    let ids: Vec<String> = (0..5).map(|_| create(&server)).collect();
    for id in &ids[..3] {
        assert_eq!(claim(&server).as_ref(), Some(id));
    }
    let claimed_at = Instant::now();
    for (id, status) in [(&ids[0], "completed"), (&ids[1], "failed")] {
        let body = json!({"status": status, "output_addr": status});
        assert_eq!(server.call("POST", &format!("/jobs/{id}/complete"), Some(body)).0, 200);
    }
    let before: Vec<Value> = ids.iter().map(|id| get(&server, id)).collect();
    server.kill();

    let server = Server::start_in(folder.path(), &settings);
    let after: Vec<Value> = ids.iter().map(|id| get(&server, id)).collect();
    for (index, (before, after)) in before.iter().zip(&after).enumerate().filter(|(index, _)| *index != 2) {
        assert_eq!(before, after, "{index}");
    }
    // The active job is pending again after its runner was silent for too long, and is still the oldest.
    std::thread::sleep(Duration::from_millis(2_050).saturating_sub(claimed_at.elapsed()));
    let abandoned = get(&server, &ids[2]);
    assert_eq!((&abandoned["status"], &abandoned["run_attempts"]), (&json!("pending"), &json!(2)));
    let order: Vec<Option<String>> = (0..4).map(|_| claim(&server)).collect();
    assert_eq!(order, [Some(ids[2].clone()), Some(ids[3].clone()), Some(ids[4].clone()), None]);
    drop(server);
}

#[test]
fn s64_a_corrupt_store_is_refused_and_a_missing_one_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    create(&server);
    assert!(server.stop().success());
    let database = folder.path().join("windlass-data/windlass.db");
    std::fs::write(&database, b"{\"not\": \"a database\"}").unwrap();
    let mut command = windlass();
    let ran = Ran::of(command.current_dir(folder.path()).args([
        "serve",
        "--http",
        "127.0.0.1:0",
        "--bedrock",
        "off",
    ]));
    assert_ne!(ran.code, 0, "{ran:?}");
    assert_eq!(
        std::fs::read(&database).unwrap(),
        b"{\"not\": \"a database\"}",
        "nothing was written over it"
    );
    std::fs::remove_dir_all(folder.path().join("windlass-data")).unwrap();
    let server = Server::start_in(folder.path(), &[]);
    assert_eq!(claim(&server), None);
}

#[test]
fn s65_a_blob_that_was_acknowledged_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    assert_eq!(
        Ran::of(server.command(&["blobs", "put", "--json"]).stdin(input("WILSON!"))).json()["new"],
        true
    );
    server.kill();
    let server = Server::start_in(folder.path(), &[]);
    assert_eq!(server.run(&["blobs", "get", WILSON]).ok(), "WILSON!");
}

fn input(text: &str) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    file
}

const MIB: usize = 1 << 20;

/// Peak memory of the server, in kibibytes.
fn peak_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Uploads bytes in chunks and reads the header of the response.
fn put_mib(server: &Server, mib: usize, extra: usize) -> (u16, String) {
    let mut stream = TcpStream::connect(server.http).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let head = format!(
        "PUT /blob HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        mib * MIB + extra
    );
    stream.write_all(head.as_bytes()).unwrap();
    let piece: Vec<u8> = (0..MIB).map(|byte| (byte % 251) as u8).collect();
    for _ in 0..mib {
        // The server may have refused already.
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = stream.write_all(&piece[..extra]);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).unwrap_or("0").parse().unwrap();
    (status, text.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned())
}

#[test]
fn s68_a_hundred_mebibytes_go_in_and_out_without_being_in_memory() {
    let server = Server::start(&["--durability", "relaxed"]);
    let before = peak_kib(&server);
    let (status, address) = put_mib(&server, 100, 0);
    assert_eq!(status, 201, "{address}");
    let folder = server.folder().join("got");
    let url = format!("{}/blob/{address}", server.url());
    Ran::of(Command::new("curl").args(["-sf", "-o"]).arg(&folder).arg(&url)).ok();
    let mut got = std::fs::File::open(&folder).unwrap();
    let (mut piece, mut pieces) = (vec![0; MIB], 0);
    while got.read_exact(&mut piece).is_ok() {
        assert!(piece.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8), "piece {pieces}");
        pieces += 1;
    }
    assert_eq!((pieces, got.metadata().unwrap().len()), (100, 100 * MIB as u64));
    let grown = peak_kib(&server).saturating_sub(before);
    assert!(grown < 40 * 1024, "{grown} KiB more were used at the highest");
    assert_eq!(put_mib(&server, 100, 1).0, 413);
    assert_eq!(server.call("GET", "/api/v1/blobs", None).1["count"], 1);
}

#[test]
fn a_damaged_blob_is_an_error_and_never_other_bytes() {
    let server = Server::start(&["--durability", "relaxed"]);
    let (_, address) = put_mib(&server, 3, 0);
    let blobs = server.folder().join("windlass-data/windlass.db.blobs/t-default/sha256");
    let shelf = std::fs::read_dir(&blobs).unwrap().next().unwrap().unwrap().path();
    let file = std::fs::read_dir(shelf).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[2 * MIB] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let url = format!("{}/blob/{address}", server.url());
    let ran = Ran::of(Command::new("curl").args(["-s", "-f", &url]));
    assert_ne!(ran.code, 0);
    assert_eq!(ran.stdout, "");
    assert_ne!(Ran::of(Command::new("curl").args(["-s", "-fI", &url])).code, 0);
    assert_eq!(put_mib(&server, 3, 0), (201, address));
    assert_eq!(Ran::of(Command::new("curl").args(["-sfI", &url])).code, 0);
}

#[test]
fn only_blobs_that_no_job_names_are_collected_and_only_when_told_to() {
    let server = Server::start(&[]);
    let put = |text: &str| Ran::of(server.command(&["blobs", "put"]).stdin(input(text))).ok();
    let (binary, output, native, unused) = (put("WILSON!"), put("output"), put("native"), put("unused"));
    assert_eq!(binary, WILSON);
    create(&server);
    let id = claim(&server).unwrap();
    let sha256 = |address: &str| {
        let (_, list) = server.call("GET", "/api/v1/blobs", None);
        let blobs = list["blobs"].as_array().unwrap().clone();
        blobs.iter().find(|blob| blob["sha1"] == address).unwrap()["sha256"].as_str().unwrap().to_owned()
    };
    // Referred to by another of its addresses, in upper case.
    let body = json!({"status": "failed", "output_addr": sha256(&output).to_uppercase()});
    assert_eq!(server.call("POST", &format!("/jobs/{id}/complete"), Some(body)).0, 200);
    server.run(&["push", "any", &json!({"deep": [{"in": sha256(&native)}]}).to_string()]).ok();

    let fresh = server.run(&["blobs", "gc", "--json"]).json();
    assert_eq!((&fresh["count"], &fresh["unnamed_count"]), (&json!(4), &json!(0)), "all were put just now");
    std::thread::sleep(Duration::from_millis(1_100));
    let dry = server.run(&["blobs", "gc", "--older-than", "1s", "--json"]).json();
    assert_eq!((&dry["unnamed_count"], &dry["removed"]), (&json!(1), &json!(0)));
    assert_eq!(dry["unnamed"][0]["sha1"], json!(unused));
    assert_eq!(server.run(&["blobs", "get", &unused]).ok(), "unused");
    let done = server.run(&["blobs", "gc", "--older-than", "1s", "--remove"]).ok();
    assert_eq!(done, "1 of 4 blobs deleted");
    assert_ne!(server.run(&["blobs", "get", &unused]).code, 0);
    for (address, text) in [(&binary, "WILSON!"), (&output, "output"), (&native, "native")] {
        assert_eq!(server.run(&["blobs", "get", address]).ok(), text);
    }
}

/// Rule of the original program: 1717, or the next free port.
#[test]
fn a_port_of_its_own_is_the_next_free_one_and_knows_this_protocol_alone() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let server = Server::start(&["--set", &format!("queuey.port={port}")]);
    let ready = std::fs::read_to_string(server.folder().join("ready.json")).unwrap();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let own: SocketAddr = ready["queuey"].as_str().unwrap().parse().unwrap();
    assert!(own.ip().is_loopback() && own.port() > port, "{own} {port}");
    eventually("it says where it listens", || {
        server.log().contains(&format!("listening queuey {own}")).then_some(())
    });
    assert_eq!(request(own, "GET", "/ping", "").unwrap(), (200, "pong".to_owned()));
    let id = create(&server);
    assert_eq!(request(own, "GET", &format!("/jobs/{id}"), "").unwrap().0, 200, "the same jobs");
    assert_eq!(request(own, "GET", "/api/v1/jobs", "").unwrap().0, 404);
}

/// The announcement was requested, but would be useless.
#[test]
fn announcing_an_address_that_nobody_can_reach_is_refused() {
    let serve = ["serve", "--store", "memory:", "--http", "127.0.0.1:0", "--bedrock", "off", "--mdns", "on"];
    let mut child = windlass().args(serve).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("127.0.0.1:0") && said.contains("--http"), "{said}");
}
