//! The process that ends our commands if we are killed: `windlass run-guard`.

use rustix::process::Pid;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Tells it which commands run.
#[derive(Default)]
pub struct Guard {
    /// `None`: not needed yet, or it could not be started. Then a worker that is killed leaves its commands running.
    ear: Mutex<Option<ChildStdin>>,
}

impl Guard {
    pub fn began(&self, group: Pid) {
        let mut ear = self.ear.lock().unwrap_or_else(PoisonError::into_inner);
        if ear.is_none() {
            *ear = start().ok();
        }
        tell(ear.as_mut(), '+', group);
    }

    /// To be told before its number can be another's.
    pub fn ended(&self, group: Pid) {
        tell(self.ear.lock().unwrap_or_else(PoisonError::into_inner).as_mut(), '-', group);
    }
}

fn tell(ear: Option<&mut ChildStdin>, what: char, group: Pid) {
    if let Some(ear) = ear {
        // A guard that is gone guards nothing: the worker goes on without.
        let _ = ear.write_all(format!("{what}{}\n", group.as_raw_nonzero()).as_bytes());
    }
}

fn start() -> std::io::Result<ChildStdin> {
    // Also when the program on disk has been replaced since.
    let own = PathBuf::from("/proc/self/exe");
    let program = if own.exists() { own } else { std::env::current_exe()? };
    let guard = Command::new(program)
        .arg("run-guard")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C is for the worker.
        .process_group(0)
        .spawn()?;
    guard.stdin.ok_or_else(|| std::io::ErrorKind::BrokenPipe.into())
}
