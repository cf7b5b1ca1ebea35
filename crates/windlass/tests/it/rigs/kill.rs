//! `kill -9` at random moments under load, with a restart on the same data, repeatedly.

use super::dice::Dice;
use super::dump::Dump;
use super::load::Load;
use super::process::Place;
use super::quiet::{CLIENTS, assert_kept, assert_no_panic, drain, release_held, tally};
use super::{seed, setting};
use std::time::{Duration, Instant};

#[test]
fn what_was_acknowledged_survives_kill_9_again_and_again() {
    let (seed, kills) = (seed(2), setting("WINDLASS_KILLS", 25));
    let began = Instant::now();
    let mut dice = Dice::new(seed);
    let place = Place::new();
    let mut server = place.start();
    let load = Load::new();
    load.set_address(Some(server.http));
    let clients: Vec<_> = (0..CLIENTS).map(|number| load.client(number, seed)).collect();
    for kill in 1..=kills {
        std::thread::sleep(Duration::from_millis(dice.range(1, 250)));
        server.kill();
        load.set_address(None);
        assert_no_panic(&place);
        // Also right after the start, before any request, and during the start.
        if dice.percent(20) {
            drop(place.start());
        }
        server = load.in_silence(|| {
            // Beside a server and without one: the store is intact either way.
            let checked = (kill % 5 == 0).then(|| place.check().json());
            let server = place.start();
            let dump = Dump::take(server.http);
            assert_kept(&load, &dump, "kill", seed);
            let checked = checked.unwrap_or_else(|| place.check().json());
            assert_eq!(checked["ok"], true, "after kill {kill}, seed {seed}: {checked}");
            server
        });
        load.set_address(Some(server.http));
    }
    load.end();
    clients.into_iter().for_each(|client| client.join().unwrap());
    release_held(&load, server.http);
    drain(&load, server.http);
    let dump = Dump::take(server.http);
    assert_kept(&load, &dump, "kill", seed);
    let (records, jobs) = (load.history.records().len(), dump.jobs.len());
    println!(
        "kill, seed {seed}: {kills} kills, {records} operations, {jobs} jobs at the end, {:.0?}; {:?}",
        began.elapsed(),
        tally(&load)
    );
}
