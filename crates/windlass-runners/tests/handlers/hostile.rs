//! Harmful handlers, without effect on other handlers and the server.

use crate::rig::{PATIENCE, Rig, brief, briefs, log, outcomes, sh};
use std::time::{Duration, Instant};
use windlass_core::handler::{Ended, Run};
use windlass_runners::handlers::{Handler, HandlerOptions};

pub fn seconds(timeout: u64) -> HandlerOptions {
    HandlerOptions { timeout: Some(Duration::from_secs(timeout)), ..HandlerOptions::default() }
}

/// Number of processes whose command line contains the word.
fn processes_with(word: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(word)).count()
}

async fn wait_until_gone(word: &str) {
    let began = Instant::now();
    while processes_with(word) > 0 {
        assert!(began.elapsed() < PATIENCE, "{word} runs on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_endless_loop_is_ended_with_all_it_started_and_the_next_job_runs() {
    let rig = Rig::new();
    let body = "read -r line; [ $line = fine ] || { sleep 9871.25 & (sleep 9871.25) & while :; do :; done; }";
    let told = rig.run(&Handler { options: seconds(8), ..sh(body) }, &["fine", "endless", "fine"]).await;
    assert_eq!(briefs(&told), ["200 OK", "500 ETIMEDOUT", "200 OK"]);
    assert!(told[1].message.as_ref().unwrap().contains("8 s"), "{:?}", told[1].message);
    wait_until_gone("9871.25").await;
}

#[tokio::test]
async fn a_fork_bomb_is_contained_and_neighbours_run() {
    let rig = Rig::new();
    let bomb = Handler {
        options: seconds(3),
        ..sh("bomb() { bomb 9872.25 | bomb 9872.25 & sleep 9872.25; }; bomb")
    };
    let mut burning = rig.start("evil", "bomb", &bomb, &["x"]);
    for _ in 0..5 {
        assert_eq!(brief(&rig.one(&sh("echo fine > \"$WINDLASS_RESULT\""), "x").await), "200 OK fine");
    }
    let told = outcomes(&mut burning, 1).await;
    assert_eq!(told[0].exitcode, 500, "{told:?}");
    wait_until_gone("9872.25").await;
}

#[tokio::test]
async fn a_memory_hog_is_stopped() {
    let rig = Rig::with(|settings| settings.memory_bytes_max = 100 << 20);
    // Many processes, none of them very large: only the sum exceeds the limit.
    let hog = "for n in 1 2 3 4 5 6; do sh -c 'x=$(head -c 30000000 /dev/zero | tr \"\\0\" a); sleep 9873.25' & done; wait";
    let told = rig.run(&Handler { options: seconds(200), ..sh(hog) }, &["x"]).await;
    assert_eq!(told[0].code, "MEMORY", "{told:?}");
    wait_until_gone("9873.25").await;
}

#[tokio::test]
async fn a_gigabyte_of_output_is_read_and_not_kept() {
    let rig = Rig::new();
    let outcome = rig.one(&sh("echo first; head -c 1000000000 /dev/zero; echo; echo last"), "x").await;
    assert_eq!(outcome.exitcode, 200, "{:?}", outcome.message);
    let log = log(&outcome);
    assert!(log.starts_with("first\n") && log.ends_with("\nlast\n"), "{} bytes", log.len());
    assert!(log.contains("bytes omitted]"));
    assert!(outcome.log.len() < 70_000, "{}", outcome.log.len());
}

#[tokio::test]
async fn output_without_an_end_is_ended_by_the_time_limit() {
    let rig = Rig::new();
    let told = rig.run(&Handler { options: seconds(2), ..sh("yes") }, &["x"]).await;
    assert_eq!(briefs(&told), ["500 ETIMEDOUT"]);
}

#[tokio::test]
async fn output_without_an_end_can_be_stopped_at_any_time() {
    let rig = Rig::new();
    let mut run = rig.start("acme", "a", &sh("yes"), &["x"]);
    let first = tokio::time::timeout(Duration::from_millis(500), run.next()).await;
    assert!(first.is_err(), "it does not end by itself: {first:?}");
    run.stop(0);
    assert!(matches!(crate::rig::ends(&mut run, 1).await[0], Ended::Unrun(_)));
}

/// Guarantees of the table in docs/runners.md.
#[tokio::test]
async fn a_handler_reaches_no_files_of_others_no_network_and_cannot_leave() {
    let rig = Rig::new();
    let secret = rig.folder.path().join("secret");
    std::fs::write(&secret, "the token").unwrap();
    let secret = secret.display();
    let server = std::process::id();
    let check = async |what: &str, body: &str| {
        let outcome = rig.one(&sh(&format!("({body}) && exit 0; exit 44")), "x").await;
        assert_eq!(outcome.exitcode, 404, "{what}: {:?}\n{}", outcome.message, log(&outcome));
    };
    check("a file beside its folder", &format!("cat {secret}")).await;
    check("writing there", &format!("echo x > {secret}")).await;
    check("writing to the system's temporary folder", "echo x > /tmp/windlass-was-here").await;
    check("passwords", "cat /etc/shadow").await;
    check("the server's environment", &format!("cat /proc/{server}/environ")).await;
    check("the server's memory", &format!("head -c 1 /proc/{server}/mem")).await;
    check("signals to the server", &format!("kill -0 {server}")).await;
    check("its own orders", "echo x > ../in/payload").await;
    check("a session of its own", "setsid true").await;
    check("a user namespace", "unshare -U true").await;
    check(
        "a socket",
        "exec python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))' 2>&1 | grep refused",
    )
    .await;
    check("the server's variables", "env | grep -i -e CARGO -e SSH").await;
    let files = rig
        .one(
            &sh("echo x > own && cat own > \"$WINDLASS_RESULT\"; ls /proc/self/fd >/dev/null 2>&1; true"),
            "x",
        )
        .await;
    assert_eq!(brief(&files), "200 OK x");
}

#[tokio::test]
async fn a_handler_that_talks_on_the_line_to_the_server_harms_only_itself() {
    let rig = Rig::new();
    let liar = Handler { before: Some("echo '= 7 200 0' >&9; echo nonsense >&9".to_owned()), ..sh("true") };
    let outcome = rig.one(&liar, "x").await;
    assert_eq!(outcome.exitcode, 500, "{outcome:?}");
    assert_eq!(brief(&rig.one(&sh("true"), "x").await), "200 OK");
}

/// The end of the server ends everything it ran, including background processes.
#[tokio::test]
async fn nothing_outlives_the_server() {
    use std::os::fd::OwnedFd;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut guard = Command::new(crate::rig::helper())
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .process_group(0)
        .spawn()
        .unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let setup = serde_json::json!({
        "program": "/bin/sh",
        "args": ["-c", "sleep 9874.25 & sleep 9874.25"],
        "environment": [["PATH", "/usr/bin:/bin"]],
        "home": null,
        "view": null,
        "bounds": {
            "lang": "sh",
            "memory_bytes_max": 1 << 30, "file_bytes_max": 1 << 20, "user_processes_max": 100_000,
            "work": folder.path(), "orders": folder.path(), "readable": [], "hidden": [], "network": false, "uid": null,
            "is_apart": false
        }
    });
    let setup = setup.to_string();
    let length = u32::try_from(setup.len()).unwrap().to_le_bytes();
    std::io::Write::write_all(&mut &ours, &[&length[..], setup.as_bytes()].concat()).unwrap();
    let began = Instant::now();
    while processes_with("9874.25") < 2 {
        assert!(began.elapsed() < PATIENCE, "it does not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // As the kernel does when a process is killed: its descriptors are closed.
    drop(ours);
    wait_until_gone("9874.25").await;
    guard.wait().unwrap();
}
