//! The page of metrics, as a collector reads it.

use crate::server::Server;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub fn page(server: &Server) -> String {
    crate::server::request(server.http, "GET", "/metrics", "").unwrap().1
}

/// Value of a series, written as on the page.
fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Server on which jobs have ended in several ways.
pub fn busy(args: &[&str]) -> Server {
    let server = Server::start(args);
    server.run(&["push", "good", "--queue", "mail"]).ok();
    server.run(&["push", "bad", "--queue", "mail", "--retry", "2"]).ok();
    server.run(&["push", "gone", "--queue", "mail"]).ok();
    server.run(&["work", "good", "--once", "--", "true"]).ok();
    for _ in 0..2 {
        let claimed = server.call("POST", "/api/v1/claim", Some(json!({"name": "bad", "wait_ms": 20_000}))).1;
        let token = &claimed["jobs"][0]["token"];
        let fail = json!({"id": 2, "token": token, "outcome": "fail", "message": "no", "delay_ms": 1});
        server.call("POST", "/api/v1/settle", Some(json!({"settle": [fail]})));
    }
    server.run(&["job", "3", "cancel"]).ok();
    server.call("GET", "/nowhere", None);
    server
}

#[test]
fn jobs_are_counted_by_queue_name_and_outcome() {
    let server = busy(&[]);
    let page = page(&server);
    let of = |name: &str| format!(r#"{{tenant="default",queue="mail",name="{name}"}}"#);
    let ended = |name: &str, outcome: &str| {
        let labels = of(name).replace('}', &format!(r#",outcome="{outcome}"}}"#));
        value(&page, &format!("windlass_job_runs_total{labels}")).unwrap()
    };
    assert_eq!(value(&page, &format!("windlass_job_pushes_total{}", of("good"))), Some(1.0), "{page}");
    assert_eq!(value(&page, &format!("windlass_job_claims_total{}", of("bad"))), Some(2.0), "{page}");
    assert_eq!((ended("good", "completed"), ended("good", "failed")), (1.0, 0.0));
    assert_eq!((ended("bad", "retried"), ended("bad", "failed")), (1.0, 1.0));
    assert_eq!(ended("gone", "cancelled"), 1.0);
    assert_eq!(value(&page, &format!("windlass_job_wait_seconds_count{}", of("bad"))), Some(2.0));
    assert_eq!(value(&page, &format!("windlass_job_run_seconds_count{}", of("good"))), Some(1.0));
    let version = env!("CARGO_PKG_VERSION");
    assert!(page.contains(&format!("windlass_build_info{{version=\"{version}\",")), "{page}");
    let requests =
        r#"windlass_http_requests_total{route="/api/v1/jobs/{id}/cancel",method="POST",status="2xx"}"#;
    assert_eq!(value(&page, requests), Some(1.0), "{page}");
    let unknown = r#"windlass_http_requests_total{route="other",method="other",status="4xx"}"#;
    assert_eq!(value(&page, unknown), Some(1.0), "{page}");
    assert!(value(&page, "process_cpu_seconds_total").unwrap() > 0.0);
    assert!(value(&page, "process_open_fds").unwrap() > 3.0);
    assert!(value(&page, "windlass_commits_total").unwrap() > 3.0);
}

#[test]
fn names_beyond_the_bound_are_counted_together() {
    let server = Server::start(&["--set", "metrics.series_max=2"]);
    for name in ["a", "b", "c", "d", "e", "a"] {
        server.run(&["push", name]).ok();
    }
    let page = page(&server);
    let pushes = page.lines().filter(|line| line.starts_with("windlass_job_pushes_total{"));
    let counted: BTreeMap<&str, &str> =
        pushes.map(|line| line.split_once("name=\"").unwrap().1.split_once("\"} ").unwrap()).collect();
    assert_eq!(counted, BTreeMap::from([("a", "2"), ("b", "1"), ("other", "3")]), "{page}");
    let rest = r#"windlass_job_pushes_total{tenant="other",queue="other",name="other"}"#;
    assert_eq!(value(&page, rest), Some(3.0), "{page}");
}

/// Reads the page like a collector: names, labels, escapes, types, and cumulative buckets.
const PARSER: &str = r#"
import math, sys
from prometheus_client.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(sys.stdin.read()))
seen, names = set(), set()
for family in families:
    assert family.documentation, f"{family.name} has no HELP"
    assert family.type != "unknown", f"{family.name} has no TYPE"
    assert family.name not in names, f"{family.name} twice"
    names.add(family.name)
    buckets = {}
    for sample in family.samples:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        assert key not in seen, f"{key} twice"
        seen.add(key)
        if family.type == "histogram" and sample.name.endswith("_bucket"):
            of = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            buckets.setdefault(of, []).append((float(sample.labels["le"]), sample.value))
        if family.type == "histogram" and sample.name.endswith("_count"):
            of = tuple(sorted(sample.labels.items()))
            assert buckets[of][-1] == (math.inf, sample.value), f"{key} is not its last bucket"
            assert buckets[of] == sorted(buckets[of]) and [n for _, n in buckets[of]] == sorted(n for _, n in buckets[of])
print(len(families))
"#;

#[test]
fn a_parser_of_prometheus_understands_the_page() {
    let server = busy(&[]);
    server.call("POST", "/api/v1/jobs", Some(json!({"name": "odd \"name\" \\ ", "queue": "q\"}"})));
    let venv = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/venv/bin/python3");
    let has_parser = |python: &PathBuf| {
        let tried = Command::new(python).args(["-c", "import prometheus_client"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    let python = [venv, PathBuf::from("python3")].into_iter().find(has_parser).expect(
        "the Python package prometheus_client is missing: run ./test, or python3 -m venv target/venv && \
         target/venv/bin/pip install prometheus_client",
    );
    let mut parser = Command::new(python)
        .args(["-c", PARSER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    parser.stdin.take().unwrap().write_all(page(&server).as_bytes()).unwrap();
    let parsed = parser.wait_with_output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&parsed.stdout), String::from_utf8_lossy(&parsed.stderr));
    assert!(parsed.status.success(), "{errors}\n{}", page(&server));
    assert!(said.trim().parse::<usize>().unwrap() > 30, "{said}");
}
