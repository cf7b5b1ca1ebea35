use crate::server::{Ran, Server, UsualPort, eventually, request, windlass};
use rustix::process::Signal;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

#[test]
fn it_says_where_it_listens_and_what_to_try() {
    let server = Server::start(&[]);
    let log = eventually("it has greeted", || Some(server.log()).filter(|log| log.contains("and then")));
    assert!(log.starts_with(&format!("listening http {}\n", server.http)), "{log}");
    assert!(log.contains("windlass push hello"), "{log}");
    assert!(log.contains(&format!("web UI    http://{}/ui/\n", server.http)), "{log}");
    let ready = std::fs::read_to_string(server.folder().join("ready.json")).unwrap();
    assert_eq!(ready.trim(), format!("{{\"http\":\"{}\"}}", server.http));
}

#[test]
fn a_term_signal_ends_it_cleanly_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    server.run(&["push", "keep", "1"]).ok();
    assert_eq!(server.stop().code(), Some(0));
    assert!(!folder.path().join("ready.json").exists());
    let server = Server::start_in(folder.path(), &[]);
    assert_eq!(server.state_of(1), "ready");
}

#[test]
fn a_job_survives_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    server.run(&["push", "keep", "1"]).ok();
    server.kill();
    let server = Server::start_in(folder.path(), &[]);
    assert_eq!(server.state_of(1), "ready");
}

