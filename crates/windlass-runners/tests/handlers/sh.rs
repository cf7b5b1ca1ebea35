use crate::rig::{Rig, brief, briefs, ends, log, new_jobs, outcomes, sh};
use windlass_core::handler::{Ended, Report, Run};
use windlass_runners::handlers::{Handler, HandlerOptions, Interpreters, Lang};

#[tokio::test]
async fn a_shell_handler_gets_its_line_and_its_exit_code_is_the_status() {
    let rig = Rig::new();
    let body = "read -r line; echo \"got $line\"; exit \"$line\"";
    let told = rig.run(&sh(body), &["0", "11", "24", "44", "53", "1", "77"]).await;
    let expected = ["200 OK", "101 RETRY", "204 OK", "404 FAILED", "503 ERROR", "500 EXIT", "500 EXIT"];
    assert_eq!(briefs(&told), expected);
    assert_eq!(log(&told[1]), "got 11\n");
    assert_eq!(log(&told[6]), "got 77\n", "every job has its own log");
}

#[tokio::test]
async fn a_payload_arrives_byte_by_byte_with_a_newline_and_a_result_leaves_as_it_is() {
    let rig = Rig::new();
    let copy = sh("cat > \"$WINDLASS_RESULT\"");
    let large = "é|".repeat(300_000);
    for payload in
        ["plain", "", " spaces  and | bars ", "back\\slash\tand $HOME `x`", "cr\r", "nul\0nul", &large]
    {
        let outcome = rig.one(&copy, payload).await;
        assert_eq!(outcome.exitcode, 200, "{outcome:?}");
        assert_eq!(outcome.result, format!("{payload}\n"));
    }
}

#[tokio::test]
async fn lines_with_the_mark_are_new_jobs_and_the_rest_is_log() {
    let rig = Rig::new();
    let outcome = rig
        .one(&sh("echo 'J: thumb|a|b'; echo hello; echo '#J: mail|'; echo oops >&2; echo ' J: no|x'"), "x")
        .await;
    assert_eq!(new_jobs(&outcome), ["thumb=a|b", "mail="]);
    let log = log(&outcome);
    // Two pipes: the order is kept within each.
    let place = |line: &str| log.find(line).unwrap_or_else(|| panic!("{line} is missing in {log}"));
    assert!(place("hello\n") < place(" J: no|x\n"));
    place("oops\n");
}

#[tokio::test]
async fn a_context_is_reused_and_its_parts_run_when_they_should() {
    let rig = Rig::new();
    let handler = Handler {
        before: Some("echo before; started=$$; befores=$((befores + 1))".to_owned()),
        before_each: Some("echo beforeEach; batch=$((batch + 1))".to_owned()),
        after_each: Some("echo afterEach; echo 'J: after|x'".to_owned()),
        ..sh("echo \"$started.$befores $batch\" > \"$WINDLASS_RESULT\"; started=lost")
    };
    let first = rig.run(&handler, &["a", "b"]).await;
    assert_eq!(log(&first[0]), "beforeEach\n", "what a context says at its start belongs to no job");
    assert_eq!(log(&first[1]), "afterEach\n");
    assert_eq!(new_jobs(&first[1]), ["after=x"]);
    assert_eq!(rig.handlers.warm(), [("acme".to_owned(), "resize".to_owned())]);
    let second = rig.run(&handler, &["c"]).await;
    let words = |outcome: &Report| {
        let text = brief(outcome);
        let (process, batch) = text.strip_prefix("200 OK ").unwrap().split_once(' ').unwrap();
        (process.to_owned(), batch.to_owned())
    };
    assert_eq!(words(&first[0]), words(&first[1]));
    assert_eq!(words(&first[0]).0, words(&second[0]).0, "the same process");
    assert_eq!((words(&first[0]).1.as_str(), words(&second[0]).1.as_str()), ("1", "2"));
    for batch in 3..=5 {
        let later = rig.run(&handler, &["d"]).await;
        assert_eq!(words(&later[0]), (words(&first[0]).0, batch.to_string()));
    }
    assert!(words(&first[0]).0.ends_with(".1"), "before has run once, for five batches");
}

