//! Cost of request bodies: for every call of every dialect, a body eight times as large may cost about eight
//! times as much, not sixty-four times. The calls come from the lists of routes and commands; a call without
//! bodies here fails the test.
//!
//! The cost is the CPU time of the test's own thread, on which the whole server runs. The control is as many
//! small bodies as the large one has parts of theirs: both take about as long, so that other load on the machine
//! (preemption, cold caches) adds to both alike. Jobs that a call leaves in the journal are waited for: their way
//! into the store belongs to the call that pushed them, whichever is measured when the machine is busy.

use crate::bedrock::Bedrock;
use crate::support::TestServer;
use serde_json::{Value, json};
use std::time::Duration;
use windlass_dialects::ALL;
use windlass_dialects::route::{DOCUMENT_BYTES_MAX, Route};

/// Most parts of the large body, as far as they fit into the bound of the call.
const PARTS_MAX: usize = 8_000;
/// Most parts of a request of the text protocol, each of which may become a job.
const REQUEST_PARTS_MAX: usize = 2_000;
/// Ratio of the parts of the large body to those of the small one.
const TIMES: usize = 8;
/// Highest allowed ratio of the costs of the large body and of the small ones together: linear with some
/// tolerance, and far from quadratic, which is a ratio of eight.
const COSTS_MAX: u32 = 3;
/// Cheaper calls are not compared: most of their cost is the connection.
const COST_MIN: Duration = Duration::from_millis(16);
/// Measurements per call, of which the lowest counts: other load on the machine only adds.
const TRIES: usize = 4;

/// Templates of bodies: the part between `<` and `>` is repeated with commas in between; `#` is its number.
type Bodies = &'static [&'static str];

/// Objects and lists of any members, for every call that parses JSON.
const OF_ANY: Bodies = &[
    r##"{<"k#":#>}"##,
    r##"{<"k":#>}"##,
    r##"[<#>]"##,
    r##"[<{"a":#}>]"##,
    r##"{"a":{<"k#":{}>}}"##,
    r##"{"log_context":{<"k#":#>}}"##,
];

const JOB: &str = "/sidejob/jobs/{id}/{side}/{port}/{operation}";

