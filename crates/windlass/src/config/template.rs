//! Commented configuration file, made from the list of keys.

use super::keys::{Keys, variable};
use super::written;
use crate::output;
use windlass_dialects::Dialects;
use windlass_dialects::settings::{Key, ValueKind};

/// Columns of a comment.
const WIDTH: usize = 98;

/// Text of a file that has every key, commented out, with its default. A line that begins with `#` and no blank is
/// a key; other comments begin with `# `.
pub(crate) fn template(dialects: Dialects) -> String {
    let keys = Keys(dialects);
    let named: Vec<(String, &Key)> = keys.all().map(|key| (keys.name_in_table(key), key)).collect();
    let mut tables: Vec<&str> = Vec::new();
    for (name, _) in &named {
        let table = table_of(name);
        if !tables.contains(&table) {
            tables.push(table);
        }
    }
    // Keys outside of tables have to be first in a file.
    tables.sort_by_key(|table| !table.is_empty());
    let mut text = head();
    for table in tables {
        if !table.is_empty() {
            text.push_str(&format!("\n[{table}]\n"));
        }
        for (name, key) in named.iter().filter(|(name, _)| table_of(name) == table) {
            let own = name.strip_prefix(table).unwrap_or(name).trim_start_matches('.');
            text.push_str(&entry(own, key));
        }
    }
    text
}

fn head() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let example = variable("limits.batch");
    format!(
        "# Configuration of windlass {version}. Every key is commented out and shows its default: remove the # \
         before\n\
         # a key to set it. Flags, --set and environment variables ({example} for limits.batch)\n\
         # override this file.\n\
         #\n\
         #   windlass serve --config FILE     starts the server with this file\n\
         #   windlass config --config FILE    shows every value and its source\n"
    )
}

/// Table of a name; empty for a name without one.
fn table_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(table, _)| table)
}

fn entry(name: &str, key: &Key) -> String {
    let mut about = key.help.split(" (also ").next().unwrap_or_default().to_owned();
    if let ValueKind::Choice(words) = key.kind {
        about.push_str(&format!(" [{}]", words.join(", ")));
    }
    let about = output::wrapped(&about, WIDTH - 2).into_iter().map(|line| format!("# {line}\n"));
    format!("\n{}#{name} = {}\n", about.collect::<String>(), default_of(key))
}

/// Default in the syntax of TOML.
fn default_of(key: &Key) -> String {
    match key.kind {
        ValueKind::Whole { .. } | ValueKind::Share | ValueKind::Switch => key.default.to_owned(),
        ValueKind::List => {
            let entries = written::list(key.default).unwrap_or_default();
            toml::Value::Array(entries.into_iter().map(toml::Value::String).collect()).to_string()
        }
        ValueKind::Text
        | ValueKind::Address
        | ValueKind::AddressOrOff
        | ValueKind::Choice(_)
        | ValueKind::KeepTime => toml::Value::String(key.default.to_owned()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigArgs, Value};
    use std::io::Write;
    use windlass_dialects::ALL;

    fn read(text: &str) -> Config {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let args = ConfigArgs { config: Some(file.path().to_owned()), ..ConfigArgs::default() };
        args.read_with(ALL, std::iter::empty()).unwrap()
    }

    fn values(config: &Config) -> Vec<(&str, &Value)> {
        config.values.0.iter().map(|entry| (entry.key.name, &entry.value)).collect()
    }

    /// The same file with every key set.
    fn uncommented(text: &str) -> String {
        let line = |line: &str| match line.strip_prefix('#') {
            Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => format!("{rest}\n"),
            _ => format!("{line}\n"),
        };
        text.lines().map(line).collect()
    }

    #[test]
    fn the_file_changes_nothing_as_it_is_and_with_every_key_set() {
        let defaults = ConfigArgs::default().read_with(ALL, std::iter::empty()).unwrap();
        let text = template(ALL);
        let as_written = read(&text);
        assert_eq!(values(&as_written), values(&defaults));
        assert!(as_written.values.0.iter().all(|entry| entry.source == super::super::ValueSource::Default));
        let all_set = read(&uncommented(&text));
        assert_eq!(values(&all_set), values(&defaults));
        assert!(all_set.values.0.iter().all(|entry| entry.source != super::super::ValueSource::Default));
        assert_eq!((all_set.store, all_set.store_is_in_data), (defaults.store, defaults.store_is_in_data));
        assert_eq!(all_set.limits, defaults.limits);
    }

    #[test]
    fn every_key_has_its_meaning_above_it() {
        let text = template(ALL);
        let lines: Vec<&str> = text.lines().collect();
        for (name, default, before) in
            [("batch", "10000", "# maximum number of jobs in one call"), ("hosts", "[]", "accepts requests")]
        {
            let at = lines.iter().position(|line| *line == format!("#{name} = {default}")).unwrap();
            assert!(lines[at - 1].ends_with(before), "{}", lines[at - 1]);
        }
        assert!(lines.iter().all(|line| line.chars().count() <= 110), "{text}");
    }
}
