//! Traffic of each queue over the last fifteen minutes, for the chart of a queue.

use super::Queues;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use windlass_core::{Queue, Tenant, Timestamp};
use windlass_engine::meters::Traffic;

pub(in crate::native) const STEP: Duration = Duration::from_secs(30);
/// Steps kept: fifteen minutes.
const STEPS_MAX: usize = 30;

/// Steps, oldest first. A step has an entry only for queues with traffic in it, so idle queues take no space.
#[derive(Default)]
pub(super) struct QueueSteps(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Start of the current step, and the counters at that time.
    since: Option<(Instant, Queues)>,
    ended: VecDeque<Step>,
}

struct Step {
    end: Timestamp,
    traffic: HashMap<(Tenant, Queue), Traffic>,
}

impl QueueSteps {
    /// Takes the counters of a sample; ends the current step if it is long enough.
    pub(super) fn sample(&self, at: Instant, time: Timestamp, now: &Queues) {
        let mut kept = self.0.lock();
        let traffic = match &kept.since {
            Some((since, _)) if at.duration_since(*since) < STEP => return,
            Some((_, before)) => grown(now, before),
            None => {
                kept.since = Some((at, now.clone()));
                return;
            }
        };
        if kept.ended.len() == STEPS_MAX {
            kept.ended.pop_front();
        }
        kept.ended.push_back(Step { end: time, traffic });
        kept.since = Some((at, now.clone()));
    }

    /// End of the first step, and the traffic of the queue in each step.
    pub(super) fn of(&self, tenant: &Tenant, queue: &Queue) -> (Option<Timestamp>, Vec<Traffic>) {
        let (kept, key) = (self.0.lock(), (tenant.clone(), queue.clone()));
        let of_step = |step: &Step| step.traffic.get(&key).copied().unwrap_or_default();
        (kept.ended.front().map(|step| step.end), kept.ended.iter().map(of_step).collect())
    }
}

fn grown(now: &Queues, before: &Queues) -> HashMap<(Tenant, Queue), Traffic> {
    let grown = now.iter().map(|(key, now)| {
        let before = before.get(key).copied().unwrap_or_default();
        let traffic = Traffic {
            pushed: now.pushed.saturating_sub(before.pushed),
            claimed: now.claimed.saturating_sub(before.claimed),
        };
        (key.clone(), traffic)
    });
    grown.filter(|(_, traffic)| *traffic != Traffic::default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_queue_has_its_own_steps_and_they_are_bounded() {
        let steps = QueueSteps::default();
        let key = |name: &str| (Tenant::default(), Queue::new(name).unwrap());
        let start = Instant::now();
        for sample in 0..=6 * 40 {
            let counters = [
                (key("busy"), Traffic { pushed: sample * 2, claimed: sample }),
                (key("idle"), Traffic { pushed: 7, claimed: 0 }),
            ];
            let at = Duration::from_secs(5) * u32::try_from(sample).unwrap();
            let time = Timestamp::from_millis(at.as_millis() as i64);
            steps.sample(start + at, time, &Arc::new(counters.into()));
        }
        let of = |name: &str| steps.of(&Tenant::default(), &key(name).1);
        let (first, busy) = of("busy");
        assert_eq!(busy, vec![Traffic { pushed: 12, claimed: 6 }; STEPS_MAX]);
        assert_eq!(first, Some(Timestamp::from_millis(11 * 30_000)));
        assert_eq!(of("idle").1, vec![Traffic::default(); STEPS_MAX]);
        assert!(steps.0.lock().ended.iter().all(|step| step.traffic.len() == 1));
        assert_eq!(QueueSteps::default().of(&Tenant::default(), &key("busy").1), (None, vec![]));
    }
}
