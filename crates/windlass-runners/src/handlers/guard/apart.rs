//! The guard of a context with namespaces of its own, and the first process in there.

use super::{FIRST, INSIDE, NO_NAMESPACES, Setup, in_words, say, setup_of_this_stage, start};
use crate::handlers::view;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, wait, waitpid};
use std::path::Path;

/// With one thread only: the kernel lets no other be started by a process whose children are elsewhere.
pub fn guard(setup: Setup, view: &Path) -> Result<(), String> {
    let failed = |why: String| format!("{NO_NAMESPACES}{why}");
    // Inherited by all that follow. Inside there is no such file.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let bounds =
        view::enter(view, &setup.bounds, Path::new(&setup.program)).map_err(|why| failed(why.to_string()))?;
    let setup = Setup { home: Some(view::WORK.to_owned()), view: None, bounds, ..setup };
    let started = start(Path::new(view::PROGRAM), FIRST, &setup, Some(0));
    let first = started.map_err(|error| failed(format!("starting itself in there: {error}")))?;
    say("pid", &first.as_raw_nonzero().to_string());
    wait_for_either(first).map_err(|error| failed(format!("watching its first process: {error}")))?;
    let _ = kill_process_group(first, Signal::KILL);
    // The kernel lets it be waited for when nobody is left in there.
    loop {
        match waitpid(Some(first), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            // Its own end it has told itself.
            Ok(Some((_, status))) if status.exit_status() == Some(0) => return Ok(()),
            Ok(Some((_, status))) => {
                say("ended", &in_words(status.exit_status(), status.terminating_signal()));
                return Ok(());
            }
            Ok(None) | Err(_) => return Ok(()),
        }
    }
}

/// The server hangs up, or the first process ends.
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

/// Starts what becomes the interpreter, and waits for whatever ends in there: all that lose their parents are its children.
pub fn be_first() -> Result<(), String> {
    let setup = setup_of_this_stage()?;
    // Nobody else would end what is in here.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let started = start(Path::new(view::PROGRAM), INSIDE, &setup, None);
    let interpreter = started.map_err(|error| format!("starting itself again: {error}"))?;
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
