//! Reference of the command line, from the definitions that parse it.

use super::{NOTICE, cell, code, sentence};
use crate::cli::Cli;
use clap::{Arg, Command, CommandFactory};

pub(in crate::docs) fn page() -> String {
    let mut root = Cli::command();
    root.build();
    let mut page = format!("{NOTICE}# Command line\n\n{}\n\n", paragraphs(&about(&root)));
    page.push_str("| command | description |\n|---|---|\n");
    for command in shown(&root) {
        let anchor = crate::docs::render::slug(&name(command));
        page.push_str(&format!("| [`{}`](#{anchor}) | {} |\n", name(command), cell(&summary(command))));
    }
    page.push('\n');
    page.push_str(&examples(&root));
    page.push_str(&connection(&root));
    for command in shown(&root) {
        write(&mut page, command, "##");
    }
    page
}

/// Commands below this one, without those that the program starts itself.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

fn write(page: &mut String, command: &Command, level: &str) {
    page.push_str(&format!("\n{level} {}\n\n{}\n\n", name(command), paragraphs(&about(command))));
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage: ").lines().map(str::trim).collect();
    page.push_str(&format!("```text\n{}\n```\n\n", usage.join("\n").trim()));
    let is_client = is_client(command);
    let arguments =
        || command.get_arguments().filter(|arg| is_shown(arg) && !(is_client && is_connection(arg)));
    table(page, "argument", arguments().filter(|arg| arg.is_positional()));
    table(page, "option", arguments().filter(|arg| !arg.is_positional()));
    if is_client {
        page.push_str("Also the [options of the connection](#options-of-the-connection).\n\n");
    }
    page.push_str(&examples(command));
    for below in shown(command) {
        write(page, below, "###");
    }
}

/// Options with which every client command finds its server.
const CONNECTION: [&str; 4] = ["server", "token", "ca", "client-cert"];

fn is_connection(arg: &Arg) -> bool {
    arg.get_long().is_some_and(|long| CONNECTION.contains(&long))
}

fn is_client(command: &Command) -> bool {
    command.get_arguments().filter(|arg| is_connection(arg)).count() == CONNECTION.len()
}

/// Section about the options of the connection, which are described once.
fn connection(root: &Command) -> String {
    let mut section =
        "\n## Options of the connection\n\nOf every command that talks to a server.\n\n".to_owned();
    if let Some(client) = shown(root).find(|command| is_client(command)) {
        table(&mut section, "option", client.get_arguments().filter(|arg| is_connection(arg)));
    }
    section
}

fn is_shown(arg: &Arg) -> bool {
    !arg.is_hide_set() && arg.get_id() != "help" && arg.get_id() != "version"
}

fn table<'a>(page: &mut String, title: &str, args: impl Iterator<Item = &'a Arg>) {
    let rows: String =
        args.map(|arg| format!("| {} | {} |\n", code(&syntax(arg)), cell(&description(arg)))).collect();
    if !rows.is_empty() {
        page.push_str(&format!("| {title} | description |\n|---|---|\n{rows}\n"));
    }
}

/// `--queue QUEUE`, `-o, --out DIR` or `NAME`.
fn syntax(arg: &Arg) -> String {
    let takes = arg.get_action().takes_values();
    let names = arg.get_value_names().filter(|_| takes).unwrap_or_default();
    let values = names.iter().map(|name| name.to_string()).collect::<Vec<_>>().join(" ");
    if arg.is_positional() {
        return if values.is_empty() { arg.get_id().to_string() } else { values };
    }
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let flags = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    format!("{flags} {values}").trim_end().to_owned()
}

/// Help, and what it does not say itself: choices, default, variable.
fn description(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = sentence(&help);
    if arg.get_action().takes_values() {
        let choices = arg.get_possible_values();
        let choices: Vec<String> =
            choices.iter().filter(|one| !one.is_hide_set()).map(|one| code(one.get_name())).collect();
        if !choices.is_empty() {
            text.push_str(&format!(" One of {}.", choices.join(", ")));
        }
        let defaults = arg.get_default_values().iter().filter(|value| !value.is_empty());
        let defaults: Vec<String> = defaults.map(|value| code(&value.to_string_lossy())).collect();
        if !defaults.is_empty() && !arg.is_hide_default_value_set() {
            text.push_str(&format!(" Default: {}.", defaults.join(", ")));
        }
    }
    if let Some(variable) = arg.get_env() {
        text.push_str(&format!(" Variable: {}.", code(&variable.to_string_lossy())));
    }
    text
}

/// Name with the commands above it.
fn name(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).to_owned()
}

fn about(command: &Command) -> String {
    command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default()
}

fn summary(command: &Command) -> String {
    command.get_about().map(|about| sentence(&about.to_string())).unwrap_or_default()
}

fn paragraphs(text: &str) -> String {
    text.split("\n\n").map(|paragraph| sentence(&cell(paragraph))).collect::<Vec<_>>().join("\n\n")
}

/// Text after the help: indented lines are commands.
fn examples(command: &Command) -> String {
    let Some(text) = command.get_after_long_help().or(command.get_after_help()) else { return String::new() };
    let mut page = String::new();
    let mut is_code = false;
    for line in text.to_string().lines() {
        let is_indented = line.starts_with("  ") || (is_code && line.is_empty());
        if is_indented != is_code {
            page.push_str(if is_indented { "```sh\n" } else { "```\n\n" });
            is_code = is_indented;
        }
        match is_code {
            true => page.push_str(line.strip_prefix("  ").unwrap_or(line)),
            false => page.push_str(&cell(line)),
        }
        page.push_str(if is_code || line.is_empty() { "\n" } else { "\n\n" });
    }
    if is_code {
        page.push_str("```\n");
    }
    page.replace("\n\n```\n", "\n```\n").replace("\n\n\n", "\n\n")
}