#[rustfmt::skip]
const BODIES: &[(&str, &str, Bodies)] = &[
    ("POST", "/api/v1/jobs", &[r##"{"jobs":[<{"name":"n","unique":"u#","tags":["t#"]}>]}"##, r##"{"name":"n","payload":[<#>]}"##, r##"{"name":"n","tags":[<"#">]}"##, r##"{"jobs":[<{"name":"n#","alias":"a#"}>]}"##]),
    ("POST", "/api/v1/jobs/bulk", &[r##"{"action":"retry","ids":[<#>]}"##, r##"{"action":"retry","search":"<a#>"}"##]),
    ("POST", "/api/v1/claim", &[r##"{"queues":[<"q#">]}"##, r##"{"name":"<a*>"}"##]),
    ("POST", "/api/v1/settle", &[r##"{"settle":[<{"id":#1,"token":1,"outcome":"finish","result":[#]}>]}"##, r##"{"settle":[{"id":1,"token":1,"outcome":"fail","backtrace":[<"line #">]}]}"##]),
    ("POST", "/api/v1/extend", &[r##"{"extend":[<{"id":#1,"token":1}>]}"##]),
    ("POST", "/api/v1/jobs/{id}/steps", &[r##"{"token":1,"steps":[<{"name":"step #"}>]}"##]),
    ("POST", "/api/v1/jobs/{id}/signal/{name}", &[r##"{<"k#":#>}"##]),
    ("POST", "/api/v1/jobs/{id}/log", &[r##"{"token":1,"lines":[<"line #">]}"##]),
    ("PATCH", "/api/v1/jobs/{id}", &[r##"{"payload":{<"k#":#>}}"##]),
    ("DELETE", "/api/v1/jobs/{id}", &[]),
    ("POST", "/api/v1/jobs/{id}/undelete", &[]),
    ("POST", "/api/v1/jobs/{id}/cancel", &[]),
    ("POST", "/api/v1/jobs/{id}/retry", &[]),
    ("POST", "/api/v1/jobs/{id}/run", &[]),
    ("POST", "/api/v1/jobs/{id}/clone", &[r##"{"payload":{<"k#":#>}}"##]),
    ("PATCH", "/api/v1/schedules/{id}", &[r##"{"payload":{<"k#":#>}}"##]),
    ("POST", "/api/v1/schedules/{id}/pause", &[]),
    ("POST", "/api/v1/schedules/{id}/resume", &[]),
    ("POST", "/api/v1/schedules/{id}/run", &[]),
    ("PUT", "/api/v1/queues/{queue}", &[r##"{"keep":{<"k#":#>}}"##]),
    ("POST", "/api/v1/queues/{queue}/pause", &[]),
    ("POST", "/api/v1/queues/{queue}/resume", &[]),
    ("PUT", "/api/v1/limits/{id}", &[r##"{"matcher":{"any":[<{"name":"#"}>]},"rate":1}"##, r##"{"matcher":{"arg":["a"],"op":"in","value":[<#>]},"concurrency":1}"##]),
    ("DELETE", "/api/v1/limits/{id}", &[]),
    ("PUT", "/api/v1/tenants/{tenant}/quota", &[r##"{<"k#":#>}"##]),
    ("POST", "/api/v1/blobs/gc", &[]),
    ("POST", "/api/v1/workers/{worker}/quiet", &[]),
    ("POST", "/api/v1/workers/{worker}/wake", &[]),
    ("POST", "/api/v1/workers/{worker}/dismiss", &[]),
    ("POST", "/api/v1/tokens", &[r##"{"role":"worker","note":"<n>"}"##]),
    ("POST", "/api/v1/tokens/{prefix}/rotate", &[]),
    ("DELETE", "/api/v1/tokens/{prefix}", &[]),
    ("POST", "/api/v1/import", &[r##"{"jobs":[<{"name":"n","alias":"i#","created_at":1,"state":"ready","run_at":1}>]}"##]),
    ("POST", "/jq/job", &[r##"{"name":"n","argument":{<"k#":#>}}"##]),
    ("DELETE", "/jq/job/{id}", &[]),
    ("POST", "/jq/worker", &[r##"{"name":"w","max_jobs":1,"url":"http://127.0.0.1:1/<#>"}"##]),
    ("DELETE", "/jq/worker", &[]),
    ("POST", "/jq/worker/ping", &[]),
    ("POST", "/jq/done", &[r##"{"id":1,"result":[<#>]}"##, r##"{"id":1,"error":{<"k#":#>}}"##]),
    ("PUT", "/jq/constraint/{id}", &[r##"{"matcher":{"any":[<{"name":"#"}>]},"rate":1}"##, r##"{"rate":1,"matcher":{"arg":["a"],"op":"in","value":[<0>]}}"##]),
    ("DELETE", "/jq/constraint/{id}", &[]),
    ("POST", "/jobs/create", &[r##"{"binary_addr":"<a>"}"##]),
    ("POST", "/jobs/claim", &[]),
    ("POST", "/jobs/{id}/tickle", &[]),
    ("POST", "/jobs/{id}/complete", &[r##"{"status":"completed","output_addr":"<a>"}"##]),
    ("PUT", "/blob", &["<some bytes>"]),
    ("POST", "/{client}/job/{type}/add", &["<line #\n>", "<\n>"]),
    ("PUT", "/{client}/job/{type}/add", &["<line #\n>"]),
    ("POST", "/add", &["<line #\n>"]),
    ("POST", "//job/{type}/add", &["<line #\n>"]),
    ("POST", "/{client}/job//add", &["<line #\n>"]),
    ("POST", "/{client}/handler/add/{type}/add", &[r##"{"lang":"sh","body":"<echo #;>","options":{<"k#":#>}}"##, "<echo #;>"]),
    ("PUT", "/{client}/handler/add/{type}/add", &["<echo #;>"]),
    ("DELETE", "/{client}/handler/del/{type}/delete", &[]),
    ("POST", "/{client}/handler/del/{type}/delete", &[]),
    ("POST", "/start", &[]),
    ("POST", "/stop", &[]),
    ("POST", "/quit", &[]),
    ("PUT", "/sidejob/workers/{queue}", &[r##"{<"c#":{}>}"##, r##"{"C":{"inports":{<"p#":{"default":#}>}}}"##, r##"{"C":{"note":{<"k#":#>}}}"##]),
    ("POST", "/sidejob/presence", &[r##"{"worker":"<w>"}"##]),
    ("POST", "/sidejob/queues/{queue}/claim", &[r##"{"classes":[<"c#">]}"##]),
    ("POST", "/sidejob/jobs", &[r##"{"queue":"q","class":"Dyn","args":[<#>]}"##, r##"{"queue":"q","class":"Dyn","inports":{<"p#":{"default":#}>}}"##]),
    ("DELETE", "/sidejob/jobs/{id}", &[]),
    ("POST", "/sidejob/jobs/{id}/finish", &[r##"{"token":"1","writes":[<{"outport":"p","data":#}>]}"##, r##"{"token":"1","status":"failed","error":"<e>"}"##]),
    ("POST", "/sidejob/jobs/{id}/for_inputs", &[r##"{"inports":[<"p">]}"##, r##"{"inports":[],"writes":[<{"inport":"p","list":[#]}>]}"##]),
    ("POST", "/sidejob/jobs/{id}/run", &[r##"{"run":{<"k#":#>}}"##]),
    ("POST", "/sidejob/jobs/{id}/terminate", &[]),
    ("POST", "/sidejob/jobs/{id}/status", &[]),
    ("POST", "/sidejob/jobs/{id}/state", &[r##"{<"k#":[#]>}"##, r##"{<"k#":#>,"log_context":{"a":1}}"##]),
    ("POST", "/sidejob/jobs/{id}/unset", &[r##"{"keys":[<"k#">]}"##]),
    ("POST", "/sidejob/jobs/{id}/adopt", &[]),
    ("POST", "/sidejob/jobs/{id}/disown", &[]),
    ("POST", "/sidejob/jobs/{id}/ports", &[r##"{"inports":{<"p#":{"default":#}>}}"##]),
    ("POST", JOB, &[r##"{"list":[<#>]}"##, r##"{"to":[<{"job":1,"inport":"x"}>]}"##, r##"{"default":[<#>]}"##]),
    ("POST", "/sidejob/jobs/{id}/lock", &[]),
    ("POST", "/sidejob/jobs/{id}/refresh_lock", &[]),
    ("POST", "/sidejob/jobs/{id}/unlock", &[]),
    ("POST", "/sidejob/group", &[r##"{"operations":[<{"job":1,"inport":"a","write":#}>]}"##, r##"{"operations":[<{"job":1,"inport":"a","read":true}>]}"##]),
    ("POST", "/sidejob/logs", &[r##"{"entry":{<"k#":#>}}"##]),
    ("DELETE", "/sidejob/logs", &[]),
];

/// Templates for the text protocol: the headers of a command, one per line.
#[rustfmt::skip]
const COMMANDS: &[(&str, Bodies)] = &[
    ("CreateJob", &[r##"name:n|data:{<"k#":#>}"##]),
    ("CreateJobs", &[r##"jobs:[<{"name":"n#"}>]"##, r##"jobs:[<{"name":"n","unique":true}>]"##]),
    ("GetJob", &["name:<n#>"]),
    ("GetJobs", &["numResults:10|name:<n#>"]),
    ("QueryJob", &["jobID:1"]),
    ("UpdateJob", &[r##"jobID:1|data:{<"k#":#>}"##]),
    ("FinishJob", &[r##"jobID:1|data:{<"k#":#>}"##]),
    ("RetryJob", &[r##"jobID:1|data:{<"k#":#>}"##]),
    ("CancelJob", &["jobID:1"]),
    ("FailJob", &[r##"jobID:1|data:{<"k#":#>}"##]),
    ("DeleteJob", &["jobID:1"]),
    ("RequeueJobs", &["jobIDs:<#>", "jobIDs:1|name:<n>"]),
    ("CrashBedrockJob", &["names:<n#>"]),
    ("ClearCrashedBedrockJobs", &[]),
    ("Query", &["query:SELECT 1 WHERE 1 IN (<#>);"]),
    ("Query:", &[]),
    ("Ping", &[]),
    ("Status", &[]),
];

fn body(template: &str, parts: usize) -> String {
    let Some((before, rest)) = template.split_once('<') else { return template.to_owned() };
    let (part, after) = rest.rsplit_once('>').unwrap();
    // Two repeated parts share the number.
    if let Some((part, rest)) = part.split_once('>') {
        return body(&format!("{before}{}{rest}>{after}", repeated(part, parts)), parts);
    }
    format!("{before}{}{after}", repeated(part, parts))
}

fn repeated(part: &str, parts: usize) -> String {
    let parts: Vec<String> = (0..parts).map(|number| part.replace('#', &number.to_string())).collect();
    parts.join(",")
}

/// Number of parts that fit.
fn parts_of(template: &str, bytes_max: usize) -> usize {
    let part = body(template, PARTS_MAX).len() / PARTS_MAX + 1;
    PARTS_MAX.min(bytes_max.saturating_sub(1_000) / part).max(TIMES)
}

/// CPU time of this thread so far.
fn spent() -> Duration {
    // The kernel updates it when the thread is descheduled.
    std::thread::sleep(Duration::from_micros(1));
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Cost of a number of bodies with so many parts each.
async fn cost(ask: &mut impl AsyncFnMut(usize), bodies: usize, parts: usize) -> Duration {
    let before = spent();
    for _ in 0..bodies {
        ask(parts).await;
    }
    spent() - before
}

/// Fails unless the cost of a body grows in proportion to its parts.
async fn compare(what: &str, parts: usize, mut ask: impl AsyncFnMut(usize)) {
    let mut small = Duration::MAX;
    let mut large = Duration::MAX;
    for _ in 0..TRIES {
        small = small.min(cost(&mut ask, TIMES, parts / TIMES).await);
        large = large.min(cost(&mut ask, 1, parts).await);
        if large <= small.max(COST_MIN) * COSTS_MAX {
            return;
        }
    }
    panic!("{what}: {TIMES} times {} parts take {small:?}, {parts} at once {large:?}", parts / TIMES);
}

/// Path of a call with its parameters filled in by things that exist.
fn path_of(path: &str) -> String {
    let path = path.replace("{queue}", "q").replace("{client}", "c").replace("{type}", "t");
    path.replace("{id}", "1")
        .replace("{worker}", "w")
        .replace("{prefix}", "12345678")
        .replace("{tenant}", "default")
}

/// Id of the last job in the journal, where a reply lists ids.
fn last_id(reply: &[u8]) -> Option<String> {
    let reply: Value = serde_json::from_slice(reply).ok()?;
    Some(reply.get("ids")?.as_array()?.last()?.as_str()?.to_owned())
}

async fn check_route(server: &TestServer, route: &Route, template: &str) {
    let paths = match route.path {
        JOB => ["write", "connect", "default", "read", "entries"]
            .map(|what| format!("/sidejob/jobs/1/inports/p/{what}")),
        // Another class than that of the job used by other calls.
        "/sidejob/workers/{queue}" => ["/sidejob/workers/other", "", "", "", ""].map(str::to_owned),
        other => [path_of(other), String::new(), String::new(), String::new(), String::new()],
    };
    let parts = parts_of(template, route.body_bytes_max);
    for path in paths.iter().filter(|path| !path.is_empty()) {
        let what = format!("{} {path} {template}", route.method);
        compare(&what, parts, async |parts| {
            let text = body(template, parts);
            let json: Option<Value> =
                path.starts_with("/jq/").then(|| serde_json::from_str(&text).ok()).flatten();
            let (kind, bytes) = match json {
                Some(json) => ("application/msgpack", rmp_serde::to_vec(&json).unwrap()),
                None => ("application/json", text.into_bytes()),
            };
            let mut client = server.connect().await;
            let reply = client.call(route.method, path, &[("content-type", kind)], &bytes).await;
            if let Some(id) = last_id(&reply.body) {
                // Waits until the job is in the store.
                let path = path.replace("/add", &format!("/{id}"));
                assert_eq!(server.get(&path).await.status, 200, "{path}");
            }
        })
        .await;
    }
}

fn routes() -> impl Iterator<Item = &'static Route> {
    ALL.iter().flat_map(|dialect| dialect.routes()).filter(|route| route.method != "GET")
}

#[test]
fn every_call_has_its_bodies_here() {
    for route in routes() {
        let found = BODIES.iter().any(|(method, path, _)| (*method, *path) == (route.method, route.path));
        assert!(found, "{} {}: add what its body may repeat to BODIES", route.method, route.path);
    }
    for verb in windlass_dialects::bedrock::commands::verbs() {
        assert!(
            COMMANDS.iter().any(|(known, _)| *known == verb),
            "{verb}: add what it may repeat to COMMANDS"
        );
    }
}

/// Checks all calls whose paths have one of these prefixes.
async fn check_calls(beginnings: &[&str]) {
    let server = TestServer::open().await;
    let classes = json!({"Dyn": {"inports": {"*": {}}, "outports": {"*": {}}}}).to_string();
    assert_eq!(server.call("PUT", "/sidejob/workers/q", &classes).await.status, 200);
    let job = json!({"queue": "q", "class": "Dyn"}).to_string();
    assert_eq!(server.post("/sidejob/jobs", &job).await.json(), json!({"job": 1}));
    for (method, path, bodies) in BODIES {
        if *path == "/quit" || !beginnings.iter().any(|beginning| path.starts_with(beginning)) {
            continue;
        }
        let route = routes().find(|route| (route.method, route.path) == (*method, *path));
        let route = route.unwrap_or_else(|| panic!("{method} {path} is no call any more"));
        for template in bodies.iter().chain(OF_ANY) {
            check_route(&server, route, template).await;
        }
    }
}

#[tokio::test]
async fn bodies_of_the_native_api_cost_what_they_weigh() {
    check_calls(&["/api/"]).await;
}

#[tokio::test]
async fn bodies_of_jq_and_queuey_cost_what_they_weigh() {
    check_calls(&["/jq/", "/jobs/", "/blob"]).await;
}

#[tokio::test]
async fn bodies_of_miniq_cost_what_they_weigh() {
    check_calls(&["/{client}/", "/add", "//", "/st"]).await;
}

#[tokio::test]
async fn bodies_of_sidejob_cost_what_they_weigh() {
    check_calls(&["/sidejob/"]).await;
}

#[tokio::test]
async fn requests_of_bedrock_cost_what_they_weigh() {
    let server = Bedrock::current().await;
    for (verb, bodies) in COMMANDS {
        for template in bodies.iter().chain(&["<k#: v\n>", "k: {<\"k#\":#>}"]) {
            let parts = parts_of(template, DOCUMENT_BYTES_MAX).min(REQUEST_PARTS_MAX);
            compare(&format!("{verb} {template}"), parts, async |parts| {
                let headers = body(template, parts).replace(['|'], "\r\n").replace("\n,", "\n");
                let mut connection = server.connect().await;
                connection.send(&format!("{verb}\r\n{headers}\r\n\r\n")).await;
                connection.reply().await;
            })
            .await;
        }
    }
}

/// A call that names many jobs loads them together, and does not restart for each.
#[tokio::test]
async fn a_call_on_many_jobs_costs_what_it_names() {
    let server = TestServer::open().await;
    let classes = json!({"Dyn": {"inports": {"*": {}}, "outports": {"*": {}}}}).to_string();
    assert_eq!(server.call("PUT", "/sidejob/workers/q", &classes).await.status, 200);
    let jobs = 800;
    let mut connection = server.connect().await;
    for _ in 0..jobs {
        let body = br#"{"queue":"q","class":"Dyn"}"#;
        assert_eq!(connection.call("POST", "/sidejob/jobs", &[], body).await.status, 200);
    }
    let check = async |path: &str, template: &str| {
        compare(&format!("{path} {template}"), jobs, async |parts| {
            let parts: Vec<String> = (1..=parts).map(|id| template.replace('#', &id.to_string())).collect();
            let body = format!("{{\"operations\":[{0}]}}", parts.join(","));
            let body = if path.ends_with("connect") { body.replace("operations", "to") } else { body };
            let reply = server.connect().await.call("POST", path, &[], body.as_bytes()).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
        })
        .await;
    };
    check("/sidejob/group", r##"{"job":#,"inport":"a","write":1}"##).await;
    check("/sidejob/jobs/1/outports/x/connect", r##"{"job":#,"inport":"b"}"##).await;
}

#[tokio::test]
async fn a_document_is_refused_once_it_is_longer_than_its_call_takes() {
    let server = TestServer::open().await;
    let zeros = vec!["0"; DOCUMENT_BYTES_MAX / 2].join(",");
    for path in ["/api/v1/limits/x", "/jq/constraint/x"] {
        let body =
            format!("{{\"rate\":1,\"matcher\":{{\"arg\":[\"a\"],\"op\":\"in\",\"value\":[{zeros}]}}}}");
        let reply = server.call("PUT", path, &body).await;
        assert_eq!(reply.status, 413, "{path}: {}", reply.text());
        assert!(
            reply.text().contains("larger than the maximum of 131072 bytes for this call"),
            "{}",
            reply.text()
        );
    }
    // Calls with payloads and batches have the server's bound.
    let long = format!("{{\"name\":\"n\",\"payload\":[{zeros}]}}");
    assert_eq!(server.post("/api/v1/jobs", &long).await.status, 201);
}
