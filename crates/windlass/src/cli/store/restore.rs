//! `windlass restore`: puts a backup in the place of an embedded store.

use crate::cli::progress;
use crate::cli::store::check::StorePlace;
use crate::fault::{Fault, Outcome};
use crate::output;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use windlass_store::sqlite::{self, RestoreStage, Restored};

/// Advice for stores that this command does not restore.
const OTHERS: &str =
    "the tools of the database for PostgreSQL: pg_restore for a dump of pg_dump, or its continuous archive";

/// Restore a backup of an embedded store into a data folder
///
/// Stop the server first. The backup and its blobs are copied and checked in full before anything is changed. If there
/// is a store already, --replace moves its files to a folder `before-restore-…` beside it. New jobs get ids above those
/// of both. Jobs that were running in the backup run again when their leases have ended; jobs that were completed after
/// the backup was taken run again.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass restore jobs-monday.db
  windlass restore /backups/jobs.db --data /var/lib/windlass --replace")]
pub(crate) struct RestoreArgs {
    /// File made by `windlass backup`; its blobs are in the folder FILE.blobs beside it
    file: PathBuf,
    #[command(flatten)]
    place: StorePlace,
    /// Replace the store that is there; its files are kept in a folder beside it
    #[arg(long)]
    replace: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: RestoreArgs) -> Outcome {
    let to = args.place.path(OTHERS)?;
    if !args.replace && to.is_file() {
        return Err(Fault::failed(format!(
            "there is a store at {} already; stop its server and give --replace, which keeps the old files, or \
             restore to another folder with --data",
            to.display()
        )));
    }
    let bar = progress::bar("");
    let show = |stage, done, all| {
        bar.set_message(match stage {
            RestoreStage::Copy => "copying pages",
            RestoreStage::Check => "checking jobs",
            RestoreStage::Blobs => "copying blobs",
        });
        progress::show(&bar, done, all);
    };
    let moment = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let restored = sqlite::restore(&args.file, &to, args.replace, &moment, &show);
    bar.finish_and_clear();
    let restored = restored.map_err(|error| {
        let hint = if error.to_string().contains("another server") { "; stop it first" } else { "" };
        Fault::failed(format!("cannot restore to {}: {error}{hint}", to.display()))
    })?;
    match args.json {
        true => output::say_json(&json!({
            "file": args.file, "store": to, "jobs": restored.jobs, "blobs": restored.blobs,
            "next_id": restored.next_id, "kept": restored.kept,
        })),
        false => say(&args, &to, &restored),
    }
}

fn say(args: &RestoreArgs, to: &Path, restored: &Restored) -> Outcome {
    let Restored { jobs, blobs, next_id, kept } = restored;
    output::say(format!(
        "{jobs} jobs and {blobs} blobs restored from {} to {}; the next job id is {next_id}",
        args.file.display(),
        to.display()
    ))?;
    if let Some(kept) = kept {
        output::say(format!(
            "the old store is in {}; delete it when it is no longer needed",
            kept.display()
        ))?;
    }
    let place = match (&args.place.data, &args.place.store) {
        (_, Some(store)) => format!(" --store {store}"),
        (Some(data), None) => format!(" --data {data}"),
        (None, None) => String::new(),
    };
    let config = args.place.config.as_ref().map(|file| format!(" --config {}", file.display()));
    output::say(format!("next: windlass serve{place}{}", config.unwrap_or_default()))
}
