//! `windlass backup`: consistent copy of a store, even while a server uses it.

use crate::cli::progress;
use crate::cli::store::check::StorePlace;
use crate::fault::{Fault, Outcome};
use crate::output;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use windlass_store::sqlite;

/// Back up an embedded store to a file, even while a server is using it
///
/// The backup is a complete store: start a server on it with --store sqlite:FILE, or check it with windlass check.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass backup jobs-monday.db
  windlass backup /backups/jobs.db --data /var/lib/windlass")]
pub(crate) struct BackupArgs {
    /// File to create; must not exist
    file: PathBuf,
    #[command(flatten)]
    place: StorePlace,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: BackupArgs) -> Outcome {
    let from = args.place.file()?;
    if args.file.exists() {
        return Err(Fault::failed(format!(
            "{} already exists; choose another file name",
            args.file.display()
        )));
    }
    let bar = progress::bar("pages");
    let copied = sqlite::backup_file(&from, &args.file, &|done, all| progress::show(&bar, done, all));
    bar.finish_and_clear();
    copied.map_err(|error| Fault::failed(format!("cannot back up {}: {error}", from.display())))?;
    let bytes = std::fs::metadata(&args.file)?.len();
    match args.json {
        true => output::say_json(&json!({ "file": args.file, "bytes": bytes })),
        false => output::say(format!("{bytes} bytes copied to {}", args.file.display())),
    }
}
