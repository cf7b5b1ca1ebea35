use super::*;

const LIMITS: OutputLimits =
    OutputLimits { log_bytes: 1_000, line_bytes: 5_000, new_jobs: 5, new_jobs_bytes: 10_000 };

fn jobs(finished: &Finished) -> Vec<String> {
    let show = |job: &PrintedJob| format!("{}={}", job.jobtype, String::from_utf8_lossy(&job.payload));
    finished.new_jobs.iter().map(show).collect()
}

/// Checks the result for several chunk sizes.
fn check(stdout: &str, expected_jobs: &[&str], expected_log: &str) {
    for size in [1, 2, 3, 7, stdout.len().max(1)] {
        let mut output = Output::new(LIMITS);
        stdout.as_bytes().chunks(size).for_each(|piece| output.stdout(piece));
        let finished = output.finish();
        assert_eq!(jobs(&finished), expected_jobs, "{stdout:?} in pieces of {size}");
        assert_eq!(finished.log, expected_log, "{stdout:?} in pieces of {size}");
        assert_eq!(finished.too_much, None);
    }
}

#[test]
fn marked_lines_are_jobs_and_all_others_are_log() {
    check("J: resize|x\n", &["resize=x"], "");
    check("#J: resize|x", &["resize=x"], "");
    check("J: a|b|c\r\nlog\nJ: d|\n", &["a=b|c\r", "d="], "log\n");
    check("j: a|b\n J: a|b\nJ:a|b\n##J: a|b\n", &[], "j: a|b\n J: a|b\nJ:a|b\n##J: a|b\n");
    check("J: no bar\nJ: |no type\n", &[], "J: no bar\nJ: |no type\n");
    check("\n\nJ", &[], "\n\nJ");
}

#[test]
fn what_is_not_utf_8_is_kept_as_it_is() {
    let mut output = Output::new(LIMITS);
    output.stdout(b"J: a|\xff\xfe\n");
    output.stdout(b"J: \xff|b\n");
    let finished = output.finish();
    assert_eq!(
        finished.new_jobs,
        [PrintedJob { jobtype: "a".into(), payload: Bytes::from_static(b"\xff\xfe") }]
    );
    assert_eq!(finished.log, &b"J: \xff|b\n"[..]);
}

#[test]
fn a_long_log_keeps_its_beginning_and_its_end() {
    for piece in [1, 10, 333, 5_000] {
        let mut output = Output::new(LIMITS);
        let text = format!("first{}last", "x".repeat(9_991));
        text.as_bytes().chunks(piece).for_each(|bytes| output.stderr(bytes));
        let log = output.finish().log;
        let log = std::str::from_utf8(&log).unwrap();
        assert!(log.starts_with("firstxxx") && log.ends_with("xxxlast"), "{log}");
        assert!(log.contains("\n[9000 bytes omitted]\n"), "pieces of {piece}: {log}");
        assert!(log.len() < 1_100);
    }
}

#[test]
fn more_new_jobs_than_allowed_are_an_error_and_not_a_silent_loss() {
    let mut output = Output::new(LIMITS);
    (0..6).for_each(|n| output.stdout(format!("J: a|{n}\n").as_bytes()));
    let finished = output.finish();
    assert_eq!(finished.new_jobs.len(), 5);
    assert_eq!(finished.too_much.unwrap(), "more than 5 new jobs");
    let line = format!("J: a|{}\n", "x".repeat(6_000));
    for size in [100, 10_000] {
        let mut output = Output::new(LIMITS);
        line.as_bytes().chunks(size).for_each(|piece| output.stdout(piece));
        assert!(output.finish().too_much.unwrap().contains("line"));
    }
}

fn statuses(stdout: &str, jobs: usize) -> (Vec<String>, Finished) {
    let mut output = Output::with_statuses(LIMITS, jobs);
    stdout.as_bytes().chunks(3).for_each(|piece| output.stdout(piece));
    let finished = output.finish();
    let show = |(verdict, data): &(Verdict, Bytes)| {
        format!("{} {} {}", verdict.exitcode, verdict.code, String::from_utf8_lossy(data))
    };
    (finished.statuses.iter().map(show).collect(), finished)
}

#[test]
fn status_lines_are_for_the_jobs_in_turn() {
    let (told, finished) = statuses("200 some data\n# note\n\nJ: a|b\n100\n404  x\nafterwards\n", 3);
    assert_eq!(told, ["200 OK some data", "100 RETRY ", "404 FAILED  x"]);
    assert_eq!(jobs(&finished), ["a=b"]);
    assert_eq!(finished.log, "# note\n\nafterwards\n");
}

#[test]
fn missing_and_invalid_status_lines_are_errors_of_their_jobs() {
    assert_eq!(statuses("200\n200", 3).0, ["200 OK ", "200 OK ", "500 NO_RESPONSE "]);
    let told = statuses("200\nwhat?\n200\n", 3).0;
    assert_eq!(told, ["200 OK ", "500 INVALID_RESPONSE ", "500 INVALID_RESPONSE "]);
    assert_eq!(statuses("99\n", 1).0, ["500 INVALID_RESPONSE "]);
    assert_eq!(statuses("", 1).0, ["500 NO_RESPONSE "]);
}

#[test]
fn an_answer_is_its_result_without_the_new_jobs() {
    let (rest, output) = split_answer(Bytes::from_static(b"one\nJ: a|b\ntwo"), LIMITS);
    assert_eq!(rest, "one\ntwo");
    assert_eq!(jobs(&output.finish()), ["a=b"]);
    assert_eq!(split_answer(Bytes::from_static(b"J: no bar"), LIMITS).0, "J: no bar");
}
