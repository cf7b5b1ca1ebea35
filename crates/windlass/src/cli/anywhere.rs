//! Flags of all client commands (`--server`, `--token`, …), accepted also before the name of the command:
//! `windlass --json jobs`. They are moved behind it before clap reads the line.

use clap::Command;
use std::ffi::{OsStr, OsString};

/// Flags, and whether each takes a value.
const FLAGS: [(&str, bool); 5] =
    [("--server", true), ("--token", true), ("--ca", true), ("--client-cert", true), ("--json", false)];

/// Line with the flags behind the names of the commands. The line is unchanged if it names no command, or if
/// the command does not take one of the flags: clap then says so.
pub(super) fn reordered(line: Vec<OsString>, mut root: Command) -> Vec<OsString> {
    let mut words = line.iter();
    let mut names: Vec<&OsString> = words.next().into_iter().collect();
    let mut flags: Vec<&OsString> = Vec::new();
    let mut longs: Vec<&str> = Vec::new();
    // Hands the flags of a command down to its subcommands.
    root.build();
    let mut command = &root;
    let mut rest = words.as_slice();
    while let Some((word, after)) = rest.split_first() {
        if let Some((long, takes)) = flag(word) {
            let taken = if takes { 2 } else { 1 };
            let (own, after) = rest.split_at(taken.min(rest.len()));
            flags.extend(own);
            longs.push(long);
            rest = after;
            continue;
        }
        let Some(below) = word.to_str().and_then(|name| command.find_subcommand(name)) else { break };
        (command, rest) = (below, after);
        names.push(word);
    }
    let takes = |long: &&str| command.get_arguments().any(|arg| arg.get_long() == long.strip_prefix("--"));
    if names.len() < 2 || !longs.iter().all(takes) {
        return line;
    }
    names.into_iter().chain(flags).chain(rest).cloned().collect()
}

/// Flag at the beginning of a word, and whether its value is the next word.
fn flag(word: &OsStr) -> Option<(&'static str, bool)> {
    let word = word.to_str()?;
    FLAGS.into_iter().find_map(|(long, takes)| match word.strip_prefix(long)? {
        "" => Some((long, takes)),
        rest if takes && rest.starts_with('=') => Some((long, false)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::reordered;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let words = line.split(' ').map(Into::into).collect();
        let found: Vec<String> = reordered(words, Cli::command())
            .into_iter()
            .map(|word| word.into_string().expect("the words of the test are text"))
            .collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn flags_before_a_command_move_behind_it() {
        check("windlass --json jobs", "windlass jobs --json");
        check("windlass --token T job 1 cancel", "windlass job --token T 1 cancel");
        check("windlass --server=S --json queues pause q", "windlass queues pause --server=S --json q");
        check("windlass token --json list", "windlass token list --json");
        check("windlass import --ca F bedrock f.db", "windlass import bedrock --ca F f.db");
        check("windlass --json check", "windlass check --json");
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        for line in [
            "windlass",
            "windlass --json",
            "windlass --http 127.0.0.1:0",
            "windlass --json serve",
            "windlass --jsonx jobs",
            "windlass --token",
            "windlass jobs --json -n 5",
            "windlass work x -- cat --json",
            "windlass push --token T a --json",
        ] {
            check(line, line);
        }
    }
}