#[test]
fn a_waiting_claim_does_not_hold_up_a_stop() {
    let mut server = Server::start(&[]);
    let http = server.http;
    let claim =
        std::thread::spawn(move || request(http, "POST", "/api/v1/claim", r#"{"name":"x","wait_ms":60000}"#));
    eventually("the claim waits", || {
        (server.call("GET", "/api/v1/stats", None).1["waiting_claims"] == 1).then_some(())
    });
    let started = std::time::Instant::now();
    assert_eq!(server.stop().code(), Some(0));
    assert!(started.elapsed().as_secs() < 8, "{:?}", started.elapsed());
    let (status, body) = claim.join().unwrap().unwrap();
    assert_eq!((status, body.as_str()), (200, r#"{"jobs":[]}"#));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = Server::start(&["--set", "shutdown_s=600"]);
    // An incomplete request delays the first stop.
    let mut stream = TcpStream::connect(server.http).unwrap();
    use std::io::{Read, Write};
    stream
        .write_all(b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    // Shows that the request is in flight.
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100");
    stream.write_all(b"{").unwrap();
    server.signal(Signal::TERM);
    eventually("it is stopping", || server.log().contains("shutting down").then_some(()));
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(1));
}

/// Starts a server that cannot start, in a folder of its own: nothing may be left in it.
fn refused_start(args: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let ready = ["serve", "--mdns", "off", "--ready-file", "ready.json"];
    let ran = Ran::of(windlass().args(ready).args(args).current_dir(folder.path()));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    assert_eq!(ran.code, 1, "{ran:?}");
    ran
}

#[test]
fn an_address_that_was_asked_for_and_is_taken_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--http", "--bedrock"] {
        let other = if flag == "--http" { ["--bedrock", "127.0.0.1:0"] } else { ["--http", "127.0.0.1:0"] };
        let ran = refused_start(&[&[flag, &address], &other[..]].concat());
        let names_it = ran.stderr.contains(&format!("start with {flag} ADDR"));
        assert!(ran.stderr.contains(&address) && names_it && ran.stderr.contains("port 0"), "{ran:?}");
    }
}

#[test]
fn without_its_http_port_it_does_not_start() {
    let _taken = UsualPort::take();
    let ran = refused_start(&["--bedrock", "127.0.0.1:0"]);
    let expected = "127.0.0.1:7373 is in use by another program, perhaps another windlass; start with --http";
    assert!(ran.stderr.contains(expected) && ran.stdout.is_empty(), "{ran:?}");
}

#[test]
fn the_default_port_of_a_dialect_that_is_taken_is_reported_and_skipped() {
    let _taken = TcpListener::bind("127.0.0.1:8888");
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_without_flags(folder.path(), &["--http", "127.0.0.1:0"]);
    let log = server.log();
    assert!(log.contains("bedrock is disabled: its default address 127.0.0.1:8888 is in use"), "{log}");
    assert!(log.contains("--bedrock") && !log.contains("listening bedrock"), "{log}");
}

#[test]
fn others_cannot_reach_it_without_tokens_and_tls_unless_told_so() {
    let serve = |args: &[&str]| Ran::of(windlass().args(["serve", "--store", "memory:"]).args(args));
    for args in [
        &["--http", "0.0.0.0:0"][..],
        &["--http", "[::]:0"],
        &["--http", "0.0.0.0:0", "--set", "auth.tokens=x"],
    ] {
        let ran = serve(args);
        assert_ne!(ran.code, 0, "{args:?}");
        assert!(ran.stderr.contains("--insecure"), "{args:?} {ran:?}");
    }
    let server = Server::start(&["--http", "0.0.0.0:0", "--insecure"]);
    assert!(server.http.ip().is_unspecified());
    let log = eventually("it has greeted", || Some(server.log()).filter(|log| log.contains("and then")));
    let url = format!("http://127.0.0.1:{}", server.http.port());
    assert!(
        log.contains(&format!("web UI    {url}/ui/")) && log.contains(&format!("--server {url} --")),
        "{log}"
    );
}

#[test]
fn with_tokens_only_their_holders_are_let_in() {
    let made = Ran::of(windlass().args(["token", "--role", "operator", "--json"])).json();
    let (token, line) = (made["token"].as_str().unwrap(), made["config"].as_str().unwrap());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("windlass.toml"), format!("auth.tokens = [\"{line}\"]\n")).unwrap();
    let server = Server::start_in(folder.path(), &["--config", "windlass.toml"]);
    let ran = server.run(&["push", "a"]);
    assert!(ran.code == 1 && ran.stderr.contains("WINDLASS_TOKEN"), "{ran:?}");
    assert_eq!(server.run(&["push", "a", "--token", token]).ok(), "1");
    assert!(!server.log().contains(token));
}

#[test]
fn with_tls_and_tokens_it_may_be_reached_by_others() {
    let made = Ran::of(windlass().args(["token", "--json"])).json();
    let (token, line) = (made["token"].as_str().unwrap(), made["config"].as_str().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
    std::fs::write(folder.path().join("cert.pem"), certified.cert.pem()).unwrap();
    std::fs::write(folder.path().join("key.pem"), certified.signing_key.serialize_pem()).unwrap();
    let file = format!("auth.tokens = [\"{line}\"]\ntls.cert = \"cert.pem\"\ntls.key = \"key.pem\"\n");
    std::fs::write(folder.path().join("windlass.toml"), file).unwrap();
    let server = Server::start_in(folder.path(), &["--config", "windlass.toml", "--http", "0.0.0.0:0"]);
    let url = format!("https://localhost:{}", server.http.port());
    let push =
        |more: &[&str]| server.run(&[&["push", "a", "--server", &url, "--token", token], more].concat());
    assert_eq!(push(&["--ca", "cert.pem"]).ok(), "1");
    server
        .run(&["work", "a", "--once", "--server", &url, "--token", token, "--ca", "cert.pem", "--", "true"])
        .ok();
    let ran = push(&[]);
    assert!(ran.code == 1 && ran.stderr.contains("certificate"), "{ran:?}");
    let ran = server.run(&["push", "a", "--token", token]);
    assert_eq!(ran.code, 1, "{ran:?}");
}

#[test]
fn a_token_is_shown_once_and_its_line_holds_only_the_hash() {
    let ran = Ran::of(windlass().arg("token"));
    let token = ran.stdout.trim();
    assert!(token.starts_with("wl_") && ran.stderr.contains("auth.tokens"), "{ran:?}");
    assert!(!ran.stderr.contains(token));
    let ran = Ran::of(windlass().args(["token", "--role", "king"]));
    assert!(ran.code == 2 && ran.stderr.contains("operator"), "{ran:?}");
}

#[test]
fn flags_win_over_set_over_the_environment_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("c.toml"), "[queuey]\nmax_attempts = 4\n[limits]\nbatch = 7\n")
        .unwrap();
    let value = |args: &[&str], variable: Option<&str>, key: &str| {
        let mut command = windlass();
        command.current_dir(folder.path()).args(["config", "--json", "--config", "c.toml"]).args(args);
        if let Some(text) = variable {
            command.env("WINDLASS_QUEUEY_MAX_ATTEMPTS", text).env("WINDLASS_HTTP", "127.0.0.1:2");
        }
        Ran::of(&mut command).json()[key]["value"].clone()
    };
    assert_eq!(value(&[], None, "limits.batch"), 7);
    assert_eq!(value(&[], None, "queuey.max_attempts"), 4);
    assert_eq!(value(&[], Some("5"), "queuey.max_attempts"), 5);
    assert_eq!(value(&["--set", "queuey.max_attempts=6"], Some("5"), "queuey.max_attempts"), 6);
    assert_eq!(value(&["--set", "http=127.0.0.1:3"], Some("5"), "http"), "127.0.0.1:3");
    let args = ["--set", "http=127.0.0.1:3", "--http", "127.0.0.1:4"];
    assert_eq!(value(&args, Some("5"), "http"), "127.0.0.1:4");
}

