//! Configuration as written: raw value and source of each key. Only the existence of keys is checked here.

use super::keys::{self, Keys};
use super::{BadConfig, ValueSource};
use std::collections::BTreeMap;
use std::path::Path;
use windlass_dialects::Dialects;
use windlass_dialects::settings::Key;

/// Raw value: text from a flag or variable, or a TOML value from the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Raw {
    Text(String),
    Toml(toml::Value),
}

/// Raw value with the highest precedence for each key that was set.
pub(crate) struct Written {
    pub keys: Keys,
    values: BTreeMap<&'static str, (Raw, ValueSource)>,
    pub warnings: Vec<String>,
}

impl Written {
    pub(crate) fn new(dialects: Dialects) -> Written {
        Written { keys: Keys(dialects), values: BTreeMap::new(), warnings: Vec::new() }
    }

    /// Sets a value. Later calls override earlier ones: call in the order file, environment, `--set`, flags.
    pub(crate) fn put(&mut self, key: &'static Key, raw: Raw, source: ValueSource) {
        self.values.insert(key.name, (raw, source));
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&(Raw, ValueSource)> {
        self.values.get(key.name)
    }

    pub(crate) fn put_text(&mut self, name: &str, text: &str, source: ValueSource) -> Result<(), BadConfig> {
        let key = self.keys.find(name).ok_or_else(|| self.unknown_key(name, &source))?;
        self.put(key, Raw::Text(text.to_string()), source);
        Ok(())
    }

    /// Reads the keys of a file that are known. Returns an error for each of the others.
    pub(crate) fn read_file(&mut self, path: &Path) -> Result<Vec<BadConfig>, BadConfig> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| BadConfig(format!("cannot read the configuration file {shown}: {error}")))?;
        let source = ValueSource::File(shown);
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| BadConfig(format!("in {source}: {error}")))?;
        let mut unknown = Vec::new();
        self.read_table("", table, &source, &mut unknown);
        Ok(unknown)
    }

    fn read_table(
        &mut self,
        prefix: &str,
        table: toml::Table,
        source: &ValueSource,
        unknown: &mut Vec<BadConfig>,
    ) {
        for (word, value) in table {
            let name = if prefix.is_empty() { word } else { format!("{prefix}.{word}") };
            match (value, self.keys.find(&name)) {
                (toml::Value::Table(inner), _) => self.read_table(&name, inner, source, unknown),
                (value, Some(key)) => self.put(key, Raw::Toml(value), source.clone()),
                (_, None) => unknown.push(self.unknown_key(&name, source)),
            }
        }
    }

    pub(crate) fn read_environment(&mut self, variables: impl Iterator<Item = (String, String)>) {
        let known: Vec<(String, &'static str)> = self.keys.variables().collect();
        let (own, others): (Vec<_>, Vec<_>) = variables.partition(|(name, _)| name.starts_with("WINDLASS_"));
        // An empty standard variable counts as unset.
        let set = others.into_iter().filter(|(_, text)| !text.is_empty()).collect::<Vec<_>>();
        let has =
            |name: &str, value: &str| set.iter().any(|(variable, text)| variable == name && text == value);
        let is_for_others = has("OTEL_SDK_DISABLED", "true") || has("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        for (variable, text) in set.into_iter().filter(|_| !is_for_others) {
            if variable == "OTEL_EXPORTER_OTLP_ENDPOINT" && !text.starts_with("http") {
                self.warnings.push(format!("{variable} ignored: it does not start with http:// or https://"));
                continue;
            }
            let standard = keys::STANDARD_VARIABLES.iter().find(|(name, _)| *name == variable);
            if let Some(key) = standard.and_then(|(_, key)| self.keys.find(key)) {
                self.put(key, Raw::Text(text), ValueSource::Variable(variable));
            }
        }
        for (variable, text) in own {
            match known.iter().find(|(name, _)| *name == variable).and_then(|(_, name)| self.keys.find(name))
            {
                Some(key) => self.put(key, Raw::Text(text), ValueSource::Variable(variable)),
                None => self.warn_of_variable(&variable, &known),
            }
        }
    }

    /// Adds a warning instead of an error: an unknown variable may belong to another program.
    fn warn_of_variable(&mut self, variable: &str, known: &[(String, &'static str)]) {
        if keys::OTHER_VARIABLES.contains(&variable) || variable.starts_with("WINDLASS_JOB_") {
            return;
        }
        let hint = match keys::nearest(variable, known.iter().map(|(name, _)| name.as_str())) {
            Some(near) => format!("; did you mean {near}?"),
            None => String::new(),
        };
        self.warnings.push(format!("unknown environment variable {variable} ignored{hint}"));
    }

    pub(crate) fn read_set(&mut self, assignment: &str) -> Result<(), BadConfig> {
        match assignment.split_once('=') {
            Some((name, text)) => self.put_text(name.trim(), text.trim(), ValueSource::Set),
            None => Err(BadConfig(format!("--set {assignment}: expected --set KEY=VALUE"))),
        }
    }

    fn unknown_key(&self, name: &str, source: &ValueSource) -> BadConfig {
        let hint = match keys::nearest(name, self.keys.all().map(|key| key.name)) {
            Some(near) => format!("did you mean {near:?}?"),
            None => "`windlass config` lists all keys".to_string(),
        };
        BadConfig(format!("unknown configuration key {name:?} ({source}); {hint}"))
    }
}

/// Parses a list from a flag or variable: comma-separated or a TOML array. `None`: an invalid array.
pub(super) fn list(text: &str) -> Option<Vec<String>> {
    // A host in brackets, such as [::1], is not an array.
    let inside = text.strip_prefix('[').map(str::trim_start);
    if inside.is_some_and(|inside| inside.starts_with(['"', '\''])) {
        let table: toml::Table = format!("list = {text}").parse().ok()?;
        let entries = table.get("list")?.as_array()?.iter();
        return entries.map(|entry| entry.as_str().map(str::to_string)).collect();
    }
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    Some(parts.map(str::to_string).collect())
}
