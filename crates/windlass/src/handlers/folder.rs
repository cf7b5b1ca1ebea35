//! A folder for contexts among the system's temporary ones: for a server whose data folder is not its own alone, or whose
//! contexts are other users and could not get through it.

use rustix::fs::FlockOperation;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use windlass_runners::handlers::remove::{remove_folder, remove_later};

const PREFIX: &str = "windlass-contexts-";

/// Removed when it is dropped. If the server is killed before, the next one that needs such a folder removes it.
pub struct TemporaryFolder {
    folder: TempDir,
    /// Held as long as the server is there, whatever becomes of it.
    _lock: File,
}

impl TemporaryFolder {
    pub fn new() -> io::Result<TemporaryFolder> {
        let within = std::env::temp_dir();
        remove_later(abandoned(&within));
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&within)?;
        let lock = File::open(folder.path())?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        // Others may go through it, and see nothing of what is there. Each context's folder is for its own user.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o711))?;
        Ok(TemporaryFolder { folder, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Err(error) = remove_folder(self.folder.path()) {
            tracing::warn!(folder = %self.folder.path().display(), %error, "a temporary folder is left behind");
        }
    }
}

/// Folders of this user that no server holds: those who made them were killed.
fn abandoned(within: &Path) -> Vec<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir(within).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    let is_abandoned = |path: &PathBuf| {
        let is_own = path.symlink_metadata().is_ok_and(|about| about.is_dir() && about.uid() == own);
        let lock =
            |folder: &File| rustix::fs::flock(folder, FlockOperation::NonBlockingLockExclusive).is_ok();
        // One that was made this very moment is shut until it is locked.
        let is_open = |folder: &File| folder.metadata().is_ok_and(|about| about.mode() & 0o777 == 0o711);
        is_own && File::open(path).is_ok_and(|folder| is_open(&folder) && lock(&folder))
    };
    named.map(|entry| entry.path()).filter(is_abandoned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_killed_servers_are_found_and_those_in_use_are_not() {
        let within = TempDir::new().unwrap();
        let make = |name: &str, mode: u32| {
            let path = within.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        let dead = make("windlass-contexts-dead", 0o711);
        let alive = make("windlass-contexts-alive", 0o711);
        make("windlass-contexts-new", 0o700);
        make("others", 0o711);
        let lock = File::open(&alive).unwrap();
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(abandoned(within.path()), [dead]);
    }
}
