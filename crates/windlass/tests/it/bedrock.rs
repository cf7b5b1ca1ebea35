//! Bedrock::Jobs dialect of the real server, with `nc` as its client.

use crate::server::{Ran, Server, eventually, windlass};
use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// Address of the dialect's port.
fn address(server: &Server) -> String {
    let ready = std::fs::read_to_string(server.folder().join("ready.json")).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    ready["bedrock"].as_str().unwrap().to_owned()
}

/// Sends the text and returns the responses until the server closes.
fn nc(address: &str, text: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap();
    let spawned =
        Command::new("nc").args(["-N", host, port]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.expect("nc is needed; install netcat-openbsd");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

fn commit_counts(replies: &str) -> Vec<u64> {
    replies
        .lines()
        .filter_map(|line| line.strip_prefix("commitCount: "))
        .map(|count| count.trim().parse().unwrap())
        .collect()
}

#[test]
fn a_job_is_made_and_done_with_nc_and_seen_by_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let listen = ["--bedrock", "127.0.0.1:0"];
    let mut server = Server::start_in(folder.path(), &listen);
    let made = nc(&address(&server), "CreateJob\nname: mail\ndata: {\"to\":\"ada\"}\n\n");
    assert!(made.starts_with("200 OK\r\n") && made.ends_with("{\"jobID\":1}"), "{made}");
    let seen = server.run(&["jobs"]);
    assert!(seen.stdout.contains("mail"), "{seen:?}");
    assert_eq!(server.run(&["push", "hello", "{}"]).code, 0);
    server.stop();

    // Created jobs survive a restart, and the commit count does not decrease.
    let server = Server::start_in(folder.path(), &listen);
    let session = "GetJob\nname: mail\n\nFinishJob\njobID: 1\n\nQueryJob\njobID: 1\n\nGetJob\nname: hel*\n\n";
    let replies = nc(&address(&server), session);
    let statuses: Vec<&str> =
        replies.lines().filter(|line| line.contains("OK") || line.contains("No job")).collect();
    assert!(replies.contains("\"data\":{\"to\":\"ada\"}"), "{replies}");
    assert_eq!(statuses.len(), 4, "{replies}");
    assert!(replies.contains("404 No job with this jobID"), "{replies}");
    assert!(replies.contains("\"name\":\"hello\""), "a job of the command line: {replies}");
    let counts: Vec<u64> = commit_counts(&made).into_iter().chain(commit_counts(&replies)).collect();
    assert!(counts.is_sorted() && counts.len() == 5, "{counts:?}");
}

/// A single function call that takes minutes, during which SQLite does not call the progress handler.
const IN_ONE_FUNCTION: &str = "SELECT instr(hex(zeroblob(500000)), hex(zeroblob(250000))||'1') + \
     instr(hex(zeroblob(500000)), hex(zeroblob(250000))||'2') + instr(hex(zeroblob(500000)), \
     hex(zeroblob(250000))||'3');";

fn children(server: &Server) -> Vec<String> {
    let pid = server.pid();
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let mut all: Vec<String> = listed.split_whitespace().map(str::to_owned).collect();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let listed = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(listed.split_whitespace().map(str::to_owned));
    }
    all.sort();
    all.dedup();
    all
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_query_that_would_run_for_ever_leaves_nothing_behind() {
    let server = Server::start(&["--bedrock", "127.0.0.1:0"]);
    let at = address(&server);
    let query = format!("Query\ntimeout: 500\nquery: {IN_ONE_FUNCTION}\n\n");
    let asking: Vec<_> = (0..6)
        .map(|_| {
            let (at, query) = (at.clone(), query.clone());
            std::thread::spawn(move || nc(&at, &query))
        })
        .collect();
    for asked in asking {
        let reply = asked.join().unwrap();
        assert!(reply.starts_with("555 Timeout"), "{reply}");
    }
    eventually("no process works on a query any more", || {
        let is_running = |pid: &String| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R'))
        };
        (!children(&server).iter().any(is_running)).then_some(())
    });
    let reply = nc(&at, "Query: SELECT 1+1;\n\n");
    assert!(reply.ends_with("[[2]]") || reply.ends_with("2\n"), "{reply}");
}

#[test]
fn the_server_stops_although_a_query_runs() {
    let mut server = Server::start(&["--bedrock", "127.0.0.1:0", "--set", "shutdown_s=1"]);
    let at = address(&server);
    let query = format!("Query\nquery: {IN_ONE_FUNCTION}\n\n");
    let asking = std::thread::spawn(move || nc(&at, &query));
    // A starting server has other children, too.
    let is_query = |child: &String| {
        std::fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|line| contains(&line, b"run-query"))
    };
    eventually("the query runs", || children(&server).into_iter().find(is_query));
    assert_eq!(server.stop().code(), Some(0), "{}", server.log());
    asking.join().unwrap();
}

/// The process is inside a function and reads no commands, so only the kernel can end it.
#[test]
fn a_killed_server_leaves_no_query_behind() {
    let mut server = Server::start(&["--bedrock", "127.0.0.1:0"]);
    let at = address(&server);
    let query = format!("Query\nquery: {IN_ONE_FUNCTION}\n\n");
    let asking = std::thread::spawn(move || nc(&at, &query));
    let is_query = |child: &String| {
        std::fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|line| contains(&line, b"run-query"))
    };
    let runs = |child: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R'))
    };
    let query = eventually("the query runs", || {
        children(&server).into_iter().find(|child| is_query(child) && runs(child))
    });
    server.kill();
    eventually("it is gone", || (!is_query(&query)).then_some(()));
    asking.join().unwrap();
}

#[test]
fn a_query_that_needs_too_much_memory_is_refused_and_writes_no_file() {
    let server = Server::start(&["--bedrock", "127.0.0.1:0"]);
    let sorted = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 3000) \
                  SELECT count(*) FROM (SELECT randomblob(1000000) AS b FROM n ORDER BY b LIMIT 2000);";
    let reply = nc(&address(&server), &format!("Query: {sorted}\n\n"));
    assert!(reply.starts_with("502 Query aborted"), "{reply}");
    assert!(reply.contains("memory"), "{reply}");
    let again = nc(&address(&server), "Query: SELECT 6*7;\n\n");
    assert!(again.starts_with("200 OK") && again.contains("42"), "{again}");
}

#[test]
fn a_port_that_was_asked_for_and_is_taken_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let serve = ["serve", "--store", "memory:", "--http", "127.0.0.1:0", "--bedrock", &address];
    let ran = Ran::of(windlass().args(serve));
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains(&format!("{address} is in use")), "{ran:?}");
    assert!(ran.stderr.contains("start with --bedrock ADDR"), "{ran:?}");
}

#[test]
fn others_cannot_reach_it_without_tokens_and_tls() {
    let serve = ["serve", "--store", "memory:", "--http", "127.0.0.1:0", "--bedrock", "0.0.0.0:0"];
    let ran = Ran::of(windlass().args(serve));
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("0.0.0.0:0") && ran.stderr.contains("--insecure"), "{ran:?}");
}
