//! Tokens for some queues: no call of any dialect can push to, claim, see, change or list jobs of other
//! queues.

mod calls;

use crate::support::{Keys, Reply, TestServer, serve_port};
use calls::How::{Forbidden, Less, Refused, Unknown};
use calls::{BESIDE, CALLS};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use windlass_core::Job;
use windlass_dialects::auth::Role;
use windlass_dialects::route::Access;
use windlass_dialects::{ALL, ServerOptions};
use windlass_engine::query::Filter;

const CANARY: &str = "canary-51c7";
const BINARY: &str = "0123456789abcdef0123456789abcdef01234567";

struct World {
    server: TestServer,
    bedrock: std::net::SocketAddr,
    /// Operator tokens for all queues of the tenant, and for some.
    full: String,
    scoped: String,
}

impl World {
    async fn new() -> World {
        World::of(&["a"]).await
    }

    async fn of(queues: &[&str]) -> World {
        let keys = Keys::for_tenants(&["acme"]);
        let server = TestServer::start(keys.options()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let bedrock = listener.local_addr().unwrap();
        let options = ServerOptions {
            tokens: Arc::clone(&keys.tokens),
            guests: Some(crate::bedrock_query::guests()),
            ..ServerOptions::default()
        };
        tokio::spawn(serve_port("bedrock", listener, server.engine.clone(), options, std::future::pending()));
        let full = keys.of("acme", Role::Operator).to_owned();
        let admin = keys.of("acme", Role::Admin);
        let scoped = limited(&server, admin, "operator", queues).await;
        let world = World { server, bedrock, full, scoped };
        let classes = json!({"C": {"inports": {"i": {}}, "outports": {"o": {}}}}).to_string();
        world.ask(&world.full, "PUT", "/sidejob/workers/sb", &classes).await;
        world
            .ask(&world.full, "PUT", "/api/v1/limits/lim", r#"{"matcher":{"name":"n"},"max_running":5}"#)
            .await;
        let handler = json!({"lang": "sh", "body": format!("echo {CANARY}")}).to_string();
        world.ask(&world.full, "POST", "/acme/handler/add/t/add", &handler).await;
        world.ask(&world.full, "POST", "/sidejob/logs", &json!({"note": CANARY}).to_string()).await;
        world
    }

    async fn ask(&self, token: &str, method: &str, path: &str, body: &str) -> Reply {
        self.server.call_as(Some(token), method, path, body).await
    }

    async fn make(&self, path: &str, body: Value) -> Value {
        let reply = self.ask(&self.full, "POST", path, &body.to_string()).await;
        assert!(reply.status < 300, "{path}: {}", reply.text());
        reply.json()
    }

    /// Replaces `<…>` by new jobs out of reach.
    async fn filled(&self, texts: [&str; 2]) -> [String; 2] {
        let mut texts = texts.map(str::to_owned);
        let has = |texts: &[String; 2], key: &str| texts.iter().any(|text| text.contains(key));
        let put = |texts: &mut [String; 2], key: &str, value: &Value| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            texts.iter_mut().for_each(|text| *text = text.replace(key, &value));
        };
        let job = json!({"name": "n", "queue": "b", "payload": CANARY});
        if has(&texts, "<job>") {
            put(&mut texts, "<job>", &self.make("/api/v1/jobs", job.clone()).await["id"]);
        }
        if has(&texts, "<alias>") {
            let mut job = job.clone();
            job["alias"] = json!("al");
            self.make("/api/v1/jobs", job).await;
            put(&mut texts, "<alias>", &json!("al"));
        }
        if has(&texts, "<run>") {
            let mut job = job.clone();
            (job["queue"], job["priority"]) = (json!("runs"), json!(-1));
            self.make("/api/v1/jobs", job).await;
            let claimed = self.make("/api/v1/claim", json!({"queues": ["runs"]})).await;
            put(&mut texts, "<run>", &claimed["jobs"][0]["id"]);
            put(&mut texts, "<token>", &claimed["jobs"][0]["token"]);
        }
        if has(&texts, "<jq>") {
            let made = self.make("/jq/job", json!({"name": "j", "argument": {"x": CANARY}})).await;
            put(&mut texts, "<jq>", &made["job_id"]);
        }
        if has(&texts, "<queuey>") {
            let made = self.make("/jobs/create", json!({"binary_addr": BINARY, "input_addr": BINARY})).await;
            put(&mut texts, "<queuey>", &made["job_id"]);
        }
        if has(&texts, "<miniq>") {
            let added = self.ask(&self.full, "POST", "/acme/job/t/add", CANARY).await.json();
            let id = added["ids"][0].as_str().unwrap();
            // The lookup waits until the job is in the store.
            let found = self.ask(&self.full, "GET", &format!("/acme/job/t/{id}"), "").await;
            assert_eq!(found.status, 200, "{}", found.text());
            put(&mut texts, "<miniq>", &added["ids"][0]);
        }
        for key in ["<side>", "<side2>"] {
            if has(&texts, key) {
                let ask = json!({"queue": "sb", "class": "C", "args": [CANARY]});
                put(&mut texts, key, &self.make("/sidejob/jobs", ask).await["job"]);
            }
        }
        texts
    }

    /// Waits until the jobs of a reply that came from the journal are in the store.
    async fn until_ingested(&self, reply: &Reply) {
        let value: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let ids = value["ids"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for id in ids {
            let alias = format!("/api/v1/aliases/{id}");
            let mut tries = 0..3_000;
            while self.ask(&self.full, "GET", &alias, "").await.status != 200 {
                assert!(tries.next().is_some(), "{id} is not ingested");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    }

    async fn jobs(&self) -> Vec<Arc<Job>> {
        let filter = Filter { limit: 1_000, ..Filter::default() };
        self.server.engine.list(filter).await.unwrap().jobs
    }

    async fn bedrock(&self, token: &str, line: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(self.bedrock).await.unwrap();
        let text = format!("{line}\r\nConnection: close\r\ntoken: {token}\r\n{headers}\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

#[tokio::test]
async fn bedrocks_status_counts_the_commands_of_the_callers_tenant() {
    let keys = Keys::for_tenants(&["acme", "other"]);
    let server = TestServer::start(keys.options()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bedrock = listener.local_addr().unwrap();
    let options = ServerOptions { tokens: Arc::clone(&keys.tokens), ..ServerOptions::default() };
    tokio::spawn(serve_port("bedrock", listener, server.engine.clone(), options, std::future::pending()));
    let (full, scoped) =
        (keys.of("acme", Role::Viewer).to_owned(), keys.of("other", Role::Viewer).to_owned());
    let world = World { server, bedrock, full, scoped };
    for _ in 0..5 {
        world.bedrock(&world.full, "QueryJob", "jobID: 1\r\n").await;
    }
    let answer = world.bedrock(&world.scoped, "Status", "").await;
    assert!(answer.contains("\"commandCount\":1,"), "{answer}");
    let answer = world.bedrock(keys.of("acme", Role::Admin), "Status", "").await;
    assert!(answer.contains("\"commandCount\":7,"), "{answer}");
}

/// Token for these queues.
async fn limited(server: &TestServer, admin: &str, role: &str, queues: &[&str]) -> String {
    let ask = json!({"role": role, "tenant": "acme", "queues": queues}).to_string();
    let made = server.call_as(Some(admin), "POST", "/api/v1/tokens", &ask).await;
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["token"].as_str().unwrap().to_owned()
}

fn fits(pattern: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    let same = |(pattern, path): (&&str, &&str)| pattern == path || pattern.starts_with('{');
    pattern.len() == path.len() && pattern.iter().zip(&path).all(same)
}

#[test]
fn every_call_on_jobs_is_in_the_table() {
    let routes = ALL.iter().flat_map(|dialect| dialect.routes());
    let of_callers = routes.filter(|route| matches!(route.access, Access::From(role) if role < Role::Admin));
    let missing: BTreeSet<String> = of_callers
        .filter(|route| {
            !CALLS.iter().any(|(method, path, ..)| *method == route.method && fits(route.path, path))
        })
        .map(|route| format!("{} {}", route.method, route.path))
        .filter(|call| !BESIDE.contains(&call.as_str()))
        .collect();
    assert!(missing.is_empty(), "what may a token for some queues do with these? {missing:#?}");
}

#[tokio::test]
async fn a_token_for_a_queue_reaches_nothing_of_another_at_any_door() {
    let world = World::new().await;
    let mut wrong = Vec::new();
    for (method, path, body, how) in CALLS {
        let [path, body] = world.filled([path, body]).await;
        let body = if *method == "GET" { String::new() } else { body };
        let before = world.jobs().await;
        let reply = world.ask(&world.scoped, method, &path, &body).await;
        let text_of = |reply: &Reply| String::from_utf8_lossy(&reply.body).into_owned();
        let text = text_of(&reply);
        let is_unchanged = world.jobs().await == before;
        let full = world.ask(&world.full, method, &path, &body).await;
        world.until_ingested(&full).await;
        let expected = match how {
            Forbidden | Refused => 403,
            Unknown => 404,
            Less => 200,
        };
        // Some actions are refused in this state; only a caller that may see the job learns of it.
        let is_told = *how == Unknown && matches!(full.status, 400 | 408 | 409);
        let is_done = full.status < 300 || is_told || *how == Refused;
        let is_right = reply.status == expected && !text.contains(CANARY) && is_unchanged && is_done;
        if !is_right || text_of(&full) == text {
            let full = format!("{} {}", full.status, text_of(&full));
            wrong.push(format!(
                "{method} {path} {body}: {} {text}, unchanged: {is_unchanged}; full: {full}",
                reply.status
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_token_for_a_queue_does_in_it_what_its_role_may() {
    let world = World::new().await;
    let ask = async |method: &str, path: &str, body: Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = world.ask(&world.scoped, method, path, &body).await;
        assert!(reply.status < 300, "{method} {path}: {}", reply.text());
        reply.json()
    };
    world
        .make("/api/v1/jobs", json!({"jobs": [{"name": "n", "queue": "b"}, {"name": "n", "queue": "b"}]}))
        .await;
    let id = ask("POST", "/api/v1/jobs", json!({"name": "n", "queue": "a"})).await["id"].clone();
    assert_eq!(ask("GET", "/api/v1/jobs", Value::Null).await["jobs"].as_array().unwrap().len(), 1);
    let queues = ask("GET", "/api/v1/queues", Value::Null).await;
    assert_eq!(queues["queues"].as_array().unwrap().len(), 1, "{queues}");
    assert_eq!(queues["queues"][0]["queue"], "a");
    assert_eq!(ask("GET", "/api/v1/me", Value::Null).await["queues"], json!(["a"]));
    let claimed = ask("POST", "/api/v1/claim", json!({"limit": 10, "queues": ["b", "a"]})).await;
    let jobs = claimed["jobs"].as_array().unwrap();
    assert_eq!((jobs.len(), &jobs[0]["id"]), (1, &id), "narrowed to what it reaches: {claimed}");
    let entry = json!({"id": id, "token": jobs[0]["token"], "outcome": "finish"});
    let settled = ask("POST", "/api/v1/settle", json!({ "settle": [entry] })).await;
    assert_eq!(settled["settled"][0]["ok"], true, "{settled}");
}

#[tokio::test]
async fn a_claim_that_waits_is_woken_by_jobs_it_reaches_only() {
    let world = World::new().await;
    let claim = json!({"wait_ms": 60_000}).to_string();
    let claiming = world.ask(&world.scoped, "POST", "/api/v1/claim", &claim);
    let pushing = async {
        while world.server.engine.waiters() == 0 {
            tokio::task::yield_now().await;
        }
        world.make("/api/v1/jobs", json!({"name": "n", "queue": "b"})).await;
        world.make("/api/v1/jobs", json!({"name": "n", "queue": "a"})).await["id"].clone()
    };
    let (claimed, id) = tokio::join!(claiming, pushing);
    assert_eq!(claimed.json()["jobs"][0]["id"], id, "{}", claimed.text());
}

#[tokio::test]
async fn a_listener_with_a_token_for_a_queue_hears_of_it_only() {
    let world = World::new().await;
    let mut client = world.server.connect().await;
    let bearer = format!("Bearer {}", world.scoped);
    client.send("GET", "/api/v1/events", &[("authorization", &bearer)], b"").await;
    client.until(b"listening").await.unwrap();
    world.make("/api/v1/jobs", json!({"name": "hidden", "queue": "b"})).await;
    world.make("/api/v1/jobs", json!({"name": "seen", "queue": "a"})).await;
    let heard = String::from_utf8(client.until(b"seen").await.unwrap()).unwrap();
    assert!(!heard.contains("hidden"), "{heard}");
}

#[tokio::test]
async fn a_token_for_names_of_bedrocks_jobs_reaches_these() {
    let world = World::of(&["default/mail-*"]).await;
    let create = |name: &str| format!("name: {name}\r\ndata: {{\"x\":\"{CANARY}\"}}\r\n");
    let secret = world.bedrock(&world.full, "CreateJob", &create("secret")).await;
    assert!(secret.starts_with("200 OK"), "{secret}");
    let id = world.jobs().await[0].id;
    for (line, headers, expected) in [
        ("CreateJob", create("secret"), "403 Forbidden"),
        ("CreateJob", create("secret") + "unique: true\r\n", "403 Forbidden"),
        ("CreateJobs", "jobs: [{\"name\":\"secret\"}]\r\n".to_owned(), "403 Forbidden"),
        ("GetJob", "name: secret\r\n".to_owned(), "403 Forbidden"),
        ("GetJob", "name: s*\r\n".to_owned(), "404"),
        ("GetJobs", "name: *\r\nnumResults: 5\r\n".to_owned(), "404"),
        ("QueryJob", format!("jobID: {id}\r\n"), "404"),
        ("UpdateJob", format!("jobID: {id}\r\ndata: {{}}\r\n"), "404"),
        ("CancelJob", format!("jobID: {id}\r\n"), "404"),
        ("FinishJob", format!("jobID: {id}\r\n"), "404"),
        ("RetryJob", format!("jobID: {id}\r\n"), "404"),
        ("FailJob", format!("jobID: {id}\r\n"), "404"),
        ("DeleteJob", format!("jobID: {id}\r\n"), "404"),
        ("CrashBedrockJob", "names: secret\r\n".to_owned(), "403 Forbidden"),
        ("ClearCrashedBedrockJobs", String::new(), "403 Forbidden"),
    ] {
        let before = world.jobs().await;
        let answer = world.bedrock(&world.scoped, line, &headers).await;
        assert!(answer.starts_with(expected), "{line} {headers}: {answer}");
        assert!(!answer.contains(CANARY), "{answer}");
        assert_eq!(world.jobs().await, before, "changed by {line} {headers}");
    }
    let before = world.jobs().await;
    world.bedrock(&world.scoped, "RequeueJobs", &format!("jobIDs: {id}\r\n")).await;
    assert_eq!(world.jobs().await, before);
    let query = "query: SELECT name, data FROM jobs;\r\n";
    let answer = world.bedrock(&world.scoped, "Query", query).await;
    assert!(answer.starts_with("200 OK") && !answer.contains("secret"), "{answer}");
    assert!(world.bedrock(&world.full, "Query", query).await.contains(CANARY));
    let answer = world.bedrock(&world.scoped, "CreateJob", "name: mail-out\r\n").await;
    assert!(answer.starts_with("200 OK"), "{answer}");
    let answer = world.bedrock(&world.scoped, "GetJob", "name: *\r\n").await;
    assert!(answer.contains("mail-out"), "{answer}");
}

#[tokio::test]
async fn a_key_held_out_of_reach_is_taken_and_its_job_stays_as_it_is() {
    let world = World::new().await;
    let push = |queue: &str, on_conflict: &str, payload: &str| json!({"name": "n", "queue": queue, "payload": payload, "unique": {"key": "k", "on_conflict": on_conflict}});
    world.make("/api/v1/jobs", push("b", "refuse", CANARY)).await;
    let before = world.jobs().await;
    for on_conflict in ["update", "return", "refuse"] {
        let body = push("a", on_conflict, "mine").to_string();
        let reply = world.ask(&world.scoped, "POST", "/api/v1/jobs", &body).await;
        assert_eq!((reply.status, reply.code().as_str()), (409, "duplicate"), "{}", reply.text());
        assert_eq!(world.jobs().await, before, "{on_conflict}");
    }
    let child = json!({"name": "n", "queue": "a", "parent": before[0].id.get()}).to_string();
    let reply = world.ask(&world.scoped, "POST", "/api/v1/jobs", &child).await;
    assert_eq!((reply.status, reply.code().as_str()), (404, "no_parent"), "{}", reply.text());
}

#[tokio::test]
async fn an_admin_is_for_all_queues_and_what_names_none_is_refused() {
    let keys = Keys::for_tenants(&["acme"]);
    let server = TestServer::start(keys.options()).await;
    for (ask, expected) in [
        (json!({"role": "admin", "queues": ["a"]}), "another role"),
        (json!({"role": "worker", "queues": [""]}), "a queue must not be empty"),
        (json!({"role": "worker", "queues": ["/n"]}), "a queue must not be empty"),
    ] {
        let admin = Some(keys.of("acme", Role::Admin));
        let reply = server.call_as(admin, "POST", "/api/v1/tokens", &ask.to_string()).await;
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(reply.text().contains(expected), "{}", reply.text());
    }
}
