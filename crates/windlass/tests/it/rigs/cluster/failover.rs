//! Failover: a primary stops answering in one of several ways, its standby takes over, and later the other
//! way round. Clients get retryable errors, no acknowledged change is lost, and pushes work again within
//! seconds of the promotion.
//!
//! `WINDLASS_LONG` tests every fault, with synchronous and asynchronous standbys.

use super::faults::{Rig, rounds};
use super::postgres_server::{Disk, PostgresServer};
use super::wire::Wire;
use crate::rigs::{note, seed};
use std::time::Duration;

/// Fault of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Processes suspended: the kernel accepts connections, and nothing answers.
    Frozen,
    /// Network that drops every packet.
    Silent,
    /// Power off: nothing answers.
    PoweredOff,
    /// Orderly stop, as by an operator.
    SwitchOver,
}

/// Primary and standby, behind two addresses.
struct Pair {
    primary: PostgresServer,
    standby: PostgresServer,
    primary_wire: Wire,
    standby_wire: Wire,
    is_synchronous: bool,
}

impl Pair {
    fn start(is_synchronous: bool) -> Pair {
        let primary = PostgresServer::start(Disk::Safe, &[]);
        let standby = primary.start_standby();
        if is_synchronous {
            primary.wait_for_standby();
        }
        let (primary_wire, standby_wire) = (Wire::to(primary.port()), Wire::to(standby.port()));
        Pair { primary, standby, primary_wire, standby_wire, is_synchronous }
    }

    fn url(&self) -> String {
        let (one, two) = (self.primary_wire.port(), self.standby_wire.port());
        format!("postgres://postgres@127.0.0.1:{one},127.0.0.1:{two}/postgres")
    }

    fn strike(&self, fault: Fault) {
        match fault {
            Fault::Frozen => self.primary.freeze(),
            Fault::Silent => self.primary_wire.darken(),
            Fault::PoweredOff => {
                self.primary_wire.darken();
                self.primary.kill();
            }
            Fault::SwitchOver => self.primary.stop(),
        }
    }

    /// The old primary wakes up and still acts as primary; no server may follow it. Then it is removed, and a
    /// new standby replaces it.
    fn change_places(self, fault: Fault) -> Pair {
        if fault == Fault::Frozen {
            self.primary.thaw();
            std::thread::sleep(Duration::from_millis(500));
        }
        drop(self.primary);
        let standby = self.standby.start_standby();
        if self.is_synchronous {
            self.standby.wait_for_standby();
        }
        self.primary_wire.lead_to(standby.port());
        Pair {
            primary: self.standby,
            standby,
            primary_wire: self.standby_wire,
            standby_wire: self.primary_wire,
            is_synchronous: self.is_synchronous,
        }
    }
}

/// Fails over by each fault in turn. Afterwards every invariant holds, unless the standby lacked the last
/// commits.
fn fail_over(is_synchronous: bool, faults: &[Fault], number: u64) {
    let mut pair = Pair::start(is_synchronous);
    let mut rig = Rig::start(&pair.url(), &[], seed(number));
    for fault in faults {
        pair.strike(*fault);
        std::thread::sleep(Duration::from_millis(1_500));
        pair.standby.promote();
        rig.until_back();
        // A server can also start while the first host is down.
        rig.cluster.kill(1);
        rig.cluster.resume(1);
        rig.load.set_addresses(rig.cluster.addresses());
        rig.until_back();
        pair = pair.change_places(*fault);
        std::thread::sleep(Duration::from_millis(300));
    }
    let what = format!("failover {faults:?}, synchronous: {is_synchronous}");
    if is_synchronous || faults.iter().all(|fault| *fault == Fault::SwitchOver) {
        rig.end(&what);
    } else {
        rig.end_unchecked();
        note(&what);
    }
}

fn is_long() -> bool {
    std::env::var_os("WINDLASS_LONG").is_some()
}

#[test]
fn a_frozen_primary_is_left_for_its_standby_and_nobody_goes_back_to_it() {
    fail_over(true, &[Fault::Frozen], 36);
}

#[test]
fn a_primary_that_is_cut_off_is_left_for_its_standby_and_an_operator_can_switch_back() {
    fail_over(true, &[Fault::Silent, Fault::SwitchOver], 37);
}

#[test]
fn every_way_to_lose_a_primary_is_survived() {
    if !is_long() {
        return;
    }
    let all = [Fault::Frozen, Fault::PoweredOff, Fault::Silent, Fault::SwitchOver, Fault::PoweredOff];
    for round in 0..rounds() {
        fail_over(true, &all, 100 + round);
        fail_over(false, &[Fault::SwitchOver, Fault::SwitchOver], 200 + round);
        fail_over(false, &all, 300 + round);
    }
}
