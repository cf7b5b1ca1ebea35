//! Starting processes that run the code of others for this one: this very program, usually, with orders on standard input and
//! replies on standard output.
//!
//! Such a process asks the kernel to end it when its parent ends (`confine.rs`), and to the kernel the parent is the thread that
//! started it. Threads of the runtime come and go, so all of them are started by one thread that ends with this process.

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

/// How to start a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestProgram {
    pub path: PathBuf,
    pub args: Vec<String>,
}

/// A process to be started, in whose runtime, and whom to tell.
struct Ask {
    command: Command,
    runtime: Handle,
    tell: oneshot::Sender<io::Result<Child>>,
}

/// Starts a process with no environment but the given one. Its standard input and output are pipes of the returned process; it
/// is killed when that is dropped.
pub async fn start(program: &GuestProgram, environment: Vec<(&'static str, OsString)>) -> io::Result<Child> {
    let mut command = Command::new(&program.path);
    command
        .args(&program.args)
        .env_clear()
        .envs(environment)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Its last words belong in the log.
        .stderr(Stdio::inherit())
        // Ctrl-C is for this process, which ends the others in good order.
        .process_group(0)
        .kill_on_drop(true);
    let (tell, told) = oneshot::channel();
    let gone = |_| io::Error::other("the thread that starts processes is gone");
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
                // A caller that has given up drops the process, which ends it.
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
