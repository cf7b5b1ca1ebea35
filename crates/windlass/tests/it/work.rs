use crate::server::{Server, ended, eventually};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use std::process::{Child, Stdio};

fn spawn(server: &Server, args: &[&str]) -> Child {
    server.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn until_state(server: &Server, id: u64, state: &str) {
    eventually(&format!("job {id} is {state}"), || (server.state_of(id) == state).then_some(()));
}

#[test]
fn exit_codes_decide_what_becomes_of_the_job() {
    let server = Server::start(&[]);
    let work = |name: &str, script: &str| {
        server.run(&["work", name, "--once", "--retry-delay", "1h", "--", "sh", "-c", script])
    };
    for name in ["good", "again", "bad", "killed", "hopeless", "last"] {
        server.run(&["push", name, "--retry", if name == "last" { "1" } else { "3" }]).ok();
    }
    work("good", "exit 0").ok();
    assert_eq!(server.state_of(1), "completed");

    // 75: another attempt that does not count.
    let ran = work("again", "echo later >&2; exit 75");
    assert!(ran.stderr.contains("asks for another attempt: later; next attempt in"), "{ran:?}");
    assert!(ran.stderr.contains("0 finished, 0 failed, 1 to run again"), "{ran:?}");
    let job = server.job(2);
    assert_eq!((job["attempts"].as_i64(), &job["errors"]), (Some(0), &Value::Null), "{job}");
    assert!(job["run_at"].as_i64() > job["started_at"].as_i64().map(|at| at + 5_000), "no busy loop: {job}");
    assert_eq!(job["log"]["lines"][0]["text"], "later");

    // Any other code and a signal: a failed attempt, retried by the rules of the job.
    let ran = work("bad", "echo first >&2; echo last >&2; exit 7");
    assert!(ran.stderr.contains("failed: last; next attempt in"), "{ran:?}");
    let job = server.job(3);
    assert_eq!((job["attempts"].as_i64(), job["state"].as_str()), (Some(1), Some("retrying")), "{job}");
    assert_eq!((job["exit_code"].as_i64(), job["message"].as_str()), (Some(7), Some("last")));
    assert_eq!(job["errors"][0]["backtrace"], json!(["first", "last"]));
    let page = server.run(&["job", "3"]).ok();
    assert!(page.contains("attempt 1") && page.contains("first") && page.contains("retrying"), "{page}");
    work("killed", "kill -9 $$").ok();
    let job = server.job(4);
    assert_eq!(job["attempts"], 1);
    assert_eq!(job["errors"][0]["message"], "killed by signal 9");

    // 65: the job fails for good, although attempts are left.
    let ran = work("hopeless", "echo bad address >&2; exit 65");
    assert!(ran.stderr.contains("failed: bad address; no other attempt follows"), "{ran:?}");
    let job = server.job(5);
    assert_eq!((job["state"].as_str(), job["exit_code"].as_i64()), (Some("failed"), Some(65)));

    // The last attempt fails the job.
    work("last", "exit 7").ok();
    assert_eq!(server.state_of(6), "failed");
}

#[test]
fn fatal_exit_codes_can_be_chosen() {
    let server = Server::start(&[]);
    server.run(&["push", "job", "1\n2", "--lines"]).ok();
    let work = |codes: &str, script: &str| {
        server.run(&["work", "job", "--once", "--fatal-exit-codes", codes, "--", "sh", "-c", script]).ok();
    };
    work("3,4", "exit 4");
    assert_eq!(server.state_of(1), "failed");
    work("none", "exit 65");
    assert_ne!(server.state_of(2), "failed");
}

#[test]
fn ended_runs_are_told_as_json() {
    let server = Server::start(&[]);
    server.run(&["push", "job", "0\n65\n75", "--lines"]).ok();
    let script = "exit $(cat)";
    let text = server.run(&["work", "job", "--drain", "--json", "--quiet", "--", "sh", "-c", script]).ok();
    let runs: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let outcomes: Vec<(u64, &str)> =
        runs.iter().map(|run| (run["id"].as_u64().unwrap(), run["outcome"].as_str().unwrap())).collect();
    assert_eq!(outcomes, [(1, "finished"), (2, "failed"), (3, "again")]);
    assert_eq!(runs[1]["message"], "failed: exit code 65; no other attempt follows");
}

#[test]
fn what_a_command_says_is_kept_with_its_job_over_a_restart() {
    let mut server = Server::start(&[]);
    server.run(&["push", "talk"]).ok();
    server.run(&["work", "talk", "--once", "--", "sh", "-c", "echo one >&2; echo two >&2; echo result"]).ok();
    server.run(&["job", "1", "retry"]).ok();
    server.stop();
    let server = Server::start_in(server.folder(), &[]);
    let job = server.job(1);
    let lines: Vec<&str> =
        job["log"]["lines"].as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!((lines, job["result"].as_str()), (vec!["one", "two"], Some("result")));
    let page = server.run(&["job", "1"]).ok();
    assert!(page.contains("two") && page.contains("by anyone"), "{page}");
}

#[test]
fn a_result_that_the_server_does_not_take_fails_the_job_and_says_why() {
    let server = Server::start(&["--set", "limits.payload_bytes=100"]);
    server.run(&["push", "wordy"]).ok();
    let ran =
        server.run(&["work", "wordy", "--once", "--", "sh", "-c", "head -c 101 /dev/zero | tr '\\0' x"]);
    assert!(ran.stderr.contains("failed: the result is larger than the server's limit"), "{ran:?}");
    assert!(ran.stderr.contains("0 finished, 1 failed"), "{ran:?}");
    let job = server.job(1);
    assert_eq!(job["state"], "failed", "{job}");
    assert!(job["message"].as_str().unwrap().contains("limits.payload_bytes"), "{job}");
}

#[test]
fn a_failed_job_can_be_retried_by_hand() {
    let server = Server::start(&[]);
    server.run(&["push", "job", "--retry", "1"]).ok();
    server.run(&["work", "job", "--once", "--", "false"]).ok();
    assert_eq!(server.state_of(1), "failed");
    assert_eq!(server.run(&["job", "1", "retry"]).ok(), "job 1 is ready");
    server.run(&["work", "job", "--once", "--", "true"]).ok();
    assert_eq!(server.state_of(1), "completed");
    // Also a completed one, as its help says.
    assert_eq!(server.run(&["job", "1", "retry"]).ok(), "job 1 is ready");
    assert_eq!(server.job(1)["attempts"], 0);
    server.run(&["work", "job", "--once", "--", "echo", "again"]).ok();
    assert_eq!(server.run(&["job", "1", "result"]).ok(), "again");
}

#[test]
fn a_failure_is_tried_again_up_to_the_bound() {
    let server = Server::start(&[]);
    server.run(&["push", "job", "--retry", "2"]).ok();
    let args = ["work", "job", "--once", "--retry-delay", "1ms", "--", "false"];
    server.run(&args).ok();
    assert_ne!(server.state_of(1), "failed");
    server.run(&args).ok();
    assert_eq!(server.state_of(1), "failed");
}

#[test]
fn the_command_learns_about_its_job_from_the_environment() {
    let server = Server::start(&[]);
    server.run(&["push", "env", "--queue", "mail", "--priority", "3"]).ok();
    let script = r#"printf '["%s","%s","%s","%s","%s","%s"]' $WINDLASS_JOB_ID $WINDLASS_JOB_NAME $WINDLASS_JOB_QUEUE \
        $WINDLASS_JOB_ATTEMPT $WINDLASS_JOB_PRIORITY $WINDLASS_SERVER"#;
    server.run(&["work", "e*", "--queue", "mail", "--once", "--", "sh", "-c", script]).ok();
    let expected = serde_json::json!(["1", "env", "mail", "1", "3", server.url()]);
    assert_eq!(server.run(&["job", "1", "result"]).json(), expected);
}

#[test]
fn progress_lines_are_reported_and_not_part_of_the_result() {
    let server = Server::start(&[]);
    server.run(&["push", "long"]).ok();
    let go_on = server.folder().join("go-on");
    let script = format!(
        "echo '::progress 40 half way'; while [ ! -e {} ]; do sleep 0.02; done; echo done",
        go_on.display()
    );
    let mut worker = spawn(&server, &["work", "long", "--once", "--", "sh", "-c", &script]);
    eventually("the progress is told", || (server.job(1)["progress"]["percent"] == 40).then_some(()));
    assert_eq!(server.job(1)["progress"]["note"], "half way");
    std::fs::write(go_on, "").unwrap();
    assert!(ended(&mut worker).success());
    assert_eq!(server.run(&["job", "1", "result"]).ok(), "done");
}

#[test]
fn cancelling_a_running_job_ends_its_process_and_all_it_started() {
    let server = Server::start(&[]);
    server.run(&["push", "endless"]).ok();
    let pids = server.folder().join("pids");
    // The inner process ignores SIGTERM: only the kill after the grace time ends it.
    let script = format!(
        "sh -c 'trap \"\" TERM; while true; do sleep 1; done' & echo $! $$ > {0}.new; mv {0}.new {0}; wait",
        pids.display()
    );
    let mut worker = spawn(
        &server,
        &["work", "endless", "--once", "--lease", "1s", "--grace", "200ms", "--", "sh", "-c", &script],
    );
    let text = eventually("the processes run", || std::fs::read_to_string(&pids).ok());
    assert_eq!(server.run(&["job", "1", "cancel"]).ok(), "job 1 is running; its worker was asked to stop");
    assert!(ended(&mut worker).success());
    assert_eq!(server.state_of(1), "cancelled");
    for pid in text.split_whitespace() {
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        eventually("the process is gone", || is_gone(pid).then_some(()));
    }
}

#[test]
fn a_worker_that_is_killed_takes_its_command_and_all_that_started_with_it() {
    let server = Server::start(&[]);
    server.run(&["push", "quick"]).ok();
    server.run(&["push", "endless"]).ok();
    let pids = server.folder().join("pids");
    let script = format!(
        "[ $WINDLASS_JOB_NAME = endless ] || exit 0; sleep 600 & echo $! $$ > {0}.new; mv {0}.new {0}; wait",
        pids.display()
    );
    let mut worker = spawn(&server, &["work", "*", "--", "sh", "-c", &script]);
    let text = eventually("the processes run", || std::fs::read_to_string(&pids).ok());
    until_state(&server, 1, "completed");
    worker.kill().unwrap();
    worker.wait().unwrap();
    for pid in text.split_whitespace() {
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        eventually("the process is gone", || is_gone(pid).then_some(()));
    }
}

/// A zombie that its new parent has not reaped yet counts as gone.
fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(pid).is_err() || stat.contains(") Z ")
}

