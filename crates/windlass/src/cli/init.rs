//! `windlass init`: configuration file with every key and its default.

use crate::config::template;
use crate::fault::{Fault, Outcome};
use crate::output;
use clap::Args;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use windlass_dialects::ALL;

/// Write a configuration file with every key, its default and its meaning
///
/// Every key is commented out, so the new file changes nothing. A new file is readable by its owner only, since it may get
/// tokens and passwords. With --force, the file keeps its mode, and its owner if you may set it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  windlass init
  windlass init ./my.toml
  windlass init --stdout | less")]
pub(super) struct InitArgs {
    /// File to write
    #[arg(value_name = "PATH", default_value = "windlass.toml")]
    path: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Print the configuration instead of writing a file
    #[arg(long, conflicts_with_all = ["path", "force"])]
    stdout: bool,
}

pub(super) fn run(args: InitArgs) -> Outcome {
    let text = template::template(ALL);
    if args.stdout {
        return output::say(text.trim_end());
    }
    let shown = args.path.display();
    let written = if args.force { replace(&args.path, &text) } else { create(&args.path, &text) };
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Fault::failed(format!(
            "{shown} already exists; replace it with --force, or print the configuration with --stdout"
        )),
        _ => Fault::failed(format!("cannot write {shown}: {error}")),
    })?;
    output::say(format!("{shown} written: every key is commented out and shows its default"))?;
    output::say(format!("next: windlass serve --config {shown}"))
}

fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(text.as_bytes());
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

/// Replaces the file in one step: a full disk leaves the old one. The new one keeps its mode and owner, since a service
/// may run as a user who must be able to read it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    if let Ok(old) = fs::metadata(path) {
        // Only root can give a file away.
        let _ = fchown(file.as_file(), Some(old.uid()), Some(old.gid()));
        file.as_file().set_permissions(old.permissions())?;
    }
    file.persist(path).map(drop).map_err(|error| error.error)
}
