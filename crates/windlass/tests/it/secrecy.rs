//! The server's files and secrets are private to its user.

use crate::server::{Ran, Server, eventually, request_with, windlass};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Files and folders below `folder` that other users may read, write or enter.
fn open_to_others(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let about = entry.metadata().unwrap();
        if about.permissions().mode() & 0o077 != 0 {
            found.push((entry.path(), about.permissions().mode()));
        }
        if about.is_dir() {
            found.extend(open_to_others(&entry.path()));
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn nothing_the_server_keeps_is_open_to_other_users() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start_in(folder.path(), &["--data", "data"]);
    assert!(server.log().contains("other users can read the data folder data"), "{}", server.log());
    server.call("POST", "/api/v1/jobs", Some(json!({"name": "a"})));
    server.call("PUT", "/blob", Some(json!("some bytes")));
    server.call("POST", "/default/job/t/add", Some(json!("a line")));
    assert_eq!(open_to_others(&data), []);
    server.run(&["backup", "copy.db", "--data", "data"]).ok();
    assert_eq!(mode(&folder.path().join("copy.db")), 0o600);
    assert_eq!(open_to_others(&folder.path().join("copy.db.blobs")), []);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let words: Vec<&str> = core.split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{core}");
}

#[test]
fn a_database_that_was_open_to_other_users_is_closed_to_them() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("jobs.db");
    let args = ["--store", "sqlite:jobs.db"];
    let mut server = Server::start_in(folder.path(), &args);
    assert_eq!(mode(&database), 0o600);
    server.stop();
    std::fs::set_permissions(&database, std::fs::Permissions::from_mode(0o644)).unwrap();
    let server = Server::start_in(folder.path(), &args);
    assert_eq!(mode(&database), 0o600);
    assert!(
        server.log().contains("jobs.db was readable by other users; its mode was changed to 0600"),
        "{}",
        server.log()
    );
}

#[test]
fn the_command_of_a_worker_does_not_get_its_token() {
    let made = Ran::of(windlass().args(["token", "--role", "worker", "--json"])).json();
    let (token, line) = (made["token"].as_str().unwrap(), made["config"].as_str().unwrap());
    let server = Server::start(&["--set", &format!("auth.tokens={line}")]);
    let run = |args: &[&str]| Ran::of(server.command(args).env("WINDLASS_TOKEN", token));
    run(&["push", "env"]).ok();
    run(&["work", "env", "--once", "--", "sh", "-c", "env"]).ok();
    let result = run(&["job", "1", "--json"]).json()["result"].to_string();
    assert!(result.contains("WINDLASS_JOB_ID=1"), "{result}");
    assert!(!result.contains("WINDLASS_TOKEN") && !result.contains(token), "{result}");
}

/// Server with tokens, and one of them.
fn closed(role: &str, args: &[&str]) -> (Server, String) {
    let made = Ran::of(windlass().args(["token", "--role", role, "--json"])).json();
    let line = format!("auth.tokens={}", made["config"].as_str().unwrap());
    let server = Server::start(&[&["--set", &line], args].concat());
    (server, made["token"].as_str().unwrap().to_owned())
}

fn call(server: &Server, token: &str, method: &str, path: &str, body: serde_json::Value) -> (u16, String) {
    let bearer = format!("Authorization: Bearer {token}\r\n");
    request_with(server.http, method, path, &bearer, &body.to_string()).unwrap()
}

#[test]
fn a_server_with_tokens_calls_no_address_that_is_not_listed() {
    let canary = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    canary.set_nonblocking(true).unwrap();
    let url = format!("http://{}/", canary.local_addr().unwrap());
    let worker = json!({"name": "w", "url": url, "max_jobs": 1});
    let (server, token) = closed("operator", &[]);
    let (status, text) = call(&server, &token, "POST", "/jq/worker", worker.clone());
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("(allowed: none)") && text.contains("jq.worker_addresses"), "{text}");
    let handler = json!({"lang": "http", "body": url});
    assert_eq!(call(&server, &token, "POST", "/default/handler/add/t/add", handler).0, 200);
    let (_, added) = call(&server, &token, "POST", "/default/job/t/add", json!("x"));
    let added: serde_json::Value = serde_json::from_str(&added).unwrap();
    let path = format!("/default/job/t/{}", added["ids"][0].as_str().unwrap());
    eventually("the handler is refused", || {
        let text = call(&server, &token, "GET", &path, json!(null)).1;
        (text.contains("BAD_HANDLER") && text.contains("miniq.handler_addresses")).then_some(())
    });
    assert!(canary.accept().is_err(), "nobody has called");
    let (server, token) = closed("operator", &["--set", "jq.worker_addresses=loopback"]);
    assert_eq!(call(&server, &token, "POST", "/jq/worker", worker).0, 201);
}

