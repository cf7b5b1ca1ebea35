//! Ctrl-C leaves nothing behind: no process, no folder, no job.

use crate::server::{Server, ended, eventually, windlass};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use tempfile::TempDir;

/// Command with a temporary folder of its own, in a process group of its own.
struct Started {
    child: Child,
    temporary: TempDir,
}

/// Process id and start time, which identify a process even if its id is used again.
type Process = (i32, String);

impl Started {
    fn new(args: &[&str]) -> Started {
        let temporary = tempfile::tempdir().unwrap();
        let said = fs::File::create(temporary.path().join("said")).unwrap();
        let mut command = windlass();
        command.args(args).env("TMPDIR", temporary.path()).stdin(Stdio::null()).process_group(0);
        command.stdout(said.try_clone().unwrap()).stderr(said);
        Started { child: command.spawn().unwrap(), temporary }
    }

    fn said(&self) -> String {
        fs::read_to_string(self.temporary.path().join("said")).unwrap_or_default()
    }

    /// Names of the folders that the command has made.
    fn folders(&self) -> Vec<String> {
        let entries = fs::read_dir(self.temporary.path()).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).filter(|name| name != "said").collect()
    }

    /// This process and all that descend from it.
    fn family(&self) -> BTreeSet<Process> {
        let all: Vec<(i32, i32, String)> = processes().collect();
        let own = Pid::from_child(&self.child).as_raw_nonzero().get();
        let mut ids = BTreeSet::from([own]);
        loop {
            let before = ids.len();
            let children = all.iter().filter(|(_, parent, _)| ids.contains(parent)).map(|(id, ..)| *id);
            ids.extend(children.collect::<Vec<_>>());
            if ids.len() == before {
                break;
            }
        }
        all.into_iter().filter(|(id, ..)| ids.contains(id)).map(|(id, _, start)| (id, start)).collect()
    }

    /// Sends Ctrl-C, waits for the end and checks that nothing is left.
    fn interrupt(mut self, whole_group: bool, code: i32) {
        let family = self.family();
        let own = Pid::from_child(&self.child);
        match whole_group {
            true => kill_process_group(own, Signal::INT).unwrap(),
            false => kill_process(own, Signal::INT).unwrap(),
        }
        let status = ended(&mut self.child);
        assert_eq!(status.code(), Some(code), "{status} {}", self.said());
        assert_eq!(self.folders(), Vec::<String>::new(), "{}", self.said());
        eventually("all its processes have ended", || {
            let left = processes().filter(|(id, _, start)| family.contains(&(*id, start.clone()))).count();
            (left == 0).then_some(())
        });
        assert!(!self.said().contains("error:"), "{}", self.said());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Id, parent and start time of every process that is not a zombie.
fn processes() -> impl Iterator<Item = (i32, i32, String)> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| stat(&entry.ok()?.path()))
}

fn stat(folder: &Path) -> Option<(i32, i32, String)> {
    let id = folder.file_name()?.to_str()?.parse().ok()?;
    let text = fs::read_to_string(folder.join("stat")).ok()?;
    // The name of the program is in parentheses and may contain anything.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    (fields[0] != "Z").then(|| Some((id, fields[1].parse().ok()?, fields[19].to_owned())))?
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing() {
    // While a command runs, while handlers run, and while it waits for the reader.
    for words in ["$ windlass work call", "/acme/job/shout/add"] {
        for whole_group in [true, false] {
            let demo = Started::new(&["demo", "--fast"]);
            eventually("the tour is at that step", || demo.said().contains(words).then_some(()));
            demo.interrupt(whole_group, 130);
        }
    }
    let demo = Started::new(&["demo"]);
    eventually("the tour waits", || demo.said().contains("stores its jobs in").then_some(()));
    demo.interrupt(true, 130);
}

#[test]
fn a_demo_that_keeps_serving_ends_with_ctrl_c() {
    let demo = Started::new(&["demo", "--fast", "--keep-serving"]);
    eventually("the tour is over", || demo.said().contains("still running").then_some(()));
    demo.interrupt(false, 0);
}

#[test]
fn a_development_server_ends_with_ctrl_c_and_leaves_nothing() {
    for whole_group in [true, false] {
        let dev = Started::new(&["dev", "--http", "127.0.0.1:0", "--set", "bedrock=off"]);
        eventually("it serves", || dev.said().contains("Ctrl-C stops").then_some(()));
        assert!(dev.folders().iter().any(|name| name.starts_with("windlass-dev-")), "{:?}", dev.folders());
        dev.interrupt(whole_group, 0);
    }
}

const ENDLESS: [&str; 7] = ["bench", "--jobs", "100000000", "--connections", "2", "--seconds", "600"];

#[test]
fn a_benchmark_that_is_interrupted_leaves_nothing() {
    for whole_group in [true, false] {
        let bench = Started::new(&ENDLESS);
        eventually("its server runs", || {
            let folder = bench.temporary.path().join(bench.folders().first()?);
            folder.join("windlass.db-wal").exists().then_some(())
        });
        bench.interrupt(whole_group, 130);
    }
}

#[test]
fn a_benchmark_of_a_running_server_that_is_interrupted_clears_its_queue() {
    let server = Server::start(&[]);
    let url = server.url();
    let mut bench = Started::new(&[&ENDLESS[..], &["--server", &url]].concat());
    eventually("it has pushed jobs", || {
        let queues = server.call("GET", "/api/v1/queues", None).1;
        queues["queues"].as_array()?.first().map(|_| ())
    });
    kill_process(Pid::from_child(&bench.child), Signal::INT).unwrap();
    assert_eq!(ended(&mut bench.child).code(), Some(130), "{}", bench.said());
    assert_eq!(server.run(&["jobs", "--all", "--json"]).ok(), "");
}
