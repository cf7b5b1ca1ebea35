//! Control groups, where they are delegated to the user that runs the tests. Elsewhere these tests report
//! that they are skipped, with the reason.
//!
//! To run them:
//! `systemd-run --wait --pipe -p Delegate=yes cargo test -p windlass-runners --test handlers cgroups::`, or
//! as an ordinary user with `--user`.

use crate::hostile::seconds;
use crate::rig::{PATIENCE, Rig, brief, handler, outcomes, sh};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use windlass_runners::handlers::{Handler, Lang};

/// Parent group of the contexts; `None`, with a message, if there is none.
fn base(rig: &Rig) -> Option<PathBuf> {
    if let Some(why) = &rig.isolation.no_cgroups {
        eprintln!("skipped: no control groups: {why}");
        return None;
    }
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
    let path = path.strip_suffix("/windlass-server").expect("the server has moved");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 ")).unwrap();
    Some(PathBuf::from(format!("{}{path}", mount.split(' ').nth(4).unwrap())))
}

/// Groups of contexts with this memory limit.
fn groups(base: &Path, memory_max: u64) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).unwrap().flatten().map(|entry| entry.path());
    let max = |path: &PathBuf| std::fs::read_to_string(path.join("memory.max")).unwrap_or_default();
    entries.filter(|path| max(path).trim() == memory_max.to_string()).collect()
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// An unusual number of bytes distinguishes the group from those of other tests.
#[tokio::test]
async fn a_context_has_a_group_with_bounds_as_long_as_it_is_there() {
    let rig = Rig::with(|settings| settings.memory_bytes_max = 123 << 20);
    let Some(base) = base(&rig) else { return };
    let mut run = rig.start("acme", "a", &sh("while [ ! -e go ]; do sleep 0.02; done"), &["x"]);
    let work = rig.first_context();
    until("it starts", || work.exists() && !groups(&base, 155 << 20).is_empty()).await;
    let held = groups(&base, 155 << 20);
    let read = |file: &str| std::fs::read_to_string(held[0].join(file)).unwrap();
    assert_eq!(read("pids.max").trim(), "68");
    until("its processes are in it", || read("cgroup.procs").lines().count() >= 2).await;
    std::fs::write(work.join("go"), "").unwrap();
    assert_eq!(brief(&outcomes(&mut run, 1).await[0]), "200 OK");
    rig.handlers.stop(PATIENCE).await;
    drop((run, rig));
    until("its group is gone", || !held[0].exists()).await;
}

/// The memory watch sees only memory of processes; this memory is in the kernel, in sockets without a reader.
#[tokio::test]
async fn memory_of_the_kernel_counts_too() {
    let rig = Rig::with(|settings| settings.memory_bytes_max = 100 << 20);
    if base(&rig).is_none() {
        return;
    }
    let body = "import os, socket, time\nfor n in range(8):\n    if os.fork() == 0: break\nkept = []\n\
                for n in range(110):\n    \
                    pair = socket.socketpair()\n    kept.append(pair)\n    \
                    for side in pair:\n        side.setblocking(False)\n        \
                        try:\n            while True: side.send(bytes(65536))\n        \
                        except OSError: pass\n\
                while True: time.sleep(1)";
    let told = rig.one(&Handler { options: seconds(200), ..handler(Lang::Python, body) }, "x").await;
    assert_eq!(told.code, "MEMORY", "{told:?}");
    assert!(told.message.as_ref().unwrap().contains("more than"), "by the kernel: {told:?}");
}

/// The kernel enforces the limit at once, whatever takes the memory.
#[tokio::test]
async fn a_child_that_the_kernel_ends_for_want_of_memory_is_told_as_that() {
    let rig = Rig::with(|settings| settings.memory_bytes_max = 60 << 20);
    if base(&rig).is_none() {
        return;
    }
    let hog = "python3 -c 'bytearray(400 << 20)'; true";
    let told = rig.one(&Handler { options: seconds(200), ..sh(hog) }, "x").await;
    assert_eq!(told.code, "MEMORY", "{told:?}");
    assert_eq!(brief(&rig.one(&sh("true"), "x").await), "200 OK", "the next has another context");
}
