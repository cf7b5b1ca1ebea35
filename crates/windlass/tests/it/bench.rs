use crate::server::{Ran, Server, windlass};
use serde_json::Value;

const MEASUREMENTS: [&str; 4] = ["push", "claim", "finish", "push to claim, steady rate"];

fn check(figures: &str, jobs: u64) {
    let figures: Value = serde_json::from_str(figures).unwrap();
    let rows = figures["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["what"].as_str().unwrap()).collect();
    assert_eq!(names, MEASUREMENTS);
    for row in rows {
        assert_eq!(row["jobs"], jobs, "{row}");
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(number("jobs_per_s") > 0.0 && number("p50_ms") > 0.0, "{row}");
        assert!(number("p50_ms") <= number("p99_ms") && number("p99_ms") <= number("max_ms"), "{row}");
    }
}

fn bench(args: &[&str]) -> String {
    Ran::of(windlass().args(SMALL).args(args)).ok()
}

const SMALL: [&str; 7] = ["bench", "--jobs", "40", "--connections", "4", "--seconds", "60"];

#[test]
fn a_server_of_its_own_is_measured_in_each_protocol() {
    for dialect in ["native", "bedrock"] {
        check(&bench(&["--dialect", dialect, "--durability", "relaxed", "--json"]), 40);
    }
    let table = bench(&["--batch", "10"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].contains("JOBS/S") && lines.len() == 1 + MEASUREMENTS.len(), "{table}");
}

#[test]
fn a_running_server_is_measured_and_keeps_no_job_of_it() {
    let server = Server::start(&[]);
    let url = server.url();
    check(&bench(&["--server", &url, "--batch", "8", "--json"]), 40);
    assert_eq!(server.run(&["jobs", "--all", "--json"]).ok(), "");
}
