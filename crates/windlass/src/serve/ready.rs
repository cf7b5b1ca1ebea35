//! Notice that all listeners are open: to the service manager, and in the ready file (the addresses as JSON,
//! written atomically).

use super::notify;
use crate::fault::{Fault, Outcome};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Notice of readiness. The ready file is removed on drop.
pub(super) struct Readiness {
    path: Option<PathBuf>,
    is_written: bool,
}

impl Readiness {
    /// Remembers the path; writes nothing yet.
    pub(super) fn new(path: Option<PathBuf>) -> Readiness {
        Readiness { path, is_written: false }
    }

    pub(super) fn tell(&mut self, listening: &[(&'static str, SocketAddr)]) -> Outcome {
        if let Some(path) = &self.path {
            write(path, listening).map_err(|error| {
                Fault::failed(format!("cannot write the ready file {}: {error}", path.display()))
            })?;
            self.is_written = true;
        }
        notify::send(notify::READY);
        Ok(())
    }
}

impl Drop for Readiness {
    fn drop(&mut self) {
        if let Some(path) = self.path.as_ref().filter(|_| self.is_written) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn write(path: &Path, listening: &[(&'static str, SocketAddr)]) -> std::io::Result<()> {
    let addresses: serde_json::Map<String, serde_json::Value> =
        listening.iter().map(|(what, address)| (what.to_string(), address.to_string().into())).collect();
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    writeln!(file, "{}", serde_json::Value::Object(addresses))?;
    file.persist(path)?;
    Ok(())
}
