//! The command line and a server with certificates as people make them.

use crate::server::{Ran, Server, request};
use std::path::Path;
use std::process::Command;

/// Makes `cert.pem` and `key.pem` as in many instructions.
pub fn make_certificate(folder: &Path, more: &[&str]) {
    let usual = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem"];
    let names = ["-subj", "/CN=localhost", "-days", "30"];
    let ran = Ran::of(Command::new("openssl").args(usual).args(names).args(more).current_dir(folder));
    assert_eq!(ran.code, 0, "{ran:?}");
}

pub fn start(folder: &Path) -> Server {
    Server::start_in(folder, &["--set", "tls.cert=cert.pem", "--set", "tls.key=key.pem"])
}

fn queues(server: &Server, scheme: &str, host: &str, more: &[&str]) -> Ran {
    let url = format!("{scheme}://{host}:{}", server.http.port());
    server.run(&[&["queues", "--server", &url], more].concat())
}

#[test]
fn a_self_signed_certificate_that_names_its_host_works_with_ca() {
    let folder = tempfile::tempdir().unwrap();
    make_certificate(folder.path(), &["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    let server = start(folder.path());
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(queues(&server, "https", host, &["--ca", "cert.pem"]).code, 0, "{host}");
    }
    let without = queues(&server, "https", "localhost", &[]);
    assert!(without.code == 1 && without.stderr.contains("--ca"), "{without:?}");
    std::fs::rename(folder.path().join("cert.pem"), folder.path().join("first.pem")).unwrap();
    make_certificate(folder.path(), &["-addext", "subjectAltName=DNS:localhost"]);
    std::fs::rename(folder.path().join("cert.pem"), folder.path().join("other.pem")).unwrap();
    let other = queues(&server, "https", "localhost", &["--ca", "other.pem"]);
    assert!(other.code == 1 && other.stderr.contains("not accepted"), "{other:?}");
}

#[test]
fn a_certificate_without_a_host_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    make_certificate(folder.path(), &[]);
    let server = start(folder.path());
    let ran = queues(&server, "https", "localhost", &["--ca", "cert.pem"]);
    let what_to_do = "-addext subjectAltName=DNS:localhost";
    assert!(ran.code == 1 && ran.stderr.contains("it names no host"), "{ran:?}");
    assert!(ran.stderr.contains(what_to_do), "{ran:?}");
}

#[test]
fn the_wrong_scheme_is_told_on_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    make_certificate(folder.path(), &["-addext", "subjectAltName=DNS:localhost"]);
    let server = start(folder.path());
    let (status, body) = request(server.http, "GET", "/healthz", "").unwrap();
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("this port speaks TLS; use https://"), "{body}");
    let ran = queues(&server, "http", "localhost", &[]);
    assert!(ran.code == 1 && ran.stderr.contains("this port speaks TLS; use https://"), "{ran:?}");
    let plain = Server::start(&[]);
    let ran =
        queues(&plain, "https", "127.0.0.1", &["--ca", folder.path().join("cert.pem").to_str().unwrap()]);
    assert!(ran.code == 1 && ran.stderr.contains("does not speak TLS on this port; use http://"), "{ran:?}");
}
