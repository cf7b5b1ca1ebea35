use crate::server::Server;
use serde_json::json;
use std::io::Write;
use std::process::Stdio;

fn push_stdin(server: &Server, args: &[&str], input: &[u8]) -> String {
    let mut child = server.command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_first_job_goes_in_is_worked_on_and_its_result_comes_out() {
    let server = Server::start(&[]);
    assert_eq!(server.run(&["push", "hello", r#"{"to": "you", "a": 1}"#]).ok(), "1");
    assert_eq!(server.state_of(1), "ready");
    server.run(&["work", "hello", "--once", "--", "cat"]).ok();
    assert_eq!(server.run(&["job", "1", "result"]).ok(), r#"{"to": "you", "a": 1}"#);
    assert!(server.run(&["job", "1"]).ok().contains("completed"));
}

#[test]
fn every_option_of_push_reaches_the_job() {
    let server = Server::start(&[]);
    let args = [
        "push",
        "report",
        "{}",
        "--queue",
        "q",
        "--priority",
        "-5",
        "--delay",
        "1h",
        "--retry",
        "4",
        "--unique",
        "k",
        "--tag",
        "a",
        "--tag",
        "b",
        "--alias",
        "first",
        "--keep",
        "1d",
        "--lease",
        "5s",
    ];
    server.run(&args).ok();
    let job = server.job(1);
    assert_eq!(job["queue"], "q");
    assert_eq!(job["priority"], -5);
    assert_eq!(job["max_attempts"], 4);
    assert_eq!(job["tags"], json!(["a", "b"]));
    assert_eq!(job["alias"], "first");
    assert_eq!(job["unique"]["key"], "k");
    let delay = job["run_at"].as_i64().unwrap() - job["created_at"].as_i64().unwrap();
    assert_eq!(delay, 3_600_000);
    assert_eq!(server.run(&["push", "report", "--unique", "k"]).ok(), "1");
    server.run(&["push", "report", "--at", "2040-01-01T00:00:00Z"]).ok();
    assert_eq!(server.job(2)["run_at"], 2_208_988_800_000_i64);
    server.run(&["push", "tick", "--repeat", "every 5m"]).ok();
    let tick = server.job(3);
    assert_eq!((&tick["repeat"], &tick["schedule"]["catch_up"]), (&json!("every 5m"), &json!("one")));
    server.run(&["push", "tick", "--repeat", "every 5m", "--catch-up", "none"]).ok();
    assert_eq!(server.job(4)["schedule"]["catch_up"], "none");
    for (wrong, said) in [
        (["push", "tick", "--catch-up", "none"].as_slice(), "--repeat"),
        (&["push", "tick", "--repeat", "every 5m", "--catch-up", "all"], "one, none"),
    ] {
        let ran = server.run(wrong);
        assert!(ran.code == 2 && ran.stderr.contains(said), "{ran:?}");
    }
}

#[test]
fn a_payload_is_json_if_it_can_be_and_text_or_bytes_otherwise() {
    let server = Server::start(&[]);
    let cases: [&[u8]; 4] = [b"{\"b\":1, \"a\":[ ]}", b"just words", b"\"quoted\"", b"\xff\x00\xfe"];
    for (index, payload) in cases.into_iter().enumerate() {
        let id = push_stdin(&server, &["push", "echo", "-"], payload);
        assert_eq!(id.trim(), (index + 1).to_string());
        let out = server.folder().join("out");
        let script = format!("cat > {}", out.display());
        server.run(&["work", "echo", "--once", "--", "sh", "-c", &script]).ok();
        assert_eq!(std::fs::read(&out).unwrap(), payload);
    }
}

/// Runs the command with this input; it must be refused as a usage error.
fn refused(server: &Server, args: &[&str], input: &[u8]) -> String {
    let mut command = server.command(args);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that takes its payload from the line does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn broken_json_is_refused_unless_it_is_meant_as_text() {
    let server = Server::start(&[]);
    let broken = r#"{"to":"ann"#;
    for args in [&["push", "mail", broken][..], &["push", "mail", "-"]] {
        let said = refused(&server, args, broken.as_bytes());
        assert!(said.contains("the payload begins like JSON, but is not"), "{said}");
        assert!(said.contains("at column 10\n  {\"to\":\"ann\n            ^"), "{said}");
        assert!(said.contains("--text"), "{said}");
    }
    assert_eq!(server.run(&["push", "mail", broken, "--text"]).ok(), "1");
    assert_eq!((&server.job(1)["payload"], &server.job(1)["format"]), (&json!(broken), &json!("text")));
    assert_eq!(push_stdin(&server, &["push", "mail", "-"], b"{\xff").trim(), "2");
    assert_eq!(server.job(2)["format"], "binary");
}

#[test]
fn a_broken_line_is_named_and_so_is_what_was_pushed_before_it() {
    let server = Server::start(&[]);
    let args = ["push", "row", "-", "--lines"];
    let said = refused(&server, &args, b"{\"n\":1}\n\n[2\n{\"n\":3}\n");
    assert!(said.contains("nothing was pushed: line 3 begins like JSON, but is not"), "{said}");
    assert_eq!(server.run(&["jobs", "--json"]).ok(), "");
    let mut lines: String = (0..1_000).map(|n| format!("{n}\n")).collect();
    lines.push_str("1\n[\n");
    let said = refused(&server, &args, lines.as_bytes());
    assert!(said.contains("only lines 1 to 1000 were pushed: line 1002"), "{said}");
    assert_eq!(server.run(&["jobs", "--all", "--json"]).ok().lines().count(), 1_000);
    let pushed = push_stdin(&server, &["push", "row", "-", "--lines", "--text"], b"[2\nplain\n");
    assert_eq!(pushed, "1001\n1002\n");
}

#[test]
fn each_line_becomes_a_job() {
    let server = Server::start(&[]);
    let lines: String = (0..2500).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    let ids = push_stdin(&server, &["push", "row", "-", "--lines"], lines.as_bytes());
    assert_eq!(ids.lines().count(), 2500);
    assert_eq!(server.job(2500)["payload"], json!({"n": 2499}));
}

#[test]
fn wait_prints_the_result_of_a_job_that_finishes() {
    let server = Server::start(&[]);
    let mut waiting =
        server.command(&["push", "sum", "[1,2]", "--wait"]).stdout(Stdio::piped()).spawn().unwrap();
    server.run(&["work", "sum", "--once", "--", "sh", "-c", "echo 3"]).ok();
    let mut output = String::new();
    std::io::Read::read_to_string(&mut waiting.stdout.take().unwrap(), &mut output).unwrap();
    assert!(crate::server::ended(&mut waiting).success());
    assert_eq!(output, "3\n");
}

#[test]
fn wait_fails_with_the_reason_of_a_job_that_fails() {
    let server = Server::start(&[]);
    let waiting =
        server.command(&["push", "sum", "--wait", "--retry", "1"]).stderr(Stdio::piped()).spawn().unwrap();
    server.run(&["work", "sum", "--once", "--", "sh", "-c", "echo 'no numbers' >&2; exit 3"]).ok();
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("job 1 failed: no numbers"), "{message}");
}

#[test]
fn wait_gives_up_when_its_time_is_over_and_the_job_goes_on() {
    let server = Server::start(&[]);
    let ran = server.run(&["push", "never", "--wait", "--timeout", "50ms"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("timed out: job 1 is still ready"), "{ran:?}");
    assert_eq!(server.state_of(1), "ready");
}
