//! `windlass queues keep NAME`: shows or sets how long the jobs of a queue are kept.

use crate::client::{Client, escaped};
use crate::fault::Outcome;
use crate::human_time;
use crate::output::{self, Colour, Style, Table};
use clap::Args;
use serde_json::{Map, Value, json};
use windlass_core::KeepFor;
use windlass_dialects::settings::parse_keep;

/// Show or set how long settled jobs of a queue are kept
///
/// The times apply to jobs that are pushed from now on, unless a push gives its own. Without a flag, the times that
/// apply are shown.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass queues keep mail
  windlass queues keep mail --completed 7d --cancelled 0
  windlass queues keep mail --completed default")]
pub(super) struct KeepArgs {
    /// Name of the queue
    name: String,
    /// Completed jobs: 7d, 90m, 0 (delete at once), forever, or default (the server's)
    #[arg(long, value_name = "TIME", value_parser = keep_time)]
    completed: Option<Value>,
    /// Failed jobs
    #[arg(long, value_name = "TIME", value_parser = keep_time)]
    failed: Option<Value>,
    /// Cancelled jobs
    #[arg(long, value_name = "TIME", value_parser = keep_time)]
    cancelled: Option<Value>,
}

/// Keep time as the API writes it; null: the server's default.
fn keep_time(text: &str) -> Result<Value, String> {
    match (text, parse_keep(text)) {
        ("default", _) => Ok(Value::Null),
        (_, Some(KeepFor::Drop)) => Ok(json!(0)),
        (_, Some(KeepFor::Ms(ms))) => Ok(json!(ms)),
        (_, Some(KeepFor::Ever)) => Ok(json!("ever")),
        (_, None) => Err(format!("{text:?} is not a time; use 7d, 90m, 0, forever or default")),
    }
}

pub(super) fn run(client: &mut Client, args: &KeepArgs, json: bool) -> Outcome {
    let path = format!("/api/v1/queues/{}", escaped(&args.name));
    let fields =
        [("completed_ms", &args.completed), ("failed_ms", &args.failed), ("cancelled_ms", &args.cancelled)];
    let set = fields.into_iter().filter_map(|(name, value)| Some((name.to_string(), value.clone()?)));
    let set: Map<String, Value> = set.collect();
    let queue = match set.is_empty() {
        true => client.get(&path)?,
        false => client.call("PUT", &path, Some(&json!({"keep": set}).to_string()), 0)?.value()?,
    };
    if json {
        return output::say_json(&queue);
    }
    let mut table = Table::new(&["JOBS", "KEPT FOR", ""]);
    for word in ["completed", "failed", "cancelled"] {
        let name = format!("{word}_ms");
        let is_own = queue["keep_set"].as_array().is_some_and(|names| names.contains(&json!(name)));
        let origin = if is_own { "" } else { "server's default" };
        let shown = shown(&queue["keep"][&name]);
        table.row(vec![
            (word.to_string(), Colour::of_state(word)),
            (shown, Colour::Plain),
            (origin.to_string(), Colour::Dim),
        ]);
    }
    table.print(Style::of_stdout())
}

fn shown(keep: &Value) -> String {
    match keep.as_i64() {
        Some(0) => "0 (deleted at once)".to_string(),
        Some(ms) => human_time::show_duration(ms),
        None => "forever".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keep_time_is_a_duration_or_a_word() {
        for (text, value) in [
            ("7d", Some(json!(604_800_000))),
            ("1h30m", Some(json!(5_400_000))),
            ("0", Some(json!(0))),
            ("0s", Some(json!(0))),
            ("forever", Some(json!("ever"))),
            ("default", Some(Value::Null)),
            ("7", None),
            ("soon", None),
        ] {
            assert_eq!(keep_time(text).ok(), value, "{text}");
        }
    }
}
