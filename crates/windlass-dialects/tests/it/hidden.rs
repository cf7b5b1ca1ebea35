//! `auth.viewer_payloads = hide`: no dialect shows payloads to viewers.

use crate::support::{Keys, TestServer, serve_port};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use windlass_dialects::auth::Role;
use windlass_dialects::route::{Access, Route};
use windlass_dialects::{ALL, ServerOptions};

const CANARY: &str = "canary-8fb1";
const BINARY: &str = "0123456789abcdef0123456789abcdef01234567";

struct World {
    server: TestServer,
    keys: Keys,
    bedrock: std::net::SocketAddr,
    /// Job numbers of all dialects.
    jobs: Vec<u64>,
    blob: String,
    queuey: String,
    miniq: String,
    sidejob: u64,
    jq: u64,
}

impl World {
    async fn new() -> World {
        let keys = Keys::for_tenants(&["acme"]);
        let server = TestServer::start(ServerOptions { hide_payloads: true, ..keys.options() }).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let bedrock = listener.local_addr().unwrap();
        let options = ServerOptions {
            tokens: Arc::clone(&keys.tokens),
            hide_payloads: true,
            guests: Some(crate::bedrock_query::guests()),
            ..ServerOptions::default()
        };
        tokio::spawn(serve_port("bedrock", listener, server.engine.clone(), options, std::future::pending()));
        let mut world = World {
            server,
            keys,
            bedrock,
            jobs: vec![],
            blob: String::new(),
            queuey: String::new(),
            miniq: String::new(),
            sidejob: 0,
            jq: 0,
        };
        world.fill_native().await;
        world.fill_dialects().await;
        world
    }

