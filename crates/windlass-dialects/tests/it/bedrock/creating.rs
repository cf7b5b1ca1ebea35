//! CreateJob and CreateJobs: the order of checks, the stored job, the meaning of `unique`.

use super::*;

#[tokio::test]
async fn the_first_thing_wrong_is_the_one_that_is_told() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let long = "x".repeat(256);
        // Each request has one fault, and all faults that later checks would find.
        let rest = [
            ("jobPriority", "7"),
            ("data", "nope"),
            ("retryAfter", "soon"),
            ("parentJobID", "99"),
            ("repeat", "often"),
        ];
        let faults = |from: usize, first: &[(&'static str, &'static str)]| {
            let mut all = first.to_vec();
            all.extend_from_slice(&rest[from..]);
            all
        };
        assert_eq!(c.status("CreateJob", &faults(0, &[])).await, "402 Missing name");
        assert_eq!(c.status("CreateJob", &[("name", "")]).await, "402 Missing name");
        assert_eq!(
            c.status("CreateJob", &[("name", &long), ("jobPriority", "7")]).await,
            "402 Malformed name"
        );
        let named = [("name", "a")];
        assert_eq!(c.status("CreateJob", &faults(0, &named)).await, "402 Invalid priority value");
        assert_eq!(c.status("CreateJob", &faults(1, &named)).await, "402 Data is not a valid JSON Object");
        assert_eq!(c.status("CreateJob", &faults(2, &named)).await, "402 Malformed retryAfter");
        assert_eq!(c.status("CreateJob", &faults(3, &named)).await, "404 parentJobID does not exist");
        assert_eq!(c.status("CreateJob", &faults(4, &named)).await, "402 Malformed repeat");
        let alias = [("name", "a"), ("priority", "7")];
        assert_eq!(c.status("CreateJob", &alias).await, "402 Invalid priority value");
        assert_eq!(c.status("CreateJob", &[("name", &long[..255])]).await, "200 OK");
    }
}

#[tokio::test]
async fn a_parent_must_be_there_and_active() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let parent = c.create("parent", &[]).await.to_string();
        let child = [("name", "child"), ("parentJobID", parent.as_str()), ("repeat", "often")];
        let inactive = "405 Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED";
        assert_eq!(c.status("CreateJob", &child).await, inactive);
        for none in ["0", "abc", ""] {
            let orphan = [("name", "orphan"), ("parentJobID", none)];
            assert_eq!(c.status("CreateJob", &orphan).await, "200 OK", "{none:?}");
        }
        assert_eq!(
            c.status("CreateJob", &[("name", "a"), ("parentJobID", "-1")]).await,
            "404 parentJobID does not exist"
        );
    }
}

#[tokio::test]
async fn data_must_be_an_object_to_the_letter() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    for data in ["", "[]", "1", "{ }", r#"{"a":1"#, r#"{"a":01}"#, "{\"a\":1}x", r#"{"a":"x"y"}"#] {
        let status = c.status("CreateJob", &[("name", "a"), ("data", data)]).await;
        assert_eq!(status, "402 Data is not a valid JSON Object", "{data:?}");
    }
    for data in ["{}", r#"{"a": [1, 2.50],  "b":"x\"y"}"#] {
        let id = c.create("a", &[("data", data)]).await;
        let job = c.ask("QueryJob", &[("jobID", &id.to_string())]).await;
        assert!(job.body.contains(&format!("\"data\":{data},")), "byte for byte: {}", job.body);
    }
    let id = c.create("none", &[]).await;
    assert_eq!(c.query(id).await["data"], serde_json::json!({}));
}

#[tokio::test]
async fn single_backslashes_are_lost_and_doubled_ones_are_not() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    c.send("CreateJob\nname: a\ndata: {\"a\":\"x\\\"y\"}\n\n").await;
    assert_eq!(c.reply().await.unwrap().status, "402 Data is not a valid JSON Object");
    c.send("CreateJob\nname: a\ndata: {\"a\":\"x\\\\\"y\"}\n\n").await;
    let id = c.reply().await.unwrap().job_id();
    assert_eq!(c.query(id).await["data"]["a"], "x\"y");
}

