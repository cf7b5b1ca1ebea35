//! Folders of a context, and the process limit of its user.

use super::census;
use super::settings::Settings;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::Path;

/// Allowance for other processes of the same user, if the context has no user id of its own.
const SHARED_USER_TASKS: u64 = 1024;
/// Tasks of the guard and of the init process of a namespace.
const SERVERS_TASKS: u64 = 2;

/// True if the context's user can reach the folder by its path.
pub(super) fn is_reachable(folder: &Path, uid: Option<u32>) -> bool {
    let may_pass = |path: &Path| path.metadata().is_ok_and(|about| about.permissions().mode() & 0o001 != 0);
    // Skips the folder and its parent, which are accessible to this user.
    uid.is_none() || folder.ancestors().skip(2).all(may_pass)
}

/// Creates the folders of a context. Payloads and code are readable by the server and, through the group, by
/// the context's user.
pub(super) fn make_folders(folder: &Path, uid: Option<u32>) -> io::Result<()> {
    let make = |path: &Path, mode: u32| {
        std::fs::DirBuilder::new().mode(0o700).create(path)?;
        chown(path, None, uid)?;
        // Sets the mode regardless of the umask.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    };
    let work = folder.join("work");
    make(folder, 0o710)?;
    make(&folder.join("in"), 0o750)?;
    make(&folder.join("view"), 0o700)?;
    make(&work, 0o700)?;
    chown(&work, uid, uid)
}

pub(super) fn user_processes_max(settings: &Settings, uid: Option<u32>, is_apart: bool) -> u64 {
    let own_tasks = u64::from(settings.processes_max);
    match uid {
        Some(_) => own_tasks,
        None if is_apart && census::counts_by_namespace() => own_tasks + SERVERS_TASKS,
        // RLIMIT_NPROC counts all processes of the user, so it is only a backstop here; the process watch is
        // exact.
        None => {
            let user = rustix::process::getuid().as_raw();
            census::tasks_of_user(user) + own_tasks + SHARED_USER_TASKS
        }
    }
}
