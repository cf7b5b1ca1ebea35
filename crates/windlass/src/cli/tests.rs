use super::Cli;
use clap::{Command, CommandFactory, Parser};
use std::path::Path;

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