#[test]
fn leases_are_kept_alive_longer_than_they_last() {
    let server = Server::start(&[]);
    server.run(&["push", "slow", "--retry", "1"]).ok();
    server.run(&["work", "slow", "--once", "--lease", "600ms", "--", "sleep", "2"]).ok();
    let job = server.job(1);
    assert_eq!((job["state"].as_str(), job["attempts"].as_i64()), (Some("completed"), Some(1)));
}

#[test]
fn a_command_that_takes_too_long_is_stopped_and_its_job_fails() {
    let server = Server::start(&[]);
    server.run(&["push", "slow", "--retry", "1"]).ok();
    server.run(&["work", "slow", "--once", "--timeout", "100ms", "--", "sleep", "600"]).ok();
    let job = server.job(1);
    assert_eq!(job["state"], "failed");
    assert_eq!(job["message"], "exceeded its time limit (--timeout)");
}

#[test]
fn drain_runs_everything_several_at_a_time_and_then_ends() {
    let server = Server::start(&[]);
    let lines = (1..=40).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
    server.run(&["push", "job", &lines, "--lines"]).ok();
    let ran = server.run(&["work", "job", "--drain", "--concurrency", "8", "--", "cat"]);
    assert!(ran.stderr.contains("40 finished, 0 failed"), "{ran:?}");
    let queues = server.run(&["queues", "--json"]).json();
    assert_eq!(queues["queues"][0]["completed"], 40);
    assert_eq!(server.run(&["job", "17", "result"]).ok(), "17");
    server.run(&["work", "job", "--drain", "--", "false"]).ok();
}

