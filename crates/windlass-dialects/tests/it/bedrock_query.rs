//! SQL over the jobs of an engine; on every store, with the tests of [`crate::bedrock`].

use crate::stores::Chosen;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use windlass_core::family::Family;
use windlass_core::{
    Extras, Job, JobId, KeepFor, Name, NameMatch, Payload, Policy, Queue, Tenant, Timestamp,
};
use windlass_dialects::bedrock::Profile;
use windlass_dialects::bedrock::query::{Answer, Ask, Program, Queries, QueryLimits};
use windlass_dialects::dialect::Guests;
use windlass_engine::{Claim, Engine, ManualClock, Options, Push, RunAt, SeededRandom};
use windlass_runners::spawn::{self, GuestProgram};

mod writes;

struct World {
    engine: Engine,
    queries: Queries,
    /// Folder of the store, if it has one.
    _folder: Option<TempDir>,
}

/// Process that runs statements.
fn program() -> Program {
    started(guest())
}

pub fn guests() -> Guests {
    Guests::new(|_| async { spawn::start(&guest(), Vec::new()).await })
}

fn guest() -> GuestProgram {
    GuestProgram { path: env!("CARGO_BIN_EXE_windlass-run-query").into(), args: Vec::new() }
}

fn started(program: GuestProgram) -> Program {
    let program = Arc::new(program);
    Program::new(move || {
        let program = Arc::clone(&program);
        async move { spawn::start(&program, Vec::new()).await }
    })
}

impl World {
    async fn new() -> World {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_419_838_731_000)));
        let random = Arc::new(SeededRandom::new(1));
        let Chosen { store, folder } = Chosen::new().await;
        let engine = Engine::start(store, clock, random, Options::default()).await.unwrap();
        World { engine, queries: Queries::new(Some(program()), QueryLimits::default()), _folder: folder }
    }

    async fn push(&self, name: &str, data: &str) {
        self.push_child(name, data, None).await;
    }

    async fn push_child(&self, name: &str, data: &str, parent: Option<u64>) {
        let family = |parent| Family { parent, child_name: None, rule: Profile::Seed.family_rule() };
        let family = parent.and_then(JobId::new).map(family);
        let mut policy = Policy::default();
        policy.lease.length_ms = None;
        policy.keep.completed = KeepFor::Ever;
        let push = Push {
            queue: Queue::default(),
            name: Name::new(name).unwrap(),
            payload: Payload::json(data),
            priority: 0,
            run_at: RunAt::Now,
            policy: Arc::new(policy),
            extras: family.map(|family| Box::new(Extras { family: Some(family), ..Extras::default() })),
            body: None,
        };
        self.engine.push(&Tenant::default(), vec![push]).await.unwrap();
    }

    async fn claim(&self, name: &str) -> Arc<Job> {
        let claim = Claim {
            tenant: Tenant::default(),
            queues: vec![],
            names: NameMatch::glob(name),
            priority: None,
            limit: 1,
            wait_ms: 0,
            lease_ms: None,
            worker: None,
        };
        self.engine.claim(claim).await.unwrap().accept().remove(0)
    }

    async fn ask(&self, ask: Ask) -> Answer {
        self.queries.answer(&self.engine, ask).await
    }

    async fn text(&self, sql: &str) -> String {
        let answer = self.ask(ask(sql)).await;
        assert_eq!(answer.status, "200 OK", "{sql}: {:?}", answer.headers);
        String::from_utf8(answer.body).unwrap()
    }

    /// Runs a statement that must fail; returns the status line and the error.
    async fn fails(&self, sql: &str) -> (String, String) {
        failure(self.ask(ask(sql)).await)
    }
}

fn failure(answer: Answer) -> (String, String) {
    let error = answer.headers.iter().find(|(name, _)| *name == "error");
    (answer.status.to_owned(), error.map(|(_, text)| text.clone()).unwrap_or_default())
}

