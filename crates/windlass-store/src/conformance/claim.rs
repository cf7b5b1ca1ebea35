//! Claims: matching jobs, their order, and their state afterwards.

use super::fixtures::{Rig, ask, at, id, ids, job, queue, scope, tenant};
use crate::ClaimAsk;
use std::collections::BTreeSet;
use windlass_core::event::Patch;
use windlass_core::lease::RunKind;
use windlass_core::{Event, Holder, NameMatch, StateName, Tenant, Token};

pub(super) async fn jobs_come_by_priority_then_time_then_id(rig: &Rig) {
    // (queue, priority, run_at): the order of the ids is not the order of any of these.
    let drafts = [("a", 0, 5), ("b", 0, 5), ("a", -1, 9), ("b", 7, 0), ("a", 0, 4), ("c", i32::MIN, 9)];
    let drafts =
        drafts.map(|(queue, priority, run_at)| job("x").queue(queue).priority(priority).run_at(run_at));
    rig.insert(drafts.into()).await;
    let preview = ClaimAsk { queues: vec![queue("a")], limit: 1, ..ask() };
    assert_eq!(ids(&rig.claim(preview, at(10)).await), [3], "within one queue");
    let rest = rig.claim(ask(), at(10)).await;
    assert_eq!(
        ids(&rest),
        [6, 5, 1, 2, 4],
        "across queues: smaller priority, then earlier time, then smaller id"
    );
}

pub(super) async fn no_job_is_given_out_before_its_time(rig: &Rig) {
    rig.insert(vec![job("a").run_at(100), job("b").run_at(101), job("c").run_at(100).priority(5)]).await;
    assert!(rig.claim(ask(), at(99)).await.is_empty(), "nothing is due at 99");
    assert_eq!(ids(&rig.claim(ask(), at(100)).await), [1, 3], "due to the millisecond");
    assert_eq!(ids(&rig.claim(ask(), at(101)).await), [2]);

    let later = rig.push(job("d")).await.id;
    let patch = Patch { run_at: Some(at(500)), ..Patch::default() };
    rig.happen(later, Event::Update(Box::new(patch)), at(101)).await;
    assert!(rig.claim(ask(), at(499)).await.is_empty(), "a job put off is not given out at its old time");

    // The clock may be set back: a job due an hour ahead is not due now.
    let hour_ms = 3_600_000;
    rig.push(job("e").run_at(hour_ms)).await;
    rig.store.due(at(2 * hour_ms), 10).await.expect("due");
    assert!(rig.claim(ask(), at(400)).await.is_empty(), "the present moment counts, not the latest one seen");
    assert_eq!(ids(&rig.claim(ask(), at(hour_ms)).await), [4, 5]);
}

/// Calls may reach the store out of order. Within a second the store may use the later time for both, but it
/// has to answer, and no returned job may be early by the store's own time.
pub(super) async fn a_call_that_read_its_clock_earlier_is_answered(rig: &Rig) {
    rig.insert(vec![job("a").run_at(5_000), job("b").run_at(4_000), job("c").run_at(5_000).priority(-1)])
        .await;
    rig.store.due(at(5_500), 10).await.expect("due");
    for now in [4_999, 5_500] {
        for given in rig.claim(ask(), at(now)).await {
            let granted_at = given.state().lease().map(|lease| lease.granted_at);
            let early = granted_at < Some(given.progress.due_at);
            assert!(!early, "job {} was given out at {granted_at:?}, before its time", given.id);
        }
    }
    for number in 1..=3 {
        let state = rig.get(id(number)).await.state().name();
        assert_eq!(state, StateName::Running, "job {number} was given out by one call or the other");
    }
}

pub(super) async fn names_are_matched_as_asked(rig: &Rig) {
    let names = ["mail", "mail.out", "mail.in", "mai", "report", "Mail", "m*l", "žurnál", "mailx"];
    rig.insert(names.map(job).into()).await;
    let one_of = NameMatch::OneOf(vec!["report".into(), "mai".into(), "absent".into(), "report".into()]);
    let cases = [
        NameMatch::Exact("mail".into()),
        NameMatch::Exact("absent".into()),
        NameMatch::Exact("m*l".into()),
        one_of,
        NameMatch::OneOf(vec![]),
        NameMatch::NoneOf(vec!["mail".into(), "absent".into()]),
        NameMatch::NoneOf(vec![]),
        NameMatch::glob("mail.*"),
        NameMatch::glob("[mM]ail"),
        NameMatch::glob("ma?l*"),
        NameMatch::glob("*al"),
        NameMatch::glob("ž*"),
        NameMatch::Any,
    ];
    for wanted in cases {
        let expected: Vec<u64> =
            (1..).zip(names).filter(|(_, name)| wanted.matches(name)).map(|(id, _)| id).collect();
        let claimed = rig.claim(ClaimAsk { names: wanted.clone(), ..ask() }, at(0)).await;
        assert_eq!(ids(&claimed), expected, "names asked for: {wanted:?}");
        for job in claimed {
            let by = windlass_core::Holder::Anyone;
            rig.happen(job.id, Event::Release { by, run_at: at(0), counts: false }, at(0)).await;
        }
    }
}

