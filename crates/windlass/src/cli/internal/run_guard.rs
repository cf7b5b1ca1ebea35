//! `windlass run-guard`: kills the commands of a worker that was killed. Started by `windlass work` with a
//! pipe as stdin, whose end of file means that the worker has exited for whatever reason.

use crate::fault::Outcome;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::io::BufRead;

/// Kill the commands of a worker that was killed (internal)
///
/// Started by `windlass work`; reads the process groups of running commands and kills them when the worker exits.
#[derive(Args, Debug)]
#[command(hide = true)]
#[command(after_help = "\
Example:
  windlass run-guard < /dev/null            exits at once: there is no worker")]
pub(crate) struct RunGuardArgs {}

pub(crate) fn run(_: RunGuardArgs) -> Outcome {
    for group in left_running(std::io::stdin().lock()) {
        // The group may have exited already.
        let _ = kill_process_group(group, Signal::KILL);
    }
    Ok(())
}

/// Process groups still running, from lines `+7` for a started group and `-7` for an ended one.
fn left_running(lines: impl BufRead) -> Vec<Pid> {
    let mut groups = BTreeSet::new();
    // A read error counts as end of file.
    for line in lines.lines().map_while(Result::ok) {
        if let Some(began) = line.strip_prefix('+') {
            groups.extend(began.parse::<i32>());
        } else if let Some(Ok(ended)) = line.strip_prefix('-').map(str::parse) {
            groups.remove(&ended);
        }
    }
    // kill(2) on groups 0 and 1 would reach other processes.
    groups.into_iter().filter(|group| *group > 1).filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_and_did_not_end_is_left() {
        let left = |text: &str| {
            let groups = left_running(text.as_bytes());
            groups.into_iter().map(|group| group.as_raw_nonzero().get()).collect::<Vec<_>>()
        };
        assert_eq!(left(""), [0; 0]);
        assert_eq!(left("+7\n+8\n-7\n+9\n"), [8, 9]);
        assert_eq!(left("+0\n+1\n+-5\n+x\nnonsense\n+12\n"), [12]);
    }
}