#[test]
fn an_unknown_key_ends_the_start_with_the_nearest_known_one() {
    let ran = Ran::of(windlass().args(["serve", "--set", "queuey.abandoned_age=2"]));
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("did you mean \"queuey.abandoned_age_s\"?"), "{ran:?}");
}

#[test]
fn secrets_are_not_shown_in_the_configuration() {
    let ran = Ran::of(windlass().args(["config", "--set", "auth.tokens=worker default canary"])).ok();
    assert!(!ran.contains("canary") && ran.contains("hidden"), "{ran}");
}

#[test]
fn the_data_folder_is_private() {
    let server = Server::start(&[]);
    let mode = std::fs::metadata(server.folder().join("windlass-data")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn the_log_can_be_json() {
    let mut server = Server::start(&["--log", "json"]);
    server.stop();
    let log = server.log();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect();
    assert!(lines.iter().all(|line| line["message"].is_string() && line["timestamp"].is_string()), "{log}");
    let http = lines.iter().find(|line| line["listener"] == "http").unwrap();
    assert_eq!(http["address"], server.http.to_string());
    assert!(lines.iter().any(|line| line["ui"] == format!("http://{}/ui/", server.http)), "{log}");
}

#[test]
fn two_servers_cannot_use_one_store() {
    let server = Server::start(&[]);
    let ran = Ran::of(windlass().args(["serve", "--http", "127.0.0.1:0"]).current_dir(server.folder()));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("store"), "{ran:?}");
}

/// Local addresses, in the kernel's notation, on which this process listens.
fn listening_addresses(pid: u32) -> Vec<String> {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let sockets: Vec<String> = links.filter_map(|link| socket_number(&link.to_string_lossy())).collect();
    let tables =
        ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let ours = lines.filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let listens = columns[3] == "0A" && sockets.iter().any(|socket| socket == columns[9]);
        listens.then(|| columns[1].to_string())
    });
    ours.collect()
}

fn socket_number(link: &str) -> Option<String> {
    Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_string())
}

#[test]
fn by_default_it_listens_on_loopback_only() {
    let server = Server::start(&[]);
    let addresses = listening_addresses(server.pid());
    assert!(!addresses.is_empty());
    assert!(addresses.iter().all(|address| address.starts_with("0100007F:")), "{addresses:?}");
}
