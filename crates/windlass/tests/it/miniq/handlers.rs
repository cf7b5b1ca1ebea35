//! Real handlers, run by the real server.

use super::{add, all_jobs, set_handler, until_code};
use crate::server::{Ran, Server, eventually, windlass};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// http handler that records every body and responds as configured.
struct Target {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Target {
    fn start(answer: impl Fn(&str, usize) -> (u16, String) + Send + Sync + 'static) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target { address: listener.local_addr().unwrap(), bodies: Arc::default() };
        let (bodies, answer) = (Arc::clone(&target.bodies), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (bodies, answer) = (Arc::clone(&bodies), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &bodies, &*answer));
            }
        });
        target
    }

    fn url(&self) -> String {
        format!("http://{}/work", self.address)
    }

    fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, bodies: &Mutex<Vec<String>>, answer: &dyn Fn(&str, usize) -> (u16, String)) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let body = String::from_utf8(body).unwrap();
        let count = {
            let mut bodies = bodies.lock().unwrap();
            bodies.push(body.clone());
            bodies.len()
        };
        let (status, text) = answer(&body, count);
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", text.len());
        if writer.write_all(format!("{head}{text}").as_bytes()).is_err() {
            return;
        }
    }
}

const SHORT: [&str; 4] = ["--set", "miniq.retry_delay_s=1", "--set", "miniq.lock_s=30"];

#[test]
fn an_http_handler_is_posted_each_payload_and_its_status_decides() {
    let target = Target::start(|body, _| match body.trim_end() {
        "ok" => (200, "the result".to_owned()),
        "bad" => (404, String::new()),
        _ => (301, String::new()),
    });
    let server = Server::start(&["--set", "miniq.retry_delay_s=600"]);
    set_handler(&server, "acme", "web", json!({"lang": "http", "body": target.url()}));
    let ids = add(server.http, "acme", "web", "ok\nbad\nmoved\n").unwrap();
    let job = until_code(&server, "acme", "web", &ids[0], "ok");
    assert_eq!(
        (&job["exitcode"], &job["lock"], &job["result"]),
        (&200.into(), &"__done".into(), &"the result".into())
    );
    assert_eq!(until_code(&server, "acme", "web", &ids[1], "failed")["exitcode"], 404);
    assert_eq!(until_code(&server, "acme", "web", &ids[2], "retry")["exitcode"], 301);
    let mut bodies = target.bodies();
    bodies.sort_unstable();
    assert_eq!(bodies, ["bad\n", "moved\n", "ok\n"]);
}

#[test]
fn a_result_that_is_larger_than_payloads_may_be_is_an_error_of_the_run_whatever_ran_it() {
    let target = Target::start(|body, _| (200, "x".repeat(body.trim_end().parse().unwrap())));
    let limits = ["--set", "limits.payload_bytes=2000", "--set", "miniq.retry_delay_s=600"];
    let server = Server::start(&limits);
    set_handler(&server, "acme", "web", json!({"lang": "http", "body": target.url()}));
    set_handler(&server, "acme", "code", json!({"lang": "python", "body": "return 'x' * int(payload)"}));
    for jobtype in ["web", "code"] {
        let ids = add(server.http, "acme", jobtype, "2000\n2001\n").unwrap();
        assert_eq!(until_code(&server, "acme", jobtype, &ids[0], "ok")["resultBytes"], 2000);
        let large = until_code(&server, "acme", jobtype, &ids[1], "TOO_MUCH");
        assert_eq!((&large["lock"], &large["exitcode"]), (&"".into(), &500.into()), "{large}");
        assert!(large["message"].as_str().unwrap().contains("2000 bytes"), "{large}");
    }
}

#[test]
fn a_job_that_answers_500_twice_and_then_200_is_run_three_times() {
    let target = Target::start(|_, count| (if count < 3 { 500 } else { 200 }, String::new()));
    let server = Server::start(&SHORT);
    set_handler(&server, "acme", "web", json!({"lang": "http", "body": target.url()}));
    let id = add(server.http, "acme", "web", "x\n").unwrap().remove(0);
    until_code(&server, "acme", "web", &id, "ok");
    assert_eq!(target.bodies().len(), 3);
}

#[test]
fn a_handler_that_cannot_be_reached_is_an_error_with_its_reason() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = Server::start(&["--set", "miniq.retry_delay_s=600"]);
    set_handler(&server, "acme", "web", json!({"lang": "http", "body": format!("http://{closed}/")}));
    let id = add(server.http, "acme", "web", "x\n").unwrap().remove(0);
    let job = until_code(&server, "acme", "web", &id, "ECONNREFUSED");
    assert_eq!((&job["exitcode"], &job["status"]), (&500.into(), &"error".into()));
}

