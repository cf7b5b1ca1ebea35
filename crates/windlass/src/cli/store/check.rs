//! `windlass check`: integrity check of a store.

use crate::cli::progress;
use crate::config::ConfigArgs;
use crate::fault::{Fault, Outcome};
use crate::output;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use windlass_core::StateName;
use windlass_store::{StoreUrl, sqlite};

/// Check the integrity of an embedded store
///
/// Reads every row and verifies its checksum. Changes nothing, and can run while a server is using the store. The exit
/// code is 1 if there are problems.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass check
  windlass check --data /var/lib/windlass
  windlass check --store sqlite:backup.db --json")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub place: StorePlace,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Location of a store, for commands that open its file.
#[derive(Args, Debug)]
pub(crate) struct StorePlace {
    /// Folder of the embedded store [default: windlass-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// URL of the store: sqlite:PATH
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "WINDLASS_CONFIG")]
    pub config: Option<PathBuf>,
}

impl StorePlace {
    /// Path of the database file, by the same rules as `serve`. The file exists.
    pub(crate) fn file(&self) -> Outcome<PathBuf> {
        let path = self.path("windlass copy, or the tools of the database")?;
        match path.is_file() {
            true => Ok(path),
            false => Err(Fault::failed(format!(
                "no store at {}; give its folder with --data or its file with --store sqlite:PATH",
                path.display()
            ))),
        }
    }

    /// Path of the database file, which may not exist yet. `instead`: what to use for other stores.
    pub(crate) fn path(&self, instead: &str) -> Outcome<PathBuf> {
        let StorePlace { data, store, config } = self;
        let args = ConfigArgs {
            data: data.clone(),
            store: store.clone(),
            config: config.clone(),
            ..Default::default()
        };
        let url = args.read()?.store;
        embedded(&url).ok_or_else(|| {
            Fault::usage(format!(
                "{} is not an embedded store; this command needs --store sqlite:PATH; use {instead}",
                output::without_password(&url)
            ))
        })
    }
}

/// Path of the database file of an embedded store.
pub(crate) fn embedded(url: &str) -> Option<PathBuf> {
    match StoreUrl::parse(url) {
        Ok(StoreUrl::Sqlite(path)) => Some(path),
        _ => None,
    }
}

pub(crate) fn run(args: CheckArgs) -> Outcome {
    let path = args.place.file()?;
    let bar = progress::bar("jobs");
    let report = sqlite::check(&path, &|done, all| progress::show(&bar, done, all));
    bar.finish_and_clear();
    let report =
        report.map_err(|error| Fault::failed(format!("cannot check {}: {error}", path.display())))?;
    if args.json {
        output::say_json(&as_json(&report))?;
    } else {
        print(&report)?;
    }
    match report.problems.len() as u64 + report.more_problems {
        0 => Ok(()),
        count => Err(Fault::failed(format!(
            "{count} problems in {}; copy the folder as it is, then restore a backup",
            path.display()
        ))),
    }
}

fn states(report: &sqlite::Report) -> impl Iterator<Item = (&'static str, u64)> {
    StateName::ALL.iter().zip(report.by_state).map(|(state, count)| (state.as_str(), count))
}

fn as_json(report: &sqlite::Report) -> serde_json::Value {
    let states: serde_json::Map<String, serde_json::Value> =
        states(report).map(|(state, count)| (state.to_string(), count.into())).collect();
    json!({
        "ok": report.problems.is_empty(), "jobs": report.jobs, "states": states, "settings": report.settings,
        "commits": report.commits, "problems": report.problems, "more_problems": report.more_problems,
    })
}

fn print(report: &sqlite::Report) -> Outcome {
    for problem in &report.problems {
        output::say(format!("problem: {}", output::harmless(problem)))?;
    }
    if report.problems.is_empty() {
        output::say(format!("{} jobs, {} settings: no problems found", report.jobs, report.settings))?;
    }
    for (state, count) in states(report).filter(|(_, count)| *count > 0) {
        output::say(format!("  {count:>10} {state}"))?;
    }
    Ok(())
}
