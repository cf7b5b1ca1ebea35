//! `retryAfter`: RUNQUEUED, the counter of claims, late reports.

use super::*;

#[tokio::test]
async fn a_job_that_is_not_finished_in_time_is_handed_out_again() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let id = c.create("a", &[("retryAfter", "+5 MINUTES")]).await;
        let first = c.get("a").await;
        assert_eq!((&first["lastRun"], &first["retryAfter"]), (&"".into(), &"+5 MINUTES".into()));
        assert_eq!(first["data"], serde_json::json!({}), "before this run");
        let job = c.query(id).await;
        assert_eq!((&job["state"], &job["nextRun"]), (&"RUNQUEUED".into(), &"2024-01-31 12:05:00".into()));
        assert_eq!((&job["lastRun"], &job["data"]["retryAfterCount"]), (&START.into(), &1.into()));
        server.advance_s(299);
        assert_eq!(c.status("GetJob", &[("name", "a")]).await, "404 No job found");
        server.advance_s(1);
        eventually(async || c.status("GetJob", &[("name", "a")]).await == "200 OK").await;
        let job = c.query(id).await;
        assert_eq!(
            (&job["nextRun"], &job["data"]["retryAfterCount"]),
            (&"2024-01-31 12:10:00".into(), &2.into())
        );
        c.finish(id).await;
        assert_eq!(c.state(id).await, "gone");
    }
}

#[tokio::test]
async fn a_late_finish_counts_while_nobody_else_has_the_job() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let id = c.create("a", &[("retryAfter", "+5 MINUTES")]).await;
        c.get("a").await;
        server.advance_s(3_600);
        assert_eq!(c.state(id).await, "RUNQUEUED");
        c.finish(id).await;
        assert_eq!(c.state(id).await, "gone");
    }
}

#[tokio::test]
async fn a_span_follows_the_calendar_and_may_have_several_parts() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    for (span, next_run) in [
        ("+1 MONTH", "2024-03-02 12:00:00"),
        ("+1 HOUR, +1 MINUTE", "2024-01-31 13:01:00"),
        ("+1 DAY, START OF DAY", "2024-02-01 00:00:00"),
    ] {
        let id = c.create("a", &[("retryAfter", span)]).await;
        c.get("a").await;
        let job = c.query(id).await;
        assert_eq!((&job["nextRun"], &job["state"]), (&next_run.into(), &"RUNQUEUED".into()), "{span}");
        c.finish(id).await;
    }
}

#[tokio::test]
async fn the_next_turn_of_a_repeating_job_comes_before_a_longer_retry() {
    let server = Bedrock::current().await;
    let mut c = server.connect().await;
    let headers =
        [("retryAfter", "+1 DAY"), ("repeat", "SCHEDULED, +1 HOUR"), ("firstRun", "2024-01-31 11:30:00")];
    let id = c.create("a", &headers).await;
    c.get("a").await;
    assert_eq!(c.next_run(id).await, "2024-01-31 12:30:00");
    c.finish(id).await;
    assert_eq!(c.next_run(id).await, "2024-01-31 12:30:00", "the slot is counted from the first one");
}

