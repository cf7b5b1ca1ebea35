//! Temporary folder for contexts, used if the data folder is not exclusive to this server or contexts have
//! other user ids and could not enter it.

use rustix::fs::FlockOperation;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use windlass_runners::handlers::remove::{remove_folder, remove_later};

const PREFIX: &str = "windlass-contexts-";

/// Folder removed on drop. If the server is killed before, the next server that needs such a folder removes
/// it.
pub(super) struct TemporaryFolder {
    folder: TempDir,
    /// Lock held for the lifetime of the process, released by the kernel even after a crash.
    _lock: File,
}

impl TemporaryFolder {
    pub(super) fn new() -> io::Result<TemporaryFolder> {
        let within = std::env::temp_dir();
        remove_later(abandoned(&within));
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&within)?;
        let lock = File::open(folder.path())?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        // Mode 711: other users can enter but not list it. Each context's folder belongs to its own user.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o711))?;
        Ok(TemporaryFolder { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Err(error) = remove_folder(self.folder.path()) {
            tracing::warn!(folder = %self.folder.path().display(), %error, "cannot remove a temporary folder");
        }
    }
}

/// Folders of this user without a lock, left by killed servers.
fn abandoned(within: &Path) -> Vec<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir(within).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    let is_abandoned = |path: &PathBuf| {
        let is_own = path.symlink_metadata().is_ok_and(|about| about.is_dir() && about.uid() == own);
        let lock =
            |folder: &File| rustix::fs::flock(folder, FlockOperation::NonBlockingLockExclusive).is_ok();
        // A folder just created by another server has mode 700 until it is locked.
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
