//! GetJob and GetJobs: the choice of jobs, and their JSON.

use super::*;
use windlass_core::event::Patch;
use windlass_core::{Event, JobId, Name, Payload, Policy, Queue, Tenant};
use windlass_engine::{Push, RunAt};
use windlass_store::faulty::{Call, FaultyStore, Kind as Fault};

#[tokio::test]
async fn the_checks_come_in_order() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let bad = ("jobPriority", "7");
        let long = "x".repeat(12_751);
        assert_eq!(c.status("GetJob", &[("numResults", "1"), bad]).await, "402 Missing name");
        assert_eq!(c.status("GetJob", &[("name", &long), bad]).await, "402 Malformed name");
        let with_number = [("name", "a"), ("numResults", "1"), bad];
        assert_eq!(
            c.status("GetJob", &with_number).await,
            "402 Cannot use numResults with GetJob; try GetJobs"
        );
        assert_eq!(c.status("GetJobs", &[("name", "a"), bad]).await, "402 Missing numResults");
        assert_eq!(c.status("GetJob", &[("name", "a"), bad]).await, "402 Invalid priority value");
        assert_eq!(c.status("GetJobs", &with_number).await, "402 Invalid priority value");
        assert_eq!(c.status("GetJob", &[("name", "a")]).await, "404 No job found");
        assert_eq!(c.status("GetJobs", &[("name", "a"), ("numResults", "1")]).await, "404 No job found");
    }
}

#[tokio::test]
async fn names_are_exact_lists_or_patterns() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    for (made, wanted, fits) in [
        ("mail", "mail", true),
        ("mail", "Mail", false),
        ("mail/out", "mail*", true),
        ("mail1", "mail?", true),
        ("mailb", "mail[a-c]", true),
        ("maild", "mail[a-c]", false),
        ("mailx", "mail[^x]", false),
        ("b", "a,b,c", true),
        ("b1", "a,b*,c", false),
        ("a,b", "a,b", false),
        ("a,b", "a?b", true),
    ] {
        let id = c.create(made, &[]).await;
        let status = c.status("GetJob", &[("name", wanted)]).await;
        assert_eq!(status, if fits { "200 OK" } else { "404 No job found" }, "{made} for {wanted}");
        if !fits {
            assert_eq!(c.to("DeleteJob", id, &[]).await, "200 OK");
        }
    }
}

#[tokio::test]
async fn larger_priorities_go_first_then_the_one_that_is_due_for_longest() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let low = c.create("a", &[("jobPriority", "0")]).await;
    let late = c.create("a", &[("firstRun", "2024-01-02 00:00:00")]).await;
    let early = c.create("a", &[("firstRun", "2024-01-01 00:00:00")]).await;
    let high = c.create("a", &[("jobPriority", "1000")]).await;
    c.create("a", &[("firstRun", "2024-02-01 00:00:00")]).await;
    let reply = c.ask("GetJobs", &[("name", "a"), ("numResults", "10")]).await.ok().json();
    let ids: Vec<u64> =
        reply["jobs"].as_array().unwrap().iter().map(|job| job["jobID"].as_u64().unwrap()).collect();
    assert_eq!(ids, [high, early, late, low]);
}

#[tokio::test]
async fn one_priority_may_be_asked_for() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    c.create("a", &[("jobPriority", "1000")]).await;
    let low = c.create("a", &[("jobPriority", "0")]).await;
    let job = c.ask("GetJob", &[("name", "a"), ("jobPriority", "0")]).await.ok();
    assert_eq!(job.job_id(), low);
    assert_eq!(c.status("GetJob", &[("name", "a"), ("jobPriority", "0")]).await, "404 No job found");
}

#[tokio::test]
async fn num_results_is_at_least_one() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    for (text, count) in [("2", 2), ("0", 1), ("-5", 1), ("x", 1), ("3x", 3)] {
        for _ in 0..3 {
            c.create(text, &[]).await;
        }
        let reply = c.ask("GetJobs", &[("name", text), ("numResults", text)]).await.ok().json();
        assert_eq!(reply["jobs"].as_array().unwrap().len(), count, "{text}");
    }
}

