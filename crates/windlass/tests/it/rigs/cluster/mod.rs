//! Several servers on one PostgreSQL.
//!
//! | file | tests |
//! |---|---|
//! | `kills` | servers are killed under load, and others continue |
//! | `promises` | families, repeats, limits, timers and wake-ups across servers |
//! | `clocks` | servers with a wrong clock |
//! | `faults` | the database is restarted, frozen and cut off, and has no connection left |
//! | `failover` | a primary that is frozen, cut off or without power, and a standby that takes over |
//! | `pooler` | pgbouncer in transaction mode between the servers and the database |
//! | `wire` | a network to the database that stalls and breaks |
//!
//! Longer runs: `WINDLASS_RIG_SECONDS` (load), `WINDLASS_KILLS` (servers), `WINDLASS_FAULTS` (rounds of each
//! fault).

mod clocks;
mod failover;
mod faults;
mod kills;
mod pooler;
#[path = "../../../../../windlass-store/tests/it/postgres_server.rs"]
pub mod postgres_server;
mod promises;
mod wire;

use super::process::{Place, Process};
use super::quiet::assert_no_panic;
use postgres_server::PostgresServer;
use std::net::SocketAddr;

/// For databases without fsync ([`postgres_server::Disk::Fast`]), which a server refuses otherwise.
pub const NOT_SAFE: [&str; 2] = ["--durability", "relaxed"];

/// Servers on one database. A killed server leaves its place empty until it is started again.
struct Cluster {
    url: String,
    flags: Vec<String>,
    places: Vec<Place>,
    servers: Vec<Option<Process>>,
}

impl Cluster {
    /// Starts servers on a new schema of the shared database.
    fn start(size: usize) -> Cluster {
        Cluster::start_on(&PostgresServer::shared().new_schema_url(), size, &NOT_SAFE)
    }

    fn start_on(url: &str, size: usize, flags: &[&str]) -> Cluster {
        let places = (0..size).map(|_| Place::new()).collect();
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut cluster = Cluster { url: url.to_owned(), flags, places, servers: Vec::new() };
        cluster.servers.resize_with(size, || None);
        (0..size).for_each(|number| cluster.resume(number));
        cluster
    }

    fn resume(&mut self, number: usize) {
        let flags = ["--store", &self.url].into_iter().chain(self.flags.iter().map(String::as_str));
        self.servers[number] = Some(self.places[number].start_flags(&flags.collect::<Vec<_>>()));
    }

    fn kill(&mut self, number: usize) {
        if let Some(mut server) = self.servers[number].take() {
            server.kill();
        }
        assert_no_panic(&self.places[number]);
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().flatten().map(|server| server.http).collect()
    }

    /// Address of a running server.
    fn http(&self, number: usize) -> SocketAddr {
        self.servers[number].as_ref().expect("this server is up").http
    }

    /// Stops every server in order, and checks that none has panicked.
    fn stop(mut self) {
        for (place, server) in self.places.iter().zip(&mut self.servers) {
            if let Some(server) = server {
                assert_eq!(server.stop().code(), Some(0), "{}", place.log());
            }
            assert_no_panic(place);
        }
    }
}

impl Drop for Cluster {
    /// Prints the servers' logs of a failed test, which are removed with their folders.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (number, place) in self.places.iter().enumerate() {
                super::note(&format!("server {number} said:\n{}", place.log()));
            }
        }
    }
}

/// Sends a call that must succeed.
#[track_caller]
fn ask(to: SocketAddr, method: &str, path: &str, body: &serde_json::Value) -> serde_json::Value {
    match super::http::Client::default().call(to, method, path, Some(body)) {
        super::http::Reply::Answer(200..=299, answer) => answer,
        other => panic!("{method} {path} {body}: {other:?}"),
    }
}
