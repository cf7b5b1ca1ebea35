//! Guard process between the server and a context: starts the interpreter, outlives it, and kills and reaps
//! all of its processes.
//!
//! ```text
//!   server ══ socket ══ guard (standard input)
//!                         └── the guard's program again: confines itself, then executes the interpreter with
//!                             the same socket, its shim and the handler's code
//!                               └── its child processes: all in one process group, without the guard
//! ```
//!
//! With namespaces, a further process is between the two: the init process of the PID namespace, whose end
//! kills everything in the namespace (`guard/apart.rs`).
//!
//! When the server exits or closes the socket, the guard kills the process group and reaps every process in
//! it. So no process of a job survives while another server runs the job again, and no zombie waits for an
//! init process that a container may not have. If the interpreter exits by itself, the guard reports its exit
//! status and kills the rest.

#[cfg(target_os = "linux")]
mod apart;

use super::census;
use super::confine::{Bounds, confine};
use super::frames;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, wait, waitid};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// Largest setup message, which holds a few paths and numbers.
const SETUP_BYTES_MAX: usize = 1 << 20;
/// Argument that makes the guard's program become the interpreter; the variable `WINDLASS_SETUP` holds the
/// setup.
pub const INSIDE: &str = "inside";
/// Argument that makes the guard's program the init process of a PID namespace.
pub const FIRST: &str = "first";
/// Prefix of the fault message of a guard that could not create namespaces.
pub const NO_NAMESPACES: &str = "no namespaces: ";
const SETUP: &str = "WINDLASS_SETUP";

/// First message on the socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    pub program: String,
    pub args: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Path of the working folder as the context's user can reach it; `None`: use `/proc/PID/cwd`.
    pub home: Option<String>,
    /// Empty folder in which the context gets its own mount view and namespaces, see `view.rs`.
    pub view: Option<PathBuf>,
    pub bounds: Bounds,
}

/// Main function of the guard; of the future interpreter if the last argument is [`INSIDE`]; of the init
/// process of a namespace if it is [`FIRST`]. Errors are also reported on the socket.
pub fn serve(stage: Option<&str>) -> Result<(), String> {
    let ended = match stage {
        Some(INSIDE) => become_interpreter(),
        #[cfg(target_os = "linux")]
        Some(FIRST) => apart::be_first(),
        _ => guard(),
    };
    ended.inspect_err(|why| say("fault", why))
}

fn guard() -> Result<(), String> {
    let setup = read_setup().map_err(|error| format!("cannot read the setup: {error}"))?;
    #[cfg(target_os = "linux")]
    if let Some(view) = setup.view.clone() {
        return apart::guard(setup, &view);
    }
    // Orphaned descendants become children of the guard, which can list and reap them.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let interpreter =
        start_itself(&setup).map_err(|error| format!("cannot start the next stage: {error}"))?;
    say("pid", &interpreter.as_raw_nonzero().to_string());
    let watch = move || {
        wait_for_hang_up();
        end_group(interpreter);
    };
    thread::Builder::new().spawn(watch).map_err(|error| format!("cannot start a thread: {error}"))?;
    let how = wait_for(interpreter);
    // Before reaping the interpreter: until then its process group id cannot be reused.
    end_group(interpreter);
    // Reaps all children; an error means that none is left.
    while wait(rustix::process::WaitOptions::empty()).is_ok() {}
    say("ended", &how);
    Ok(())
}

fn start_itself(setup: &Setup) -> io::Result<Pid> {
    let own = std::path::PathBuf::from("/proc/self/exe");
    let program = if own.exists() { own } else { std::env::current_exe()? };
    start(&program, INSIDE, setup, Some(0))
}

/// Starts the program with the arguments of this process, replacing the stage argument.
fn start(program: &Path, stage: &str, setup: &Setup, group: Option<i32>) -> io::Result<Pid> {
    let own = std::env::args_os().skip(1).filter(|arg| arg != FIRST && arg != INSIDE);
    let args: Vec<OsString> = own.chain([stage.into()]).collect();
    let setup = serde_json::to_string(setup).map_err(io::Error::other)?;
    let mut command = Command::new(program);
    command.args(args).env_clear().env(SETUP, setup);
    if let Some(group) = group {
        command.process_group(group);
    }
    Ok(Pid::from_child(&command.spawn()?))
}

