//! `windlass completions`: completion scripts for shells.

use crate::cli::Cli;
use crate::fault::Outcome;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io::Write;

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass completions bash > ~/.local/share/bash-completion/completions/windlass
  windlass completions zsh > _windlass
  windlass completions fish > ~/.config/fish/completions/windlass.fish")]
pub(super) struct CompletionsArgs {
    /// Shell
    shell: Shell,
}

pub(super) fn run(args: CompletionsArgs) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "windlass", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(())
}
