//! Signatures of outgoing requests, verified by the receivers of the manual.

use crate::server::Server;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

const KEY: &str = "0123456789abcdef0123456789abcdef";

/// Example of the manual in this language.
fn example(fence: &str) -> String {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/signatures.md"));
    let page = std::fs::read_to_string(path).unwrap();
    let (_, rest) = page.split_once(&format!("```{fence}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// True if the manual's receiver in this language accepts the body with this header.
fn is_believed(language: &str, key: &str, header: &str, body: &[u8]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let body_file = folder.path().join("body");
    std::fs::write(&body_file, body).unwrap();
    let (program, flag, code) = match language {
        "python" => {
            let call = "import sys\nprint(is_from_windlass(sys.argv[1], sys.argv[2], open(sys.argv[3], 'rb').read()))";
            ("python3", "-c", format!("{}\n{call}", example("python")))
        }
        _ => {
            let call = "const [key, header, file] = process.argv.slice(1);\n\
                        console.log(isFromWindlass(key, header, require('node:fs').readFileSync(file)));";
            ("node", "-e", format!("{}\n{call}", example("js")))
        }
    };
    let ran = Command::new(program).args([flag, &code, key, header]).arg(&body_file).output().unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    match text.trim() {
        "True" | "true" => true,
        "False" | "false" => false,
        other => panic!("{language}: {other} {}", String::from_utf8_lossy(&ran.stderr)),
    }
}

/// Receives a request and responds with 200: its signature and its body.
fn receive(listener: &TcpListener) -> (String, Vec<u8>) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).unwrap();
        bytes.extend_from_slice(&piece[..read]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let value = |name: &str| {
            head.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
        };
        let length: usize = value("content-length:").unwrap().parse().unwrap();
        let body = bytes[end + 4..].to_vec();
        if body.len() >= length {
            answer(&mut stream);
            return (value("windlass-signature:").expect("a signature"), body);
        }
    }
}

fn answer(stream: &mut TcpStream) {
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
}

fn check(key: &str, header: &str, body: &[u8]) {
    for language in ["python", "js"] {
        assert!(is_believed(language, key, header, body), "{language}: {header}");
        let another = [body, b"x"].concat();
        assert!(!is_believed(language, key, header, &another), "another body");
        assert!(!is_believed(language, "another key", header, body), "another key");
        let (t, v1) = header.split_once(',').unwrap();
        let second: u64 = t[2..].parse().unwrap();
        assert!(!is_believed(language, key, &format!("t={},{v1}", second + 1), body), "another moment");
        assert!(!is_believed(language, key, "t=1,v1=00", body) && !is_believed(language, key, "", body));
    }
}

#[test]
fn handlers_and_workers_can_tell_that_it_was_the_server() {
    let set = format!("outgoing.signing_key={KEY}");
    let server = Server::start(&["--set", &set]);
    let (status, answer) = server.call("GET", "/api/v1/signing_key?tenant=acme", None);
    assert_eq!(status, 200, "{answer}");
    let of_acme = answer["signing_key"].as_str().unwrap().to_owned();
    let of_default =
        server.call("GET", "/api/v1/signing_key", None).1["signing_key"].as_str().unwrap().to_owned();
    assert!(of_acme != of_default && !of_acme.contains(KEY));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    server.call("POST", "/acme/handler/add/t/add", Some(json!({"lang": "http", "body": url})));
    server.call("POST", "/acme/job/t/add", Some(json!("a line")));
    let (header, body) = receive(&listener);
    check(&of_acme, &header, &body);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (status, _) =
        server.call("POST", "/jq/worker", Some(json!({"name": "w", "url": url, "max_jobs": 1})));
    assert_eq!(status, 201);
    server.call("POST", "/jq/job", Some(json!({"name": "j", "argument": {"a": 1}})));
    let (header, body) = receive(&listener);
    check(&of_default, &header, &body);
    assert!(!server.log().contains(KEY));
    let config = server.run(&["config", "--set", &set]).ok();
    assert!(!config.contains(KEY), "{config}");
}