#[test]
fn tokens_are_made_listed_rotated_and_revoked_without_a_restart() {
    let (server, admin) = closed("admin", &[]);
    let run = |args: &[&str]| Ran::of(server.command(args).env("WINDLASS_TOKEN", &admin));
    let made =
        run(&["token", "create", "--role", "viewer", "--note", "the shop", "--expires", "1d", "--json"])
            .json();
    let (token, prefix) = (made["token"].as_str().unwrap(), made["prefix"].as_str().unwrap());
    let queues = |token: &str| Ran::of(server.command(&["queues"]).env("WINDLASS_TOKEN", token)).code;
    assert_eq!(queues(token), 0);
    let list = run(&["token", "list"]).ok();
    let line = list.lines().find(|line| line.contains(prefix)).unwrap();
    assert!(line.contains("viewer") && line.contains("the shop") && line.contains("in 23h"), "{list}");
    assert!(!list.contains(&token[12..]), "{list}");
    let new = run(&["token", "rotate", prefix, "--grace", "0s", "--json"]).json();
    let new = new["token"].as_str().unwrap();
    assert_eq!((queues(token), queues(new)), (1, 0));
    run(&["token", "revoke", &new[..11]]).ok();
    assert_eq!(queues(new), 1);
    let log = server.log();
    for what in ["created", "rotated", "revoked"] {
        assert!(log.contains(&format!("{prefix} {what}")) || what == "revoked", "{log}");
        assert!(log.contains(what), "{log}");
    }
    assert!(!log.contains(&token[12..]) && !log.contains(&new[12..]), "no log has a token in it");
}

#[test]
fn a_token_of_the_store_outlives_a_restart_and_lets_the_server_be_reached_by_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    let made = server.run(&["token", "create", "--role", "admin", "--json"]).json();
    let token = made["token"].as_str().unwrap().to_owned();
    assert_eq!(server.run(&["queues"]).code, 1, "the first token closes the server");
    server.stop();
    let server = Server::start_in(folder.path(), &[]);
    assert_eq!(server.run(&["queues"]).code, 1);
    assert_eq!(Ran::of(server.command(&["queues"]).env("WINDLASS_TOKEN", &token)).code, 0);
}

#[test]
fn the_command_line_shows_its_certificate_to_a_server_that_asks_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
    std::fs::write(path("cert.pem"), own.cert.pem()).unwrap();
    std::fs::write(path("key.pem"), own.signing_key.serialize_pem()).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    std::fs::write(path("clients.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let signed =
        rcgen::CertificateParams::new(vec!["me".to_string()]).unwrap().signed_by(&key, &issuer).unwrap();
    std::fs::write(path("me.pem"), format!("{}{}", signed.pem(), key.serialize_pem())).unwrap();
    let set = |key: &str, name: &str| format!("{key}={}", path(name).display());
    let server = Server::start(&[
        "--set",
        &set("tls.cert", "cert.pem"),
        "--set",
        &set("tls.key", "key.pem"),
        "--set",
        &set("tls.client_ca", "clients.pem"),
    ]);
    let url = format!("https://localhost:{}", server.http.port());
    let (ca, me) = (path("cert.pem"), path("me.pem"));
    let queues = |more: &[&str]| {
        let ca = ca.to_str().unwrap();
        server.run(&[&["queues", "--server", &url, "--ca", ca], more].concat()).code
    };
    assert_ne!(queues(&[]), 0);
    assert_eq!(queues(&["--client-cert", me.to_str().unwrap()]), 0);
}
