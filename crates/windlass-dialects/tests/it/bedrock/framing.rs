//! Framing over a socket, beyond the parser's unit tests.

use super::*;

#[tokio::test]
async fn a_request_may_come_byte_by_byte() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    c.stream.set_nodelay(true).unwrap();
    for byte in b"\r\nCreateJob\r\nname: slow\r\ndata: {\"a\":\r\n 1}\r\nContent-Length: 3\r\n\r\nxyz" {
        c.stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let id = c.reply().await.unwrap().ok().job_id();
    assert_eq!(c.query(id).await["data"]["a"], 1);
}

#[tokio::test]
async fn pipelined_requests_are_all_answered_in_order() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let mut text = String::new();
        for number in 1..=50 {
            text.push_str(&format!(
                "CreateJob\nname: n{number}\n\nQueryJob\r\njobID: {number}\r\nContent-Length: 0\r\n\r\n"
            ));
        }
        c.send(&text).await;
        for number in 1..=50_u64 {
            assert_eq!(c.reply().await.unwrap().job_id(), number);
            assert_eq!(c.reply().await.unwrap().json()["name"], format!("n{number}"));
        }
    }
}

#[tokio::test]
async fn a_run_of_requests_has_the_outcome_of_one_after_the_other() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let mut text = String::new();
        for number in 1..=300 {
            let name = if number % 7 == 0 { String::new() } else { format!("name: n{number}\n") };
            text.push_str(&format!("CreateJob\n{name}jobPriority: {}\n\n", 500 + 250 * (number % 2)));
        }
        text.push_str(&"GetJob\nname: n*\n\n".repeat(260));
        // Twice each: only the first report counts.
        (1..=258).for_each(|id| text.push_str(&format!("FinishJob\njobID: {id}\n\n").repeat(2)));
        text.push_str("GetJob\nname: n*\nnumResults: 1\n\nPing\n\n");
        c.send(&text).await;
        let mut made = Vec::new();
        for number in 1..=300_u64 {
            let reply = c.reply().await.unwrap();
            if number % 7 == 0 {
                assert_eq!(reply.status, "402 Missing name");
            } else {
                made.push((reply.job_id(), number));
            }
        }
        assert!(made.iter().map(|(id, _)| *id).eq(1..=258), "ids in the order of the requests");
        // Urgent jobs first, each priority in the order of creation.
        let (urgent, rest): (Vec<_>, Vec<_>) = made.iter().partition(|(_, number)| number % 2 == 1);
        for (id, number) in urgent.into_iter().chain(rest) {
            let job = c.reply().await.unwrap().ok().json();
            assert_eq!(
                (job["jobID"].as_u64(), job["name"].as_str()),
                (Some(id), Some(&*format!("n{number}")))
            );
        }
        for _ in 0..2 {
            assert_eq!(c.reply().await.unwrap().status, "404 No job found");
        }
        for id in 1..=258 {
            assert_eq!(c.reply().await.unwrap().status, "200 OK", "{id}");
            assert!(!c.reply().await.unwrap().status.starts_with("200"), "{id}");
        }
        assert!(c.reply().await.unwrap().status.starts_with("402"));
        assert_eq!(c.reply().await.unwrap().status, "200 OK");
    }
}

/// A store that processes several claims at once must not give a job that only one claim matches to another
/// claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_that_the_same_job_answers_are_answered_one_after_the_other() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let first = c.create("a/first", &[]).await;
    let second = c.create("a/second", &[("firstRun", "2024-01-31 11:00:00"), ("jobPriority", "0")]).await;
    let third = c.create("a/third", &[("jobPriority", "250")]).await;
    c.send("GetJob\nname: a/*\n\nGetJob\nname: a/third\n\nGetJob\nname: a/*\n\nGetJob\nname: a/second\n\n")
        .await;
    for id in [first, third, second] {
        assert_eq!(c.reply().await.unwrap().ok().job_id(), id);
    }
    assert_eq!(c.reply().await.unwrap().status, "404 No job found");
    let urgent = c.create("b", &[("jobPriority", "1000")]).await;
    let plain = c.create("b", &[]).await;
    c.send("GetJob\nname: b\n\nGetJob\nname: b\njobPriority: 500\n\nGetJob\nname: b\n\n").await;
    for id in [urgent, plain] {
        assert_eq!(c.reply().await.unwrap().ok().job_id(), id);
    }
    assert_eq!(c.reply().await.unwrap().status, "404 No job found");
}

#[tokio::test]
async fn bodies_are_skipped_chunked_or_counted() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    c.send("CreateJob\nname: a\nContent-Length: 9\n\nname: b\n\nPing\nTransfer-Encoding: chunked\n\n3\r\nabc\r\n0\r\n\r\n").await;
    let id = c.reply().await.unwrap().ok().job_id();
    assert_eq!(c.query_after_ping(id).await, "a");
}

impl Conn {
    async fn query_after_ping(&mut self, id: u64) -> String {
        assert_eq!(self.reply().await.unwrap().status, "200 OK");
        self.query(id).await["name"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_bad_length_closes_the_connection_without_a_word() {
    let server = Bedrock::seed().await;
    for length in ["abc", "-1"] {
        let mut c = server.connect().await;
        c.send(&format!("Ping\nContent-Length: {length}\n\n")).await;
        assert!(c.reply().await.is_none(), "{length}");
    }
}

#[tokio::test]
async fn a_megabyte_of_data_fits_into_a_header_and_too_much_is_told() {
    let limits =
        windlass_dialects::listener::ListenerLimits { body_bytes_max: 3 << 20, ..Default::default() };
    let server = Bedrock::with(ServerOptions { limits, ..ServerOptions::default() }).await;
    let mut c = server.connect().await;
    let data = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    let id = c.create("large", &[("data", &data)]).await;
    assert_eq!(c.query(id).await["data"]["a"].as_str().unwrap().len(), 1 << 20);
    let mut c = server.connect().await;
    // More than the socket buffers hold: the connection must stay open until the client has read the reply.
    c.send(&format!("CreateJob\ndata: {}", "x".repeat(24 << 20))).await;
    assert_eq!(c.reply().await.unwrap().status, "413 Request too large");
    assert!(c.reply().await.is_none(), "then the connection ends");
    let mut c = server.connect().await;
    c.send(&format!("Ping\n{}\n", "a: b\n".repeat(1_001))).await;
    assert_eq!(c.reply().await.unwrap().status, "431 Too many headers");
}

#[tokio::test]
async fn values_that_are_not_text_are_refused() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    c.stream
        .write_all(b"CreateJob\nname: \xff\n\nCreateJob\nname: a\ndata: {\"a\":\"\xff\"}\n\n")
        .await
        .unwrap();
    assert_eq!(c.reply().await.unwrap().status, "402 Malformed name");
    assert_eq!(c.reply().await.unwrap().status, "402 Data is not a valid JSON Object");
}

#[tokio::test]
async fn a_query_may_be_the_method_line() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    c.create("a", &[]).await;
    c.send("Query: SELECT jobID,\n name FROM jobs;\n\n").await;
    assert_eq!(c.reply().await.unwrap().ok().body.trim_end(), r#"[[1,"a"]]"#);
    let reply = c.ask("Query", &[("query", "SELECT name FROM jobs;"), ("Format", "json")]).await.ok();
    assert_eq!(reply.json()["rows"], serde_json::json!([["a"]]));
    assert_eq!(c.status("Query", &[]).await, "402 Missing query");
}
