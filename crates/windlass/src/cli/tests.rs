use super::{Cli, anywhere};
use clap::{ArgMatches, Command, CommandFactory, Parser};
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
    let folders = ["docs", "docs/migration"].map(|folder| std::fs::read_dir(workspace.join(folder)).unwrap());
    let pages = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
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

/// Client commands without output for programs.
const WITHOUT_JSON: &[&str] = &["run-wasi"];

/// Line for every command that is a client of a server, with nothing but names and required arguments.
fn client_lines(command: &Command, before: &[String], lines: &mut Vec<Vec<String>>) {
    let mut words = before.to_vec();
    let mut rest = Vec::new();
    for positional in command.get_positionals().filter(|positional| positional.is_required_set()) {
        match positional.is_last_set() {
            true => rest.extend(["--".to_owned(), "cat".to_owned()]),
            false => words.push("1".to_owned()),
        }
    }
    if command.get_arguments().any(|arg| arg.get_id() == "client_cert") {
        lines.push([words.clone(), rest].concat());
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        client_lines(below, &[words.clone(), vec![below.get_name().to_owned()]].concat(), lines);
    }
}

/// Matches of the last command of a line.
fn deepest(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| deepest(below))
}

/// True if the last command of the line got the flag.
fn takes(line: &[&str], flag: &str) -> bool {
    let reordered = anywhere::reordered(line.iter().map(Into::into).collect(), Cli::command());
    let matches = Cli::command().try_get_matches_from(reordered);
    let matches = matches.unwrap_or_else(|error| panic!("{line:?}: {error}"));
    let last = deepest(&matches);
    match flag.trim_start_matches('-').split(['=', ' ']).next() {
        Some("server") => last.get_one::<String>("server").is_some_and(|url| url == "http://h:1"),
        Some("token") => last.get_one::<String>("token").is_some_and(|token| token == "T"),
        Some("ca") => last.get_one::<PathBuf>("ca").is_some_and(|file| file == "F"),
        Some("client-cert") => last.get_one::<PathBuf>("client_cert").is_some_and(|file| file == "F"),
        _ => last.get_flag("json"),
    }
}

#[test]
fn the_flags_of_all_clients_are_accepted_anywhere_on_the_line() {
    let mut root = Cli::command();
    root.build();
    let mut lines = Vec::new();
    client_lines(&root, &[], &mut lines);
    assert!(
        lines.len() > 25 && lines.contains(&["job", "1", "cancel"].map(str::to_owned).to_vec()),
        "{lines:?}"
    );
    let flags =
        ["--server=http://h:1", "--server http://h:1", "--token T", "--ca F", "--client-cert F", "--json"];
    for words in &lines {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let places = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        for flag in flags.into_iter().filter(|flag| *flag != "--json" || !WITHOUT_JSON.contains(&words[0])) {
            for place in 0..=places {
                let (before, after) = words.split_at(place);
                let flag_words: Vec<&str> = flag.split(' ').collect();
                let line = [&["windlass"], before, &flag_words, after].concat();
                assert!(takes(&line, flag), "{line:?}");
            }
        }
    }
}
