use crate::server::{Ran, Server, windlass};
use serde_json::{Value, json};

#[test]
fn jobs_are_found_by_words_and_by_flags() {
    let server = Server::start(&[]);
    server.run(&["push", "mail", r#"{"to":"ann@example.org"}"#, "--queue", "out", "--tag", "vip"]).ok();
    server.run(&["push", "mail", r#"{"to":"bob@example.org"}"#, "--queue", "out"]).ok();
    server.run(&["push", "report", "--delay", "1h"]).ok();
    let found = |args: &[&str]| {
        let all: Vec<&str> = ["jobs", "--json"].iter().chain(args).copied().collect();
        let text = server.run(&all).ok();
        let ids =
            text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_u64().unwrap());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(found(&[]), [3, 2, 1]);
    assert_eq!(found(&["name:mail", "ann"]), [1]);
    assert_eq!(found(&["queue:out"]), [2, 1]);
    assert_eq!(found(&["--queue", "out", "--tag", "vip"]), [1]);
    assert_eq!(found(&["name:re*"]), [3]);
    assert_eq!(found(&["state:failed"]), Vec::<u64>::new());
    assert_eq!(found(&["--limit", "1"]), [3]);
    assert_eq!(found(&["state:ready name:mail bob"]), [2], "several terms in an argument");
    let ran = server.run(&["jobs", "state:nonsense"]);
    assert!(ran.code == 1 && ran.stderr.contains("unknown state"), "{ran:?}");
    let ran = server.run(&["jobs", "stat:failed"]);
    assert!(
        ran.code == 1 && ran.stderr.contains("unknown search key `stat`; the keys are state,"),
        "{ran:?}"
    );
    assert_eq!(found(&["\"stat:failed\""]), Vec::<u64>::new());
}

#[test]
fn all_pages_through_more_jobs_than_a_call_gives() {
    let server = Server::start(&[]);
    let lines = (0..1500).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
    server.run(&["push", "row", &lines, "--lines"]).ok();
    assert_eq!(server.run(&["jobs", "--all", "--json"]).ok().lines().count(), 1500);
    assert_eq!(server.run(&["jobs", "-n", "1200", "--json"]).ok().lines().count(), 1200);
    let table = server.run(&["jobs", "--all"]).ok();
    assert_eq!(
        (table.lines().count(), table.matches("STATE").count()),
        (1501, 1),
        "one heading for all pages"
    );
}

#[test]
fn the_table_of_jobs_shows_what_matters() {
    let server = Server::start(&[]);
    server.run(&["push", "mail", "hello\u{1b}[31m"]).ok();
    let table = server.run(&["jobs"]).ok();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].contains("ID") && lines[0].contains("STATE"), "{table}");
    assert!(lines[1].contains("ready") && lines[1].contains("mail"), "{table}");
    assert!(!table.contains('\u{1b}'), "{table:?}");
}

#[test]
fn queues_are_counted_paused_and_resumed() {
    let server = Server::start(&[]);
    server.run(&["push", "a", "--queue", "mail out"]).ok();
    assert_eq!(server.run(&["queues", "pause", "mail out"]).ok(), "queue mail out paused");
    let table = server.run(&["queues"]).ok();
    assert!(table.contains("mail out") && table.contains("paused"), "{table}");
    assert!(server.run(&["job", "1"]).ok().contains("paused queue"));
    server.run(&["work", "*", "--drain", "--", "true"]).ok();
    assert_eq!(server.state_of(1), "ready");
    assert_eq!(server.run(&["queues", "resume", "mail out"]).ok(), "queue mail out resumed");
    server.run(&["work", "*", "--drain", "--", "true"]).ok();
    let queues = server.run(&["queues", "--json"]).json();
    assert_eq!(queues["queues"][0]["completed"], 1);
}

#[test]
fn a_job_can_be_changed_run_cancelled_and_deleted() {
    let server = Server::start(&[]);
    server.run(&["push", "a", "--delay", "1h"]).ok();
    let said = server.run(&["job", "1", "edit", "--priority", "-3", "--payload", "[1]"]).ok();
    assert_eq!(said, "job 1 changed; it is delayed");
    let job = server.run(&["job", "1", "--json"]).json();
    assert_eq!((job["priority"].as_i64(), &job["payload"]), (Some(-3), &serde_json::json!([1])));
    assert_eq!(server.run(&["job", "1", "run"]).ok(), "job 1 is ready");
    let job = server.job(1);
    assert!(job["run_at"].as_i64() < job["created_at"].as_i64().map(|at| at + 3_000_000), "{job}");
    assert_eq!(server.run(&["job", "1", "cancel"]).ok(), "job 1 is cancelled");
    let ran = server.run(&["job", "1", "result"]);
    assert!(ran.code == 1 && ran.stderr.contains("job 1 cancelled"), "{ran:?}");
    assert_eq!(server.run(&["job", "1", "delete"]).ok(), "job 1 deleted");
    assert_eq!(server.run(&["job", "1", "undelete"]).ok(), "job 1 is cancelled");
    assert_eq!(server.run(&["job", "1", "delete"]).ok(), "job 1 deleted");
    let ran = server.run(&["job", "1"]);
    assert!(ran.code == 1 && !ran.stderr.is_empty(), "{ran:?}");
}

#[test]
fn a_job_is_named_by_its_alias_too() {
    let server = Server::start(&[]);
    server.run(&["push", "mail", "--alias", "order 7/b", "--delay", "1h"]).ok();
    assert!(server.run(&["job", "order 7/b"]).ok().starts_with("job 1 mail"));
    for (action, said) in [
        (&["edit", "--priority", "3"][..], "job 1 changed; it is delayed"),
        (&["run"], "job 1 is ready"),
        (&["cancel"], "job 1 is cancelled"),
        (&["retry"], "job 1 is ready"),
        (&["clone"], "2"),
        (&["delete"], "job 1 deleted"),
    ] {
        assert_eq!(server.run(&[&["job", "order 7/b"], action].concat()).ok(), said);
    }
    let ran = server.run(&["job", "order 7/b"]);
    assert!(ran.code == 1 && ran.stderr.contains("job not found"), "{ran:?}");
}

#[test]
fn a_waiting_job_is_edited_and_cloned() {
    let server = Server::start(&[]);
    server.run(&["push", "mail", r#"{"b":1,"a":2}"#, "--queue", "out", "--delay", "1h", "--retry", "4"]).ok();
    let edit = ["job", "1", "edit", "--queue", "night", "--name", "post", "--at", "2040-01-01T00:00:00Z"];
    server.run(&edit).ok();
    let job = server.job(1);
    assert_eq!((&job["queue"], &job["name"]), (&json!("night"), &json!("post")));
    assert_eq!(job["run_at"], 2_208_988_800_000_i64);
    assert_eq!(
        server.run(&["job", "1", "clone", "--payload", "{\"to\":\"bob\"}", "--priority", "2"]).ok(),
        "2"
    );
    let copy = server.job(2);
    assert_eq!((&copy["queue"], &copy["name"]), (&json!("night"), &json!("post")));
    assert_eq!((&copy["max_attempts"], &copy["payload"]), (&json!(4), &json!({"to": "bob"})));
    assert_eq!((&copy["state"], &copy["priority"]), (&json!("ready"), &json!(2)));
    assert_eq!(server.run(&["job", "1", "clone", "--json"]).json()["id"], 3);
    let ran = server.run(&["job", "77", "clone"]);
    assert!(ran.code == 1 && ran.stderr.contains("job not found"), "{ran:?}");
    let text = server.run(&["work", "post", "--once", "--", "cat"]);
    assert!(text.code == 0, "{text:?}");
    assert!(server.run(&["job", "2", "clone"]).code == 0, "a completed job can be cloned");
}

#[test]
fn a_queue_that_does_not_exist_is_paused_only_on_request() {
    let server = Server::start(&[]);
    server.run(&["push", "a", "--queue", "mail"]).ok();
    let ran = server.run(&["queues", "pause", "mial"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for words in ["there is no queue mial (only mail exists)", "--yes", "nothing was changed"] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
    assert_eq!(server.run(&["queues", "--json"]).json()["queues"].as_array().unwrap().len(), 1);
    let ran = server.run(&["queues", "resume", "mial"]);
    assert!(ran.code == 1 && ran.stderr.contains("there is no queue mial"), "{ran:?}");
    assert_eq!(server.run(&["queues", "pause", "nightly", "--yes"]).ok(), "queue nightly paused");
    assert_eq!(server.run(&["queues", "pause", "nightly"]).ok(), "queue nightly paused");
    assert_eq!(server.run(&["queues", "resume", "nightly"]).ok(), "queue nightly resumed");
}

#[test]
fn the_flags_of_all_clients_stand_anywhere_on_the_line() {
    let token = Ran::of(windlass().args(["token", "--role", "admin", "--json"])).json();
    let config = format!("auth.tokens={}", token["config"].as_str().unwrap());
    let server = Server::start(&["--set", &config]);
    let secret = token["token"].as_str().unwrap();
    let run = |args: &[&str]| Ran::of(windlass().args(args));
    let url = server.url();
    assert_eq!(run(&["--server", &url, "--token", secret, "push", "a"]).ok(), "1");
    assert_eq!(run(&["job", "1", "cancel", "--token", secret, "--server", &url]).ok(), "job 1 is cancelled");
    let (with_server, with_token) = (format!("--server={url}"), format!("--token={secret}"));
    assert_eq!(run(&["--json", &with_server, "job", &with_token, "1", "retry"]).json()["state"], "ready");
    assert_eq!(run(&["queues", &with_server, "pause", "default", &with_token]).ok(), "queue default paused");
    let tokens = run(&["--json", "token", &with_server, "list", &with_token]).json();
    assert_eq!(tokens["tokens"].as_array().unwrap().len(), 1);
    let ran = run(&["job", "1", "cancel", &with_server]);
    assert!(ran.code == 1 && ran.stderr.contains("--token"), "{ran:?}");
}

#[test]
fn top_shows_queues_and_what_is_running() {
    let server = Server::start(&[]);
    server.run(&["push", "a"]).ok();
    server.call("POST", "/api/v1/claim", Some(serde_json::json!({"name": "a", "worker": "w7"})));
    let view = server.run(&["top", "--once"]).ok();
    assert!(view.contains("default") && view.contains("running"), "{view}");
    let view = server.run(&["top", "--once", "--json"]).json();
    assert_eq!(view["running"][0]["lease"]["worker"], "w7");
}

#[test]
fn check_and_backup_work_beside_a_server() {
    let server = Server::start(&[]);
    server.run(&["push", "a", "1\n2\n3", "--lines"]).ok();
    let report = server.run(&["check", "--json"]).json();
    assert_eq!((report["ok"].as_bool(), report["jobs"].as_i64()), (Some(true), Some(3)));
    server.run(&["backup", "copy.db"]).ok();
    assert!(server.run(&["check", "--store", "sqlite:copy.db"]).ok().contains("no problems found"));
    let ran = server.run(&["backup", "copy.db"]);
    assert!(ran.code == 1 && ran.stderr.contains("already exists"), "{ran:?}");
    let copy = Server::start_in(server.folder(), &["--store", "sqlite:copy.db"]);
    assert_eq!(copy.state_of(3), "ready");
}

#[test]
fn a_store_is_compacted_when_no_server_uses_it() {
    let mut server = Server::start(&[]);
    server.run(&["push", "a", "1\n2\n3", "--lines"]).ok();
    let ran = server.run(&["compact"]);
    assert!(ran.code == 1 && ran.stderr.contains("stop the server"), "{ran:?}");
    server.stop();
    let sizes = server.run(&["compact", "--json"]).json();
    assert!(sizes["after_bytes"].as_u64() <= sizes["before_bytes"].as_u64(), "{sizes}");
    assert_eq!(server.run(&["check", "--json"]).json()["jobs"], 3);
}

#[test]
fn check_of_nothing_says_where_it_looked() {
    let folder = tempfile::tempdir().unwrap();
    let ran = Ran::of(windlass().arg("check").current_dir(folder.path()));
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("windlass-data/windlass.db"), "{ran:?}");
}

#[test]
fn the_demo_runs_to_its_end() {
    let text = Ran::of(windlass().args(["demo", "--fast"])).ok();
    let native = [
        "hello, you!",
        "the network is down",
        "job 5 | alarm",
        "job 6 is cancelled",
        "0 9 * * MON-FRI",
        "delayed  default  tick",
        "\"max_running\":1",
        "waiting  default  album",
        "two thumbnails",
        "40% half way",
    ];
    let dialects = ["200 OK {\"jobID\":", "\"status\":\"completed\"", "{\"job_id\":\"", "{\"entries\":[42]}"];
    let mut rest = text.as_str();
    for words in native.into_iter().chain(dialects).chain(["/ui/", "windlass serve"]) {
        let found = rest.find(words);
        rest = &rest[found.unwrap_or_else(|| panic!("{words} is missing or too early in:\n{text}"))..];
    }
    let limited: Vec<&str> =
        text.lines().filter(|line| line.ends_with(" begins") || line.ends_with(" ends")).collect();
    let whose: Vec<&str> = limited.iter().filter_map(|line| line.rsplit(' ').nth(1)).collect();
    assert!(whose.len() == 6 && whose.chunks(2).all(|pair| pair[0] == pair[1]), "{limited:?}");
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(Ran::of(windlass().args(["completions", shell])).ok().contains("windlass"));
    }
    assert!(Ran::of(windlass().arg("man")).ok().contains(".TH windlass"));
    let folder = tempfile::tempdir().unwrap();
    Ran::of(windlass().args(["man", "--to"]).arg(folder.path())).ok();
    assert!(folder.path().join("windlass-push.1").exists());
}

#[test]
fn every_subcommand_shows_an_example_in_its_help() {
    let help = Ran::of(windlass().arg("--help")).ok();
    let commands = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let names: Vec<&str> =
        commands.map_while(|line| line.trim().split(' ').next().filter(|name| !name.is_empty())).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names.into_iter().filter(|name| *name != "help") {
        let help = Ran::of(windlass().args([name, "--help"])).ok();
        assert!(help.contains("Example") && help.contains(&format!("windlass {name}")), "{help}");
    }
}
