//! `windlass upgrade-check`: what this binary would do to a store. Changes nothing.

mod plan;

#[cfg(test)]
mod tests;

use crate::cli::findings::{self, Finding, Level};
use crate::config::{BadConfig, Config, ConfigArgs};
use crate::fault::{Fault, Outcome};
use crate::output;
use clap::Args;
use plan::Plan;
use serde_json::json;
use std::path::PathBuf;

/// Say what this version would do to a store before it is started
///
/// Compares the format of the store with that of this binary, lists the migrations that a start would run, and checks the
/// configuration. Changes nothing, and can run while a server uses the store. After an unclean stop of the server it does
/// not look for an unfinished copy and for lost commits, and says so. The exit code is 1 if it finds that this binary
/// cannot take over the store.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass upgrade-check
  windlass upgrade-check --config /etc/windlass/windlass.toml
  windlass upgrade-check --store sqlite:/var/lib/windlass/windlass.db --json
  windlass upgrade-check --store postgres://windlass@db.example.org/jobs")]
pub(crate) struct UpgradeCheckArgs {
    /// Folder of the embedded store [default: windlass-data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// URL of the store: sqlite:PATH or postgres://…
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "WINDLASS_CONFIG")]
    config: Option<PathBuf>,
    /// Set a configuration key, such as store.schema; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: UpgradeCheckArgs) -> Outcome {
    let asked = ConfigArgs {
        data: args.data.clone(),
        store: args.store.clone(),
        config: args.config.clone(),
        set: args.set.clone(),
        ..ConfigArgs::default()
    };
    let (mut found, plan) = match asked.read_known() {
        Ok((config, unknown)) => (about_configuration(&config, unknown), Some(Plan::read(&config))),
        Err(BadConfig(why)) => {
            (vec![Finding::fail("configuration", why, "the server would not start; correct it")], None)
        }
    };
    found.extend(plan.iter().flat_map(Plan::findings));
    let verdict = match (findings::worst(&found), &plan) {
        (Level::Fail, _) => "this version cannot take over the store as it is",
        (_, Some(plan)) if plan.is_pending() => "upgrade possible",
        _ => "nothing to do",
    };
    if args.json {
        let mut answer = plan.as_ref().map_or_else(|| json!({}), Plan::as_json);
        answer["ok"] = json!(findings::worst(&found) != Level::Fail);
        answer["verdict"] = json!(verdict);
        answer["binary"] = json!(env!("CARGO_PKG_VERSION"));
        answer["findings"] = findings::as_json(&found);
        output::say_json(&answer)?;
    } else {
        findings::print(&found)?;
    }
    match findings::worst(&found) {
        Level::Fail => Err(Fault::failed(format!("{verdict}; nothing was changed"))),
        _ if args.json => Ok(()),
        _ => output::say(format!("{verdict}; nothing was changed")),
    }
}

/// Keys and variables that this version does not know.
fn about_configuration(config: &Config, unknown: Vec<BadConfig>) -> Vec<Finding> {
    let refused = unknown.into_iter().map(|BadConfig(why)| {
        Finding::fail("configuration", why, "the server would not start; remove or correct the key")
    });
    let ignored = config.warnings.iter().map(|warning| {
        Finding::warn("configuration", warning.clone(), "the setting has no effect; remove or correct it")
    });
    let found: Vec<Finding> = refused.chain(ignored).collect();
    if !found.is_empty() {
        return found;
    }
    let file = config.file.as_ref().map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
    vec![Finding::ok("configuration", format!("{file}: this version knows every key that is set"))]
}
