//! Limits of clients: memory, connections, file descriptors.

use crate::server::{Server, eventually, request};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Memory limit of the server's control group.
const MEMORY: u64 = 300 << 20;

/// Control group, removed on drop; `None` if this user cannot create one.
struct Group(PathBuf);

impl Group {
    fn new(memory_bytes: u64) -> Option<Group> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let name = format!("windlass-test-{}", std::process::id());
        for line in own.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            let (mount, limit) = match controllers {
                "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                "" => ("/sys/fs/cgroup", "memory.max"),
                _ => continue,
            };
            let group = Group(PathBuf::from(mount).join(path).join(&name));
            if std::fs::create_dir(&group.0).is_ok()
                && std::fs::write(group.0.join(limit), memory_bytes.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Busy for a moment after its last process has exited.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn post(to: SocketAddr, body: &str) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(Duration::from_secs(300)))?;
    write!(
        stream,
        "POST /api/v1/jobs HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    )?;
    // A request refused before its body has arrived may find its connection closed; the response is there all
    // the same.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer);
    match text.split(' ').nth(1).and_then(|code| code.parse().ok()) {
        Some(status) => Ok(status),
        None => read.and(Err(std::io::ErrorKind::UnexpectedEof.into())),
    }
}

fn peak_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

#[test]
fn large_batches_at_once_do_not_kill_a_server_with_little_memory() {
    let group = Group::new(MEMORY);
    // Without a group the limit is configured instead of detected.
    let memory = format!("limits.memory_bytes={}", MEMORY / 2);
    let args: &[&str] = if group.is_some() { &[] } else { &["--set", &memory] };
    let server = match &group {
        Some(group) => Server::start_in_group(&group.0, args),
        None => Server::start(args),
    };
    let job = format!(r#"{{"name":"a","payload":"{}"}}"#, "x".repeat(5_400));
    let batch = Arc::new(format!(r#"{{"jobs":[{}]}}"#, vec![job; 10_000].join(",")));
    let pushing: Vec<_> = (0..8)
        .map(|_| {
            let (to, batch) = (server.http, Arc::clone(&batch));
            std::thread::spawn(move || post(to, &batch))
        })
        .collect();
    let statuses: Vec<u16> = pushing.into_iter().map(|push| push.join().unwrap().unwrap()).collect();
    assert!(statuses.iter().all(|status| matches!(status, 201 | 503)), "{statuses:?}");
    assert!(statuses.contains(&201), "{statuses:?}");
    assert_eq!(request(server.http, "GET", "/healthz", "").unwrap().0, 200);
    // Includes the executable's file mapping, which the group does not count.
    let peak = peak_bytes(&server);
    assert!(peak < MEMORY / 4 * 5, "{peak} bytes at its largest; {statuses:?}");
    drop(server);
}

#[test]
fn silent_connections_leave_room_for_others() {
    let server = Server::start_with_files(400, &["--bedrock", "127.0.0.1:0"]);
    let ready = std::fs::read_to_string(server.folder().join("ready.json")).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    let bedrock: SocketAddr = ready["bedrock"].as_str().unwrap().parse().unwrap();
    let silent: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(bedrock).unwrap()).collect();
    let blob = eventually("a blob can be put", || {
        request(server.http, "PUT", "/blob", "bytes").ok().filter(|(status, _)| *status < 300)
    });
    assert!(blob.0 < 300);
    assert_eq!(request(server.http, "GET", "/readyz", "").unwrap().0, 200);
    drop(silent);
}

#[test]
fn readiness_shows_how_handlers_are_isolated() {
    for (arguments, line) in [
        (&[][..], "OK\nhandlers: isolated by "),
        (&["--set", "miniq.uid_base=0", "--set", "runners.isolation=strict"], "OK\nhandlers: "),
    ] {
        let server = Server::start(arguments);
        let found = eventually("the isolation is found out", || {
            let (status, text) = request(server.http, "GET", "/readyz", "").unwrap();
            assert_eq!(status, 200, "weak isolation does not end readiness: {text}");
            (!text.contains("not tested yet")).then_some(text)
        });
        assert!(found.starts_with(line), "{found}");
        let said = found.lines().nth(1).unwrap();
        let is_strict_about_it =
            said.contains("disabled: runners.isolation is strict, and this machine lacks");
        assert!(said.contains("; missing: ") || is_strict_about_it, "{said}");
    }
    let server = Server::start(&["--set", "miniq.run=false"]);
    assert_eq!(request(server.http, "GET", "/readyz", "").unwrap(), (200, "OK\n".to_owned()));
}
