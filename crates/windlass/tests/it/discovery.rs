//! mDNS announcement of the server, found with two independent libraries in a network created for the test.
//!
//! The network is a network namespace with one interface, which requires root or user namespaces. The test
//! runs itself inside; the test marked as ignored is the inner part.

use crate::server::{PATIENCE, Server, request};
use mdns_sd::{Receiver, ServiceDaemon, ServiceEvent};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const WITH_COLON: &str = "_serval:queue._tcp.local.";
const WITH_UNDERSCORE: &str = "_serval_queue._tcp.local.";
const ADDRESS: &str = "10.71.17.1";
/// Pair of connected interfaces: packets sent by one are received on this machine.
const PAIR: &str = "link add q0 type veth peer name q1";
/// Set for the inner part.
const INSIDE: &str = "WINDLASS_TEST_INSIDE";

/// Prints to the real standard error, which is not captured: a skipped test must be visible.
fn say_loudly(what: &str) {
    let line = format!("\n*** NOT TESTED: {what}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[test]
fn servers_are_found_by_their_names_and_say_goodbye() {
    let exe = std::env::current_exe().unwrap();
    let ways: [&[&str]; 2] = [&["-n"], &["-r", "-n"]];
    let way = ways.iter().find(|way| {
        let setup = format!("ip {PAIR} && ip addr add {ADDRESS}/24 dev q0");
        let tried = Command::new("unshare").args(**way).args(["sh", "-c", &setup]).output();
        tried.is_ok_and(|output| output.status.success())
    });
    let Some(way) = way else {
        say_loudly(
            "discovery by mDNS: making a network namespace with an interface needs root, or user namespaces, and the \
             programs unshare (util-linux) and ip (iproute2)",
        );
        return;
    };
    let inside = ["--exact", "discovery::inside_a_network_of_its_own", "--ignored", "--nocapture"];
    let ran = Command::new("unshare").args(*way).arg(exe).args(inside).env(INSIDE, "1").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ran.status.success(), "{}\n{}", text(&ran.stdout), text(&ran.stderr));
    assert!(text(&ran.stdout).contains("1 passed"), "{}", text(&ran.stdout));
}

#[test]
#[ignore = "called by servers_are_found_by_their_names_and_say_goodbye in a network of its own"]
fn inside_a_network_of_its_own() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    for words in ["link set lo up", PAIR, "link set q0 up", "link set q1 up", "addr add 10.71.17.1/24 dev q0"]
    {
        let ran = Command::new("ip").args(words.split(' ')).output().unwrap();
        assert!(ran.status.success(), "ip {words}: {ran:?}");
    }
    let anywhere = ["--http", "0.0.0.0:0", "--insecure", "--mdns", "auto"];
    let first = Server::start(&anywhere);
    let mut second = Server::start(&["--http", "10.71.17.1:0", "--insecure", "--mdns", "on"]);
    let silent = Server::start(&["--http", "10.71.17.1:0", "--insecure", "--mdns", "off"]);
    let local = Server::start(&["--mdns", "auto"]);
    let ports = BTreeSet::from([first.http.port(), second.http.port()]);

    let mut watches = [WITH_COLON, WITH_UNDERSCORE].map(Watch::new);
    for watch in &mut watches {
        expect_servers(watch.until(|found| found.len() == 2), &ports);
    }
    expect_servers(&with_python(2), &ports);
    for hidden in [silent.http.port(), local.http.port()] {
        assert!(!ports.contains(&hidden));
    }

    let (gone, stays) = (second.http.port(), first.http.port());
    let began = Instant::now();
    assert!(second.stop().success());
    for watch in &mut watches {
        let left = watch.until(|found| found.len() == 1);
        assert!(left.values().all(|found| found.port == stays && found.port != gone));
    }
    // Long before its records would expire.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[derive(Clone, Debug)]
struct Found {
    port: u16,
    http_port: String,
    addresses: Vec<String>,
}

/// Checks the servers by instance: each name is a UUID, its port is the listening one, and a server answers
/// there.
fn expect_servers(found: &BTreeMap<String, Found>, ports: &BTreeSet<u16>) {
    assert_eq!(found.values().map(|found| found.port).collect::<BTreeSet<_>>(), *ports);
    for (name, found) in found {
        let instance = name.split('.').next().unwrap();
        let shape: Vec<usize> = instance.split('-').map(str::len).collect();
        assert_eq!(shape, [8, 4, 4, 4, 12], "{name}");
        assert_eq!(
            (found.http_port.as_str(), &found.addresses),
            (found.port.to_string().as_str(), &vec![ADDRESS.to_owned()])
        );
        let address = format!("{ADDRESS}:{}", found.port).parse().unwrap();
        assert_eq!(request(address, "GET", "/ping", "").unwrap(), (200, "pong".to_owned()));
    }
}

/// Browser with the same library as the announcement: python-zeroconf refuses the colon.
struct Watch {
    service: &'static str,
    events: Receiver<ServiceEvent>,
    found: BTreeMap<String, Found>,
    _daemon: ServiceDaemon,
}

impl Watch {
    fn new(service: &'static str) -> Watch {
        let daemon = ServiceDaemon::new().unwrap();
        let events = daemon.browse(service).unwrap();
        Watch { service, events, found: BTreeMap::new(), _daemon: daemon }
    }

    /// Follows events until the found services are enough.
    fn until(&mut self, enough: impl Fn(&BTreeMap<String, Found>) -> bool) -> &BTreeMap<String, Found> {
        let deadline = Instant::now() + PATIENCE;
        while !enough(&self.found) {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(ServiceEvent::ServiceResolved(info)) => {
                    let addresses = info.get_addresses_v4().iter().map(ToString::to_string).collect();
                    let http_port = info.get_property_val_str("http_port").unwrap_or_default().to_owned();
                    let found = Found { port: info.get_port(), http_port, addresses };
                    self.found.insert(info.get_fullname().to_owned(), found);
                }
                Ok(ServiceEvent::ServiceRemoved(_, name)) => {
                    self.found.remove(&name);
                }
                Ok(_) => {}
                Err(error) => panic!("{}: {error} with {:?}", self.service, self.found),
            }
        }
        &self.found
    }
}

fn with_python(count: usize) -> BTreeMap<String, Found> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let venv = here.join("../../target/venv/bin/python3");
    let has_zeroconf = |python: &PathBuf| {
        let tried = Command::new(python).args(["-c", "import zeroconf"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    let pythons = [venv, PathBuf::from("python3")];
    let python = pythons.iter().find(|python| has_zeroconf(python)).expect(
        "python3 with the package zeroconf is missing: \
         python3 -m venv target/venv && target/venv/bin/pip install zeroconf (./test does it)",
    );
    let script = here.join("tests/it/discovery/browse.py");
    let ran = Command::new(python).arg(script).args([&count.to_string(), "20"]).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    let services: BTreeMap<String, Value> = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&ran.stderr)));
    let read = |(name, value): (String, Value)| {
        let addresses = serde_json::from_value(value["addresses"].clone()).unwrap();
        let port = u16::try_from(value["port"].as_u64().unwrap()).unwrap();
        let http_port = value["txt"]["http_port"].as_str().unwrap().to_owned();
        (name, Found { port, http_port, addresses })
    };
    services.into_iter().map(read).collect()
}
