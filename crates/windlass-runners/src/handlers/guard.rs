//! The process between the server and a context: it gives up what handlers must not have, starts the interpreter, and
//! outlives it.
//!
//! ```text
//!   server ══ socket ══ guard (standard input)
//!                         └── interpreter: the same socket, then its shim and the handler's code
//!                               └── whatever it starts, all in the guard's process group
//! ```
//!
//! If the server is gone the socket hangs up, and the guard ends the whole group: nothing of a job runs on while another
//! server runs it again. If the interpreter is gone, the guard says how and ends the rest.

use super::confine::{Bounds, confine};
use super::frames;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_current_process_group, wait};
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

/// The setup is a few names and numbers.
const SETUP_BYTES_MAX: usize = 1 << 20;

/// The first message on the socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    pub program: String,
    pub args: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// The interpreter runs as this user and the group of the same number.
    pub uid: Option<u32>,
    pub bounds: Bounds,
}

/// The whole life of the guard. It has no environment, and a socket for standard input, on which it also says what is wrong.
pub fn serve() -> Result<(), String> {
    guard().inspect_err(|why| say("fault", why))
}

fn guard() -> Result<(), String> {
    let setup = read_setup().map_err(|error| format!("reading its setup: {error}"))?;
    // What its children leave behind becomes its own child, where it can be seen.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let holds = confine(&setup.bounds);
    say("holds", &holds.join(", "));
    let mut command = Command::new(&setup.program);
    command.args(&setup.args).env_clear().envs(setup.environment.iter().map(|(name, value)| (name, value)));
    if let Some(uid) = setup.uid {
        command.uid(uid).gid(uid);
    }
    let interpreter = command.spawn().map_err(|error| format!("cannot start {}: {error}", setup.program))?;
    say("pid", &interpreter.id().to_string());
    thread::Builder::new()
        .spawn(end_with_the_server)
        .map_err(|error| format!("starting a thread: {error}"))?;
    say("ended", &wait_for(Pid::from_child(&interpreter)));
    end_everything();
    Ok(())
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

fn end_with_the_server() {
    let socket = rustix::stdio::stdin();
    loop {
        // Asked for nothing: it is ready when the other side has hung up.
        let mut wanted = [PollFd::new(&socket, PollFlags::empty())];
        match poll(&mut wanted, None) {
            Ok(_) if !wanted[0].revents().is_empty() => end_everything(),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => end_everything(),
        }
    }
}

/// Itself too.
fn end_everything() {
    let _ = kill_current_process_group(Signal::KILL);
}

/// Reaps whatever ends until the interpreter does; in words for the server.
fn wait_for(interpreter: Pid) -> String {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == interpreter => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => format!("code {code}"),
                    (None, Some(signal)) => format!("signal {signal}"),
                    (None, None) => "lost".to_owned(),
                };
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return format!("lost {error}"),
        }
    }
}
