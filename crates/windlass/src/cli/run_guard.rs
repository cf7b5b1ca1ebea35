//! `windlass run-guard`: ends the commands of a worker that was killed. Started by `windlass work`, with a pipe for standard
//! input: the end of that is the end of the worker, however it came.

use crate::fault::Outcome;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::io::BufRead;

/// End what a worker leaves behind when it is killed
///
/// Started by `windlass work` for itself; reads which commands run, and ends those that still do when the worker is gone.
#[derive(Args, Debug)]
#[command(hide = true)]
#[command(after_help = "\
Example:
  windlass run-guard < /dev/null            ends at once: there is no worker")]
pub struct RunGuardArgs {}

pub fn run(_: RunGuardArgs) -> Outcome {
    for group in left_running(std::io::stdin().lock()) {
        // It may have ended by itself just now.
        let _ = kill_process_group(group, Signal::KILL);
    }
    Ok(())
}

/// A line `+7` for each process group that begins and `-7` for each that has ended.
fn left_running(lines: impl BufRead) -> Vec<Pid> {
    let mut groups = BTreeSet::new();
    // A line that cannot be read is the end as well.
    for line in lines.lines().map_while(Result::ok) {
        if let Some(began) = line.strip_prefix('+') {
            groups.extend(began.parse::<i32>());
        } else if let Some(Ok(ended)) = line.strip_prefix('-').map(str::parse) {
            groups.remove(&ended);
        }
    }
    // Zero and one would mean everybody.
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
