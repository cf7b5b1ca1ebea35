//! Reference of the configuration, from the list of keys.

use super::{NOTICE, cell, code, grouped};
use crate::config::keys::Keys;
use crate::docs::pages::Page;
use windlass_dialects::ALL;
use windlass_dialects::settings::{Key, ValueKind};

const INTRODUCTION: &str = "\
Every key of `windlass serve`. [Operating](../operating.md#configuration) describes where a key is set and which place wins. The name is
the same everywhere: `limits.batch` in the file and after `--set`, `WINDLASS_LIMITS_BATCH` in the environment. `windlass config` shows the
effective value of each key and its source.
";

pub(in crate::docs) fn page() -> String {
    let mut page = format!("{NOTICE}# Configuration\n\n{INTRODUCTION}");
    for (section, keys) in sections() {
        page.push_str(&format!("\n## {section}\n\n"));
        if Page::find(&format!("docs/dialects/{section}.md")).is_some() {
            page.push_str(&format!(
                "The dialect is described in [{section}.md](../dialects/{section}.md).\n\n"
            ));
        }
        page.push_str("| key | default | value | meaning |\n|---|---|---|---|\n");
        for key in keys {
            let secret = if key.secret { "; never shown" } else { "" };
            page.push_str(&format!(
                "| `{}` | {} | {} | {}{secret} |\n",
                key.name,
                code(key.default),
                value(key.kind),
                cell(key.help)
            ));
        }
    }
    page
}

/// Keys by the part of their name before the dot. Keys without one come first, unless they have the name of a
/// section.
fn sections() -> Vec<(&'static str, Vec<&'static Key>)> {
    let first = |key: &'static Key| key.name.split('.').next().unwrap_or_default();
    let has_section = |name: &str| Keys(ALL).all().any(|key| key.name.starts_with(&format!("{name}.")));
    let mut sections: Vec<(&'static str, Vec<&'static Key>)> = vec![("General", Vec::new())];
    for key in Keys(ALL).all() {
        let section = if has_section(first(key)) { first(key) } else { "General" };
        match sections.iter_mut().find(|(name, _)| *name == section) {
            Some((_, keys)) => keys.push(key),
            None => sections.push((section, vec![key])),
        }
    }
    sections
}

fn value(kind: ValueKind) -> String {
    match kind {
        ValueKind::Text => "text".to_owned(),
        ValueKind::Address => "`HOST:PORT`".to_owned(),
        ValueKind::AddressOrOff => "`HOST:PORT` or `off`".to_owned(),
        ValueKind::Choice(words) => words.iter().map(|word| code(word)).collect::<Vec<_>>().join(", "),
        ValueKind::Whole { min, max } => format!("{} to {}", grouped(min), grouped(max)),
        ValueKind::Share => "0 to 1".to_owned(),
        ValueKind::Switch => "`true`, `false`".to_owned(),
        ValueKind::KeepTime => "duration, `0` or `forever`".to_owned(),
        ValueKind::List => "list of texts".to_owned(),
    }
}