#[tokio::test]
async fn contexts_are_shared_by_eid_within_a_client_and_by_nothing_else() {
    let rig = Rig::with_known_processes();
    let anonymous = sh("echo $$ > \"$WINDLASS_RESULT\"");
    let shared = Handler { eid: Some("e".to_owned()), ..anonymous.clone() };
    let mut process = Vec::new();
    for (client, jobtype, handler) in [
        ("acme", "a", &anonymous),
        ("acme", "b", &anonymous),
        ("acme", "c", &shared),
        ("acme", "d", &shared),
        ("other", "a", &anonymous),
        ("other", "c", &shared),
    ] {
        let mut run = rig.start(client, jobtype, handler, &["x"]);
        process.push(brief(&outcomes(&mut run, 1).await[0]));
    }
    assert_eq!(process[2], process[3], "one client, one eid");
    let mut different = process.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 5, "{process:?}");
}

#[tokio::test]
async fn a_crashed_context_costs_only_the_job_it_ran() {
    let rig = Rig::with_known_processes();
    // The shell that runs the body is a child; `$$` is still the context itself.
    let body = "read -r line; case $line in die) kill -9 $$; sleep 9;; esac; echo $$ > \"$WINDLASS_RESULT\"";
    let told = rig.run(&sh(body), &["a", "b", "die", "c", "die", "d"]).await;
    let codes: Vec<&str> = told.iter().map(|outcome| outcome.code.as_str()).collect();
    assert_eq!(codes, ["OK", "OK", "SIGNAL", "OK", "SIGNAL", "OK"]);
    assert_eq!(told[0].result, told[1].result);
    assert_ne!(told[1].result, told[3].result);
}

#[tokio::test]
async fn a_new_version_of_a_handler_gets_a_new_context() {
    let rig = Rig::new();
    let version = |word: &str| Handler {
        before: Some(format!("word={word}")),
        ..sh("echo $word > \"$WINDLASS_RESULT\"")
    };
    assert_eq!(brief(&rig.one(&version("one"), "x").await), "200 OK one");
    assert_eq!(brief(&rig.one(&version("two"), "x").await), "200 OK two");
    assert_eq!(rig.handlers.warm().len(), 1, "the old one is gone");
}

#[tokio::test]
async fn a_context_is_replaced_after_its_share_of_jobs_or_when_a_job_leaves_processes_behind() {
    let rig = Rig::with_known_processes();
    let options = HandlerOptions { recycle: Some(3), ..HandlerOptions::default() };
    let handler = Handler { options, ..sh("echo $$ > \"$WINDLASS_RESULT\"") };
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.extend(briefs(&rig.run(&handler, &["x", "y"]).await));
    }
    assert_eq!(seen[0], seen[3], "two batches are within its share");
    assert_ne!(seen[3], seen[4]);
    let untidy = sh("sleep 1000 & echo $$ > \"$WINDLASS_RESULT\"");
    let first = rig.one(&untidy, "x").await;
    assert_ne!(first.result, rig.one(&untidy, "x").await.result);
}

#[tokio::test]
async fn a_whole_batch_answers_with_lines() {
    let rig = Rig::new();
    let options = HandlerOptions { batch: true, ..HandlerOptions::default() };
    let each = Handler {
        options: options.clone(),
        ..sh("echo '# begin'; while read -r line; do echo \"$line done $line\"; done; echo 'J: a|b'")
    };
    let told = rig.run(&each, &["200", "100", "404"]).await;
    assert_eq!(briefs(&told), ["200 OK done 200", "100 RETRY done 100", "404 FAILED done 404"]);
    assert_eq!(new_jobs(&told[0]), ["a=b"]);
    let short = Handler { options: options.clone(), ..sh("echo 200; echo 500 no") };
    assert_eq!(
        briefs(&rig.run(&short, &["a", "b", "c"]).await),
        ["200 OK", "500 ERROR no", "500 NO_RESPONSE"]
    );
    let broken = Handler { options, ..sh("echo 200; exit 3") };
    assert_eq!(briefs(&rig.run(&broken, &["a", "b"]).await), ["200 OK", "500 EXIT"]);
}