    async fn ask(&self, role: Role, method: &str, path: &str, body: &str) -> (u16, String) {
        let reply = self.server.call_as(Some(self.keys.of("acme", role)), method, path, body).await;
        (reply.status, String::from_utf8_lossy(&reply.body).into_owned())
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (status, text) = self.ask(Role::Operator, "POST", path, &body.to_string()).await;
        assert!(status < 300, "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// Claims the only job of a queue: id and lease token.
    async fn claim(&self, queue: &str) -> (Value, Value) {
        let claimed = self.post("/api/v1/claim", json!({"queues": [queue]})).await;
        (claimed["jobs"][0]["id"].clone(), claimed["jobs"][0]["token"].clone())
    }

    async fn settle(&self, queue: &str, mut entry: Value) -> u64 {
        let (id, token) = self.claim(queue).await;
        (entry["id"], entry["token"]) = (id.clone(), token);
        let settled = self.post("/api/v1/settle", json!({ "settle": [entry] })).await;
        assert_eq!(settled["settled"][0]["ok"], true, "{settled}");
        id.as_u64().unwrap()
    }

    async fn fill_native(&mut self) {
        for (queue, alias) in [("done", "al"), ("failed", "al2"), ("running", "al3")] {
            let job = json!({"name": "n", "queue": queue, "alias": alias, "payload": {"x": CANARY}});
            self.post("/api/v1/jobs", job).await;
        }
        let finish = json!({"outcome": "finish", "result": {"r": CANARY}});
        let fail = json!({"outcome": "fail", "retry": false, "message": CANARY, "error": CANARY});
        let (done, failed) = (self.settle("done", finish).await, self.settle("failed", fail.clone()).await);
        let schedule = json!({"name": "n", "queue": "turns", "repeat": "every 1h"});
        self.post("/api/v1/jobs", schedule).await;
        let failing = self.settle("turns", fail).await;
        let (running, token) = self.claim("running").await;
        let log = json!({"token": token, "lines": [CANARY]});
        self.post(&format!("/api/v1/jobs/{running}/log"), log).await;
        self.jobs = vec![done, failed, failing, running.as_u64().unwrap()];
        let repeating = json!({"name": "r", "payload": CANARY, "delay_ms": 9_000_000, "repeat": "every 1h"});
        let made = self.ask(Role::Operator, "POST", "/api/v1/jobs", &repeating.to_string()).await;
        if made.0 == 201 {
            let made: Value = serde_json::from_str(&made.1).unwrap();
            self.jobs.push(made["id"].as_u64().unwrap());
        }
    }

    async fn fill_dialects(&mut self) {
        let jq =
            self.post("/jq/job", json!({"name": "j", "argument": {"x": CANARY}, "keep_result": true})).await;
        self.jq = jq["job_id"].as_str().unwrap().parse().unwrap();
        self.settle("jq", json!({"outcome": "finish", "result": {"r": CANARY}})).await;
        let put = self.ask(Role::Worker, "PUT", "/blob", CANARY).await;
        self.blob = put.1;
        let create = json!({"binary_addr": BINARY, "input_addr": self.blob});
        self.queuey = self.post("/jobs/create", create).await["job_id"].as_str().unwrap().to_owned();
        let handler = json!({"lang": "sh", "body": format!("echo {CANARY}")});
        self.post("/acme/handler/add/t/add", handler).await;
        let added = self.ask(Role::Worker, "POST", "/acme/job/t/add", CANARY).await.1;
        let added: Value = serde_json::from_str(&added).unwrap();
        self.miniq = added["ids"][0].as_str().unwrap().to_owned();
        // The lookup waits until the job is in the store.
        self.ask(Role::Worker, "GET", &format!("/acme/job/t/{}", self.miniq), "").await;
        self.settle("miniq", json!({"outcome": "finish", "result": CANARY})).await;
        let (status, text) =
            self.ask(Role::Worker, "PUT", "/sidejob/workers/sq", r#"{"C":{"inports":{"a":{}}}}"#).await;
        assert_eq!(status, 200, "{text}");
        let made = self.post("/sidejob/jobs", json!({"queue": "sq", "class": "C", "args": [CANARY]})).await;
        self.sidejob = made["job"].as_u64().unwrap_or_else(|| panic!("{made}"));
        let path = format!("/sidejob/jobs/{}", self.sidejob);
        self.post(&format!("{path}/inports/a/default"), json!({"default": CANARY})).await;
        self.post(&format!("{path}/inports/a/write"), json!({"data": CANARY})).await;
        self.post(&format!("{path}/state"), json!({"key": CANARY})).await;
        self.post("/sidejob/logs", json!({"note": CANARY})).await;
        self.bedrock(
            Role::Worker,
            "CreateJob",
            &[("name", "b"), ("data", &json!({"x": CANARY}).to_string())],
        )
        .await;
        let limit = json!({"matcher": {"name": "n"}, "max_running": 5});
        assert_eq!(self.ask(Role::Operator, "PUT", "/api/v1/limits/lim", &limit.to_string()).await.0, 200);
        let last = self.post("/api/v1/jobs", json!({"name": "last"})).await["id"].as_u64().unwrap();
        self.jobs = (1..last).collect();
    }

    async fn bedrock(&self, role: Role, line: &str, headers: &[(&str, &str)]) -> String {
        let mut stream = TcpStream::connect(self.bedrock).await.unwrap();
        let mut text = format!("{line}\r\nConnection: close\r\ntoken: {}\r\n", self.keys.of("acme", role));
        headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
        stream.write_all(format!("{text}\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Paths of the route with every parameter value that could reveal something.
    fn paths(&self, route: &Route) -> Vec<String> {
        let path = route.path;
        let jobs = |ids: &[u64]| ids.iter().map(|id| path.replace("{id}", &id.to_string())).collect();
        match path {
            "/jobs/{id}" => vec![path.replace("{id}", &self.queuey)],
            "/sidejob/jobs/{id}/{side}/{port}" => {
                vec![format!("/sidejob/jobs/{}/inports/a", self.sidejob)]
            }
            "/sidejob/jobs/{id}/child/{name}" => vec![format!("/sidejob/jobs/{}/child/x", self.sidejob)],
            "/jq/constraint/{id}" => vec!["/jq/constraint/lim".to_owned()],
            "/jq/job/{id}/polling" => vec![format!("/jq/job/{}/polling?timeout=1", self.jq)],
            "/{client}/job/{type}/{id}" | "/{client}/job/{type}/{id}/result" => {
                let named = path.replace("{client}", "acme").replace("{type}", "t");
                vec![named.replace("{id}", &self.miniq)]
            }
            "/blob/{*addr}" => vec![format!("/blob/{}", self.blob)],
            "/api/v1/jobs" => {
                vec![path.to_owned(), format!("{path}?q={CANARY}"), format!("{path}?search={CANARY}")]
            }
            "/api/v1/jobs/count" => vec![format!("{path}?search={CANARY}")],
            "/api/v1/aliases/{alias}" => {
                ["al", "al2", "al3"].map(|alias| path.replace("{alias}", alias)).into()
            }
            _ if path.contains("{id}") => jobs(&self.jobs),
            _ => {
                let path = path.replace("{queue}", "sq").replace("{client}", "acme").replace("{type}", "t");
                let path = path.replace("{tenant}", "acme");
                assert!(!path.contains('{'), "what is in {path}? Say it here, so that the test covers it");
                vec![path]
            }
        }
    }

    /// Response to a role on a route; of a stream, its beginning.
    async fn shown(&self, role: Role, route: &Route, path: &str) -> String {
        if route.path == "/api/v1/events" {
            let mut client = self.server.connect().await;
            let bearer = format!("Bearer {}", self.keys.of("acme", role));
            client.send("GET", path, &[("authorization", &bearer)], b"").await;
            client.until(b"listening").await.unwrap();
            let push = json!({"name": "seen", "payload": CANARY});
            self.post("/api/v1/jobs", push).await;
            return String::from_utf8(client.until(b"seen").await.unwrap()).unwrap();
        }
        self.ask(role, route.method, path, "").await.1
    }
}

/// Every call that a viewer may make.
fn for_viewers() -> impl Iterator<Item = &'static Route> {
    let routes = ALL.iter().flat_map(|dialect| dialect.routes());
    routes.filter(|route| matches!(route.access, Access::Public | Access::From(Role::Viewer)))
}

#[tokio::test]
async fn no_call_of_any_dialect_shows_a_viewer_what_jobs_work_on() {
    let world = World::new().await;
    let mut seen_by_workers = Vec::new();
    for route in for_viewers() {
        for path in world.paths(route) {
            let text = world.shown(Role::Viewer, route, &path).await;
            // An error may repeat the request.
            let asked_for = path.contains(CANARY) && text.contains("\"error\"");
            assert!(asked_for || !text.contains(CANARY), "{path} shows a viewer {text}");
            assert!(!text.contains(BINARY), "{path} shows a viewer {text}");
            if world.shown(Role::Worker, route, &path).await.contains(CANARY) {
                seen_by_workers.push(route.path);
            }
        }
    }
    // Proves that the test detects payloads: workers see them.
    seen_by_workers.dedup();
    for path in [
        "/api/v1/jobs",
        "/api/v1/jobs/{id}",
        "/api/v1/jobs/{id}/result",
        "/api/v1/aliases/{alias}",
        "/api/v1/schedules/{id}/turns",
        "/api/v1/handlers",
        "/jq/job/{id}",
        "/blob/{*addr}",
        "/{client}/job/{type}/{id}",
        "/{client}/job/{type}/{id}/result",
        "/{client}/handler/get/{type}",
        "/{client}/job/{type}/archive",
        "/sidejob/jobs/{id}",
        "/sidejob/jobs/{id}/state",
        "/sidejob/jobs/{id}/{side}/{port}",
        "/sidejob/logs",
    ] {
        assert!(seen_by_workers.contains(&path), "{path} shows nothing to workers: {seen_by_workers:?}");
    }
}

#[tokio::test]
async fn bedrock_shows_a_viewer_jobs_without_their_data() {
    let world = World::new().await;
    let mut shown_to_workers = 0;
    for id in &world.jobs {
        let id = id.to_string();
        let text = world.bedrock(Role::Viewer, "QueryJob", &[("jobID", &id)]).await;
        assert!(!text.contains(CANARY), "{text}");
        let text = world.bedrock(Role::Worker, "QueryJob", &[("jobID", &id)]).await;
        shown_to_workers += usize::from(text.contains(CANARY));
    }
    assert!(shown_to_workers >= 5, "{shown_to_workers}");
    for sql in [
        "SELECT * FROM jobs;".to_owned(),
        "SELECT hex(data), data FROM jobs;".to_owned(),
        format!("SELECT 'found', name FROM jobs WHERE data LIKE '%{CANARY}%';"),
    ] {
        let text = world.bedrock(Role::Viewer, "Query", &[("query", &sql)]).await;
        assert!(text.starts_with("200 OK"), "{text}");
        assert!(!text.contains(CANARY) && !text.contains("found"), "{sql}: {text}");
        let text = world.bedrock(Role::Worker, "Query", &[("query", &sql)]).await;
        assert!(text.contains(CANARY) || text.contains("found"), "{sql}: {text}");
    }
}
