//! FinishJob, RetryJob and FailJob.

use super::*;

#[tokio::test]
async fn ids_are_checked_the_same_everywhere() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    for verb in ["QueryJob", "FinishJob", "RetryJob", "CancelJob", "FailJob", "DeleteJob", "UpdateJob"] {
        let status = async |c: &mut Conn, id: &str| c.status(verb, &[("jobID", id), ("data", "{}")]).await;
        assert_eq!(c.status(verb, &[("data", "{}")]).await, "402 Missing jobID", "{verb}");
        assert_eq!(status(&mut c, "").await, "402 Missing jobID", "{verb}");
        for id in ["abc", "12x", "007", "+1", "1.5", "99999999999999999999"] {
            assert_eq!(status(&mut c, id).await, "402 Malformed jobID", "{verb} {id}");
        }
        for id in ["0", "-1", "77"] {
            assert_eq!(status(&mut c, id).await, "404 No job with this jobID", "{verb} {id}");
        }
    }
}

#[tokio::test]
async fn only_a_job_that_is_out_can_be_finished_retried_or_failed() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let id = c.create("a", &[]).await;
        let not_out = "405 Can only retry/finish RUNNING and RUNQUEUED jobs";
        assert_eq!(c.to("FinishJob", id, &[]).await, not_out);
        assert_eq!(c.to("RetryJob", id, &[]).await, not_out);
        assert_eq!(c.to("FailJob", id, &[]).await, "405 Can only fail RUNNING or RUNQUEUED jobs");
        c.get("a").await;
        assert_eq!(c.to("FailJob", id, &[("data", r#"{"why":"x"}"#)]).await, "200 OK");
        assert_eq!(c.state(id).await, "FAILED");
        assert_eq!(c.query(id).await["data"]["why"], "x");
        assert_eq!(c.to("FinishJob", id, &[]).await, not_out);
        assert_eq!(c.to("FailJob", id, &[]).await, "405 Can only fail RUNNING or RUNQUEUED jobs");
    }
}

#[tokio::test]
async fn a_finished_job_is_gone() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let id = c.create("a", &[]).await;
    c.get("a").await;
    let reply = c.ask("FinishJob", &[("jobID", &id.to_string())]).await.ok();
    assert_eq!(reply.body, "");
    assert_eq!(c.state(id).await, "gone");
}

#[tokio::test]
async fn data_of_a_finish_is_what_the_next_run_starts_with() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let id = c.create("a", &[("repeat", "FINISHED, +1 HOUR"), ("data", r#"{"n":1}"#)]).await;
        c.get("a").await;
        let data = r#"{ "z": 1.50, "a": [1, 2], "retryAfterCount": 3 }"#;
        assert_eq!(c.to("FinishJob", id, &[("data", data)]).await, "200 OK");
        server.advance_s(3600);
        let job = c.ask("GetJob", &[("name", "a")]).await.ok();
        assert!(job.body.contains(r#""data":{"z":1.50,"a":[1,2]},"#), "minified, in its order: {}", job.body);
        assert_eq!(c.to("FinishJob", id, &[("data", "")]).await, "200 OK");
        server.advance_s(3600);
        assert_eq!(c.get("a").await["data"]["a"], serde_json::json!([1, 2]), "empty is as good as none");
        assert_eq!(c.to("FinishJob", id, &[("data", "{nope")]).await, "402 Data is not a valid JSON Object");
        assert_eq!(c.state(id).await, "RUNNING", "and nothing happened");
    }
}

#[tokio::test]
async fn a_repeating_job_can_be_ended() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    for ending in [("ignoreRepeat", "true"), ("ignoreRepeat", "1"), ("data", r#"{"delete":true}"#)] {
        let id = c.create("a", &[("repeat", "FINISHED, +1 HOUR")]).await;
        c.get("a").await;
        assert_eq!(c.to("FinishJob", id, &[ending]).await, "200 OK");
        assert_eq!(c.state(id).await, "gone", "{ending:?}");
    }
    for not in [("ignoreRepeat", "false"), ("ignoreRepeat", "0"), ("data", r#"{"delete":false}"#)] {
        let id = c.create("b", &[("repeat", "FINISHED, +1 HOUR")]).await;
        c.get("b").await;
        assert_eq!(c.to("FinishJob", id, &[not]).await, "200 OK");
        assert_eq!(c.state(id).await, "QUEUED", "{not:?}");
    }
}

#[tokio::test]
async fn finishing_ignores_delay_next_run_and_name() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let id = c.create("a", &[("repeat", "FINISHED, +1 HOUR")]).await;
    c.get("a").await;
    let extra = [("delay", "-1"), ("nextRun", "zzz"), ("name", "b")];
    assert_eq!(c.to("FinishJob", id, &extra).await, "200 OK");
    let job = c.query(id).await;
    assert_eq!((&job["nextRun"], &job["name"]), (&"2024-01-31 13:00:00".into(), &"a".into()));
}

#[tokio::test]
async fn a_retry_runs_again_when_it_is_told() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let id = c.create("a", &[]).await;
        for (headers, next_run) in [
            (&[][..], "2024-01-31 12:00:00"),
            (&[("delay", "90")][..], "2024-01-31 12:01:30"),
            (&[("nextRun", "2024-02-01")][..], "2024-02-01"),
            (&[("nextRun", "2024-02-01 10:00:00"), ("delay", "90")][..], "2024-02-01 10:00:00"),
        ] {
            assert_eq!(c.to("RequeueJobs", 0, &[("jobIDs", &id.to_string())]).await, "200 OK");
            c.get("a").await;
            assert_eq!(c.to("RetryJob", id, headers).await, "200 OK");
            let job = c.query(id).await;
            assert_eq!(job["state"], "QUEUED");
            // The first value is the time of creation, which has milliseconds.
            let shown = job["nextRun"].as_str().unwrap().trim_end_matches(".000").to_owned();
            assert_eq!(shown, next_run, "{headers:?}");
        }
        c.to("RequeueJobs", 0, &[("jobIDs", &id.to_string())]).await;
        c.get("a").await;
        let changes = [("data", r#"{"n": 2}"#), ("name", "b"), ("jobPriority", "1000")];
        assert_eq!(c.to("RetryJob", id, &changes).await, "200 OK");
        let job = c.get("b").await;
        assert_eq!((&job["data"]["n"], &job["priority"]), (&2.into(), &1000.into()));
    }
}

#[tokio::test]
async fn a_retry_checks_its_own_words_and_changes_nothing_if_one_is_wrong() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let id = c.create("a", &[]).await;
    c.get("a").await;
    let all = [("jobPriority", "7"), ("delay", "-1")];
    assert_eq!(c.to("RetryJob", id, &all).await, "402 Invalid priority value");
    let negative = "402 Must specify a non-negative delay when retrying";
    assert_eq!(c.to("RetryJob", id, &all[1..]).await, negative);
    assert_eq!(c.to("RetryJob", id, &[("delay", "100000000")]).await, "402 Malformed delay");
    assert_eq!(c.state(id).await, "RUNNING");
    assert_eq!(c.to("RetryJob", id, &[("delay", "99999999")]).await, "200 OK");
}

#[tokio::test]
async fn a_retry_of_a_repeating_job_waits_for_its_next_turn() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let id = c.create("a", &[("repeat", "FINISHED, +1 HOUR")]).await;
    c.get("a").await;
    assert_eq!(c.to("RetryJob", id, &[("delay", "5"), ("nextRun", "2024-01-31 12:30:00")]).await, "200 OK");
    assert_eq!(c.next_run(id).await, "2024-01-31 13:00:00");
    server.advance_s(3600);
    c.get("a").await;
    assert_eq!(c.to("RetryJob", id, &[("delay", "5"), ("ignoreRepeat", "true")]).await, "200 OK");
    assert_eq!(c.next_run(id).await, "2024-01-31 13:00:05");
}