pub(super) async fn queues_priority_and_limit_are_as_asked(rig: &Rig) {
    let drafts = [("a", 1), ("b", 2), ("c", 1), ("a", 2), ("b", 1), ("c", 3)];
    rig.insert(drafts.map(|(queue, priority)| job("x").queue(queue).priority(priority)).into()).await;

    let nothing = rig.claim(ClaimAsk { limit: 0, ..ask() }, at(0)).await;
    assert!(nothing.is_empty(), "a limit of zero");
    let absent = ClaimAsk { queues: vec![queue("absent")], ..ask() };
    assert!(rig.claim(absent, at(0)).await.is_empty(), "a queue without jobs");
    let three = ClaimAsk { priority: Some(3), ..ask() };
    assert_eq!(ids(&rig.claim(three, at(0)).await), [6], "only priority 3");
    let two_queues = ClaimAsk { queues: vec![queue("b"), queue("a")], limit: 3, ..ask() };
    assert_eq!(ids(&rig.claim(two_queues, at(0)).await), [1, 5, 2], "the best three of queues a and b");
    let repeated = ClaimAsk { queues: vec![queue("a"), queue("a")], ..ask() };
    assert_eq!(ids(&rig.claim(repeated, at(0)).await), [4], "a queue named twice");
    assert_eq!(ids(&rig.claim(ask(), at(0)).await), [3], "no queues named: any queue");
}

/// Claims of all kinds, twice: what one with a scope looked through must not be shown to one with another, or none.
pub(super) async fn a_claim_gets_no_job_outside_its_scope(rig: &Rig) {
    let drafts = [("a", "x"), ("b", "x"), ("a", "y"), ("b", "y"), ("ab", "x"), ("b", "z")];
    rig.insert(drafts.map(|(queue, name)| job(name).queue(queue)).into()).await;
    let glob = |pattern: &str| NameMatch::glob(pattern);
    let cases: [(ClaimAsk, &[u64]); 8] = [
        (ClaimAsk { scope: scope(&["a"]), ..ask() }, &[1, 3]),
        (ClaimAsk { scope: scope(&["a*"]), names: glob("[x]"), ..ask() }, &[1, 5]),
        (ClaimAsk { scope: scope(&["a"]), queues: vec![queue("a"), queue("b")], ..ask() }, &[1, 3]),
        (ClaimAsk { scope: scope(&["a"]), queues: vec![queue("b")], names: glob("x"), ..ask() }, &[]),
        (ClaimAsk { scope: scope(&["b/[yz]"]), queues: vec![queue("b")], ..ask() }, &[4, 6]),
        (ClaimAsk { scope: scope(&["b/y", "a/x"]), names: glob("*"), ..ask() }, &[1, 4]),
        (ClaimAsk { scope: scope(&["*/x"]), priority: Some(0), ..ask() }, &[1, 2, 5]),
        (ClaimAsk { names: glob("*"), ..ask() }, &[1, 2, 3, 4, 5, 6]),
    ];
    for (case, expected) in cases.iter().chain(cases.iter().rev()) {
        let given = rig.claim(case.clone(), at(0)).await;
        assert_eq!(ids(&given), *expected, "{:?} {:?} {:?}", case.scope, case.queues, case.names);
        for job in given {
            let token = job.state().lease().expect("a lease").token;
            rig.happen(job.id, Event::Return { by: Holder::Token(token) }, at(0)).await;
        }
    }
}

pub(super) async fn tenants_do_not_see_each_other(rig: &Rig) {
    rig.insert(vec![job("x").tenant("a"), job("x").tenant("b"), job("x").tenant("a.b")]).await;
    assert!(rig.claim(ask(), at(0)).await.is_empty(), "the default tenant has no jobs");
    for (number, text) in [(2, "b"), (1, "a"), (3, "a.b")] {
        let own = ClaimAsk { tenant: tenant(text), ..ask() };
        assert_eq!(ids(&rig.claim(own, at(0)).await), [number], "jobs of tenant {text}");
    }
}

pub(super) async fn a_paused_queue_gives_out_nothing(rig: &Rig) {
    let pause = async |tenant: &Tenant, text: &str, paused| {
        rig.store.set_paused(tenant, &queue(text), paused).await.expect("set_paused");
    };
    let other = tenant("other");
    pause(&Tenant::default(), "a", true).await;
    rig.insert(vec![job("x").queue("a"), job("x").queue("b"), job("x").queue("a").tenant("other")]).await;
    assert_eq!(ids(&rig.claim(ask(), at(0)).await), [2], "queue a is paused, also for jobs that came later");
    let named = || ClaimAsk { queues: vec![queue("a")], ..ask() };
    assert!(rig.claim(named(), at(0)).await.is_empty(), "asking for it by name changes nothing");
    let elsewhere = rig.claim(ClaimAsk { tenant: other.clone(), ..named() }, at(0)).await;
    assert_eq!(ids(&elsewhere), [3], "another tenant's queue of the same name is not paused");

    pause(&Tenant::default(), "a", true).await;
    pause(&other, "a", false).await;
    assert!(
        rig.claim(named(), at(0)).await.is_empty(),
        "going on with one tenant's queue leaves others paused"
    );
    pause(&Tenant::default(), "a", false).await;
    assert_eq!(ids(&rig.claim(named(), at(0)).await), [1], "the queue goes on");

    // A pause does not affect a run that has started.
    pause(&Tenant::default(), "a", true).await;
    rig.happen(id(1), super::fixtures::finish(), at(0)).await;
}