#[test]
fn a_batch_is_one_post_and_its_answer_has_a_line_for_each_job() {
    let target = Target::start(|body, _| {
        let text = match body.lines().next().unwrap_or_default() {
            "each" => "200\n200\n500\n",
            "short" => "200\n# a word\n201\n",
            _ => "200\nwhat\n200\n",
        };
        (200, text.to_owned())
    });
    let server = Server::start(&["--set", "miniq.retry_delay_s=600"]);
    let options = json!({"batch": true, "batchSize": 3});
    set_handler(&server, "acme", "b", json!({"lang": "http", "body": target.url(), "options": options}));
    server.call("GET", "/stop", None);
    let ids = add(server.http, "acme", "b", "short\nb\nc\nlong\ne\nf\neach\nh\ni\n").unwrap();
    eventually("all nine wait", || {
        let (_, waiting) = server.call("GET", "/acme/job/waiting", None);
        (waiting["b"] == 9).then_some(())
    });
    server.call("GET", "/start", None);
    let codes =
        [["ok", "ok", "NO_RESPONSE"], ["ok", "INVALID_RESPONSE", "INVALID_RESPONSE"], ["ok", "ok", "error"]];
    for (id, code) in ids.iter().zip(codes.concat()) {
        let job = until_code(&server, "acme", "b", id, code);
        let lock = if code == "ok" { "__done" } else { "" };
        assert_eq!(job["lock"], lock, "those that are not over wait for their next try: {job}");
        assert_eq!(job["exitcode"].as_u64() < Some(300), code == "ok", "{job}");
    }
    let mut bodies = target.bodies();
    bodies.sort_unstable();
    assert_eq!(bodies, ["each\nh\ni\n", "long\ne\nf\n", "short\nb\nc\n"]);
}

#[test]
fn a_shell_handler_makes_jobs_gives_a_result_and_leaves_a_log() {
    let server = Server::start(&SHORT);
    let body = "read -r line; echo \"J: child|$line.1\"; echo \"#J: child|$line.2\"; echo 'j: child|no'; \
                echo hello; echo \"done $line\" > \"$WINDLASS_RESULT\"";
    set_handler(&server, "acme", "parent", json!({"lang": "sh", "body": body, "options": {"next": "after"}}));
    let id = add(server.http, "acme", "parent", "x\n").unwrap().remove(0);
    let job = until_code(&server, "acme", "parent", &id, "ok");
    assert_eq!(job["result"], "done x\n");
    let log = job["log"].as_str().unwrap();
    assert!(log.contains("hello") && log.contains("j: child|no"), "{log}");
    let shown = server.run(&["jobs"]).ok();
    assert!(!shown.contains("panicked"));
    let jobs = eventually("its jobs are there", || {
        let jobs = all_jobs(&server, "acme");
        (jobs.len() == 4).then_some(jobs)
    });
    let mut payloads: Vec<&str> = jobs.iter().map(|(_, payload)| payload.as_str()).collect();
    payloads.sort_unstable();
    assert_eq!(payloads, ["done x", "x", "x.1", "x.2"]);
}

#[test]
fn a_handler_in_a_language_that_is_not_there_says_so() {
    let server = Server::start(&["--set", "miniq.retry_delay_s=600"]);
    let answer = set_handler(&server, "acme", "odd", json!({"lang": "cobol", "body": "x"}));
    assert!(answer["warning"].as_str().unwrap().contains("cobol"), "{answer}");
    let id = add(server.http, "acme", "odd", "x\n").unwrap().remove(0);
    let job = until_code(&server, "acme", "odd", &id, "BAD_HANDLER");
    assert!(job["message"].as_str().unwrap().contains("cobol"), "{job}");
}

/// https handler with a certificate that is trusted only if configured.
#[test]
fn an_https_handler_is_called_by_those_who_trust_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, certified.cert.pem()).unwrap();
    std::fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
    let set = |key: &str, path: &std::path::Path| format!("{key}={}", path.display());
    let other = Server::start(&["--set", &set("tls.cert", &cert), "--set", &set("tls.key", &key)]);
    let url = format!("https://localhost:{}/acme/job/inbox/add", other.http.port());
    let wait = ["--set", "miniq.retry_delay_s=600"];
    let trusting = ["--set", &set("miniq.handler_ca", &cert)];
    for (args, code) in [([wait, trusting].concat(), "ok"), (wait.to_vec(), "ETLS")] {
        let server = Server::start(&args);
        set_handler(&server, "acme", "send", json!({"lang": "http", "body": url}));
        let id = add(server.http, "acme", "send", "x\n").unwrap().remove(0);
        let job = until_code(&server, "acme", "send", &id, code);
        let is_sent = job["result"].as_str().is_some_and(|answer| answer.contains("\"count\":1"));
        assert_eq!(is_sent, code == "ok", "{job}");
    }
}

#[test]
fn a_server_that_is_told_to_trust_a_file_that_is_not_there_does_not_start() {
    let ran = Ran::of(windlass().args([
        "serve",
        "--store",
        "memory:",
        "--http",
        "127.0.0.1:0",
        "--bedrock",
        "off",
        "--set",
        "miniq.handler_ca=no-such-file.pem",
    ]));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("miniq.handler_ca") && ran.stderr.contains("no-such-file.pem"), "{ran:?}");
}
