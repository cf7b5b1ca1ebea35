use super::families::{GROUPS, MetricFamily, MetricKind};
use super::*;
use crate::query::Histogram;
use std::collections::BTreeSet;
use windlass_core::{Queue, Tenant};

fn counts(queue: &str) -> QueueCounts {
    QueueCounts {
        tenant: Tenant::default(),
        queue: Queue::new(queue).unwrap(),
        paused: true,
        by_state: [5, 0, 0, 0, 0, 0, 0, 0, 0],
        delayed: 2,
        retrying: 1,
        oldest_due: Some(Timestamp::from_millis(500)),
    }
}

fn family(name: &'static str, labels: &'static [&'static str]) -> MetricFamily {
    MetricFamily { name, kind: MetricKind::Histogram, labels, help: "help" }
}

#[test]
fn labels_cannot_break_out_of_their_quotes() {
    let mut page = Page::default();
    page.line(&family("x", &["queue"]), &["a\"} 1\nb\\"], 2.5);
    assert_eq!(page.text, "x{queue=\"a\\\"} 1\\nb\\\\\"} 2.5\n");
}

#[test]
fn each_job_is_counted_in_one_state() {
    let mut page = Page::default();
    queues(&mut page, &[counts("mail")], Timestamp::from_millis(2_000));
    let has = |line: &str| assert!(page.text.contains(line), "{line} in {}", page.text);
    has("windlass_jobs{tenant=\"default\",queue=\"mail\",state=\"ready\"} 2\n");
    has("windlass_jobs{tenant=\"default\",queue=\"mail\",state=\"delayed\"} 2\n");
    has("windlass_jobs{tenant=\"default\",queue=\"mail\",state=\"retrying\"} 1\n");
    has("windlass_queue_oldest_seconds{tenant=\"default\",queue=\"mail\"} 1.5\n");
    has("windlass_queue_paused{tenant=\"default\",queue=\"mail\"} 1\n");
}

#[test]
fn the_page_does_not_grow_without_bound() {
    let many: Vec<QueueCounts> = (0..QUEUES_SHOWN_MAX + 7).map(|n| counts(&n.to_string())).collect();
    let mut page = Page::default();
    queues(&mut page, &many, Timestamp::EPOCH);
    assert!(page.text.contains("windlass_queues_not_shown 7\n"));
}

#[test]
fn histograms_count_up_to_infinity() {
    let histogram = Histogram::of_times();
    histogram.record(60);
    histogram.record(5_000_000_000);
    let mut page = Page::default();
    page.times(&family("t", &[]), &histogram);
    assert!(page.text.contains("t_bucket{le=\"0.00005\"} 0\nt_bucket{le=\"0.0001\"} 1\n"), "{}", page.text);
    assert!(
        page.text
            .ends_with("t_bucket{le=\"3600\"} 1\nt_bucket{le=\"+Inf\"} 2\nt_sum 5000.00006\nt_count 2\n")
    );
}

#[test]
fn names_are_unique_and_follow_the_conventions_of_prometheus() {
    let all: Vec<&MetricFamily> = GROUPS.iter().flat_map(|group| group.families).copied().collect();
    let names: BTreeSet<&str> = all.iter().map(|family| family.name).collect();
    assert_eq!(names.len(), all.len());
    for family in all {
        let MetricFamily { name, kind, help, .. } = family;
        assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
        assert!(help.ends_with('.') && !help.contains(['\n', '\\']), "{name}: {help}");
    }
}
