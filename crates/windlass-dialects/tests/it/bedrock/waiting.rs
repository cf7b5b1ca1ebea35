//! Waiting workers, and the release of jobs when a worker disconnects.

use super::*;
use std::collections::HashMap;

const WAIT: (&str, &str) = ("Connection", "wait");

#[tokio::test]
async fn a_waiting_worker_is_woken_by_a_new_job() {
    let server = Bedrock::seed().await;
    let (mut worker, mut c) = (server.connect().await, server.connect().await);
    worker.send_request("GetJob", &[("name", "mail*"), WAIT, ("timeout", "60000")]).await;
    server.waiters(1).await;
    c.create("other", &[]).await;
    let id = c.create("mail/1", &[]).await;
    assert_eq!(worker.reply().await.unwrap().ok().job_id(), id);
    let many = [("name", "a"), ("numResults", "5"), WAIT];
    worker.send_request("GetJobs", &many).await;
    server.waiters(1).await;
    let id = c.create("a", &[]).await;
    assert_eq!(worker.reply().await.unwrap().ok().json()["jobs"][0]["jobID"], id);
}

#[tokio::test]
async fn a_waiting_worker_is_woken_when_a_job_is_due() {
    let server = Bedrock::seed().await;
    let (mut worker, mut c) = (server.connect().await, server.connect().await);
    let id = c.create("a", &[("firstRun", "2024-01-31 12:00:30")]).await;
    worker.send_request("GetJob", &[("name", "a"), WAIT, ("timeout", "3600000")]).await;
    server.waiters(1).await;
    server.advance_s(30);
    assert_eq!(worker.reply().await.unwrap().ok().job_id(), id);
}

#[tokio::test]
async fn a_waiting_worker_is_woken_by_a_job_that_is_given_back_or_released() {
    let server = Bedrock::seed().await;
    let (mut worker, mut c) = (server.connect().await, server.connect().await);
    let id = c.create("a", &[]).await;
    c.get("a").await;
    worker.send_request("GetJob", &[("name", "*"), WAIT, ("timeout", "3600000")]).await;
    server.waiters(1).await;
    c.to("RetryJob", id, &[]).await;
    assert_eq!(worker.reply().await.unwrap().ok().job_id(), id);
    let child = c.create("child", &[("parentJobID", &id.to_string())]).await;
    worker.send_request("GetJob", &[("name", "child"), WAIT]).await;
    server.waiters(1).await;
    c.finish(id).await;
    assert_eq!(worker.reply().await.unwrap().ok().job_id(), child);
}

#[tokio::test]
async fn patience_ends_with_no_job_found() {
    let server = Bedrock::seed().await;
    let mut worker = server.connect().await;
    worker.send_request("GetJob", &[("name", "a"), WAIT, ("timeout", "5000")]).await;
    server.waiters(1).await;
    server.advance_s(5);
    assert_eq!(worker.reply().await.unwrap().status, "404 No job found");
    worker.send_request("GetJob", &[("name", "a"), WAIT]).await;
    server.waiters(1).await;
    server.clock.advance(59_999);
    assert_eq!(server.engine.waiters(), 1, "a minute if nothing is said");
    server.clock.advance(1);
    assert_eq!(worker.reply().await.unwrap().status, "404 No job found");
    assert_eq!(worker.status("GetJob", &[("name", "a"), WAIT, ("timeout", "0")]).await, "404 No job found");
}

#[tokio::test]
async fn the_current_profile_does_not_wait() {
    let server = Bedrock::current().await;
    let mut worker = server.connect().await;
    let status = worker.status("GetJob", &[("name", "a"), WAIT, ("timeout", "60000")]).await;
    assert_eq!(status, "404 No job found");
}

#[tokio::test]
async fn waiting_is_harmless_on_other_commands() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        assert_eq!(c.status("CreateJob", &[("name", "a"), WAIT]).await, "200 OK");
        let jobs = r#"[{"name":"b"}]"#;
        assert_eq!(c.status("CreateJobs", &[("jobs", jobs), WAIT]).await, "200 OK");
    }
}

#[tokio::test]
async fn a_worker_that_hangs_up_waits_no_more() {
    let server = Bedrock::seed().await;
    let (mut worker, mut c) = (server.connect().await, server.connect().await);
    worker.send_request("GetJob", &[("name", "a"), WAIT, ("timeout", "60000")]).await;
    server.waiters(1).await;
    drop(worker);
    server.waiters(0).await;
    let id = c.create("a", &[]).await;
    // A claim in progress may still have found the job; it releases it.
    let mut given = None;
    eventually(async || {
        given = Some(c.ask("GetJob", &[("name", "a")]).await);
        given.as_ref().unwrap().status == "200 OK"
    })
    .await;
    assert_eq!(given.unwrap().job_id(), id);
}

