//! Flood by one tenant: the latency of the others hardly changes.

use crate::server::{PATIENCE, Ran, Server, request_with, windlass};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Calls of the quiet tenant per window, and windows of each kind.
const CALLS: usize = 60;
const WINDOWS: usize = 4;
/// Latency that single calls may have on a busy machine without a flood.
const FLOOR: Duration = Duration::from_millis(250);

/// Keep-alive connection.
struct Client {
    stream: TcpStream,
    token: String,
}

impl Client {
    fn new(to: SocketAddr, token: &str) -> Client {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, token: token.to_owned() }
    }

    fn push(&mut self) -> u16 {
        let body = r#"{"name":"x","payload":"0123456789"}"#;
        let request = format!(
            "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        loop {
            let mut piece = [0; 4096];
            let read = self.stream.read(&mut piece).unwrap();
            assert!(read > 0, "the connection was closed");
            answer.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&answer);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return head[9..12].parse().unwrap();
            }
        }
    }
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() * 99 / 100]
}

#[test]
fn a_quiet_tenant_is_answered_as_fast_while_another_floods_the_server() {
    let token = |role: &str, tenant: &str| {
        let made = Ran::of(windlass().args(["token", "--role", role, "--tenant", tenant, "--json"])).json();
        (made["token"].as_str().unwrap().to_owned(), made["config"].as_str().unwrap().to_owned())
    };
    let ((admin, one), (noisy, two), (quiet, three)) =
        (token("admin", "default"), token("worker", "noisy"), token("worker", "quiet"));
    let server = Server::start(&["--set", &format!("auth.tokens={one},{two},{three}")]);
    let quota = json!({"requests_per_second": 100, "requests_in_flight": 8}).to_string();
    let bearer = format!("Authorization: Bearer {admin}\r\n");
    let set = request_with(server.http, "PUT", "/api/v1/tenants/noisy/quota", &bearer, &quota).unwrap();
    assert_eq!(set.0, 200, "{}", set.1);

    let (floods, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (done, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let (floods, ends, done, refused) = (floods.clone(), ends.clone(), done.clone(), refused.clone());
            let mut client = Client::new(server.http, &noisy);
            std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    if !floods.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                    match client.push() {
                        201 => done.fetch_add(1, Ordering::Relaxed),
                        429 => refused.fetch_add(1, Ordering::Relaxed),
                        status => panic!("{status}"),
                    };
                }
            })
        })
        .collect();
    let mut client = Client::new(server.http, &quiet);
    let mut times = [Vec::new(), Vec::new()];
    // Alternating, so that other load on the machine affects both alike.
    for window in 0..2 * WINDOWS {
        let is_flooded = window % 2 == 1;
        floods.store(is_flooded, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(50));
        for _ in 0..CALLS {
            let began = Instant::now();
            assert_eq!(client.push(), 201);
            times[usize::from(is_flooded)].push(began.elapsed());
        }
    }
    ends.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let [calm, flooded] = times.map(p99);
    assert!(refused.load(Ordering::Relaxed) > 0, "the flood was let through: {done:?}");
    assert!(flooded <= FLOOR.max(calm * 3), "p99 {flooded:?} in the flood, {calm:?} without");
}
