//! `mockRequest`: jobs that only those who ask for them see.

use super::*;

const MOCK: (&str, &str) = ("mockRequest", "true");

#[tokio::test]
async fn only_those_who_ask_see_mocked_jobs() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let data = r#"{"b":"5","a":1.50}"#;
        let mocked = c.create("a", &[("mockRequest", ""), ("data", data), ("repeat", "HOURLY")]).await;
        let reply = c.ask("QueryJob", &[("jobID", &mocked.to_string())]).await;
        assert!(reply.body.contains(r#""data":{"a":"1.50","b":5,"mockRequest":true},"#), "{}", reply.body);
        assert_eq!(reply.json()["repeat"], "", "it does not repeat");
        assert_eq!(c.status("GetJob", &[("name", "a")]).await, "404 No job found");
        assert_eq!(c.ask("GetJob", &[("name", "a"), MOCK]).await.ok().job_id(), mocked);
        c.status("RequeueJobs", &[("jobIDs", &mocked.to_string())]).await;
        let real = c.create("a", &[("jobPriority", "0")]).await;
        let both = c.ask("GetJobs", &[("name", "a"), ("getMockedJobs", "1"), ("numResults", "9")]).await.ok();
        let ids: Vec<u64> = both.json()["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["jobID"].as_u64().unwrap())
            .collect();
        assert_eq!(ids, [mocked, real]);
    }
}

#[tokio::test]
async fn mocked_and_real_jobs_are_unique_apart() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let real = c.create("a", &[("unique", "true")]).await;
    let mocked = c.create("a", &[("unique", "true"), MOCK]).await;
    assert_ne!(real, mocked);
    assert_eq!(c.create("a", &[("unique", "true"), MOCK]).await, mocked);
}

#[tokio::test]
async fn children_are_what_their_parent_is() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let parent = c.create("p", &[MOCK]).await;
    c.ask("GetJob", &[("name", "p"), MOCK]).await.ok();
    let child = c.create("c", &[("parentJobID", &parent.to_string())]).await;
    assert_eq!(c.query(child).await["data"]["mockRequest"], true);
    let real = c.create("r", &[]).await;
    c.get("r").await;
    let child = c.create("c", &[("parentJobID", &real.to_string()), MOCK]).await;
    assert_eq!(c.query(child).await["data"], serde_json::json!({}));
}

#[tokio::test]
async fn mocked_jobs_end_in_any_state_with_data_of_their_kind() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let id = c.create("a", &[MOCK]).await;
        assert_eq!(c.to("RetryJob", id, &[("data", r#"{"x":1}"#)]).await, "500 Mock Mismatch");
        assert_eq!(
            c.to("RetryJob", id, &[("data", r#"{"x":1,"mockRequest":true}"#), ("delay", "60")]).await,
            "200 OK"
        );
        assert_eq!(c.next_run(id).await, "2024-01-31 12:01:00");
        c.finish(id).await;
        assert_eq!(c.state(id).await, "gone", "it was never handed out");
        let real = c.create("a", &[]).await;
        c.get("a").await;
        assert_eq!(
            c.to("FinishJob", real, &[("data", r#"{"mockRequest":true}"#)]).await,
            "500 Mock Mismatch"
        );
        assert_eq!(c.state(real).await, "RUNNING");
    }
}
