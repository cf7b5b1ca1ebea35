//! Guard of a context with namespaces, and the init process inside.

use super::{FIRST, INSIDE, NO_NAMESPACES, Setup, in_words, say, setup_of_this_stage, start};
use crate::handlers::view;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, wait, waitpid};
use std::path::Path;

/// Must stay single-threaded: after `unshare` of the PID namespace the kernel refuses new threads.
pub(super) fn guard(setup: Setup, view: &Path) -> Result<(), String> {
    let failed = |why: String| format!("{NO_NAMESPACES}{why}");
    // Inherited by all descendants. The file is not visible inside.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let bounds =
        view::enter(view, &setup.bounds, Path::new(&setup.program)).map_err(|why| failed(why.to_string()))?;
    let setup = Setup { home: Some(view::WORK.to_owned()), view: None, bounds, ..setup };
    let started = start(Path::new(view::PROGRAM), FIRST, &setup, Some(0));
    let first =
        started.map_err(|error| failed(format!("cannot start the guard inside the namespaces: {error}")))?;
    say("pid", &first.as_raw_nonzero().to_string());
    wait_for_either(first).map_err(|error| failed(format!("cannot watch the init process: {error}")))?;
    let _ = kill_process_group(first, Signal::KILL);
    // The kernel lets the init process be reaped only when its namespace is empty.
    loop {
        match waitpid(Some(first), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            // The init process has reported the end itself.
            Ok(Some((_, status))) if status.exit_status() == Some(0) => return Ok(()),
            Ok(Some((_, status))) => {
                say("ended", &in_words(status.exit_status(), status.terminating_signal()));
                return Ok(());
            }
            Ok(None) | Err(_) => return Ok(()),
        }
    }
}

/// Waits until the server closes the socket or the init process exits.
fn wait_for_either(first: Pid) -> rustix::io::Result<()> {
    let (socket, process) = (rustix::stdio::stdin(), pidfd_open(first, PidfdFlags::empty())?);
    loop {
        let mut wanted = [PollFd::new(&socket, PollFlags::empty()), PollFd::new(&process, PollFlags::IN)];
        match poll(&mut wanted, None) {
            Ok(_) if wanted.iter().all(|one| one.revents().is_empty()) => {}
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Main function of the init process: starts the interpreter and reaps all orphans of the namespace.
pub(super) fn be_first() -> Result<(), String> {
    let setup = setup_of_this_stage()?;
    // Ends the namespace if the guard is killed.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let started = start(Path::new(view::PROGRAM), INSIDE, &setup, None);
    let interpreter = started.map_err(|error| format!("cannot start the next stage: {error}"))?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == interpreter => {
                say("ended", &in_words(status.exit_status(), status.terminating_signal()));
                return Ok(());
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                say("ended", &format!("lost {error}"));
                return Ok(());
            }
        }
    }
}
