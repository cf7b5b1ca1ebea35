//! `windlass config`: effective configuration, with the source of each value.

use crate::config::ValueSource;
use crate::config::{Config, ConfigArgs, Effective, Value};
use crate::fault::Outcome;
use crate::handlers;
use crate::output::{self, Colour, Style, Table};
use clap::Args;
use serde_json::json;

/// Show every configuration key with its value and the source of the value
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass config
  windlass config --config windlass.toml --json
  windlass config --set queuey.max_attempts=5")]
pub(crate) struct ConfigCommandArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: ConfigCommandArgs) -> Outcome {
    let config = args.config.read()?;
    for warning in &config.warnings {
        output::note(format!("warning: {warning}"));
    }
    if args.json {
        return output::say_json(&listing(&config));
    }
    let mut table = Table::new(&["KEY", "VALUE", "SOURCE", "DESCRIPTION"]);
    for entry in &config.values.0 {
        let colour = if entry.source == ValueSource::Default { Colour::Dim } else { Colour::Bold };
        table.row(vec![
            (entry.key.name.to_string(), Colour::Plain),
            (output::plain(&as_json(entry)), colour),
            (entry.source.to_string(), Colour::Dim),
            (entry.key.help.to_string(), Colour::Dim),
        ]);
    }
    table.print(Style::of_stdout())?;
    if config.handlers.run {
        let line = handlers::isolation_line(&config).unwrap_or_else(|error| format!("unknown: {error}"));
        output::say(format!("\nhandler isolation on this machine, as this user: {line}"))?;
    }
    Ok(())
}

/// Every key with its value and source.
pub(crate) fn listing(config: &Config) -> serde_json::Value {
    let entries = config.values.0.iter().map(|entry| {
        let value = json!({"value": as_json(entry), "source": entry.source.to_string()});
        (entry.key.name.to_string(), value)
    });
    serde_json::Value::Object(entries.collect())
}

fn as_json(entry: &Effective) -> serde_json::Value {
    match &entry.value {
        Value::List(entries) if entry.key.secret => json!(format!("({} hidden)", entries.len())),
        Value::Text(text) if entry.key.secret && !text.is_empty() => json!("(hidden)"),
        // A database URL may contain a password.
        Value::Text(text) if entry.key.name == "store" => json!(output::without_password(text)),
        Value::Text(text) => json!(text),
        Value::Whole(number) => json!(number),
        Value::Switch(on) => json!(on),
        Value::List(entries) => json!(entries),
    }
}
