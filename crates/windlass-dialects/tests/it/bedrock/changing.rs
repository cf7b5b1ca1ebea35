//! UpdateJob, DeleteJob, RequeueJobs.

use super::*;

#[tokio::test]
async fn an_update_is_checked_in_order() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let rest = [("repeat", "often"), ("jobPriority", "7")];
        assert_eq!(c.to("UpdateJob", 9, &rest).await, "402 Missing data");
        let large = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
        assert_eq!(c.to("UpdateJob", 9, &[("data", &large), rest[0]]).await, "402 Malformed data");
        let data = ("data", "{}");
        assert_eq!(c.to("UpdateJob", 9, &[data, rest[0], rest[1]]).await, "402 Malformed repeat");
        assert_eq!(c.to("UpdateJob", 9, &[data, rest[1]]).await, "402 Invalid priority value");
        assert_eq!(c.to("UpdateJob", 9, &[data]).await, "404 No job with this jobID");
        assert_eq!(c.to("UpdateJob", 0, &[data, rest[1]]).await, "402 Invalid priority value");
        assert_eq!(c.to("UpdateJob", 9, &[("data", "{nope")]).await, "402 Data is not a valid JSON Object");
    }
}

#[tokio::test]
async fn an_update_changes_a_job_in_any_state() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let id = c.create("a", &[]).await;
        let data = r#"{ "b": 1, "mockRequest": true }"#;
        assert_eq!(c.to("UpdateJob", id, &[("data", data), ("jobPriority", "1000")]).await, "200 OK");
        let reply = c.ask("QueryJob", &[("jobID", &id.to_string())]).await;
        assert!(reply.body.contains(r#""data":{"b":1},"#), "minified, without a stray mark: {}", reply.body);
        assert_eq!(reply.json()["priority"], 1000);
        c.get("a").await;
        assert_eq!(c.to("UpdateJob", id, &[("data", r#"{"b":2}"#)]).await, "200 OK");
        let job = c.query(id).await;
        assert_eq!((&job["state"], &job["data"]["b"]), (&"RUNNING".into(), &2.into()));
        c.to("FailJob", id, &[]).await;
        assert_eq!(c.to("UpdateJob", id, &[("data", r#"{"b":3}"#)]).await, "200 OK");
        assert_eq!(c.query(id).await["data"]["b"], 3);
    }
}

#[tokio::test]
async fn an_update_of_repeat_moves_the_next_run_unless_one_is_given() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let id = c.create("a", &[("firstRun", "2024-03-01 00:00:00")]).await;
    let update = async |c: &mut Conn, headers: &[(&str, &str)]| {
        let mut all = vec![("data", "{}")];
        all.extend_from_slice(headers);
        c.to("UpdateJob", id, &all).await
    };
    assert_eq!(update(&mut c, &[("repeat", "SCHEDULED, +1 DAY")]).await, "200 OK");
    assert_eq!(c.next_run(id).await, "2024-03-02 00:00:00");
    assert_eq!(update(&mut c, &[("repeat", "FINISHED, +1 HOUR")]).await, "200 OK");
    assert_eq!(c.next_run(id).await, "2024-01-31 13:00:00");
    assert_eq!(update(&mut c, &[("repeat", "STARTED, +1 HOUR")]).await, "400 Unique Constraints Violation");
    assert_eq!(update(&mut c, &[("repeat", "DAILY"), ("nextRun", "soon")]).await, "200 OK");
    let job = c.query(id).await;
    assert_eq!((&job["repeat"], &job["nextRun"]), (&"DAILY".into(), &"soon".into()));
    assert_eq!(update(&mut c, &[("shouldClearRepeat", "0")]).await, "200 OK");
    assert_eq!(c.query(id).await["repeat"], "DAILY");
    assert_eq!(update(&mut c, &[("shouldClearRepeat", "1")]).await, "200 OK");
    assert_eq!(c.query(id).await["repeat"], "");
}

#[tokio::test]
async fn a_running_or_paused_job_is_not_deleted_and_a_runqueued_one_is() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let queued = c.create("q", &[]).await;
        assert_eq!(c.to("DeleteJob", queued, &[]).await, "200 OK");
        assert_eq!(c.state(queued).await, "gone");
        let running = c.create("a", &[]).await;
        c.get("a").await;
        assert_eq!(c.to("DeleteJob", running, &[]).await, "405 Can't delete a RUNNING job");
        let child = c.create("c", &[("parentJobID", &running.to_string())]).await;
        let paused = "405 Can't delete a parent jobs with children running";
        assert_eq!(c.to("DeleteJob", child, &[]).await, paused);
        c.finish(running).await;
        assert_eq!(c.to("DeleteJob", running, &[]).await, paused);
        let runqueued = c.create("r", &[("retryAfter", "+1 HOUR")]).await;
        c.get("r").await;
        assert_eq!(c.state(runqueued).await, "RUNQUEUED");
        assert_eq!(c.to("DeleteJob", runqueued, &[]).await, "200 OK");
        assert_eq!(c.to("FinishJob", runqueued, &[]).await, "404 No job with this jobID");
        let failed = c.create("f", &[]).await;
        c.get("f").await;
        c.to("FailJob", failed, &[]).await;
        assert_eq!(c.to("DeleteJob", failed, &[]).await, "200 OK");
    }
}

#[tokio::test]
async fn requeueing_starts_a_job_over_in_any_state() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        for odd in ["", "77", "abc", "1,,x,-5,0"] {
            assert_eq!(c.status("RequeueJobs", &[("jobIDs", odd)]).await, "200 OK", "{odd:?}");
        }
        assert_eq!(c.status("RequeueJobs", &[]).await, "200 OK");
        server.clock.advance(437);
        let failed = c.create("a", &[]).await;
        c.get("a").await;
        c.to("FailJob", failed, &[]).await;
        let running = c.create("b", &[]).await;
        c.get("b").await;
        let later = c.create("c", &[("firstRun", "2030-01-01 00:00:00")]).await;
        server.advance_s(60);
        let ids = format!("{failed},{running}, {later},99");
        assert_eq!(c.status("RequeueJobs", &[("jobIDs", &ids), ("name", "again")]).await, "200 OK");
        for id in [failed, running, later] {
            let job = c.query(id).await;
            assert_eq!((&job["state"], &job["name"]), (&"QUEUED".into(), &"again".into()));
            assert_eq!((&job["nextRun"], &job["nextRun"]), (&START.into(), &job["created"]), "to the letter");
        }
        assert_eq!(
            c.to("FinishJob", running, &[]).await,
            "405 Can only retry/finish RUNNING and RUNQUEUED jobs"
        );
    }
}

#[tokio::test]
async fn requeueing_may_take_back_a_hand_out() {
    let server = Bedrock::current().await;
    let mut c = server.connect().await;
    let id = c.create("a", &[("retryAfter", "+1 HOUR")]).await;
    let ids = id.to_string();
    c.get("a").await;
    c.status("RequeueJobs", &[("jobIDs", &ids)]).await;
    assert_eq!(c.query(id).await["data"]["retryAfterCount"], 1);
    c.get("a").await;
    assert_eq!(c.query(id).await["data"]["retryAfterCount"], 2);
    c.status("RequeueJobs", &[("jobIDs", &ids), ("decrementFailures", "true")]).await;
    assert_eq!(c.query(id).await["data"]["retryAfterCount"], 1);
}