#[tokio::test]
async fn a_job_for_a_worker_that_is_gone_is_given_back() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    for round in 0..20 {
        let id = c.create("a", &[]).await;
        let mut worker = server.connect().await;
        worker.send_request("GetJob", &[("name", "a")]).await;
        // Disconnects before it can read: with or without unread bytes, at once or a moment later.
        if round % 2 == 0 {
            worker.stream.set_zero_linger().unwrap();
        }
        drop(worker);
        let mut given = None;
        eventually(async || {
            given = Some(c.ask("GetJob", &[("name", "a")]).await);
            given.as_ref().unwrap().status == "200 OK"
        })
        .await;
        assert_eq!(given.unwrap().job_id(), id);
        c.finish(id).await;
    }
}

#[tokio::test]
async fn a_client_that_only_stops_sending_still_gets_its_answers() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    c.send("CreateJob\nname: a\n\nGetJob\nname: a\n\n").await;
    c.stream.shutdown().await.unwrap();
    let id = c.reply().await.unwrap().ok().job_id();
    assert_eq!(c.reply().await.unwrap().ok().job_id(), id);
    assert!(c.reply().await.is_none(), "then the connection ends");
    let mut other = server.connect().await;
    assert_eq!(other.state(id).await, "RUNNING", "the job is its own");
}

#[tokio::test]
async fn requests_behind_a_waiting_one_are_answered_after_it() {
    let server = Bedrock::seed().await;
    let (mut worker, mut c) = (server.connect().await, server.connect().await);
    worker.send("GetJob\nname: a\nConnection: wait\ntimeout: 60000\n\nPing\n\n").await;
    server.waiters(1).await;
    worker.send("Foo\n\n").await;
    let id = c.create("a", &[]).await;
    assert_eq!(worker.reply().await.unwrap().ok().job_id(), id);
    assert_eq!(worker.reply().await.unwrap().status, "200 OK");
    assert_eq!(worker.reply().await.unwrap().status, "430 Unrecognized command");
}

#[tokio::test]
async fn workers_that_wait_are_answered_when_the_server_stops() {
    let mut server = Bedrock::seed().await;
    let mut worker = server.connect().await;
    worker.send_request("GetJob", &[("name", "a"), WAIT, ("timeout", "60000")]).await;
    server.waiters(1).await;
    server.stop();
    assert_eq!(worker.reply().await.unwrap().status, "404 No job found");
    assert!(worker.reply().await.is_none());
    (&mut server.serving).await.unwrap().unwrap();
}

/// 64 workers wait for one name while jobs arrive, workers disconnect, and some release their job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_job_is_handed_out_twice_under_churn() {
    const JOBS: usize = 640;
    const WORKERS: usize = 64;
    let server = Bedrock::seed().await;
    let (told, mut finished) = tokio::sync::mpsc::unbounded_channel::<u64>();
    let mut workers = vec![];
    for number in 0..WORKERS {
        let (addr, told) = (server.addr, told.clone());
        workers.push(tokio::spawn(async move {
            let connect = async || Conn { stream: TcpStream::connect(addr).await.unwrap(), buffer: vec![] };
            let mut conn = connect().await;
            for turn in 0.. {
                if (number + turn) % 7 == 3 {
                    // Disconnects, sometimes during the wait.
                    conn.send_request("GetJob", &[("name", "work"), WAIT, ("timeout", "60000")]).await;
                    conn = connect().await;
                }
                let Some(reply) = wait_for_job(&mut conn).await else { return };
                let id = reply.job_id();
                if (number + turn) % 5 == 1 && reply.json()["data"] == serde_json::json!({}) {
                    assert_eq!(conn.to("RetryJob", id, &[("data", r#"{"again":1}"#)]).await, "200 OK");
                    continue;
                }
                assert_eq!(conn.to("FinishJob", id, &[]).await, "200 OK", "only its holder finishes a job");
                told.send(id).unwrap();
            }
        }));
    }
    drop(told);
    let mut c = server.connect().await;
    for _ in 0..JOBS {
        c.create("work", &[]).await;
    }
    let mut times: HashMap<u64, usize> = HashMap::new();
    while times.len() < JOBS {
        let id = tokio::time::timeout(Duration::from_secs(60), finished.recv()).await.expect("all are done");
        *times.entry(id.unwrap()).or_default() += 1;
    }
    assert!(times.values().all(|count| *count == 1), "each once");
    workers.into_iter().for_each(|worker| worker.abort());
}

async fn wait_for_job(conn: &mut Conn) -> Option<Reply> {
    conn.send_request("GetJob", &[("name", "work"), WAIT, ("timeout", "60000")]).await;
    conn.reply().await
}
