//! Dashboard and alert rules, held against the metrics of a real server.

use crate::jq::python;
use crate::metrics::{busy, page};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn dist(file: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist")).join(file)
}

fn check(page: &str, dashboard: &Path, alerts: &Path) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/watch.py");
    let mut checker = Command::new(python())
        .args([Path::new(script), dashboard, alerts])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    checker.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    checker.wait_with_output().unwrap()
}

#[test]
fn every_query_is_about_metrics_and_labels_that_the_server_has() {
    let server = busy(&[]);
    let page = page(&server);
    let (dashboard, alerts) = (dist("grafana/windlass.json"), dist("prometheus/alerts.yml"));
    let checked = check(&page, &dashboard, &alerts);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let counted: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert!(counted["queries"].as_u64() > Some(40) && counted["rules"].as_u64() > Some(10), "{counted}");
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("alerts.yml");
    let text = std::fs::read_to_string(&alerts).unwrap();
    for (right, wrong, complaint) in [
        ("windlass_store_up", "windlass_store_upp", "no metric windlass_store_upp"),
        ("outcome=\"lapsed\"", "outcome=\"lost\"", "outcome=lost"),
        ("by (tenant, queue, name)", "by (tenant, lane, name)", "no label"),
        ("absent(", "absent((", "unclosed"),
    ] {
        assert!(text.contains(right), "{right}");
        std::fs::write(&broken, text.replace(right, wrong)).unwrap();
        let checked = check(&page, &dashboard, &broken);
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(!checked.status.success() && said.contains(complaint), "{wrong}: {said}");
    }
}

#[test]
fn a_server_shows_its_disk_and_the_state_of_its_store() {
    let server = busy(&[]);
    let page = page(&server);
    let value = |name: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in {page}")).parse().unwrap()
    };
    let (size, free) = (value("windlass_disk_bytes"), value("windlass_disk_free_bytes"));
    assert!(free > 0.0 && free <= size, "{free} of {size}");
    assert_eq!((value("windlass_store_up"), value("windlass_otel_dropped_total")), (1.0, 0.0));
    assert_eq!(value("windlass_store_errors_total{kind=\"full\"}"), 0.0);
}
