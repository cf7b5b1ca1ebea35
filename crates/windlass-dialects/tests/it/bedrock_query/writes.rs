//! UPDATE and DELETE, which are applied as engine events.

use super::{World, ask, failure};
use windlass_core::{Event, Holder, Outcome, Tenant};
use windlass_dialects::bedrock::query::Ask;
use windlass_engine::{JobEvent, VerbError};

async fn done(world: &World, sql: &str) {
    assert_eq!(world.text(sql).await, "", "{sql}");
}

fn finish() -> Event {
    Event::finish(Holder::Anyone, Outcome::default())
}

#[tokio::test]
async fn delete_removes_what_it_names_and_nothing_else() {
    let world = World::new().await;
    for name in ["a", "b", "a", "c"] {
        world.push(name, "{}").await;
    }
    done(&world, "DELETE FROM jobs WHERE name = 'a' AND jobID < 3;").await;
    assert_eq!(world.text("SELECT jobID FROM jobs;").await, "[[2],[3],[4]]");
    done(&world, "DELETE FROM jobs WHERE name = 'nobody';").await;
    done(&world, "DELETE FROM jobs WHERE jobID IN (SELECT max(jobID) FROM jobs);").await;
    assert_eq!(world.text("SELECT jobID FROM jobs;").await, "[[2],[3]]");
    let all = Ask { nowhere: true, ..ask("DELETE FROM jobs;") };
    assert_eq!(world.ask(all).await.status, "200 OK");
    assert_eq!(world.text("SELECT count(*) FROM jobs;").await, "[[0]]");
}

#[tokio::test]
async fn a_running_job_that_is_deleted_is_taken_away_from_its_worker() {
    let world = World::new().await;
    world.push("a", "{}").await;
    let job = world.claim("a").await;
    done(&world, "DELETE FROM jobs WHERE state = 'RUNNING';").await;
    let entries = vec![JobEvent { id: job.id, event: finish() }];
    let answers = world.engine.settle(&Tenant::default(), entries).await.unwrap();
    assert_eq!(answers, [Err(VerbError::NotFound)]);
}

#[tokio::test]
async fn a_family_goes_in_one_statement_and_a_parent_alone_does_not() {
    let world = World::new().await;
    world.push("parent", "{}").await;
    let parent = world.claim("parent").await;
    world.push_child("child", "{}", Some(1)).await;
    let entries = vec![JobEvent { id: parent.id, event: finish() }];
    world.engine.settle(&Tenant::default(), entries).await.unwrap();
    let (status, error) = world.fails("DELETE FROM jobs WHERE name = 'parent';").await;
    assert_eq!(status, "502 Query failed");
    assert_eq!(error, "job 1: the job has unfinished children");
    done(&world, "DELETE FROM jobs WHERE jobID > 0;").await;
    assert_eq!(world.text("SELECT count(*) FROM jobs;").await, "[[0]]");
}

