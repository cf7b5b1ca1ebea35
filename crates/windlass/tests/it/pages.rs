//! The tutorial and the pages for people who come from another system are true: each is followed on a real
//! server. The figures of the page about performance are those that were recorded.

use crate::server::Server;
use crate::walkthrough::{Walked, walk};
use rusqlite::Connection;
use std::path::Path;

fn docs(path: &str) -> String {
    let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
    std::fs::read_to_string(docs.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Follows a page on a new server.
#[track_caller]
fn holds(path: &str, files: usize, commands: usize) {
    let server = Server::start(&[]);
    assert_eq!(walk(&server, &docs(path), &[]), Walked { files, commands });
}

#[test]
fn the_tutorial_happens_as_shown() {
    holds("tutorial.md", 7, 22);
}

#[test]
fn the_page_for_sidekiq_holds() {
    holds("migration/sidekiq.md", 5, 7);
}

#[test]
fn the_page_for_celery_holds() {
    holds("migration/celery.md", 2, 3);
}

#[test]
fn the_page_for_bullmq_holds() {
    holds("migration/bullmq.md", 2, 2);
}

#[test]
fn the_page_for_faktory_holds() {
    holds("migration/faktory.md", 2, 8);
}

#[test]
fn the_page_for_beanstalkd_holds() {
    holds("migration/beanstalkd.md", 1, 13);
}

#[test]
fn the_page_for_sidejob_holds() {
    holds("migration/sidejob.md", 2, 4);
}

/// Database as Bedrock leaves it, with a waiting job and one that a worker held.
fn bedrock_file(path: &Path) {
    let db = Connection::open(path).unwrap();
    db.execute_batch(windlass_dialects::bedrock::query::SCHEMA).unwrap();
    for (id, state, name, repeat) in
        [(71, "QUEUED", "invoice", ""), (72, "RUNNING", "cleanup", "FINISHED, +1 DAY")]
    {
        let insert = "INSERT INTO jobs VALUES ('2024-01-01 10:00:00', ?1, ?2, ?3, '2024-01-02 03:04:05', NULL, ?4, '{}', 500, 0, '')";
        db.execute(insert, (id, state, name, repeat)).unwrap();
    }
}

#[test]
fn the_page_for_bedrock_holds() {
    let server = Server::start(&["--bedrock", "127.0.0.1:0"]);
    bedrock_file(&server.folder().join("bedrock.db"));
    let ready = std::fs::read_to_string(server.folder().join("ready.json")).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    let address = ready["bedrock"].as_str().unwrap().replace(':', " ");
    let walked = walk(&server, &docs("migration/bedrock.md"), &[("localhost 8888", address)]);
    assert_eq!(walked, Walked { files: 1, commands: 10 });
}

#[test]
fn every_way_over_has_its_page_and_every_page_the_same_parts() {
    let overview = docs("coming-from.md");
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/migration"));
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        count += 1;
        let name = entry.file_name().into_string().unwrap();
        assert!(overview.contains(&format!("(migration/{name})")), "coming-from.md does not lead to {name}");
        let page = docs(&format!("migration/{name}"));
        for part in ["Words", "Code", "What is different", "Step by step", "What has no counterpart"] {
            assert!(page.contains(&format!("\n## {part}\n")), "{name} has no part {part:?}");
        }
    }
    assert_eq!(count, 7);
}

/// Numbers of at least four digits, with the comma: `3,317`.
fn large_numbers(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != ',').map(|word| word.trim_matches(','));
    words.filter(|word| word.contains(',') && !word.contains(",,")).collect()
}

#[test]
fn every_figure_of_the_page_about_performance_was_recorded() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../benchmarks"));
    let mut recorded = std::fs::read_to_string(folder.join("README.md")).unwrap();
    for entry in std::fs::read_dir(folder.join("results")).unwrap().map(|entry| entry.unwrap().path()) {
        recorded += &std::fs::read_to_string(entry).unwrap();
    }
    let page = docs("performance.md");
    let rows: String =
        page.lines().filter(|line| line.starts_with("| ") && line.contains("jobs/s")).collect();
    let figures = large_numbers(&rows);
    assert!(figures.len() > 30, "{figures:?}");
    let recorded = large_numbers(&recorded);
    for figure in figures {
        assert!(recorded.contains(&figure), "{figure} jobs/s is in no file of benchmarks/results");
    }
}

#[test]
fn the_moving_picture_is_small_and_runs_no_script() {
    let picture = docs("images/cast.svg");
    assert!(picture.len() < 60_000, "{} bytes", picture.len());
    assert!(!picture.contains("<script") && !picture.contains("href"), "it loads or runs something");
    for text in ["next attempt in 2s", "exists already (same unique key)", "completed"] {
        assert!(picture.contains(text), "{text:?} is missing: make it again with docs/images/cast.py");
    }
}
