use super::*;
use windlass_core::{JobId, JobSpec, NameMatch, Payload, Scope, Timestamp, created};

pub(crate) fn claim(names: NameMatch, priority: Option<i32>, limit: usize) -> WaitingClaim {
    WaitingClaim(Arc::new(ClaimAsk {
        tenant: Tenant::default(),
        queues: vec![],
        names,
        scope: Scope::default(),
        priority,
        limit,
        worker: None,
        lease_ms: None,
        seed: 0,
        gate: None,
    }))
}

pub(crate) fn job(name: &str) -> Arc<Job> {
    let at = Timestamp::from_millis(0);
    let spec = JobSpec {
        tenant: Tenant::default(),
        queue: Queue::default(),
        name: Name::new(name).unwrap(),
        payload: Payload::default(),
        priority: 0,
        created_at: at,
        policy: Arc::default(),
        extras: None,
    };
    Arc::new(created(JobId::new(1).unwrap(), Arc::new(spec), at, false, None))
}

fn ready(name: &str, count: Option<usize>) -> ReadyJobs {
    ReadyJobs { queue: Queue::default(), name: Name::new(name).unwrap(), count }
}

#[derive(Default)]
struct Table {
    waiting: Waiting,
}

impl Table {
    /// Adds a waiter that queries, finds nothing and sleeps.
    fn asleep(&mut self, claim: &WaitingClaim) -> Place {
        let place = self.waiting.enter(claim);
        assert!(self.waiting.look(claim, place).is_empty());
        assert_eq!(self.waiting.found_nothing(claim, place, &Arc::default()), LookAgain::No);
        place
    }

    fn announce(&mut self, name: &str, count: usize) {
        self.waiting.announce(&Tenant::default(), ready(name, Some(count)));
    }

    fn is_awake(&mut self, claim: &WaitingClaim, place: Place) -> bool {
        self.waiting.group(claim).unwrap().looking.contains_key(&place)
    }
}

#[test]
fn one_announcement_wakes_the_longest_waiting_match_alone() {
    let mut table = Table::default();
    let (mail, any) = (claim(NameMatch::glob("mail"), None, 1), claim(NameMatch::Any, None, 1));
    let (first, second, third) = (table.asleep(&mail), table.asleep(&any), table.asleep(&mail));
    table.announce("other", 1);
    assert!(table.is_awake(&any, second));
    table.announce("mail", 1);
    assert!(table.is_awake(&mail, first) && !table.is_awake(&mail, third));
}

#[test]
fn a_count_wakes_until_it_can_be_taken() {
    let mut table = Table::default();
    let (one, five) = (claim(NameMatch::Any, None, 1), claim(NameMatch::Any, None, 5));
    let (first, second, third) = (table.asleep(&one), table.asleep(&five), table.asleep(&one));
    table.announce("a", 4);
    assert!(table.is_awake(&one, first) && table.is_awake(&five, second));
    assert!(!table.is_awake(&one, third));
}

#[test]
fn any_number_of_jobs_is_the_duty_of_the_longest_waiting_match() {
    let mut table = Table::default();
    let any = claim(NameMatch::Any, None, 1);
    let (first, second) = (table.asleep(&any), table.asleep(&any));
    table.waiting.announce(&Tenant::default(), ready("a", None));
    assert!(table.is_awake(&any, first) && !table.is_awake(&any, second));
    assert_eq!(table.waiting.look(&any, first).to_vec(), [ready("a", None)]);
}

#[test]
fn a_duty_ends_with_the_jobs_it_is_for() {
    let claimed = [job("a"), job("b"), job("a")];
    let cases = [(Some(1), Some(0)), (Some(2), Some(0)), (Some(3), Some(1)), (None, None)];
    for (count, left) in cases {
        let mut duty = ready("a", count);
        assert_eq!(duty.outlast(&claimed), left != Some(0), "{count:?}");
        assert_eq!(duty.count, left);
    }
}

#[test]
fn a_look_that_may_have_come_too_early_is_repeated() {
    let mut table = Table::default();
    let any = claim(NameMatch::Any, None, 1);
    let place = table.waiting.enter(&any);
    table.waiting.look(&any, place);
    table.announce("a", 1);
    let answer = table.waiting.found_nothing(&any, place, &Arc::default());
    assert_eq!(answer, LookAgain::Yes);
    assert_eq!(table.waiting.look(&any, place).len(), 1);
}

#[test]
fn who_leaves_hands_over_what_it_was_woken_for() {
    let mut table = Table::default();
    let any = claim(NameMatch::Any, None, 1);
    let place = table.asleep(&any);
    table.announce("a", 1);
    let left = table.waiting.leave(&any, place);
    assert_eq!(left.len(), 1);
    assert_eq!(table.waiting.len(), 0);
    assert!(table.waiting.tenants.is_empty(), "nothing is left behind");
    assert!(table.waiting.leave(&any, place).is_empty());
}

#[test]
fn a_group_for_one_priority_is_woken_beside_the_others() {
    let mut table = Table::default();
    let (picky, any) = (claim(NameMatch::Any, Some(3), 1), claim(NameMatch::Any, None, 1));
    let (first, second) = (table.asleep(&picky), table.asleep(&any));
    table.announce("a", 1);
    assert!(table.is_awake(&picky, first) && table.is_awake(&any, second));
}