#[tokio::test]
async fn update_sets_every_column_it_may() {
    let world = World::new().await;
    world.push("a", r#"{"n":1}"#).await;
    done(
        &world,
        "UPDATE jobs SET name = name || '2', data = json_set(data, '$.n', data->>'n' + 1), priority = 1000, \
         nextRun = '2030-01-01', repeat = 'FINISHED, +1 DAY' WHERE jobID = 1;",
    )
    .await;
    assert_eq!(
        world.text("SELECT name, data, priority, nextRun, repeat, state FROM jobs;").await,
        r#"[["a2",{"n":2},1000,"2030-01-01","FINISHED, +1 DAY","QUEUED"]]"#
    );
    done(&world, "UPDATE jobs SET repeat = '', retryAfter = '+5 MINUTES', nextRun = '2014-01-01' WHERE 1;")
        .await;
    assert_eq!(
        world.text("SELECT repeat, retryAfter, nextRun FROM jobs;").await,
        r#"[["","+5 MINUTES","2014-01-01"]]"#
    );
    let job = world.claim("a2").await;
    let until = job.state().lease().unwrap().until.unwrap();
    assert_eq!(until.since_ms(world.engine.now()), 300_000);
    assert_eq!(world.text("SELECT state FROM jobs;").await, r#"[["RUNQUEUED"]]"#);
}

#[tokio::test]
async fn a_state_that_is_set_goes_the_way_of_the_command() {
    let world = World::new().await;
    let cases = [
        ("QUEUED", "FAILED", r#"[["FAILED"]]"#),
        ("QUEUED", "CANCELLED", r#"[["CANCELLED"]]"#),
        ("QUEUED", "FINISHED", r#"[["FINISHED"]]"#),
        ("RUNNING", "QUEUED", r#"[["QUEUED"]]"#),
        ("RUNNING", "FAILED", r#"[["FAILED"]]"#),
        ("RUNNING", "FINISHED", r#"[["FINISHED"]]"#),
        ("RUNNING", "CANCELLED", r#"[["CANCELLED"]]"#),
    ];
    for (number, (from, to, expected)) in cases.into_iter().enumerate() {
        let id = number + 1;
        world.push("a", "{}").await;
        if from == "RUNNING" {
            world.claim("a").await;
        }
        done(&world, &format!("UPDATE jobs SET state = '{to}' WHERE jobID = {id} AND state = '{from}';"))
            .await;
        let sql = format!("SELECT state FROM jobs WHERE jobID = {id};");
        assert_eq!(world.text(&sql).await, expected, "{from} to {to}");
        if to != "QUEUED" {
            done(&world, &format!("UPDATE jobs SET state = 'QUEUED' WHERE jobID = {id};")).await;
            assert_eq!(world.text(&sql).await, r#"[["QUEUED"]]"#, "{to} to QUEUED");
        }
        done(&world, "DELETE FROM jobs WHERE 1;").await;
    }
}

#[tokio::test]
async fn if_one_row_cannot_be_changed_none_is() {
    let world = World::new().await;
    world.push("a", r#"{"n":1}"#).await;
    world.push("b", r#"{"n":2}"#).await;
    let before = world.text("SELECT * FROM jobs;").await;
    let cases = [
        ("UPDATE jobs SET data = iif(jobID = 1, 'junk', '{}') WHERE 1;", "job 1: data must be a JSON object"),
        (
            "UPDATE jobs SET priority = 7 WHERE jobID = 2;",
            "job 2: priority must be 0, 250, 500, 750, 850 or 1000",
        ),
        (
            "UPDATE jobs SET state = 'RUNNING' WHERE jobID = 2;",
            "job 2: state cannot be set to RUNNING; it can be set",
        ),
        ("UPDATE jobs SET state = 'BUSY' WHERE jobID = 2;", "job 2: unknown state BUSY"),
        ("UPDATE jobs SET name = '' WHERE jobID = 2;", "job 2: "),
        ("UPDATE jobs SET repeat = 'sometimes' WHERE jobID = 2;", "job 2: repeat: "),
        (
            "UPDATE jobs SET repeat = 'HOURLY', retryAfter = '+1 DAY' WHERE 1;",
            "job 2: recurring auto-retrying",
        ),
    ];
    for (sql, expected) in cases {
        let (status, error) = world.fails(sql).await;
        assert_eq!(status, "502 Query aborted", "{sql}");
        assert!(error.starts_with(expected), "{sql}: {error}");
    }
    let (status, error) = world.fails("UPDATE jobs SET data = NULL WHERE 1;").await;
    assert_eq!(
        (status.as_str(), error.as_str()),
        ("400 Unique Constraints Violation", "NOT NULL constraint failed: jobs.data")
    );
    assert_eq!(world.text("SELECT * FROM jobs;").await, before);
}

#[tokio::test]
async fn who_may_not_write_may_still_read() {
    let world = World::new().await;
    world.push("a", "{}").await;
    for sql in ["DELETE FROM jobs WHERE 1;", "UPDATE jobs SET priority = 0 WHERE 1;"] {
        let answer = world.ask(Ask { may_write: false, ..ask(sql) }).await;
        let refused =
            ("502 Query aborted".to_owned(), "changing jobs with SQL requires the admin role".to_owned());
        assert_eq!(failure(answer), refused);
    }
    let answer = world.ask(Ask { may_write: false, ..ask("SELECT count(*) FROM jobs;") }).await;
    assert_eq!(answer.body, b"[[1]]");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_meet_at_one_job_all_count() {
    let world = std::sync::Arc::new(World::new().await);
    world.push("a", r#"{"n":0}"#).await;
    let count = |world: std::sync::Arc<World>| async move {
        done(&world, "UPDATE jobs SET data = json_set(data, '$.n', data->>'n' + 1) WHERE jobID = 1;").await;
    };
    let tasks: Vec<_> = (0..6).map(|_| tokio::spawn(count(world.clone()))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(world.text("SELECT data FROM jobs;").await, r#"[[{"n":6}]]"#);
}
