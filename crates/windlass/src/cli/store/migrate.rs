//! `windlass migrate`: creates or upgrades the tables of a PostgreSQL store.

use crate::config::ConfigArgs;
use crate::fault::{Fault, Outcome};
use crate::output;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use windlass_store::postgres::{PostgresStore, Standing};

/// Create or upgrade the tables of a PostgreSQL store
///
/// `windlass serve` does this at startup, unless store.migrate is false. All migrations run in one transaction; servers
/// that start meanwhile wait.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass migrate --store postgres://windlass@db.example.org/jobs
  windlass migrate --store postgres://windlass@db.example.org/jobs --dry-run")]
pub(crate) struct MigrateArgs {
    /// URL of the store: postgres://USER:PASSWORD@HOST:PORT/DATABASE
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Print the pending migrations without running them
    #[arg(long)]
    dry_run: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "WINDLASS_CONFIG")]
    config: Option<PathBuf>,
    /// Set a configuration key, such as store.schema; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

pub(crate) fn run(args: MigrateArgs) -> Outcome {
    let MigrateArgs { store, config, set, .. } = &args;
    let read = ConfigArgs {
        store: store.clone(),
        config: config.clone(),
        set: set.clone(),
        ..ConfigArgs::default()
    };
    let config = read.read()?;
    if !config.store.starts_with("postgres") {
        return Err(Fault::usage(
            "only PostgreSQL stores have migrations; give one with --store postgres://…",
        ));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let standing = runtime.block_on(PostgresStore::migrate(&config.store, &config.postgres, args.dry_run));
    say(&args, &standing.map_err(|error| Fault::failed(error.to_string()))?)
}

fn say(args: &MigrateArgs, standing: &Standing) -> Outcome {
    let Standing { version, newest, missing, .. } = standing;
    if args.json {
        return output::say_json(&json!({
            "version": if args.dry_run { version } else { newest }, "newest": newest, "steps": missing,
            "done": !args.dry_run,
        }));
    }
    for step in missing {
        output::say(format!("{} {step}", if args.dry_run { "pending:" } else { "done" }))?;
    }
    match (missing.is_empty(), args.dry_run) {
        (true, _) => output::say(format!("the tables are up to date (version {version})")),
        (false, true) => {
            output::say(format!("nothing was changed; the tables are at version {version} of {newest}"))
        }
        (false, false) => output::say(format!("the tables were upgraded from version {version} to {newest}")),
    }
}
