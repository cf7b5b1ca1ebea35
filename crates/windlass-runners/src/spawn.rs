//! Start of processes that run foreign code: usually this program, with orders on stdin and replies on
//! stdout.
//!
//! Such a process sets a parent death signal (`confine.rs`), which the kernel sends when the thread that
//! started it exits. Threads of the async runtime come and go, so one dedicated thread, which lives as long
//! as this process, starts all of them.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

#[cfg(test)]
mod tests;

/// Program and arguments of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestProgram {
    pub path: PathBuf,
    pub args: Vec<String>,
}

/// Request to the starting thread: command, runtime of the caller, and reply channel.
struct Ask {
    command: Command,
    runtime: Handle,
    tell: oneshot::Sender<io::Result<Child>>,
}

/// Starts a process with only the given environment. Its stdin and stdout are pipes; it is killed when the
/// returned value is dropped.
pub async fn start(program: &GuestProgram, environment: Vec<(&'static str, OsString)>) -> io::Result<Child> {
    let mut command = Command::new(&program.path);
    command
        .args(&program.args)
        .env_clear()
        .envs(environment)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Panic messages go to the server's log.
        .stderr(Stdio::inherit())
        // Ctrl-C reaches only this process, which stops the others in order.
        .process_group(0)
        .kill_on_drop(true);
    let (tell, told) = oneshot::channel();
    let gone = |_| io::Error::other("internal error: the thread that starts processes has ended");
    starter()?.send(Ask { command, runtime: Handle::current(), tell }).map_err(|_| gone(()))?;
    told.await.map_err(|_| gone(()))?
}

fn starter() -> io::Result<Sender<Ask>> {
    static STARTER: OnceLock<io::Result<Sender<Ask>>> = OnceLock::new();
    let made = STARTER.get_or_init(|| {
        let (asks, asked) = channel::<Ask>();
        let serve = move || {
            while let Ok(Ask { mut command, runtime, tell }) = asked.recv() {
                let _entered = runtime.enter();
                // If the caller is gone, the process is dropped and so killed.
                let _ = tell.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("processes".to_owned()).spawn(serve).map(|_| asks)
    });
    match made {
        Ok(asks) => Ok(asks.clone()),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    }
}
