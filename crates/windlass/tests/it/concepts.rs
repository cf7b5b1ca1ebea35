//! The page about concepts is true: its rules are tried against a real server, its defaults are compared with
//! those of the code.

mod actions;
mod kept;
mod rules;

use crate::server::Server;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use windlass_core::job::ERRORS_KEPT;
use windlass_core::lease::LeasePolicy;
use windlass_core::limits::LIMITS_MAX;
use windlass_core::names::{NAME_BYTES_MAX, TENANT_BYTES_MAX};
use windlass_core::retry::{Backoff, RetryPolicy};
use windlass_core::{Keep, KeepFor};

const PAGE: &str = include_str!("../../../../docs/concepts.md");

/// Native API of a server, for tests that care about answers and not about HTTP.
pub(crate) struct Api(Server);

impl Api {
    fn start() -> Api {
        Api(Server::start(&["--store", "memory:"]))
    }

    fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = (!body.is_null()).then_some(body);
        self.0.call(method, &format!("/api/v1{path}"), body)
    }

    #[track_caller]
    fn push(&self, job: Value) -> u64 {
        let (status, answer) = self.call("POST", "/jobs", job);
        assert_eq!(status, 201, "{answer}");
        answer["id"].as_u64().unwrap()
    }

    fn claim(&self, ask: Value) -> Vec<Value> {
        let (status, answer) = self.call("POST", "/claim", ask);
        assert_eq!(status, 200, "{answer}");
        answer["jobs"].as_array().unwrap().clone()
    }

    /// The one job of this name that can be claimed.
    #[track_caller]
    fn claim_one(&self, name: &str) -> Value {
        let jobs = self.claim(json!({"name": name, "worker": "w1", "wait_ms": 10_000}));
        jobs.into_iter().next().unwrap_or_else(|| panic!("no job named {name} can be claimed"))
    }

    /// Settles a claimed job; `more` are fields besides its id and token.
    fn settle(&self, claimed: &Value, mut more: Value) -> Value {
        more["id"] = claimed["id"].clone();
        more["token"] = claimed["token"].clone();
        let (status, mut answer) = self.call("POST", "/settle", json!({"settle": [more]}));
        assert_eq!(status, 200, "{answer}");
        answer["settled"][0].take()
    }

    fn extend(&self, claimed: &Value, mut more: Value) -> Value {
        more["id"] = claimed["id"].clone();
        more["token"] = claimed["token"].clone();
        let (status, mut answer) = self.call("POST", "/extend", json!({"extend": [more]}));
        assert_eq!(status, 200, "{answer}");
        answer["extended"][0].take()
    }

    fn job(&self, id: u64) -> Value {
        self.0.job(id)
    }

    fn state(&self, id: u64) -> String {
        self.0.state_of(id)
    }
}

fn finish() -> Value {
    json!({"outcome": "finish"})
}

fn fail() -> Value {
    json!({"outcome": "fail", "message": "disk full"})
}

/// Rows of the table with this header, as cells.
fn table(header: &str) -> Vec<Vec<&'static str>> {
    let (_, rest) = PAGE.split_once(&format!("{header}\n")).unwrap_or_else(|| panic!("no table {header}"));
    let rows = rest.lines().skip(1).take_while(|line| line.starts_with("| "));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn the_states_of_the_page_are_those_of_the_server() {
    let api = Api::start();
    api.push(json!({"name": "x"}));
    let (_, answer) = api.call("GET", "/queues", Value::Null);
    let page: BTreeSet<&str> = table("| state | meaning | leaves it by |")
        .into_iter()
        .flat_map(|row| row[0].split(", "))
        .map(|word| word.trim_matches('`'))
        .collect();
    assert_eq!(page.len(), 11);
    for word in page {
        assert!(answer["queues"][0][word].is_u64(), "{word} is not counted in {answer}");
    }
}

#[test]
fn the_defaults_of_the_page_are_those_of_the_code() {
    let Keep { completed, failed, cancelled } = Keep::default();
    assert_eq!((completed, failed), (KeepFor::Ms(3_600_000), KeepFor::Ever));
    assert_eq!(cancelled, KeepFor::Ms(7 * 86_400_000));
    let RetryPolicy { max_attempts, backoff, give_up_after_ms } = RetryPolicy::default();
    let Backoff::Exponential { base_ms, cap_ms, jitter_percent } = backoff else { panic!("{backoff:?}") };
    assert_eq!(give_up_after_ms, None);
    let max_attempts = max_attempts.unwrap();
    let span_s: i64 = (1..max_attempts).map(|failures| backoff.delay_ms(failures, 0.5) / 1_000).sum();
    assert_eq!(span_s / 60, 8, "about nine minutes: {span_s} s");
    let lease_s = LeasePolicy::default().length_ms.unwrap() / 1_000;
    for line in [
        "| `completed` | 1 hour |".to_owned(),
        "| `cancelled` | 7 days |".to_owned(),
        format!("| `max_attempts` | {max_attempts} |"),
        format!(r#"{{"base_ms":{base_ms},"cap_ms":{cap_ms},"jitter_percent":{jitter_percent}}}"#),
        format!("The last {ERRORS_KEPT} failed attempts"),
        format!("else {lease_s} s |"),
        format!("1 to {NAME_BYTES_MAX} bytes"),
        format!("1 to {TENANT_BYTES_MAX} letters"),
        format!("{LIMITS_MAX} limits"),
    ] {
        assert!(PAGE.contains(&line), "docs/concepts.md does not say {line:?}");
    }
}

#[test]
fn every_link_within_the_page_leads_to_a_heading() {
    let anchor = |heading: &str| heading.to_lowercase().replace(' ', "-");
    let headings: BTreeSet<String> =
        PAGE.lines().filter_map(|line| line.strip_prefix("## ")).map(anchor).collect();
    let links = PAGE.split("](#").skip(1).map(|rest| rest.split(')').next().unwrap());
    for link in links {
        assert!(headings.contains(link), "no heading for #{link}");
    }
}
