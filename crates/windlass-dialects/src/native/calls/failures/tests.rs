use super::*;
use std::sync::Arc;
use windlass_core::{Body, JobSpec, JobState, Payload, Policy, Progress};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// Job whose last error was at this time; `run_at` beyond the time 1,000: it will be tried again.
fn job(
    id: u64,
    (name, queue): (&str, &str),
    class: Option<&str>,
    message: &str,
    error_at: i64,
    run_at: i64,
) -> Job {
    let spec = JobSpec {
        tenant: Tenant::default(),
        queue: Queue::new(queue).unwrap(),
        name: Name::new(name).unwrap(),
        payload: Payload::default(),
        priority: 0,
        created_at: at(0),
        policy: Arc::new(Policy::default()),
        extras: None,
    };
    let error = AttemptError {
        at: at(error_at),
        message: message.to_owned(),
        class: class.map(str::to_owned),
        ..AttemptError::default()
    };
    let body = Body { errors: vec![AttemptError::default(), error], ..Body::default() };
    let state = if run_at > 0 { JobState::ready(at(run_at)) } else { JobState::Failed { at: at(error_at) } };
    let progress = Progress { attempts: 1, ..Progress::default() };
    Job::from_parts(JobId::new(id).unwrap(), 1, Arc::new(spec), progress, Some(Arc::new(body)), state)
}

fn grouped(jobs: &[Job]) -> Groups {
    let mut groups = Groups::default();
    jobs.iter().for_each(|job| groups.add(job, at(1_000)));
    groups
}

#[test]
fn jobs_are_grouped_by_name_and_class_or_message() {
    let groups = grouped(&[
        job(5, ("mail", "out"), Some("Timeout"), "after 5 s", 50, 0),
        job(4, ("mail", "in"), Some("Timeout"), "after 9 s", 90, 2_000),
        job(3, ("mail", "out"), None, "user 7 is unknown", 30, 0),
        job(2, ("mail", "out"), None, "user 8 is unknown", 20, 0),
        job(1, ("sms", "out"), Some("Timeout"), "after 1 s", 10, 0),
    ]);
    let shown: Vec<FailureGroup> = groups
        .sorted(Order::Count)
        .into_iter()
        .map(|group| FailureGroup::new(group, "", &STATES, false))
        .collect();
    let told: Vec<String> = shown
        .iter()
        .map(|one| {
            format!(
                "{} {} {}+{} {:?} sample {}",
                one.name, one.title, one.failed, one.retrying, one.queues, one.sample.id.0
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            r#"mail Timeout 1+1 ["in", "out"] sample 4"#,
            r#"mail user * is unknown 2+0 ["out"] sample 3"#,
            r#"sms Timeout 1+0 ["out"] sample 1"#,
        ]
    );
    assert_eq!(shown[0].search, "state:failed,retrying class:Timeout name:mail");
    assert_eq!(shown[1].search, r#"state:failed,retrying group:"user * is unknown" name:mail"#);
    assert_eq!((shown[0].first_at, shown[0].last_at), (at(50).into(), at(90).into()));
}

#[test]
fn groups_are_sorted_by_count_or_by_their_latest_error() {
    let jobs = [
        job(3, ("a", "q"), Some("Many"), "", 10, 0),
        job(2, ("a", "q"), Some("Many"), "", 20, 0),
        job(1, ("a", "q"), Some("Late"), "", 90, 0),
    ];
    let titles = |order| -> Vec<String> {
        grouped(&jobs).sorted(order).into_iter().map(|((_, _, title), _)| title).collect()
    };
    assert_eq!(titles(Order::Count), ["Many", "Late"]);
    assert_eq!(titles(Order::Last), ["Late", "Many"]);
}

#[test]
fn the_search_of_a_group_finds_exactly_its_jobs() {
    let odd = job(1, ("a*b", "q"), Some("Net::[\"x y\"]?"), "m", 1, 0);
    let other = job(2, ("aXb", "q"), Some("Net::[\"x y\"]!"), "m", 1, 0);
    let plain = job(3, ("a*b", "q"), None, "no \"luck\" today", 1, 0);
    for (one, others) in [(&odd, [&other, &plain]), (&plain, [&other, &odd]), (&other, [&odd, &plain])] {
        let group = grouped(std::slice::from_ref(one)).sorted(Order::Count).remove(0);
        let text = FailureGroup::new(group, "", &STATES, true).search;
        let admin = crate::auth::Caller::unnamed(crate::auth::Role::Admin);
        let search = Search::parse(&text, &admin, None).unwrap();
        assert!(search.finds(one, at(1_000)), "{text}");
        assert!(others.iter().all(|other| !search.finds(other, at(1_000))), "{text}");
    }
}

#[test]
fn only_states_with_an_error_can_be_asked_for() {
    assert_eq!(asked_states(None).unwrap(), STATES);
    assert_eq!(asked_states(Some("retrying")).unwrap(), [StateWord::Retrying]);
    assert!(asked_states(Some("failed,ready")).unwrap_err().message.contains("not ready"));
}
