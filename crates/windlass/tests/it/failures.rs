//! Error messages: the problem, and the remedy.

use crate::rigs::cluster::postgres_server::PostgresServer;
use crate::server::{Ran, Server, windlass};
use std::net::TcpListener;

/// URL at which no server listens.
fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn without_a_server_every_client_command_says_how_to_start_one() {
    let server = nowhere();
    let commands: [&[&str]; 6] = [
        &["push", "a"],
        &["work", "a", "--", "cat"],
        &["jobs"],
        &["job", "1"],
        &["queues"],
        &["top", "--once"],
    ];
    for args in commands {
        let ran = Ran::of(windlass().args(args).env("WINDLASS_SERVER", &server));
        assert_eq!(ran.code, 1, "{args:?} {ran:?}");
        assert!(
            ran.stderr.contains("no server at") && ran.stderr.contains("windlass serve"),
            "{args:?} {ran:?}"
        );
    }
}

#[test]
fn what_cannot_be_meant_is_a_usage_error() {
    let cases: [(&[&str], &str); 12] = [
        (&["push"], "NAME"),
        (&["push", "a", "--delay", "10"], "10s"),
        (&["push", "a", "--at", "soon"], "2030-01-31"),
        (&["push", "a", "--server", "ftp://x"], "http://HOST:PORT"),
        (&["work", "a"], "CMD"),
        (&["work", "a", "--fatal-exit-codes", "75", "--", "cat"], "another attempt"),
        (&["job", ""], "ID"),
        (&["job", "1", "edit"], "--priority"),
        (&["job", "1", "edit", "--payload", "{"], "--text"),
        (&["jobs", "--retry"], "--all"),
        (&["jobs", "a", "--retry", "--cancel"], "cannot be used with"),
        (&["nonsense"], "nonsense"),
    ];
    for (args, words) in cases {
        let ran = Ran::of(windlass().args(args));
        assert_eq!(ran.code, 2, "{args:?} {ran:?}");
        assert!(ran.stderr.contains(words), "{args:?} {ran:?}");
    }
}

#[test]
fn something_that_is_not_windlass_is_named_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nnope\n").unwrap();
    });
    let ran = Ran::of(windlass().args(["jobs", "--server", &address]));
    assert!(ran.code == 1 && ran.stderr.contains("check the address"), "{ran:?}");
    thread.join().unwrap();
}

#[test]
fn the_servers_own_words_are_passed_on() {
    let server = Server::start(&[]);
    let ran = server.run(&["job", "77"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.starts_with("error: "), "{ran:?}");
    let ran = server.run(&["push", "a", "--repeat", "whenever"]);
    assert!(ran.code == 1 && ran.stderr.len() > 10, "{ran:?}");
}

#[test]
fn output_that_nobody_reads_is_no_error() {
    let server = Server::start(&[]);
    let lines = (0..900).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
    server.run(&["push", "row", &lines, "--lines"]).ok();
    let program = env!("CARGO_BIN_EXE_windlass");
    let script =
        format!("set -o pipefail; {program} jobs --all --json --server {} | head -n 1", server.url());
    let ran = Ran::of(std::process::Command::new("bash").args(["-c", &script]));
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
}

#[test]
fn a_database_that_may_lose_what_it_acknowledges_is_refused_with_what_to_do() {
    // The test database has fsync off.
    let url = PostgresServer::shared().new_schema_url();
    let refused = Ran::of(windlass().args(["serve", "--store", &url, "--http", "127.0.0.1:0"]));
    assert_eq!(refused.code, 1, "{refused:?}");
    for words in ["fsync = off", "enable it", "--durability relaxed"] {
        assert!(refused.stderr.contains(words), "{words}: {refused:?}");
    }
    let server = Server::start(&["--store", &url, "--durability", "relaxed"]);
    server.run(&["push", "mail"]).ok();
}