fn setup_of_this_stage() -> Result<Setup, String> {
    let setup = std::env::var(SETUP).map_err(|error| error.to_string())?;
    serde_json::from_str(&setup).map_err(|error| error.to_string())
}

fn become_interpreter() -> Result<(), String> {
    let setup = setup_of_this_stage()?;
    let home = setup.home.map_or_else(own_folder, Ok)?;
    let mut command = Command::new(&setup.program);
    command
        .args(&setup.args)
        .env_clear()
        .envs(setup.environment.iter().map(|(name, value)| (name, value)))
        .env("HOME", &home)
        .env("TMPDIR", &home);
    let mut holds = confine(&setup.bounds)?;
    if let Some(uid) = setup.bounds.uid.filter(|_| cfg!(not(target_os = "linux"))) {
        // The exec below fails if it cannot change the user.
        command.uid(uid).gid(uid);
        holds.push("separate user".to_owned());
    }
    say("holds", &holds.join(", "));
    Err(format!("cannot start {}: {}", setup.program, command.exec()))
}

/// Path of the working folder for a user who may not enter the folders above it, where there is `/proc`.
fn own_folder() -> Result<String, String> {
    // The process id stays the same after exec.
    let path = format!("/proc/{}/cwd", std::process::id());
    if Path::new(&path).exists() {
        return Ok(path);
    }
    let folder =
        std::env::current_dir().map_err(|error| format!("cannot find the working folder: {error}"))?;
    Ok(folder.to_string_lossy().into_owned())
}

fn read_setup() -> io::Result<Setup> {
    let mut length = [0; 4];
    // Unbuffered: the bytes after this message are for the interpreter.
    In.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > SETUP_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    In.read_exact(&mut body)?;
    serde_json::from_slice(&body).map_err(io::Error::other)
}

/// Encodes the message that [`read_setup`] decodes.
pub fn setup_message(setup: &Setup) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(setup).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    Ok([&length.to_le_bytes()[..], &body].concat())
}

struct In;

impl Read for In {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(rustix::stdio::stdin(), into)?)
    }
}

/// Sends a message. Write errors are ignored: a server that is gone needs none.
fn say(word: &str, text: &str) {
    let frame = frames::guard_frame(word, text);
    let mut rest = frame.as_slice();
    while let Ok(written @ 1..) = rustix::io::write(rustix::stdio::stdin(), rest) {
        rest = &rest[written..];
    }
}

fn wait_for_hang_up() {
    let socket = rustix::stdio::stdin();
    loop {
        // No events requested: poll reports only POLLHUP and errors.
        let mut wanted = [PollFd::new(&socket, PollFlags::empty())];
        match poll(&mut wanted, None) {
            Ok(_) if wanted[0].revents().is_empty() => {}
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Kills the process group. The kernel refuses a fork in a group with a pending SIGKILL, so none escapes.
fn end_group(interpreter: Pid) {
    let _ = kill_process_group(interpreter, Signal::KILL);
}

/// Waits for the exit of the interpreter without reaping it, and returns its status as text. Reaps other
/// children, which are orphans of the context.
fn wait_for(interpreter: Pid) -> String {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::All, ended) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return format!("lost {error}"),
        }
        match waitid(WaitId::Pid(interpreter), ended | WaitIdOptions::NOHANG) {
            Ok(Some(status)) => {
                return in_words(status.exit_status(), status.terminating_signal());
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => reap_others(interpreter),
            Err(error) => return format!("lost {error}"),
        }
    }
}

fn in_words(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (Some(code), _) => format!("code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "lost".to_owned(),
    }
}

fn reap_others(interpreter: Pid) {
    for child in census::children_of(std::process::id()).unwrap_or_default() {
        if let Some(pid) = Pid::from_raw(child).filter(|pid| *pid != interpreter) {
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }
}
