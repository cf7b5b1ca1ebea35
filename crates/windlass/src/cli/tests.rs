use super::{Cli, anywhere};
use clap::{ArgMatches, Command, CommandFactory, Parser};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Visits `command` and all commands below it, with their paths.
fn walk(command: &Command, path: String, visit: &mut impl FnMut(&Command, &str)) {
    visit(command, &path);
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        walk(below, format!("{path} {}", below.get_name()), visit);
    }
}

#[test]
fn the_command_tree_fits_together() {
    Cli::command().debug_assert();
}

#[test]
fn every_subcommand_has_an_example_in_its_help() {
    let mut count = 0;
    for top in Cli::command().get_subcommands() {
        count += 1;
        let help = top.get_after_help().map(ToString::to_string).unwrap_or_default();
        let name = top.get_name();
        assert!(
            help.contains("Example") && help.contains(&format!("windlass {name}")),
            "{name} has no example"
        );
    }
    assert!(count >= 14, "{count} subcommands");
}

#[test]
fn every_command_and_option_says_what_it_does() {
    walk(&Cli::command(), "windlass".to_string(), &mut |command, path| {
        assert!(command.get_about().is_some(), "{path} has no description");
        for arg in command.get_arguments() {
            assert!(arg.get_help().is_some(), "{path} {} has no description", arg.get_id());
        }
    });
}

#[test]
fn every_example_can_be_parsed() {
    walk(&Cli::command(), "windlass".to_string(), &mut |command, _| {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines().map(str::trim).filter(|line| line.starts_with("windlass ")) {
            let words = words(line.split("   ").next().unwrap_or(line));
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{words:?}: {error}");
            }
        }
    });
}

/// Lines of the shell blocks of a document that begin with `windlass`, without their comments.
fn commands(page: &str) -> Vec<&str> {
    let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let lines = blocks.flat_map(str::lines).map(str::trim);
    let plain = |line: &&str| !line.contains(['…', '$']);
    let commands = lines.filter(|line| line.starts_with("windlass ")).filter(plain);
    commands.map(|line| line.split("  #").next().unwrap_or(line)).collect()
}

#[test]
fn every_command_in_the_documents_can_be_parsed() {
    let workspace = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let pages = std::fs::read_dir(workspace.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    let mut count = 0;
    for path in pages.chain([workspace.join("README.md")]) {
        let page = std::fs::read_to_string(&path).unwrap();
        for command in commands(&page) {
            count += 1;
            if let Err(error) = Cli::try_parse_from(words(command)) {
                panic!("{}: {command}\n{error}", path.display());
            }
        }
    }
    assert!(count > 30, "{count} commands");
}

/// Splits a line like a shell, as far as the examples need: single quotes, up to a pipe or redirection.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_string());
            continue;
        }
        for word in part.split_whitespace() {
            if matches!(word, "|" | ">" | "<" | "&") {
                return words;
            }
            words.push(word.to_string());
        }
    }
    words
}

#[test]
fn without_a_subcommand_the_flags_are_those_of_serve() {
    let cli = Cli::try_parse_from(["windlass", "--http", "127.0.0.1:0", "--store", "memory:"]).unwrap();
    assert!(cli.command.is_none());
}

/// A line for every client command, with nothing but its name and required arguments. The flags of all clients
/// are put at every place before `--`.
const CLIENT_LINES: &[&str] = &[
    "push a",
    "work a -- cat",
    #[cfg(feature = "wasi")]
    "run-wasi",
    "jobs",
    "jobs state:failed ann",
    "job 1",
    "job 1 show",
    "job 1 cancel",
    "job 1 retry",
    "job 1 run",
    "job 1 delete",
    "job 1 result",
    "job 1 edit",
    "job 1 clone",
    "job 1 undelete",
    "failures",
    "queues",
    "queues pause q",
    "queues resume q",
    "blobs",
    "blobs put",
    "blobs get a",
    "blobs gc",
    "top",
    "import bedrock f.db",
    "token create",
    "token list",
    "token rotate x",
    "token revoke x",
];

/// Commands without output for programs.
const WITHOUT_JSON: &[&str] = &["run-wasi"];

/// Path of a command line in the tree of commands, and the matches of its last command.
fn deepest(matches: &ArgMatches) -> (String, &ArgMatches) {
    match matches.subcommand() {
        None => (String::new(), matches),
        Some((name, below)) => {
            let (path, last) = deepest(below);
            (format!("{name} {path}").trim_end().to_owned(), last)
        }
    }
}

#[test]
fn the_flags_of_all_clients_are_accepted_anywhere_on_the_line() {
    let mut seen = BTreeSet::new();
    for line in CLIENT_LINES {
        let words: Vec<&str> = line.split(' ').collect();
        let places = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        for flag in
            ["--server=http://h:1", "--server http://h:1", "--token T", "--ca F", "--client-cert F", "--json"]
        {
            if flag == "--json" && WITHOUT_JSON.contains(line) {
                continue;
            }
            for place in 0..=places {
                let (before, after) = words.split_at(place);
                let all: Vec<&str> = ["windlass"]
                    .iter()
                    .chain(before)
                    .copied()
                    .chain(flag.split(' '))
                    .chain(after.iter().copied())
                    .collect();
                let reordered = anywhere::reordered(all.iter().map(Into::into).collect(), Cli::command());
                let matches = Cli::command()
                    .try_get_matches_from(reordered)
                    .unwrap_or_else(|error| panic!("{all:?}: {error}"));
                let (path, last) = deepest(&matches);
                let given = match flag.trim_start_matches('-').split(['=', ' ']).next() {
                    Some("server") => last.get_one::<String>("server").is_some_and(|url| url == "http://h:1"),
                    Some("token") => last.get_one::<String>("token").is_some_and(|token| token == "T"),
                    Some("ca") => last.get_one::<PathBuf>("ca").is_some_and(|file| file == "F"),
                    Some("client-cert") => {
                        last.get_one::<PathBuf>("client_cert").is_some_and(|file| file == "F")
                    }
                    _ => last.get_flag("json"),
                };
                assert!(given, "{all:?}");
                seen.insert(path);
            }
        }
    }
    // Every command with these flags has a line above.
    let mut root = Cli::command();
    root.build();
    walk(&root, String::new(), &mut |command, path| {
        let is_client = command.get_arguments().any(|arg| arg.get_id() == "client_cert");
        assert!(!is_client || seen.contains(path.trim()), "{path} has no line in the table");
    });
}
