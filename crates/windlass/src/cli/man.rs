//! `windlass man`: manual pages.

use crate::cli::Cli;
use crate::fault::{Fault, Outcome};
use crate::output;
use clap::{Args, CommandFactory};
use std::io::Write;
use std::path::PathBuf;

/// Print the manual page, or write the manual pages of all commands to a folder
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass man | man -l -
  windlass man --to ~/.local/share/man/man1")]
pub(super) struct ManArgs {
    /// Folder for one manual page per command
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

pub(super) fn run(args: ManArgs) -> Outcome {
    let Some(folder) = args.to else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        std::io::stdout().lock().write_all(&page)?;
        return Ok(());
    };
    let trouble =
        |error: std::io::Error| Fault::failed(format!("cannot write to {}: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(trouble)?;
    clap_mangen::generate_to(Cli::command(), &folder).map_err(trouble)?;
    output::note(format!("manual pages written to {}", folder.display()));
    Ok(())
}