#[tokio::test]
async fn priorities_are_six_and_read_as_numbers_are() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    for (text, priority) in [
        ("0", 0),
        ("250", 250),
        ("500", 500),
        ("750", 750),
        ("850", 850),
        ("1000", 1000),
        ("high", 0),
        ("500x", 500),
    ] {
        let id = c.create("a", &[("jobPriority", text)]).await;
        assert_eq!(c.query(id).await["priority"], priority, "{text}");
    }
    let id = c.create("a", &[("priority", "1000")]).await;
    assert_eq!(c.query(id).await["priority"], 1000, "the other name");
    let id = c.create("a", &[("priority", "1000"), ("jobPriority", "0")]).await;
    assert_eq!(c.query(id).await["priority"], 0, "its own name first");
    for text in ["1", "-1", "501"] {
        let status = c.status("CreateJob", &[("name", "a"), ("jobPriority", text)]).await;
        assert_eq!(status, "402 Invalid priority value");
    }
}

#[tokio::test]
async fn a_new_job_has_its_columns() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let id = c.create("mail", &[("firstRun", "2024-02-01"), ("repeat", "finished, +1 day")]).await;
    let reply = c.ask("QueryJob", &[("jobID", &id.to_string())]).await;
    let expected = format!(
        r#"{{"created":"{START}","data":{{}},"jobID":{id},"lastRun":"","name":"mail","nextRun":"2024-02-01","priority":500,"repeat":"finished, +1 day","retryAfter":"","state":"QUEUED"}}"#
    );
    assert_eq!(reply.body, expected);
    let id = c.create("now", &[]).await;
    assert_eq!(c.next_run(id).await, "2024-01-31 12:00:00.000", "the default has milliseconds");
}

#[tokio::test]
async fn the_current_profile_keeps_repeat_in_capitals() {
    let server = Bedrock::current().await;
    let mut c = server.connect().await;
    let id = c.create("a", &[("repeat", "finished, +1 day")]).await;
    assert_eq!(c.query(id).await["repeat"], "FINISHED, +1 DAY");
}

#[tokio::test]
async fn ids_count_from_one() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let mut ids = vec![];
    for _ in 0..3 {
        ids.push(c.create("a", &[]).await);
    }
    assert_eq!(ids, [1, 2, 3]);
}

#[tokio::test]
async fn retry_after_goes_with_repeat_and_unique_in_the_current_profile_only() {
    let repeat = [("name", "a"), ("retryAfter", "+1 HOUR"), ("repeat", "FINISHED, +1 DAY")];
    let unique = [("name", "a"), ("retryAfter", "+1 HOUR"), ("unique", "true")];
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    assert_eq!(c.status("CreateJob", &repeat).await, "402 Recurring auto-retrying jobs are not supported");
    assert_eq!(c.status("CreateJob", &unique).await, "402 Unique auto-retrying jobs are not supported");
    let server = Bedrock::current().await;
    let mut c = server.connect().await;
    assert_eq!(c.status("CreateJob", &repeat).await, "200 OK");
    assert_eq!(c.status("CreateJob", &unique).await, "200 OK");
}

#[tokio::test]
async fn retry_after_is_a_list_of_date_modifiers() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    for text in ["soon", "+1", "+1 HOUR,", "START OF HOUR", "+1 FORTNIGHT", "1 HOUR", "FINISHED, +1 DAY"] {
        let status = c.status("CreateJob", &[("name", "a"), ("retryAfter", text)]).await;
        let fine = text == "+1 HOUR,";
        assert_eq!(status, if fine { "200 OK" } else { "402 Malformed retryAfter" }, "{text}");
    }
    for text in ["+1 HOUR", "+1 hour, +1 minute", "-5 MINUTES", "START OF DAY", "WEEKDAY 1", ""] {
        let status = c.status("CreateJob", &[("name", "a"), ("retryAfter", text)]).await;
        assert_eq!(status, "200 OK", "{text}");
    }
}