fn ask(sql: &str) -> Ask {
    Ask {
        tenant: Tenant::default(),
        sql: sql.to_owned(),
        format: None,
        flags: None,
        nowhere: false,
        may_write: true,
        sees_payloads: true,
        profile: Profile::Seed,
        patience: Duration::from_secs(10),
    }
}

#[tokio::test]
async fn a_row_is_a_json_array_with_the_data_embedded() {
    let world = World::new().await;
    world.push("foo", r#"{"value":2}"#).await;
    assert_eq!(
        world.text("select * from jobs;").await,
        r#"[["2014-12-29 07:38:51",1,"QUEUED","foo","2014-12-29 07:38:51.000",null,"",{"value":2},500,0,""]]"#
    );
    assert_eq!(world.text("SELECT jobID FROM jobs WHERE name = 'bar';").await, "[]");
}

#[tokio::test]
async fn the_functions_of_sqlite_work_on_the_jobs() {
    let world = World::new().await;
    for number in 0..2_500 {
        let name = if number % 2 == 0 { "even" } else { "odd" };
        world.push(name, &format!(r#"{{"n":{number}}}"#)).await;
    }
    world.claim("odd").await;
    let cases = [
        ("SELECT count(*) FROM jobs;", "[[2500]]"),
        ("SELECT count(*) FROM jobs WHERE name GLOB 'o*';", "[[1250]]"),
        ("SELECT name, count(*) FROM jobs GROUP BY name ORDER BY 2, 1;", r#"[["even",1250],["odd",1250]]"#),
        ("SELECT jobID FROM jobs WHERE state = 'RUNNING';", "[[2]]"),
        ("SELECT max(data->>'n') FROM jobs WHERE name = 'odd' AND state = 'QUEUED';", "[[2499]]"),
        ("SELECT jobID FROM jobs WHERE jobID IN (7, 9, 9999) ORDER BY jobID DESC;", "[[9],[7]]"),
        ("SELECT jobID FROM jobs WHERE jobID = 7 AND name = 'odd';", "[]"),
        ("SELECT count(*) FROM jobs a JOIN jobs b USING (jobID) WHERE a.name = 'odd';", "[[1250]]"),
        ("SELECT jobID FROM jobs ORDER BY jobID LIMIT 2;", "[[1],[2]]"),
        ("SELECT 1+1, upper('x'), strftime('%Y', '2014-12-29');", r#"[[2,"X","2014"]]"#),
        (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 3) SELECT i FROM n;",
            "[[1],[2],[3]]",
        ),
    ];
    for (sql, expected) in cases {
        assert_eq!(world.text(sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn every_format_can_be_asked_for() {
    let world = World::new().await;
    world.push("foo", r#"{"a":1}"#).await;
    let sql = "SELECT jobID, name, data, lastRun FROM jobs;";
    let written = async |change: fn(&mut Ask)| {
        let mut ask = ask(sql);
        change(&mut ask);
        String::from_utf8(world.ask(ask).await.body).unwrap()
    };
    let list = "jobID|name|data|lastRun\n1|foo|{\"a\":1}|\n";
    assert_eq!(written(|ask| ask.profile = Profile::Current).await, list);
    let json = r#"{"headers":["jobID","name","data","lastRun"],"rows":[[1,"foo",{"a":1},null]]}"#;
    assert_eq!(written(|ask| ask.format = Some("json".to_owned())).await, json);
    let objects = "[{\"jobID\":1,\"name\":\"foo\",\"data\":\"{\\\"a\\\":1}\",\"lastRun\":null}]\n";
    assert_eq!(written(|ask| ask.flags = Some("-json".to_owned())).await, objects);
    let csv = "1,foo,\"{\"\"a\"\":1}\",nil\n";
    assert_eq!(written(|ask| ask.flags = Some("-csv -noheader -nullvalue nil".to_owned())).await, csv);
    let mut unknown = ask(sql);
    unknown.flags = Some("-ascii".to_owned());
    assert_eq!(
        failure(world.ask(unknown).await),
        ("402 Bad query".to_owned(), "unknown flag -ascii".to_owned())
    );
}

#[tokio::test]
async fn the_schema_can_be_seen() {
    let world = World::new().await;
    for sql in [".schema", ".schema jobs", ".schema jobs;"] {
        assert!(
            world
                .text(sql)
                .await
                .starts_with("CREATE TABLE jobs ( created TIMESTAMP NOT NULL, jobID INTEGER")
        );
    }
    assert_eq!(world.text(".schema other").await, "");
}

#[tokio::test]
async fn what_is_wrong_with_a_query_is_said_and_shown() {
    let world = World::new().await;
    assert_eq!(world.ask(ask("  ")).await.status, "402 Missing query");
    assert_eq!(world.ask(ask("SELECT 1")).await.status, "502 Query Missing Semicolon");
    let answer = world.ask(ask("SELECT jobID, nonsense FROM jobs;")).await;
    assert_eq!(answer.status, "402 Bad query");
    assert_eq!(answer.headers, [("error", "no such column: nonsense".to_owned())]);
    let body =
        "no such column: nonsense\n  SELECT jobID, nonsense FROM jobs;\n                ^--- error here\n";
    assert_eq!(String::from_utf8(answer.body).unwrap(), body);
    assert_eq!(world.fails("SELEC 1;").await.1, "near \"SELEC\": syntax error");
    assert_eq!(world.fails("SELECT 1; SELECT 2;").await.1, "a query must be a single statement");
}

#[tokio::test]
async fn nothing_but_jobs_can_be_reached() {
    let world = World::new().await;
    for sql in [
        "INSERT INTO jobs (jobID) VALUES (1);",
        "REPLACE INTO jobs (jobID) VALUES (1);",
        "CREATE TABLE other (a);",
        "CREATE TEMP TABLE other (a);",
        "DROP TABLE jobs;",
        "ALTER TABLE jobs ADD COLUMN x;",
        "ATTACH 'file.db' AS f;",
        "PRAGMA writable_schema = 1;",
        "SELECT * FROM pragma_database_list;",
        "VACUUM;",
        "VACUUM INTO 'copy.db';",
        "BEGIN;",
        "SAVEPOINT a;",
        "ANALYZE;",
        "UPDATE jobs SET jobID = 5 WHERE 1;",
        "UPDATE jobs SET created = 5 WHERE 1;",
        "SELECT load_extension('x');",
    ] {
        let (status, error) = world.fails(sql).await;
        assert_eq!(status, "502 Query aborted", "{sql}: {error}");
        assert!(!error.is_empty(), "{sql}");
    }
    let (_, error) = world.fails("DROP TABLE jobs;").await;
    assert!(error.starts_with("changing the schema is not allowed; a query may use SELECT"), "{error}");
    let (status, error) = world.fails("UPDATE sqlite_master SET sql = '' WHERE 1;").await;
    assert_eq!(
        (status.as_str(), error.as_str()),
        ("402 Bad query", "table sqlite_master may not be modified")
    );
    for sql in ["DELETE FROM jobs;", "UPDATE jobs SET data = '{}';"] {
        assert_eq!(world.fails(sql).await.0, "502 Query aborted", "{sql}");
    }
}

#[tokio::test]
async fn a_query_ends_when_its_time_is_over() {
    let world = World::new().await;
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT max(i) FROM n;";
    let started = Instant::now();
    let answer = world.ask(Ask { patience: Duration::from_millis(50), ..ask(endless) }).await;
    assert_eq!(answer.status, "555 Timeout peeking command");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn one_tenant_leaves_a_slot_for_the_statements_of_others() {
    let world = Arc::new(World::new().await);
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT max(i) FROM n;";
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let world = Arc::clone(&world);
        flood.spawn(async move {
            world.ask(Ask { patience: Duration::from_secs(20), ..ask(endless) }).await;
        });
    }
    // All statements of the busy tenant are queued before that of the quiet tenant.
    tokio::task::yield_now().await;
    let quiet = Ask {
        tenant: Tenant::new("quiet").unwrap(),
        patience: Duration::from_secs(15),
        ..ask("SELECT 1+1;")
    };
    assert_eq!(world.ask(quiet).await.status, "200 OK");
    flood.abort_all();
}

/// A single function call, during which SQLite does not call the progress handler.
const IN_ONE_FUNCTION: &str = "SELECT instr(hex(zeroblob(500000)), hex(zeroblob(250000))||'1') + instr(hex(zeroblob(500000)), \
     hex(zeroblob(250000))||'2');";

#[tokio::test]
async fn a_statement_that_is_inside_of_one_function_ends_when_its_time_is_over() {
    let world = World::new().await;
    // More than the slots: each occupies its slot until its process is dead, and all get to run.
    let asks = (0..6).map(|_| world.ask(Ask { patience: Duration::from_secs(2), ..ask(IN_ONE_FUNCTION) }));
    for answer in futures_util::future::join_all(asks).await {
        assert_eq!(answer.status, "555 Timeout peeking command");
    }
    assert_eq!(world.text("SELECT 1+1;").await, "[[2]]");
}

#[tokio::test]
async fn values_that_functions_make_are_bounded_by_the_largest_job() {
    let world = World::new().await;
    for made in ["hex(zeroblob(15000000))", "printf('%.60000000c', 'x')", "zeroblob(2000000)"] {
        let (status, error) = world.fails(&format!("SELECT length({made});")).await;
        assert_eq!(
            (status.as_str(), error.as_str()),
            ("502 Query aborted", "string or blob too big"),
            "{made}"
        );
    }
    let pattern = format!("SELECT 'x' LIKE '{}';", "%x".repeat(1_000));
    assert!(world.fails(&pattern).await.1.contains("too complex"));
    world.push("large", &format!(r#"{{"a":"{}"}}"#, "x".repeat(1 << 20))).await;
    let sql = "SELECT length(json_set(data, '$.b', 1)), length(hex(data)) FROM jobs ORDER BY data;";
    assert_eq!(world.text(sql).await, "[[1048590,2097168]]");
}

#[tokio::test]
async fn a_process_that_was_killed_meanwhile_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let script = format!("echo $$ >> '{}'; exec '{}'", pids.display(), guest().path.display());
    let program = GuestProgram { path: "/bin/sh".into(), args: vec!["-c".to_owned(), script] };
    let queries = Queries::new(Some(started(program)), QueryLimits::default());
    let world = World { queries, ..World::new().await };
    let started = || std::fs::read_to_string(&pids).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(world.text("SELECT 1;").await, "[[1]]");
    assert_eq!(world.text("SELECT 2;").await, "[[2]]");
    let [first] = started().try_into().unwrap();
    assert!(std::process::Command::new("kill").arg("-9").arg(first).status().unwrap().success());
    assert_eq!(world.text("SELECT 3;").await, "[[3]]");
    assert_eq!(started().len(), 2, "the first is used again while it lives, and replaced when it does not");
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_refused() {
    let world = World::new().await;
    let long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 100) \
                SELECT zeroblob(1000000) FROM n;";
    let (status, error) = world.fails(long).await;
    assert_eq!(status, "502 Query aborted");
    assert!(error.contains("exceeds 64 MiB"), "{error}");
}

#[tokio::test]
async fn another_tenants_jobs_are_not_seen() {
    let world = World::new().await;
    world.push("foo", "{}").await;
    let stranger = Tenant::new("stranger").unwrap();
    for sql in ["SELECT * FROM jobs;", "SELECT * FROM jobs WHERE jobID = 1;"] {
        let answer = world.ask(Ask { tenant: stranger.clone(), ..ask(sql) }).await;
        assert_eq!(answer.body, b"[]");
    }
}
