//! The reference has everything that the code has.

use super::workspace;
use crate::cli::Cli;
use crate::config::keys::Keys;
use crate::docs::pages::Page;
use crate::docs::reference::api::calls_of;
use clap::CommandFactory;
use windlass_dialects::ALL;
use windlass_dialects::native::calls::metrics::families::GROUPS;
use windlass_dialects::native::{calls, openapi};

fn markdown(name: &str) -> String {
    Page::find(&format!("docs/reference/{name}.md")).unwrap().markdown().into_owned()
}

#[cfg(feature = "wasi")]
#[test]
fn the_reference_in_the_repository_is_the_generated_one() {
    for name in ["command-line", "configuration", "api", "metrics"] {
        let path = workspace().join(format!("docs/reference/{name}.md"));
        if std::env::var_os("WINDLASS_UPDATE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, markdown(name)).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        let differs = kept
            .lines()
            .zip(markdown(name).lines())
            .find(|(kept, made)| kept != made)
            .map(|(_, made)| made.to_owned());
        assert!(
            kept == markdown(name),
            "docs/reference/{name}.md is not up to date: run WINDLASS_UPDATE=1 cargo test -p windlass reference\n{differs:?}"
        );
    }
}

/// True for an option that is described with the connection.
fn is_of_connection(section: &str, arg: &str) -> bool {
    let page = markdown("command-line");
    let table = page.split("\n## Options of the connection\n").nth(1).unwrap().split("\n## ").next().unwrap();
    section.contains("(#options-of-the-connection)") && table.contains(&format!("`--{arg}"))
}

#[test]
fn every_command_and_option_is_in_the_reference() {
    let page = markdown("command-line");
    let mut root = Cli::command();
    root.build();
    let commands =
        root.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    let mut count = 0;
    for command in commands {
        let title = format!("\n## windlass {}\n", command.get_name());
        let section = page.split(&title).nth(1).unwrap_or_else(|| panic!("{title} is missing"));
        let section = section.split("\n## ").next().unwrap();
        assert!(section.contains(&format!("windlass {}", command.get_name())), "{title} has no example");
        for arg in command.get_opts().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long()) {
            let is_there = section.contains(&format!("`--{arg}")) || section.contains(&format!(", --{arg}"));
            assert!(is_there || is_of_connection(section, arg), "--{arg} of {title}");
            count += 1;
        }
    }
    assert!(count > 100, "{count} options");
    assert!(page.contains("\n### windlass token create\n") && !page.contains("run-handler"), "{page}");
}

#[test]
fn every_key_is_in_the_reference_with_its_default_and_meaning() {
    let page = markdown("configuration");
    for key in Keys(ALL).all() {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", key.name)));
        let row = row.unwrap_or_else(|| panic!("{} is missing", key.name));
        assert!(key.default.is_empty() || row.contains(&format!("| `{}` |", key.default)), "{row}");
        let words = key.help.split(['|', '*', '<']).next().unwrap();
        assert!(row.contains(words), "{row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, Keys(ALL).all().count());
}

#[test]
fn every_call_is_in_the_reference_with_its_role_parameters_and_answers() {
    let page = markdown("api");
    for call in calls::CALLS {
        let title = format!("\n### {} {}\n", call.method, call.path);
        let section = page.split(&title).nth(1).unwrap_or_else(|| panic!("{title} is missing"));
        let section = section.split("\n##").next().unwrap();
        assert!(section.contains(call.doc.summary), "{title}{section}");
        assert!(section.contains("Requires the role") || section.contains("Requires no token"), "{title}");
        for param in call.doc.params {
            assert!(section.contains(&format!("| `{}` |", param.name)), "{} of {title}", param.name);
        }
        for (status, _) in call.doc.answers.iter().flatten() {
            assert!(section.contains(&format!("\n| {status} |")), "{status} of {title}");
        }
    }
    let document = openapi::describe(calls::CALLS);
    assert_eq!(calls_of(&document).count(), calls::CALLS.len());
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let section =
            page.split(&format!("\n### {name}\n")).nth(1).unwrap_or_else(|| panic!("{name} is missing"));
        let section = section.split("\n### ").next().unwrap();
        for field in schema["properties"].as_object().into_iter().flatten().map(|(field, _)| field) {
            assert!(section.contains(&format!("\n| `{field}` |")), "{field} of {name}");
        }
    }
}

#[test]
fn every_metric_is_in_the_reference_with_its_type_and_labels() {
    let page = markdown("metrics");
    let mut count = 0;
    for family in GROUPS.iter().flat_map(|group| group.families) {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", family.name)));
        let row = row.unwrap_or_else(|| panic!("{} is missing", family.name));
        assert!(row.contains(family.kind.as_str()) && row.contains(family.help), "{row}");
        assert!(family.labels.iter().all(|label| row.contains(&format!("`{label}`"))), "{row}");
        count += 1;
    }
    assert!(count > 40, "{count} metrics");
}
