//! Servers are killed under load repeatedly, while the others continue.

use super::Cluster;
use crate::rigs::dice::Dice;
use crate::rigs::dump::Dump;
use crate::rigs::load::Load;
use crate::rigs::quiet::{assert_kept, drain, release_held, tally};
use crate::rigs::{note, seed, setting};
use std::time::{Duration, Instant};

const SERVERS: usize = 3;
/// Two per server: claims at one server meet pushes and settles at the others.
const CLIENTS: u64 = 6;

#[test]
fn with_three_servers_every_promise_is_kept_while_they_are_killed() {
    let (seed, kills) = (seed(20), setting("WINDLASS_KILLS", 8));
    let began = Instant::now();
    let mut dice = Dice::new(seed);
    let mut cluster = Cluster::start(SERVERS);
    let load = Load::new();
    load.set_addresses(cluster.addresses());
    let clients: Vec<_> = (0..CLIENTS).map(|number| load.client(number, seed)).collect();
    for kill in 1..=kills {
        std::thread::sleep(Duration::from_millis(dice.range(50, 700)));
        let victim = dice.range(0, SERVERS as u64) as usize;
        // Clients notice by a broken connection.
        cluster.kill(victim);
        load.set_addresses(cluster.addresses());
        std::thread::sleep(Duration::from_millis(dice.range(0, 300)));
        if dice.percent(30) {
            let second = (victim + 1) % SERVERS;
            cluster.kill(second);
            load.set_addresses(cluster.addresses());
            cluster.resume(second);
        }
        cluster.resume(victim);
        load.set_addresses(cluster.addresses());
        if kill % 4 == 0 {
            load.in_silence(|| assert_kept(&load, &Dump::take(cluster.http(0)), "cluster", seed));
        }
    }
    load.end();
    clients.into_iter().for_each(|client| client.join().unwrap());
    release_held(&load, cluster.http(0));
    drain(&load, cluster.http(1));
    let dumps: Vec<Dump> = cluster.addresses().into_iter().map(Dump::take).collect();
    for dump in &dumps {
        assert_kept(&load, dump, "cluster", seed);
        assert_eq!(dump.essence(), dumps[0].essence(), "the servers tell different stories");
    }
    let (records, jobs) = (load.history.records().len(), dumps[0].jobs.len());
    note(&format!(
        "cluster, seed {seed}: {kills} kills, {records} operations, {jobs} jobs at the end, {:.0?}; {:?}",
        began.elapsed(),
        tally(&load)
    ));
    cluster.stop();
}
