//! The process between the server and a context: it starts the interpreter, outlives it, and leaves nothing of it behind.
//!
//! ```text
//!   server ══ socket ══ guard (standard input)
//!                         └── the guard's program once more: gives up what handlers must not have, then becomes
//!                             the interpreter, with the same socket, its shim and the handler's code
//!                               └── whatever it starts: all in one process group, which the guard is not in
//! ```
//!
//! Where the context has namespaces of its own, a process more is between the two: the first of its namespace, whose end is the
//! end of everything in it (`guard/apart.rs`).
//!
//! If the server is gone, or wants the context gone, it hangs up: the guard ends the whole group and waits for every process of
//! it. Nothing of a job runs on while another server runs it again, and no dead process waits for an init that a container
//! may not have. If the interpreter ends by itself, the guard says how and ends the rest.

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

/// The setup is a few names and numbers.
const SETUP_BYTES_MAX: usize = 1 << 20;
/// The argument by which the guard's program knows that it is to become the interpreter, and the variable that says how.
pub const INSIDE: &str = "inside";
/// The argument of the first process of a namespace.
pub const FIRST: &str = "first";
/// What a guard says that could not make namespaces begins with it.
pub const NO_NAMESPACES: &str = "no namespaces: ";
const SETUP: &str = "WINDLASS_SETUP";

/// The first message on the socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    pub program: String,
    pub args: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Its own folder as others may call it; without one it has no name that the context's user could use.
    pub home: Option<String>,
    /// An empty folder: the context gets a view and namespaces of its own, see `view.rs`.
    pub view: Option<PathBuf>,
    pub bounds: Bounds,
}

/// The whole life of the guard, or (if its last argument is [`INSIDE`]) of what becomes the interpreter, or (if it is
/// [`FIRST`]) of the process between the two, where there are namespaces. What is wrong is also said on the socket.
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
    let setup = read_setup().map_err(|error| format!("reading its setup: {error}"))?;
    #[cfg(target_os = "linux")]
    if let Some(view) = setup.view.clone() {
        return apart::guard(setup, &view);
    }
    // What its children leave behind becomes its own child, where it can be seen and waited for.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let interpreter = start_itself(&setup).map_err(|error| format!("starting itself again: {error}"))?;
    say("pid", &interpreter.as_raw_nonzero().to_string());
    let watch = move || {
        wait_for_hang_up();
        end_group(interpreter);
    };
    thread::Builder::new().spawn(watch).map_err(|error| format!("starting a thread: {error}"))?;
    let how = wait_for(interpreter);
    // Before it is waited for: until then the number of its group is nobody else's.
    end_group(interpreter);
    // All of them: the last is gone when there is none to wait for.
    while wait(rustix::process::WaitOptions::empty()).is_ok() {}
    say("ended", &how);
    Ok(())
}

fn start_itself(setup: &Setup) -> io::Result<Pid> {
    let own = std::path::PathBuf::from("/proc/self/exe");
    let program = if own.exists() { own } else { std::env::current_exe()? };
    start(&program, INSIDE, setup, Some(0))
}

/// With the arguments of this process up to the one that says what it is to be.
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
    // The number stays the same when it becomes the interpreter.
    let home = setup.home.unwrap_or_else(|| format!("/proc/{}/cwd", std::process::id()));
    let mut command = Command::new(&setup.program);
    command
        .args(&setup.args)
        .env_clear()
        .envs(setup.environment.iter().map(|(name, value)| (name, value)))
        .env("HOME", &home)
        .env("TMPDIR", &home);
    let holds = confine(&setup.bounds)?;
    say("holds", &holds.join(", "));
    Err(format!("cannot start {}: {}", setup.program, command.exec()))
}

fn read_setup() -> io::Result<Setup> {
    let mut length = [0; 4];
    // Not a byte more than this message: what follows is for the interpreter.
    In.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > SETUP_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    In.read_exact(&mut body)?;
    serde_json::from_slice(&body).map_err(io::Error::other)
}

/// The counterpart of [`read_setup`].
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

/// A server that no longer listens will notice by itself.
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
        // Asked for nothing: it is ready when the other side has hung up.
        let mut wanted = [PollFd::new(&socket, PollFlags::empty())];
        match poll(&mut wanted, None) {
            Ok(_) if wanted[0].revents().is_empty() => {}
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Whoever is in it: the kernel lets no process be started in a group that is being killed, so none escapes.
fn end_group(interpreter: Pid) {
    let _ = kill_process_group(interpreter, Signal::KILL);
}

/// Returns when the interpreter has ended, in words for the server, and leaves it unreaped. What else ends meanwhile is
/// reaped: it is somebody's leftover.
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
