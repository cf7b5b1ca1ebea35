//! `windlass compact`: shrinks the database file of a store.

use crate::cli::progress;
use crate::cli::store::check::StorePlace;
use crate::fault::{Fault, Outcome};
use crate::output;
use clap::Args;
use serde_json::json;
use windlass_store::sqlite;

/// Return the free space in the file of an embedded store to the file system
///
/// Stop the server first. Needs disk space for a second file of the new size. After a crash, either the old or the new
/// file is in place.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass compact
  windlass compact --data /var/lib/windlass")]
pub(crate) struct CompactArgs {
    #[command(flatten)]
    place: StorePlace,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: CompactArgs) -> Outcome {
    let file = args.place.file()?;
    let bar = progress::bar("bytes");
    let compacted = sqlite::compact(&file, &|done, all| progress::show(&bar, done, all));
    bar.finish_and_clear();
    let sizes = compacted.map_err(|error| {
        Fault::failed(format!(
            "cannot compact {}: {error}; stop the server that uses it first",
            file.display()
        ))
    })?;
    match args.json {
        true => output::say_json(&json!({
            "file": file, "before_bytes": sizes.before_bytes, "after_bytes": sizes.after_bytes,
        })),
        false => output::say(format!(
            "{}: {} bytes, {} before",
            file.display(),
            sizes.after_bytes,
            sizes.before_bytes
        )),
    }
}
