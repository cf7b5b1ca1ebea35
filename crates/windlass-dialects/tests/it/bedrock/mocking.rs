//! `mockRequest`: jobs that are claimed only by requests that ask for them.

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

#[tokio::test]
async fn new_data_does_not_make_a_mocked_job_a_real_one() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let id = c.create("a", &[MOCK]).await;
        for data in [r#"{"x":1}"#, r#"{"x":1,"mockRequest":false}"#] {
            assert_eq!(c.to("UpdateJob", id, &[("data", data)]).await, "200 OK");
            assert_eq!(c.query(id).await["data"], serde_json::json!({"x": 1, "mockRequest": true}));
        }
        assert_eq!(c.ask("GetJob", &[("name", "a"), MOCK]).await.ok().json()["data"]["mockRequest"], true);
        assert_eq!(c.to("FailJob", id, &[("data", r#"{"x":2}"#)]).await, "200 OK");
        assert_eq!(c.query(id).await["data"], serde_json::json!({"x": 2, "mockRequest": true}));
        let real = c.create("a", &[]).await;
        assert_eq!(c.to("UpdateJob", real, &[("data", r#"{"x":1,"mockRequest":true}"#)]).await, "200 OK");
        assert_eq!(c.query(real).await["data"], serde_json::json!({"x": 1}));
    }
}

#[tokio::test]
async fn data_of_an_ordinary_job_says_nothing_of_mocking_not_even_that_it_is_not() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let id = c.create("a", &[]).await;
        c.get("a").await;
        for data in [r#"{"mockRequest":false}"#, r#"{"mockRequest":null}"#] {
            assert_eq!(c.to("FinishJob", id, &[("data", data)]).await, "500 Mock Mismatch", "{data}");
        }
        assert_eq!(c.state(id).await, "RUNNING");
    }
}

#[tokio::test]
async fn a_job_whose_data_says_that_it_is_mocked_is() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let id = c.create("a", &[("data", r#"{"x": "5", "mockRequest": true}"#)]).await;
        assert_eq!(c.status("GetJob", &[("name", "a")]).await, "404 No job found");
        assert_eq!(c.ask("GetJob", &[("name", "a"), MOCK]).await.ok().job_id(), id);
        assert_eq!(c.query(id).await["data"]["x"], "5", "kept as written");
    }
}

/// A parent determines the mock setting of the whole request, as in Bedrock.
#[tokio::test]
async fn a_batch_is_mocked_as_a_whole() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let mocked = c.create("m", &[MOCK]).await;
        c.ask("GetJob", &[("name", "m"), MOCK]).await.ok();
        let real = c.create("r", &[]).await;
        c.get("r").await;
        let batch = |parents: &[u64]| {
            let jobs: Vec<Value> = parents
                .iter()
                .map(|parent| serde_json::json!({"name": "c", "parentJobID": parent, "mockRequest": true}))
                .collect();
            serde_json::to_string(&jobs).unwrap()
        };
        let mut marks = async |headers: &[(&str, &str)]| {
            let made = c.ask("CreateJobs", headers).await;
            if made.status != "200 OK" {
                return Err(made.status);
            }
            let mut marks = vec![];
            for id in made.json()["jobIDs"].as_array().unwrap() {
                marks.push(c.query(id.as_u64().unwrap()).await["data"]["mockRequest"] == true);
            }
            Ok(marks)
        };
        let other = "405 Parent and child jobs must have matching mockRequest setting";
        assert_eq!(marks(&[("jobs", &batch(&[0, mocked, 0]))]).await, Ok(vec![true; 3]));
        assert_eq!(marks(&[("jobs", &batch(&[0, real])), MOCK]).await, Ok(vec![false; 2]));
        assert_eq!(marks(&[("jobs", &batch(&[real, mocked]))]).await, Err(other.to_owned()));
        assert_eq!(marks(&[("jobs", &batch(&[mocked, real])), MOCK]).await, Err(other.to_owned()));
        assert_eq!(marks(&[("jobs", &batch(&[0]))]).await, Ok(vec![false]), "only the header asks for it");
    }
}
