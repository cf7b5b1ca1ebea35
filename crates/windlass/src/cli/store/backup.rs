//! `windlass backup`: consistent copy of a store, even while a server uses it.

use crate::cli::progress;
use crate::cli::store::check::StorePlace;
use crate::fault::{Fault, Outcome};
use crate::output;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use windlass_store::sqlite;

/// Copy a store to a file, also while a server is using it
///
/// The copy is a store of its own: start a server on it with --store sqlite:FILE, or check it with windlass check.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass backup jobs-monday.db
  windlass backup /backups/jobs.db --data /var/lib/windlass")]
pub(crate) struct BackupArgs {
    /// Where the copy goes; must not exist yet
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
        return Err(Fault::failed(format!("{} exists already; choose another name", args.file.display())));
    }
    let bar = progress::bar("pages");
    let copied = sqlite::backup_file(&from, &args.file, &|done, all| progress::show(&bar, done, all));
    bar.finish_and_clear();
    copied.map_err(|error| Fault::failed(format!("copying {}: {error}", from.display())))?;
    let bytes = std::fs::metadata(&args.file)?.len();
    match args.json {
        true => output::say_json(&json!({ "file": args.file, "bytes": bytes })),
        false => output::say(format!("{bytes} bytes copied to {}", args.file.display())),
    }
}
