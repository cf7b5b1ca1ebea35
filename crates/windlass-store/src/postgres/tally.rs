//! Changes of the counters that are kept beside the jobs: jobs by lane and state, payload bytes by lane.

use super::lanes::LaneId;
use std::collections::BTreeMap;
use windlass_core::Job;

/// Stands in place of a state: payload bytes of all kept jobs of the lane.
pub(super) const PAYLOAD_BYTES: i16 = 100;

/// Changes of the job counts, by lane and state.
#[derive(Default)]
pub(super) struct Tally {
    changes: BTreeMap<(LaneId, i16), i64>,
}

impl Tally {
    pub(super) fn add(&mut self, lane: LaneId, job: &Job, n: i64) {
        *self.changes.entry((lane, job.state().name() as i16)).or_default() += n;
        let bytes = job.spec.payload.bytes.len();
        if bytes > 0 {
            *self.changes.entry((lane, PAYLOAD_BYTES)).or_default() += n * bytes as i64;
        }
    }

    pub(super) fn columns(self) -> (Vec<LaneId>, Vec<i16>, Vec<i64>) {
        let mut columns = (Vec::new(), Vec::new(), Vec::new());
        for ((lane, state), n) in self.changes.into_iter().filter(|(_, n)| *n != 0) {
            columns.0.push(lane);
            columns.1.push(state);
            columns.2.push(n);
        }
        columns
    }
}