#[tokio::test]
async fn a_job_is_told_as_it_was_before_this_run() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let id = c.create("a", &[("data", r#"{"x": 1}"#), ("repeat", "FINISHED, +1 HOUR")]).await;
    let first = c.ask("GetJob", &[("name", "a")]).await.ok();
    let expected = format!(
        r#"{{"created":"{START}","data":{{"x": 1}},"jobID":{id},"lastRun":"","name":"a","nextRun":"{START}.000","priority":500,"repeat":"FINISHED, +1 HOUR","retryAfter":""}}"#
    );
    assert_eq!(first.body, expected);
    assert_eq!(c.query(id).await["state"], "RUNNING");
    assert_eq!(c.query(id).await["lastRun"], START);
    assert_eq!(c.next_run(id).await, format!("{START}.000"), "nextRun is untouched");
    server.advance_s(60);
    c.finish(id).await;
    server.advance_s(2 * 3600);
    let second = c.get("a").await;
    assert_eq!(second["lastRun"], START, "that of the run before");
    assert_eq!(second["nextRun"], "2024-01-31 13:01:00");
}

#[tokio::test]
async fn nothing_is_handed_out_before_its_time() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    c.create("a", &[("firstRun", "2024-01-31 12:00:01")]).await;
    c.create("never", &[("firstRun", "zzz")]).await;
    assert_eq!(c.status("GetJob", &[("name", "a")]).await, "404 No job found");
    server.clock.advance(999);
    assert_eq!(c.status("GetJob", &[("name", "a")]).await, "404 No job found");
    server.clock.advance(1);
    assert_eq!(c.status("GetJob", &[("name", "a")]).await, "200 OK");
    server.advance_s(400 * 86_400);
    assert_eq!(c.status("GetJob", &[("name", "never")]).await, "404 No job found");
}

#[tokio::test]
async fn names_are_texts_in_the_seed_profile_and_guessed_in_the_current_one() {
    for (name, guessed) in
        [("123", "123"), ("TRUE", "true"), ("null", "null"), ("[1]", "[1]"), ("007", "\"007\"")]
    {
        for profile in BOTH {
            let server = Bedrock::start(profile).await;
            let mut c = server.connect().await;
            c.create(name, &[]).await;
            // `*` matches names that are patterns themselves.
            let job = c.ask("GetJob", &[("name", "*")]).await.ok();
            let expected = if profile == Profile::Seed { format!("\"{name}\"") } else { guessed.to_owned() };
            assert!(job.body.contains(&format!("\"name\":{expected},")), "{}", job.body);
        }
    }
}

#[tokio::test]
async fn slashes_and_controls_in_texts_are_escaped() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    c.send("CreateJob\nname: a/b\\\\c\\nd\n\n").await;
    c.reply().await.unwrap().ok();
    let job = c.ask("GetJob", &[("name", "*")]).await.ok();
    assert!(job.body.contains(r#""name":"a\/b\\c\nd""#), "{}", job.body);
}

#[tokio::test]
async fn jobs_that_crash_their_workers_fail_instead_of_being_handed_out() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let bad = c.create("bad1", &[]).await;
        let also = c.create("worse", &[]).await;
        let good = c.create("good", &[]).await;
        assert_eq!(c.status("CrashBedrockJob", &[("names", "bad*, worse")]).await, "200 OK");
        assert!(c.ask("Status", &[]).await.body.contains(r#""crashedJobs":["bad*","worse"]"#));
        assert_eq!(c.ask("GetJob", &[("name", "bad1")]).await.ok().body, "{}");
        assert_eq!(c.state(bad).await, "FAILED");
        let jobs = c.ask("GetJobs", &[("name", "*"), ("numResults", "5")]).await.ok().json();
        assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1);
        assert_eq!(jobs["jobs"][0]["jobID"], good);
        assert_eq!(c.state(also).await, "FAILED");
        let only = c.create("worse", &[]).await;
        assert_eq!(c.ask("GetJobs", &[("name", "*"), ("numResults", "5")]).await.ok().body, r#"{"jobs":[]}"#);
        assert_eq!(c.state(only).await, "FAILED");
        assert_eq!(c.status("ClearCrashedBedrockJobs", &[]).await, "200 OK");
        c.create("worse", &[]).await;
        assert_eq!(c.get("worse").await["name"], "worse");
    }
}

#[tokio::test]
async fn a_job_that_must_not_be_handed_out_fails_also_if_somebody_changes_it_meanwhile() {
    let Chosen { store, folder: _folder } = Chosen::new().await;
    let (store, faults) = FaultyStore::new(store);
    let server = Bedrock::on(store, ServerOptions::default()).await;
    let mut c = server.connect().await;
    let id = c.create("bad", &[]).await;
    assert_eq!(c.status("CrashBedrockJob", &[("names", "bad")]).await, "200 OK");
    faults.fail_next_call(Call::Commit, 1, Fault::Hold);
    let mut worker = server.connect().await;
    let asking = tokio::spawn(async move { worker.ask("GetJob", &[("name", "bad")]).await });
    faults.until_held(1).await;
    let sooner = Event::Update(Box::new(Patch { priority: Some(-3), ..Patch::default() }));
    let job = JobId::new(id).unwrap();
    server.engine.apply(&Tenant::default(), vec![job], sooner).await.unwrap().remove(0).unwrap();
    faults.release();
    assert_eq!(asking.await.unwrap().ok().body, "{}");
    assert_eq!(c.state(id).await, "FAILED");
}

#[tokio::test]
async fn a_job_pushed_by_another_client_is_handed_out_and_finished_here() {
    let server = Bedrock::seed().await;
    let push = Push {
        queue: Queue::default(),
        name: Name::new("mail").unwrap(),
        payload: Payload::json(r#"{"to":"ada"}"#),
        priority: 0,
        run_at: RunAt::Now,
        policy: Arc::new(Policy::default()),
        extras: None,
        body: None,
    };
    server.engine.push(&Tenant::default(), vec![push]).await.unwrap();
    let mut c = server.connect().await;
    let job = c.get("mail").await;
    assert_eq!((&job["data"]["to"], &job["priority"]), (&"ada".into(), &500.into()));
    let id = job["jobID"].as_u64().unwrap();
    assert_eq!(c.state(id).await, "RUNQUEUED", "its lease has an end");
    c.finish(id).await;
    assert_eq!(c.state(id).await, "FINISHED", "its own keep policy holds");
}
