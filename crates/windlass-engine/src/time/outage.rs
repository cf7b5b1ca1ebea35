//! Times in which workers could not reach the jobs: before the server started, and while its store did not
//! answer. Leases that ended then say nothing about their workers.

use parking_lot::Mutex;
use windlass_core::{Lease, Timestamp};
use windlass_store::Store;

/// Time that workers have to send their next heartbeat after an outage: libraries try again at least every five
/// seconds.
const AFTERWARDS_MS: i64 = 10_000;

#[derive(Debug)]
pub(crate) struct Outages(Mutex<Known>);

#[derive(Debug)]
struct Known {
    /// Start of the current outage.
    since: Option<Timestamp>,
    /// Start and end of the last outage.
    last: Option<(Timestamp, Timestamp)>,
}

impl Outages {
    /// `since`: time from which no server was there; `None`: unknown.
    pub(crate) fn at_start(now: Timestamp, since: Option<Timestamp>) -> Outages {
        Outages(Mutex::new(Known { since: None, last: since.map(|since| (since, now)) }))
    }

    /// Time from which no server used the store: on a store of its own, any time before the start.
    pub(crate) fn before(store: &dyn Store) -> Option<Timestamp> {
        match store.shared() {
            Some(shared) => shared.seen_before(),
            None => Some(Timestamp::from_millis(i64::MIN)),
        }
    }

    pub(crate) fn store_failed(&self, now: Timestamp) {
        self.0.lock().since.get_or_insert(now);
    }

    pub(crate) fn store_answered(&self, now: Timestamp) {
        let mut known = self.0.lock();
        if let Some(since) = known.since.take() {
            known.last = Some((since, now));
        }
    }

    /// True if the lease could not be extended because of an outage.
    pub(crate) fn excuse(&self, lease: &Lease) -> bool {
        let last = self.0.lock().last;
        let (Some((from, to)), Some(until)) = (last, lease.until) else { return false };
        lease.granted_at < to && until >= from && until <= to.plus_ms(AFTERWARDS_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::Token;
    use windlass_core::lease::{Afterwards, RunKind};

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn lease(granted_at: i64, until: i64) -> Lease {
        Lease {
            token: Token::from_number(1),
            worker: None,
            granted_at: at(granted_at),
            until: Some(at(until)),
            kind: RunKind::Perform,
            afterwards: Afterwards::Settle,
            cancel_asked: false,
            ahead: false,
        }
    }

    #[test]
    fn leases_from_before_the_start_are_excused_until_shortly_after_it() {
        let outages = Outages::at_start(at(100_000), Some(at(20_000)));
        for (granted_at, until, excused) in [
            (10_000, 19_999, false),
            (10_000, 40_000, true),
            (90_000, 110_000, true),
            (90_000, 110_001, false),
            (100_000, 101_000, false),
        ] {
            assert_eq!(outages.excuse(&lease(granted_at, until)), excused, "{granted_at} to {until}");
        }
        assert!(
            !Outages::at_start(at(100_000), None).excuse(&lease(10_000, 40_000)),
            "others may have been there"
        );
    }

    #[test]
    fn leases_that_end_while_the_store_is_away_are_excused() {
        let outages = Outages::at_start(at(0), None);
        outages.store_answered(at(1_000));
        assert!(!outages.excuse(&lease(500, 1_000)));
        outages.store_failed(at(50_000));
        outages.store_failed(at(51_000));
        outages.store_answered(at(60_000));
        outages.store_answered(at(70_000));
        for (granted_at, until, excused) in [
            (40_000, 49_999, false),
            (40_000, 50_000, true),
            (40_000, 70_000, true),
            (40_000, 70_001, false),
            (60_000, 65_000, false),
        ] {
            assert_eq!(outages.excuse(&lease(granted_at, until)), excused, "{granted_at} to {until}");
        }
    }
}
