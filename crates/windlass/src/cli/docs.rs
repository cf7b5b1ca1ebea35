//! `windlass docs`: the documentation as a site.

use crate::docs;
use crate::fault::{Fault, Outcome};
use crate::output;
use clap::Args;
use std::path::PathBuf;

/// Print where a server serves the documentation, or write it to a folder
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass docs                   print the address on the server of this machine
  windlass docs --out site        write the site to the folder site; open site/index.html")]
pub(super) struct DocsArgs {
    /// Folder for the site; created if it does not exist, files in it are overwritten
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// URL of the server
    #[arg(long, value_name = "URL", env = "WINDLASS_SERVER", default_value = "http://127.0.0.1:7373")]
    server: String,
}

pub(super) fn run(args: DocsArgs) -> Outcome {
    let Some(folder) = args.out else {
        return output::say(format!("{}/docs/", args.server.trim_end_matches('/')));
    };
    let pages = docs::export(&folder).map_err(|error| {
        Fault::failed(format!("cannot write the documentation to {}: {error}", folder.display()))
    })?;
    let first = folder.join("index.html");
    output::note(format!("{pages} pages written; open {}", first.display()));
    Ok(())
}
