use super::*;

fn id(number: u64) -> JobId {
    JobId::new(number).unwrap()
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn token(number: u64) -> Token {
    Token::from_number(number)
}

fn held(number: u64, worker: WorkerId) -> Held {
    Held { token: token(number), worker, attempt: 1, until: at(100_000), is_accepted: false }
}

fn workers(all: &[(&str, u32)]) -> Workers<()> {
    let mut table = Workers::default();
    for (id, max_jobs) in all {
        table.register((*id).into(), *max_jobs, (), false);
    }
    table
}

fn assign(table: &mut Workers<()>, name: &str, number: u64) -> Option<String> {
    table.assign(name, id(number), |worker| held(number, worker)).map(|(worker, ())| worker.to_string())
}

#[test]
fn the_one_with_least_to_do_gets_the_job_and_nobody_more_than_it_takes() {
    let mut table = workers(&[("a", 2), ("b", 3)]);
    let given: Vec<_> = (1..=6).map(|number| assign(&mut table, "t", number)).collect();
    let expected = [Some("a"), Some("b"), Some("a"), Some("b"), Some("b"), None];
    assert_eq!(given.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
    assert_eq!(table.next_claim(), None);
    assert!(table.ended(id(1), token(1)));
    assert!(!table.ended(id(1), token(1)), "one end frees one place");
    assert!(!table.ended(id(2), token(9)), "another lease's end is not this one's");
    assert_eq!(table.next_claim().unwrap().slots, 1);
    assert_eq!(assign(&mut table, "t", 7).as_deref(), Some("a"));
}

#[test]
fn a_name_that_every_free_worker_refuses_is_not_asked_for() {
    let mut table = workers(&[("a", 1), ("b", 1)]);
    assert_eq!(table.refuses("a", "mail"), None);
    assert_eq!(table.next_claim().unwrap().names, NameMatch::Any);
    assert_eq!(assign(&mut table, "mail", 1).as_deref(), Some("b"));
    assert_eq!(table.next_claim().unwrap().names, NameMatch::NoneOf(vec!["mail".into()]));
    assert_eq!(assign(&mut table, "mail", 2), None);
    assert_eq!(assign(&mut table, "other", 3).as_deref(), Some("a"));
    table.ended(id(1), token(1));
    table.ended(id(3), token(3));
    table.refuses("b", "other");
    assert_eq!(table.next_claim().unwrap().names, NameMatch::Any, "each is taken by one of them");
    table.register("a2".into(), 1, (), false);
    assert_eq!(assign(&mut table, "mail", 4).as_deref(), Some("b"), "longest registered first");
}

#[test]
fn three_failures_in_a_row_are_the_end_of_a_worker() {
    let mut table = workers(&[("a", 4)]);
    assign(&mut table, "t", 1);
    assert_eq!(table.accept(id(1), token(1), at(30_000)), Acceptance::Runs);
    assert_eq!(table.failed("a", at(0)), AfterFailure::Rests);
    assert_eq!(table.next_claim(), None, "it rests");
    assert_eq!(table.next_change(), Some(at(REST_MS)));
    table.pass(at(REST_MS));
    assert!(table.next_claim().is_some());
    table.failed("a", at(0));
    table.pass(at(10_000));
    assign(&mut table, "t", 2);
    assert_eq!(table.accept(id(2), token(2), at(30_000)), Acceptance::Runs, "which makes it three new ones");
    table.failed("a", at(0));
    table.failed("a", at(0));
    let AfterFailure::Removed(mut removed) = table.failed("a", at(0)) else { panic!("three in a row") };
    removed.jobs.sort_unstable();
    assert_eq!(removed.jobs, [(id(1), token(1)), (id(2), token(2))]);
    assert_eq!(table.failed("a", at(0)), AfterFailure::Unknown);
}

#[test]
fn a_fixed_worker_rests_but_is_never_dropped() {
    let mut table = Workers::default();
    table.register("a".into(), 1, (), true);
    for _ in 0..10 {
        assert_eq!(table.failed("a", at(0)), AfterFailure::Rests);
    }
    assert_eq!(table.next_change(), Some(at(REST_MS * i64::from(FAILURES_MAX))));
}

#[test]
fn only_who_has_pinged_has_to_go_on_pinging() {
    let mut table = workers(&[("quiet", 1), ("loud", 1)]);
    assert_eq!(table.pinged("loud", at(1_000)), Some(true));
    assert_eq!(table.pinged("loud", at(2_000)), Some(false));
    assert_eq!(table.pinged("nobody", at(0)), None);
    assert_eq!(table.pass(at(2_000 + PING_MS_MAX - 1)), Passed::default());
    let removed = table.pass(at(2_000 + PING_MS_MAX)).removed;
    assert_eq!(removed.iter().map(|removed| &*removed.worker).collect::<Vec<_>>(), ["loud"]);
    assert!(table.knows("quiet") && !table.knows("loud"));
}

#[test]
fn a_worker_that_leaves_takes_only_what_it_had_accepted() {
    let mut table = workers(&[("a", 4), ("b", 1)]);
    for number in 1..=3 {
        assign(&mut table, "t", number);
    }
    table.accept(id(1), token(1), at(0));
    assert_eq!(table.remove("a").unwrap().jobs, [(id(1), token(1))]);
    assert_eq!(table.accept(id(3), token(3), at(0)), Acceptance::WorkerGone);
    assert_eq!(table.remove("a"), None);
    table.ended(id(3), token(3));
    assert_eq!(table.accept(id(3), token(3), at(0)), Acceptance::Ended);
}

#[test]
fn jobs_from_before_a_restart_take_the_places_of_their_workers() {
    let mut table = workers(&[("a", 2)]);
    table.adopt(id(1), Held { is_accepted: true, ..held(1, "a".into()) });
    table.adopt(id(2), held(2, "gone".into()));
    assert_eq!(table.next_claim().unwrap().slots, 1);
    assert_eq!(table.next_change(), Some(at(105_000)));
    let passed = table.pass(at(105_000));
    assert_eq!(passed.overdue.len(), 2);
    assert_eq!(table.pass(at(105_001)).overdue.len(), 0, "not over and over");
    assert!(table.ended(id(1), token(1)));
    assert!(!table.ended(id(2), token(2)), "nobody's place was taken");
}

#[test]
fn a_worker_may_be_registered_after_its_jobs_were_found() {
    let mut table = workers(&[]);
    let runs = |number| Held { is_accepted: true, ..held(number, "a".into()) };
    table.adopt(id(1), runs(1));
    table.adopt(id(2), runs(2));
    table.register("a".into(), 2, (), false);
    assert_eq!(table.next_claim(), None, "both of its places are taken");
    table.register("a".into(), 9, (), false);
    assert_eq!((table.next_claim(), table.roster().count()), (None, 1), "it is registered once");
    assert!(table.ended(id(1), token(1)));
    assert_eq!(table.next_claim().unwrap().slots, 1);
}

#[test]
fn what_a_worker_has_goes_with_it_to_another_server() {
    let mut table = workers(&[("a", 2), ("b", 1)]);
    assign(&mut table, "t", 1);
    assign(&mut table, "t", 2);
    table.accept(id(1), token(1), at(0));
    table.release("a");
    assert!(!table.knows("a") && table.knows("b"));
    assert_eq!((table.held(id(1)), table.held(id(2)).is_some()), (None, true));
    assert_eq!(table.remove("a"), None, "nothing of it is lost here");
    assert_eq!(table.accept(id(1), token(1), at(0)), Acceptance::Ended);
    assert_eq!(table.next_claim(), None, "b has its job");
}

#[test]
fn a_ping_that_is_heard_of_late_moves_nothing_back() {
    let mut table = workers(&[("a", 1)]);
    table.pinged("a", at(5_000));
    assert_eq!(table.pinged("a", at(1_000)), Some(false));
    assert_eq!(table.pass(at(5_000 + PING_MS_MAX - 1)), Passed::default());
}

#[test]
fn who_refuses_everything_is_let_go() {
    let mut table = workers(&[("a", 1)]);
    for number in 0..REFUSED_NAMES_MAX {
        assert_eq!(table.refuses("a", &format!("n{number}")), None);
    }
    assert_eq!(table.refuses("a", "one more").unwrap().worker, "a".into());
}

#[test]
fn thousands_of_workers_are_found_by_what_they_do() {
    let mut table = Workers::default();
    for number in 0..5_000 {
        table.register(format!("w{number}").into(), 2, (), false);
    }
    for number in 1..=10_000 {
        assert!(assign(&mut table, "t", number).is_some());
    }
    assert_eq!(table.next_claim(), None);
    for number in 1..=10_000 {
        assert!(table.ended(id(number), token(number)));
    }
    assert_eq!(table.next_claim().unwrap().slots, 10_000);
}

#[test]
fn one_that_leaves_ends_what_it_has_and_is_not_lost_for_saying_no() {
    let mut table = workers(&[("a", 4), ("b", 1)]);
    assign(&mut table, "t", 1);
    table.accept(id(1), token(1), at(30_000));
    assert!(!table.leaving("nobody"));
    assert!(table.leaving("a"));
    assert_eq!(table.next_claim().unwrap().slots, 1, "only the other one takes more");
    for _ in 0..=FAILURES_MAX {
        assert_eq!(table.failed("a", at(0)), AfterFailure::Rests, "what was on its way comes back");
    }
    table.pass(at(10_000));
    assert_eq!(table.next_claim().unwrap().slots, 1, "nor after its rest");
    assert!(table.take_left().is_empty());
    table.ended(id(1), token(1));
    assert_eq!(table.take_left(), ["a".into()]);
    assert!(!table.knows("a"));
    assert!(table.take_left().is_empty(), "told once");
    assert!(table.leaving("b"));
    assert_eq!(table.take_left(), ["b".into()], "who has nothing is gone at once");
    assert_eq!(table.next_claim(), None);
}

#[test]
fn a_job_that_comes_again_before_its_end_is_heard_of_takes_one_place() {
    let mut table = workers(&[("a", 2), ("b", 1)]);
    assert_eq!(assign(&mut table, "t", 1).as_deref(), Some("a"));
    let again = table.assign("t", id(1), |worker| held(9, worker)).map(|(worker, ())| worker.to_string());
    assert_eq!(again.as_deref(), Some("a"));
    assert!(!table.ended(id(1), token(1)), "heard of late: its place went to the next attempt");
    assert_eq!(table.next_claim().unwrap().slots, 2);
    assert!(table.ended(id(1), token(9)));
    assert_eq!(table.next_claim().unwrap().slots, 3);
}

#[test]
fn a_job_changes_the_plan_only_if_it_is_to_be_looked_at_sooner() {
    let mut table = workers(&[("a", 4)]);
    assert!(table.is_before_plan(at(30_000)), "nothing is planned");
    table.pinged("a", at(0));
    assert_eq!(table.plan(), Some(at(PING_MS_MAX)));
    assert!(!table.is_before_plan(at(30_000)));
    assert!(!table.is_before_plan(at(PING_MS_MAX)));
    assert!(table.is_before_plan(at(1_000)));
}
