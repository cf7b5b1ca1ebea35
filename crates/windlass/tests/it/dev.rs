//! `windlass dev`: a server that says what happens and what to do next.

use crate::server::{Ran, UsualPort, ended, eventually, windlass};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Running `windlass dev`, killed on drop.
struct Dev {
    child: Child,
    folder: TempDir,
}

impl Dev {
    fn start(args: &[&str]) -> Dev {
        let folder = tempfile::tempdir().unwrap();
        let said = fs::File::create(folder.path().join("said")).unwrap();
        let child = windlass()
            .args(["dev", "--set", "bedrock=off"])
            .args(args)
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .unwrap();
        let mut dev = Dev { child, folder };
        eventually("it serves", || {
            assert!(dev.child.try_wait().unwrap().is_none(), "{}", dev.said());
            dev.said().contains("Ctrl-C stops").then_some(())
        });
        dev
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).unwrap()
    }

    /// Rest of the line that begins with a word.
    fn line(&self, word: &str) -> String {
        let said = self.said();
        let line = said.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no line {word}: {said}")).trim().to_owned()
    }

    #[track_caller]
    fn eventually_says(&self, words: &str) {
        eventually(words, || self.said().contains(words).then_some(()));
    }

    fn stop(mut self) -> TempDir {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        assert!(ended(&mut self.child).success(), "{}", self.said());
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a line in a shell, with the program on the path.
fn paste(line: &str) -> Ran {
    let program = Path::new(env!("CARGO_BIN_EXE_windlass")).parent().unwrap().to_owned();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    Ran::of(Command::new("sh").args(["-c", line]).env("PATH", path).env_remove("WINDLASS_SERVER"))
}

#[test]
fn its_commands_can_be_pasted_and_its_log_says_what_happens() {
    let dev = Dev::start(&["--http", "127.0.0.1:0"]);
    let (push, work) = (dev.line("push"), dev.line("work"));
    assert!(dev.line("web UI").ends_with("/ui/"), "{}", dev.said());
    paste(&push).ok();
    dev.eventually_says("job 1 hello pushed");
    paste(&work.replace(" hello ", " hello --drain ")).ok();
    dev.eventually_says("job 1 hello claimed");
    dev.eventually_says("job 1 hello completed");
    paste(&push.replace("hello", "wrong --retry 1")).ok();
    paste(&work.replace("hello", "wrong --drain").replace("cat", "sh -c 'echo no route >&2; exit 1'"));
    dev.eventually_says("job 2 wrong failed: no route");
    let url = dev.line("web UI").replace("/ui/", "");
    dev.eventually_says(&format!("windlass job 2 retry --server {url}"));
    paste(&format!("windlass job 2 retry --server {url}")).ok();
    let folder = dev.stop();
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["said"]);
}

#[test]
fn a_job_that_no_worker_claims_gets_a_hint_once() {
    let dev = Dev::start(&["--http", "127.0.0.1:0", "--hint-after", "10ms"]);
    let url = dev.line("web UI").replace("/ui/", "");
    paste(&format!("windlass push resize --queue photos --server {url}")).ok();
    let command = format!("windlass work resize --queue photos --server {url} -- cat");
    dev.eventually_says(&command);
    paste(&format!("windlass push resize --queue photos --server {url}")).ok();
    paste(&format!("windlass push other --server {url}")).ok();
    dev.eventually_says(&format!("windlass work other --server {url} -- cat"));
    assert_eq!(dev.said().matches(&command).count(), 1, "{}", dev.said());
    paste(&command.replace("resize", "resize --drain")).ok();
    dev.eventually_says("job 2 resize completed");
    paste(&format!("windlass queues pause photos --server {url}")).ok();
    paste(&format!("windlass push paused --queue photos --server {url}")).ok();
    dev.eventually_says(&format!("windlass queues resume photos --server {url}"));
}

#[test]
fn a_port_that_is_taken_is_replaced_by_a_free_one() {
    let _taken = UsualPort::take();
    let dev = Dev::start(&[]);
    assert!(dev.said().contains("127.0.0.1:7373 is in use by another program"), "{}", dev.said());
    let url = dev.line("web UI").replace("/ui/", "");
    assert!(!url.ends_with(":7373"), "{url}");
    paste(&format!("windlass push hello --server {url}")).ok();
    dev.stop();
}

#[test]
fn an_address_that_was_asked_for_and_is_taken_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let set = format!("http={address}");
    for asked in [["--http", &address], ["--set", &set]] {
        let ran = Ran::of(windlass().args(["dev", "--set", "bedrock=off"]).args(asked));
        assert!(ran.code == 1 && ran.stderr.contains("is in use by another program"), "{ran:?}");
    }
}

#[test]
fn an_address_that_was_set_as_a_key_is_no_replacement() {
    let dev = Dev::start(&["--set", "http=127.0.0.1:0"]);
    assert!(!dev.said().contains("is in use"), "{}", dev.said());
    paste(&dev.line("push")).ok();
    dev.stop();
}

#[test]
fn keys_that_contradict_its_purpose_are_refused() {
    // Ends the server if a key is not refused.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for set in [
        "data=x",
        "store=memory:",
        "store.url=memory:",
        "tls.cert=a.pem",
        "tls.key=b.pem",
        " auth.tokens = x",
    ] {
        let ran = Ran::of(windlass().args(["dev", "--http", &address, "--set", set]));
        let key = set.split('=').next().unwrap().trim();
        let names_both = ran.stderr.contains(key) && ran.stderr.contains("windlass serve");
        assert!(ran.code == 2 && names_both && ran.stdout.is_empty(), "{ran:?}");
    }
}

#[test]
fn data_that_is_kept_is_there_at_the_next_start() {
    let kept = tempfile::tempdir().unwrap();
    let data = kept.path().join("data").display().to_string();
    let args = ["--http", "127.0.0.1:0", "--keep", &data];
    let dev = Dev::start(&args);
    paste(&dev.line("push")).ok();
    dev.stop();
    let dev = Dev::start(&args);
    let url = dev.line("web UI").replace("/ui/", "");
    let jobs = paste(&format!("windlass jobs --server {url}")).ok();
    assert!(jobs.contains("hello"), "{jobs}");
    let second = Ran::of(windlass().args(["dev", "--set", "bedrock=off"]).args(args));
    assert!(second.code == 1 && second.stderr.contains("another server"), "{second:?}");
    dev.stop();
    assert!(Path::new(&data).join("windlass.db").exists());
}