#[test]
fn drain_also_takes_what_its_own_jobs_push() {
    let server = Server::start(&[]);
    server.run(&["push", "chain", "5"]).ok();
    let program = env!("CARGO_BIN_EXE_windlass");
    let script = format!("n=$(cat); [ $n = 0 ] || {program} push chain $((n - 1))");
    let ran = server.run(&["work", "chain", "--drain", "-c", "4", "--", "sh", "-c", &script]);
    assert!(ran.stderr.contains("6 finished, 0 failed"), "{ran:?}");
}

#[test]
fn jobs_run_at_the_same_time_up_to_the_concurrency() {
    let server = Server::start(&[]);
    server.run(&["push", "meet", "1\n2\n3", "--lines"]).ok();
    // Each waits for all three: this ends only if they run concurrently.
    let script = "touch at-$WINDLASS_JOB_ID; until [ -e at-1 -a -e at-2 -a -e at-3 ]; do sleep 0.01; done";
    server.run(&["work", "meet", "--drain", "-c", "3", "--", "sh", "-c", script]).ok();
    assert_eq!(server.run(&["queues", "--json"]).json()["queues"][0]["completed"], 3);
}

#[test]
fn one_interrupt_lets_the_running_job_end_and_takes_no_more() {
    let server = Server::start(&[]);
    server.run(&["push", "job", "1\n2", "--lines"]).ok();
    let go_on = server.folder().join("go-on");
    let script = format!("touch started; while [ ! -e {} ]; do sleep 0.02; done; echo ok", go_on.display());
    let mut worker = spawn(&server, &["work", "job", "--", "sh", "-c", &script]);
    eventually("the job runs", || server.folder().join("started").exists().then_some(()));
    kill_process(Pid::from_child(&worker), Signal::INT).unwrap();
    std::fs::write(go_on, "").unwrap();
    assert!(ended(&mut worker).success());
    assert_eq!((server.state_of(1), server.state_of(2)), ("completed".to_string(), "ready".to_string()));
}