#[tokio::test]
async fn an_update_while_it_runs_does_not_lose_the_slot_of_a_scheduled_job() {
    let server = Bedrock::current().await;
    let mut c = server.connect().await;
    for name in ["a", "manual/a"] {
        let headers = [
            ("retryAfter", "+1 MINUTE"),
            ("repeat", "SCHEDULED, +1 DAY"),
            ("firstRun", "2024-01-31 06:00:00"),
        ];
        let id = c.create(name, &headers).await;
        c.get(name).await;
        assert_eq!(c.to("UpdateJob", id, &[("data", r#"{"x":1}"#)]).await, "200 OK");
        c.finish(id).await;
        assert_eq!(c.next_run(id).await, "2024-02-01 06:00:00", "{name}");
    }
}

#[tokio::test]
async fn ten_hand_outs_are_all_there_are_in_the_current_profile() {
    let server = Bedrock::current().await;
    let mut c = server.connect().await;
    let id = c.create("a", &[("retryAfter", "+1 MINUTE")]).await;
    for hand_out in 1..=10 {
        eventually(async || c.status("GetJob", &[("name", "a")]).await == "200 OK").await;
        assert_eq!(c.query(id).await["data"]["retryAfterCount"], hand_out);
        server.advance_s(60);
    }
    let mut last = None;
    eventually(async || {
        last = Some(c.ask("GetJob", &[("name", "a")]).await);
        last.as_ref().unwrap().status == "200 OK"
    })
    .await;
    assert_eq!(last.unwrap().body, "{}");
    let job = c.query(id).await;
    assert_eq!((&job["state"], &job["data"]["retryAfterCount"]), (&"FAILED".into(), &10.into()));
}

#[tokio::test]
async fn there_is_no_ceiling_in_the_seed_profile_nor_for_manual_jobs() {
    for (profile, name) in [(Profile::Seed, "a"), (Profile::Current, "manual/a")] {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let id = c.create(name, &[("retryAfter", "+1 MINUTE")]).await;
        for _ in 0..13 {
            eventually(async || {
                let job = c.ask("GetJob", &[("name", name)]).await;
                job.status == "200 OK" && job.job_id() == id
            })
            .await;
            server.advance_s(60);
        }
        let counted = c.query(id).await["data"]["retryAfterCount"].clone();
        assert_eq!(counted, if name == "a" { 13.into() } else { Value::Null });
    }
}

#[tokio::test]
async fn the_count_starts_anew_with_a_retry() {
    let server = Bedrock::current().await;
    let mut c = server.connect().await;
    let id = c.create("a", &[("retryAfter", "+1 MINUTE"), ("data", r#"{"x":1}"#)]).await;
    c.get("a").await;
    assert_eq!(c.to("RetryJob", id, &[]).await, "200 OK");
    assert_eq!(c.query(id).await["data"], serde_json::json!({"x": 1}));
}

/// In Bedrock, a counter in the data of a job without `retryAfter` stops the job forever.
#[tokio::test]
async fn a_count_that_a_client_wrote_itself_does_no_harm() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let id = c.create("a", &[("data", r#"{"retryAfterCount":12}"#)]).await;
        assert_eq!(c.get("a").await["jobID"], id);
        c.finish(id).await;
    }
}

/// Holds even if the scheduler has not yet noticed the expired lease.
#[tokio::test]
async fn a_job_that_is_due_now_is_handed_out_at_once() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let id = c.create("a", &[("retryAfter", "+0 SECONDS")]).await;
        for _ in 0..10 {
            assert_eq!(c.get("a").await["jobID"], id);
        }
        c.finish(id).await;
        let id = c.create("a", &[("retryAfter", "+1 MINUTE")]).await;
        for _ in 0..10 {
            assert_eq!(c.get("a").await["jobID"], id);
            server.advance_s(60);
        }
    }
}

#[tokio::test]
async fn a_count_that_the_data_has_is_counted_on() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let data = r#"{"retryAfterCount":7,"x":1}"#;
        let id = c.create("a", &[("retryAfter", "+1 MINUTE"), ("data", data)]).await;
        assert_eq!(c.get("a").await["data"]["retryAfterCount"], 7, "before this run");
        assert_eq!(c.query(id).await["data"], serde_json::json!({"retryAfterCount": 8, "x": 1}));
        server.advance_s(60);
        assert_eq!(c.get("a").await["data"]["retryAfterCount"], 8);
        assert_eq!(c.query(id).await["data"]["retryAfterCount"], 9);
        assert_eq!(c.to("UpdateJob", id, &[("data", r#"{"retryAfterCount":9}"#)]).await, "200 OK");
        assert_eq!(c.query(id).await["data"]["retryAfterCount"], 9, "what the client says");
        server.advance_s(60);
        assert_eq!(c.get("a").await["jobID"], id);
        server.advance_s(60);
        let last = c.ask("GetJob", &[("name", "a")]).await.ok();
        if profile == Profile::Current {
            assert_eq!((last.body.as_str(), &*c.state(id).await), ("{}", "FAILED"), "ten are all there are");
        } else {
            assert_eq!(c.query(id).await["data"]["retryAfterCount"], 11);
        }
        let ids = id.to_string();
        c.status("RequeueJobs", &[("jobIDs", &ids), ("decrementFailures", "true")]).await;
        let left = if profile == Profile::Current { 9 } else { 10 };
        assert_eq!(c.query(id).await["data"]["retryAfterCount"], left);
        c.get("a").await;
        c.finish(id).await;
    }
}

#[tokio::test]
async fn an_update_without_a_count_starts_it_anew() {
    let server = Bedrock::current().await;
    let mut c = server.connect().await;
    let id = c.create("a", &[("retryAfter", "+1 MINUTE")]).await;
    c.get("a").await;
    assert_eq!(c.to("UpdateJob", id, &[("data", r#"{"x":1}"#)]).await, "200 OK");
    assert_eq!(c.query(id).await["data"], serde_json::json!({"x": 1}));
    server.advance_s(60);
    c.get("a").await;
    assert_eq!(c.query(id).await["data"], serde_json::json!({"x": 1, "retryAfterCount": 1}));
}

/// The schedule of a SCHEDULED job continues from the `nextRun` of its last claim, which is stored in its
/// data.
#[tokio::test]
async fn a_retry_moves_the_slots_of_a_scheduled_job_and_its_data_says_from_where() {
    let server = Bedrock::current().await;
    let mut c = server.connect().await;
    let first_run = "2024-01-31 11:59:30";
    let headers = [("retryAfter", "+1 MINUTE"), ("repeat", "SCHEDULED, +5 HOURS"), ("firstRun", first_run)];
    let id = c.create("a", &headers).await;
    assert_eq!(c.get("a").await["data"], serde_json::json!({}), "before this run");
    let told = serde_json::json!({"originalNextRun": first_run, "retryAfterCount": 1});
    assert_eq!(c.query(id).await["data"], told);
    server.clock.advance(61_500);
    let again = c.get("a").await;
    assert_eq!((&again["nextRun"], &again["data"]), (&"2024-01-31 12:01:00".into(), &told));
    let told = serde_json::json!({"originalNextRun": "2024-01-31 12:01:00", "retryAfterCount": 2});
    assert_eq!(c.query(id).await["data"], told);
    c.finish(id).await;
    assert_eq!(c.next_run(id).await, "2024-01-31 17:01:00", "five hours after the retry was due");
    assert_eq!(c.query(id).await["data"], serde_json::json!({"originalNextRun": "2024-01-31 12:01:00"}));
    let manual = c.create("manual/a", &headers).await;
    c.get("manual/a").await;
    assert_eq!(c.query(manual).await["data"], serde_json::json!({}));
}
