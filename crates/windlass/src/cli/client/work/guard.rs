//! Connection to the guard process (`windlass run-guard`), which kills the commands if the worker is killed.

use parking_lot::Mutex;
use rustix::process::Pid;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};

/// Handle that informs the guard process about running commands.
#[derive(Default)]
pub(super) struct Guard {
    /// Stdin of the guard. `None`: not needed yet, or it could not be started; then a killed worker leaves
    /// its commands running.
    ear: Mutex<Option<ChildStdin>>,
}

impl Guard {
    pub(super) fn began(&self, group: Pid) {
        let mut ear = self.ear.lock();
        if ear.is_none() {
            *ear = start().ok();
        }
        tell(ear.as_mut(), '+', group);
    }

    /// Must be called before the process is reaped, as its id may be reused afterwards.
    pub(super) fn ended(&self, group: Pid) {
        tell(self.ear.lock().as_mut(), '-', group);
    }
}

fn tell(ear: Option<&mut ChildStdin>, what: char, group: Pid) {
    if let Some(ear) = ear {
        // A write error means that the guard is gone: the worker continues without it.
        let _ = ear.write_all(format!("{what}{}\n", group.as_raw_nonzero()).as_bytes());
    }
}

fn start() -> std::io::Result<ChildStdin> {
    // Works even if the program on disk has been replaced.
    let own = PathBuf::from("/proc/self/exe");
    let program = if own.exists() { own } else { std::env::current_exe()? };
    let guard = Command::new(program)
        .arg("run-guard")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C reaches only the worker.
        .process_group(0)
        .spawn()?;
    guard.stdin.ok_or_else(|| std::io::ErrorKind::BrokenPipe.into())
}