pub(super) async fn a_claim_is_committed(rig: &Rig) {
    rig.insert(vec![job("a").lease_ms(Some(700)), job("b").lease_ms(None), job("c")]).await;
    let claim = ask();
    let claimed = rig.claim(claim.clone(), at(50)).await;
    assert_eq!(ids(&claimed), [1, 2, 3]);
    for given in &claimed {
        assert_eq!(rig.get(given.id).await, *given, "what is given out is what is stored");
        let lease = given.state().lease().expect("a claimed job has a lease");
        assert_eq!((given.version, given.progress.attempts), (2, 1));
        assert_eq!(lease.token, Token::new(2, claim.random(given.id)), "the token follows from the ask");
        assert_eq!((lease.granted_at, lease.worker.clone()), (at(50), claim.worker.clone()));
    }
    let untils: Vec<_> =
        claimed.iter().map(|job| job.state().lease().and_then(|lease| lease.until)).collect();
    assert_eq!(untils, [Some(at(750)), None, Some(at(30_050))], "as long as the policy says");
    assert!(
        rig.claim(ask(), at(99_999)).await.is_empty(),
        "nobody else is given the same job, lease ended or not"
    );

    rig.push(job("d").lease_ms(None)).await;
    let overridden = rig.claim(ClaimAsk { lease_ms: Some(10), worker: None, ..ask() }, at(60)).await;
    let lease = overridden[0].state().lease().expect("a claimed job has a lease");
    assert_eq!((lease.until, &lease.worker), (Some(at(70)), &None), "as long as the claim asks for");
}

pub(super) async fn waiting_and_settled_jobs_are_not_given_out(rig: &Rig) {
    for state in StateName::ALL {
        rig.job_in(state, job(state.as_str())).await;
    }
    let claimed = rig.claim(ask(), at(1_000)).await;
    let names: Vec<&str> = claimed.iter().map(|job| job.spec.name.as_str()).collect();
    assert_eq!(names, ["ready", "terminating"]);
}

pub(super) async fn a_job_being_terminated_gets_its_last_run(rig: &Rig) {
    rig.insert(vec![job("a").priority(5), job("b").priority(9), job("c").priority(7)]).await;
    rig.happen(id(3), Event::Terminate, at(20)).await;
    assert!(rig.claim(ClaimAsk { priority: Some(7), ..ask() }, at(19)).await.is_empty());
    let claimed = rig.claim(ask(), at(20)).await;
    assert_eq!(ids(&claimed), [1, 3, 2], "in order with the others");
    assert_eq!(claimed[1].state().lease().map(|lease| lease.kind), Some(RunKind::Shutdown));
}

pub(super) async fn a_job_is_found_where_it_was_moved_to(rig: &Rig) {
    rig.insert(vec![job("a").queue("old"), job("b").queue("old")]).await;
    let patch = Patch {
        queue: Some(queue("new")),
        name: Some(super::fixtures::name("c")),
        priority: Some(-4),
        ..Patch::default()
    };
    rig.happen(id(1), Event::Update(Box::new(patch)), at(0)).await;
    let by_old_name = ClaimAsk { names: NameMatch::Exact("a".into()), ..ask() };
    assert!(rig.claim(by_old_name, at(0)).await.is_empty(), "nothing is left under the old name");
    let old = ClaimAsk { queues: vec![queue("old")], ..ask() };
    assert_eq!(ids(&rig.claim(old, at(0)).await), [2]);
    let new = ClaimAsk {
        queues: vec![queue("new")],
        priority: Some(-4),
        names: NameMatch::Exact("c".into()),
        ..ask()
    };
    assert_eq!(ids(&rig.claim(new, at(0)).await), [1]);
}

pub(super) async fn rival_claims_share_no_job(rig: &Rig) {
    rig.insert((0..150).map(|n| job("a").priority(n % 3)).collect()).await;
    let rivals = (0..50).map(|seed| {
        let store = rig.store.clone();
        tokio::spawn(async move { store.claim(ClaimAsk { limit: 4, seed, ..ask() }, at(0)).await })
    });
    let mut given = BTreeSet::new();
    for rival in rivals.collect::<Vec<_>>() {
        for job in rival.await.expect("the task ran").expect("claim") {
            assert!(given.insert(job.id), "job {} was given out twice", job.id);
        }
    }
    assert_eq!(given.len(), 150, "as many asked for more than there was");
}