// --- unique --------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_unique_job_in_the_seed_profile_takes_over_what_is_given() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let first =
        [("unique", "true"), ("data", r#"{"a":1,"b":2}"#), ("repeat", "HOURLY"), ("jobPriority", "1000")];
    let id = c.create("once", &first).await;
    assert_eq!(c.create("once", &[("unique", "true"), ("data", r#"{"a":3}"#)]).await, id);
    let job = c.query(id).await;
    assert_eq!(job["data"], serde_json::json!({"a": 3}));
    assert_eq!((&job["repeat"], &job["priority"]), (&"HOURLY".into(), &1000.into()), "what is absent stays");
    assert_eq!(c.create("once", &[("unique", "true"), ("jobPriority", "0"), ("repeat", "DAILY")]).await, id);
    let job = c.query(id).await;
    assert_eq!((&job["repeat"], &job["priority"]), (&"DAILY".into(), &0.into()));
    assert_eq!(job["data"], serde_json::json!({"a": 3}));
    let kept = [("unique", "true"), ("data", r#"{"a":9}"#), ("overwrite", "false")];
    assert_eq!(c.create("once", &kept).await, id);
    assert_eq!(c.query(id).await["data"], serde_json::json!({"a": 3}), "overwrite: false leaves it alone");
}

#[tokio::test]
async fn a_unique_job_in_the_current_profile_is_merged_when_its_data_differs() {
    let server = Bedrock::current().await;
    let mut c = server.connect().await;
    let first =
        [("unique", "true"), ("data", r#"{"a":1,"b":2}"#), ("repeat", "HOURLY"), ("jobPriority", "1000")];
    let id = c.create("once", &first).await;
    let same = [("unique", "true"), ("data", r#"{"a":1,"b":2}"#), ("jobPriority", "0")];
    assert_eq!(c.create("once", &same).await, id);
    let job = c.query(id).await;
    assert_eq!(
        (&job["repeat"], &job["priority"]),
        (&"HOURLY".into(), &1000.into()),
        "the same data changes nothing"
    );
    let kept = [("unique", "true"), ("data", r#"{"a":9}"#), ("overwrite", "no")];
    assert_eq!(c.create("once", &kept).await, id);
    assert_eq!(c.query(id).await["data"]["a"], 1);
    assert_eq!(c.create("once", &[("unique", "true"), ("data", r#"{"a":null,"c":4}"#)]).await, id);
    let job = c.query(id).await;
    assert_eq!(job["data"], serde_json::json!({"b": 2, "c": 4}));
    assert_eq!((&job["repeat"], &job["priority"]), (&"".into(), &500.into()), "what is absent is reset");
}

#[tokio::test]
async fn unique_is_the_literal_true_and_finds_a_job_in_any_state() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        let plain = c.create("a", &[]).await;
        assert_eq!(c.create("a", &[("unique", "true")]).await, plain, "also one that was not made so");
        for other in ["TRUE", "1", "yes"] {
            assert_ne!(c.create("a", &[("unique", other)]).await, plain, "{other}");
        }
        let running = c.create("run", &[]).await;
        c.get("run").await;
        assert_eq!(c.create("run", &[("unique", "true")]).await, running);
        assert_eq!(c.to("FailJob", running, &[]).await, "200 OK");
        assert_eq!(c.create("run", &[("unique", "true")]).await, running, "failed");
        let done = c.create("done", &[("unique", "true")]).await;
        c.get("done").await;
        c.finish(done).await;
        assert_ne!(c.create("done", &[("unique", "true")]).await, done, "what is gone is gone");
    }
}

#[tokio::test]
async fn a_unique_child_must_be_the_same_parents() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let parents = [c.create("p", &[]).await.to_string(), c.create("p", &[]).await.to_string()];
    c.get("p").await;
    c.get("p").await;
    let child = c.create("c", &[("unique", "true"), ("parentJobID", &parents[0])]).await;
    assert_eq!(c.create("c", &[("unique", "true"), ("parentJobID", &parents[0])]).await, child);
    let status =
        c.status("CreateJob", &[("name", "c"), ("unique", "true"), ("parentJobID", &parents[1])]).await;
    let expected = "404 Trying to create a child that already exists, but it is tied to a different parent";
    assert_eq!(status, expected);
    let without = c.status("CreateJob", &[("name", "c"), ("unique", "true")]).await;
    assert_eq!(without, expected, "a child is no job without a parent");
    let alone = c.create("alone", &[("unique", "true")]).await;
    let same = c.create("alone", &[("unique", "true"), ("parentJobID", &parents[0])]).await;
    assert_eq!(same, alone, "nor is one without a parent made a child");
}

#[tokio::test]
async fn many_who_create_the_same_unique_job_get_the_same_one() {
    let server = Bedrock::seed().await;
    let mut tasks = vec![];
    for _ in 0..16 {
        let mut c = server.connect().await;
        tasks.push(tokio::spawn(async move { c.create("once", &[("unique", "true")]).await }));
    }
    let mut ids = vec![];
    for task in tasks {
        ids.push(task.await.unwrap());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
}

// --- CreateJobs ----------------------------------------------------------------------------------------

async fn create_jobs(c: &mut Conn, jobs: &str) -> Reply {
    c.ask("CreateJobs", &[("jobs", jobs)]).await
}

#[tokio::test]
async fn a_batch_is_made_in_order() {
    let server = Bedrock::seed().await;
    let mut c = server.connect().await;
    let jobs = r#"[{"name":"a","data":{"x":"\"q\""},"jobPriority":1000},{"name":"b","data":"{\"y\":2}","priority":"0"},
        {"name":"c","unique":true},{"name":"c","unique":true}]"#;
    let reply = create_jobs(&mut c, &jobs.replace('\n', " ")).await;
    assert_eq!((reply.status.as_str(), reply.body.as_str()), ("200 OK", r#"{"jobIDs":[1,2,3,3]}"#));
    let (a, b) = (c.query(1).await, c.query(2).await);
    assert_eq!((&a["data"]["x"], &a["priority"]), (&"\"q\"".into(), &1000.into()));
    assert_eq!((&b["data"]["y"], &b["priority"]), (&2.into(), &0.into()));
}

#[tokio::test]
async fn what_is_no_batch_is_told_so_and_nothing_is_made() {
    for profile in BOTH {
        let server = Bedrock::start(profile).await;
        let mut c = server.connect().await;
        for bad in ["", "{}", "[]", "[{}]", "[1]", r#"[{"name":"a"},{}]"#, r#"[{"name":"a"}"#, "nope"] {
            assert_eq!(create_jobs(&mut c, bad).await.status, "401 Invalid JSON", "{bad:?}");
        }
        assert_eq!(c.status("CreateJobs", &[]).await, "401 Invalid JSON");
        for (bad, status) in [
            (r#"[{"name":"a"},{"data":{}}]"#, "402 Missing name"),
            (r#"[{"name":"a"},{"data":{"name":"x"}}]"#, "402 Missing name"),
            (r#"[{"name":"a"},{"name":""}]"#, "402 Missing name"),
            (r#"[{"name":"a"},{"name":"b","jobPriority":3}]"#, "402 Invalid priority value"),
            (r#"[{"name":"a"},{"name":"b","data":[1]}]"#, "402 Data is not a valid JSON Object"),
            (r#"[{"name":"a"},{"name":"b","retryAfter":"x"}]"#, "402 Malformed retryAfter"),
            (r#"[{"name":"a"},{"name":"b","parentJobID":99}]"#, "404 parentJobID does not exist"),
            (r#"[{"name":"a"},{"name":"b","repeat":"x"}]"#, "402 Malformed repeat"),
        ] {
            assert_eq!(create_jobs(&mut c, bad).await.status, status, "{bad}");
        }
        let long = format!(r#"[{{"name":"{}"}}]"#, "x".repeat(256));
        assert_eq!(create_jobs(&mut c, &long).await.status, "402 Malformed name");
        assert_eq!(c.status("GetJob", &[("name", "*")]).await, "404 No job found");
    }
}