#[test]
fn a_second_interrupt_gives_the_running_job_back_without_counting_it() {
    let server = Server::start(&[]);
    server.run(&["push", "job"]).ok();
    let said = server.folder().join("said");
    let mut worker = server
        .command(&["work", "job", "--", "sh", "-c", "touch started; exec sleep 600"])
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    eventually("the job runs", || server.folder().join("started").exists().then_some(()));
    kill_process(Pid::from_child(&worker), Signal::INT).unwrap();
    // One after the other: two signals that arrive together count as one, and a third would be waited for in
    // vain.
    eventually("the first is seen", || {
        std::fs::read_to_string(&said).unwrap().contains("send the signal again").then_some(())
    });
    kill_process(Pid::from_child(&worker), Signal::INT).unwrap();
    assert!(ended(&mut worker).success());
    let job = server.job(1);
    assert_eq!((job["state"].as_str(), job["attempts"].as_i64()), (Some("ready"), Some(0)));
}

#[test]
fn an_idle_worker_ends_at_once_when_told() {
    let server = Server::start(&[]);
    let mut worker = spawn(&server, &["work", "job", "--", "true"]);
    eventually("the worker waits", || {
        (server.call("GET", "/api/v1/stats", None).1["waiting_claims"] == 1).then_some(())
    });
    kill_process(Pid::from_child(&worker), Signal::TERM).unwrap();
    assert!(ended(&mut worker).success());
}

#[test]
fn a_command_that_cannot_be_started_stops_the_worker_and_gives_the_job_back() {
    let server = Server::start(&[]);
    server.run(&["push", "job"]).ok();
    let ran = server.run(&["work", "job", "--", "no-such-command-here"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("cannot run no-such-command-here"), "{ran:?}");
    let job = server.job(1);
    assert_eq!((job["state"].as_str(), job["attempts"].as_i64()), (Some("ready"), Some(0)));
}

#[test]
fn a_worker_outlives_a_restart_of_its_server_and_still_delivers() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(folder.path(), &[]);
    let address = server.http.to_string();
    server.run(&["push", "job", "--lease", "60s"]).ok();
    let script = "touch started; while [ ! -e go-on ]; do sleep 0.02; done; echo ok";
    let mut worker = spawn(&server, &["work", "job", "--once", "--lease", "60s", "--", "sh", "-c", script]);
    eventually("the job runs", || folder.path().join("started").exists().then_some(()));
    assert!(server.stop().success());
    std::fs::write(folder.path().join("go-on"), "").unwrap();
    let server = Server::start_in(folder.path(), &["--http", &address]);
    assert!(ended(&mut worker).success());
    assert_eq!(server.run(&["job", "1", "result"]).ok(), "ok");
}

#[test]
fn a_job_that_comes_back_to_a_worker_that_was_frozen_is_run_once_more_and_the_old_run_is_ended() {
    let server = Server::start(&[]);
    server.run(&["push", "job"]).ok();
    let script = "[ $WINDLASS_JOB_ATTEMPT = 1 ] || exit 0; echo $$ > pid.new; mv pid.new pid; sleep 600";
    let mut worker = spawn(&server, &["work", "job", "-c", "2", "--lease", "1s", "--", "sh", "-c", script]);
    let pid =
        eventually("the first run is there", || std::fs::read_to_string(server.folder().join("pid")).ok());
    eventually("the worker waits for more", || {
        (server.call("GET", "/api/v1/stats", None).1["waiting_claims"] == 1).then_some(())
    });
    kill_process(Pid::from_child(&worker), Signal::STOP).unwrap();
    eventually("the job is handed out again", || (server.job(1)["attempts"] == 2).then_some(()));
    kill_process(Pid::from_child(&worker), Signal::CONT).unwrap();
    until_state(&server, 1, "completed");
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    eventually("the first run is gone", || is_gone(pid).then_some(()));
    kill_process(Pid::from_child(&worker), Signal::TERM).unwrap();
    assert!(ended(&mut worker).success());
}