#[tokio::test]
async fn parts_that_fail_are_told_with_every_job() {
    let rig = Rig::new();
    let before = Handler { before: Some("echo oh dear; exit 7".to_owned()), ..sh("true") };
    let told = rig.run(&before, &["a", "b"]).await;
    assert_eq!(briefs(&told), ["500 BEFORE_FAILED", "500 BEFORE_FAILED"]);
    assert_eq!(told[0].message.as_deref(), Some("before failed: exit code 7"));
    assert_eq!(log(&told[0]), "oh dear\n");
    let before_each = Handler { before_each: Some("false".to_owned()), ..sh("true") };
    assert_eq!(briefs(&rig.run(&before_each, &["a"]).await), ["500 BEFORE_EACH_FAILED"]);
    let after_each = Handler { after_each: Some("false".to_owned()), ..sh("read -r x; exit $x") };
    let told = briefs(&rig.run(&after_each, &["0", "44"]).await);
    assert_eq!(told, ["500 AFTER_EACH_FAILED", "404 FAILED"], "what had failed anyway stays as it was");
    let no_shell = Handler { before: Some("if".to_owned()), ..sh("true") };
    assert_eq!(rig.one(&no_shell, "x").await.code, "BEFORE_FAILED");
}

#[tokio::test]
async fn a_missing_interpreter_is_a_clear_error_of_the_handler() {
    let rig = Rig::with(|settings| {
        settings.interpreters = Interpreters { sh: "no-such-shell".to_owned(), ..Interpreters::default() };
    });
    let why = rig.handlers.check(&sh("true")).unwrap_err();
    assert!(why.contains("no-such-shell"), "{why}");
    let outcome = rig.one(&sh("true"), "x").await;
    assert_eq!(brief(&outcome), "500 BAD_HANDLER");
    assert_eq!(outcome.message, Some(why));
}

#[tokio::test]
async fn single_jobs_can_be_stopped_and_the_others_go_on() {
    let rig = Rig::new();
    let mut run = rig.start("acme", "a", &sh("read -r line; sleep $line"), &["0", "1000", "0", "1000"]);
    run.stop(1);
    run.stop(3);
    let told = ends(&mut run, 4).await;
    let unrun: Vec<bool> = told.iter().map(|ended| matches!(ended, Ended::Unrun(_))).collect();
    assert_eq!(unrun, [false, true, false, true], "{told:?}");
}

#[tokio::test]
async fn stopping_gives_running_jobs_back_and_leaves_no_process() {
    let rig = Rig::new();
    let mut run = rig.start(
        "acme",
        "a",
        &sh("read -r line; echo $$ >> \"$TMPDIR/../../../pids\"; sleep 1000"),
        &["a", "b"],
    );
    rig.handlers.stop(std::time::Duration::ZERO).await;
    let told = ends(&mut run, 2).await;
    assert!(
        told.iter().all(|ended| *ended == Ended::Unrun("the server is shutting down".to_owned())),
        "{told:?}"
    );
    let mut late = rig.start("acme", "a", &sh("true"), &["a"]);
    assert!(matches!(ends(&mut late, 1).await[0], Ended::Unrun(_)));
    assert!(rig.handlers.warm().is_empty());
}

/// A server's data folder may be closed to other users, and contexts run as other users.
#[tokio::test]
async fn a_folder_that_others_cannot_reach_by_name_is_still_home() {
    use std::os::unix::fs::PermissionsExt;
    let rig = Rig::new();
    std::fs::set_permissions(rig.folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let body = "cd /; echo one > \"$TMPDIR/file\"; cat \"$HOME/file\" > \"$WINDLASS_RESULT\"";
    assert_eq!(brief(&rig.one(&sh(body), "x").await), "200 OK one");
}

#[test]
fn only_known_languages_are_languages() {
    assert!(Lang::parse("bash").is_err());
}
