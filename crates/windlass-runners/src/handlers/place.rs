//! The place of a context on this machine: its folders, and how many processes its user may have.

use super::census;
use super::settings::Settings;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::Path;

/// Room for processes of the same user that are not the context's, where it has no user of its own.
const SHARED_USER_TASKS: u64 = 1024;
/// The guard and the first process of a namespace.
const SERVERS_TASKS: u64 = 2;

/// Whether another user gets to the folder by its name.
pub fn is_reachable(folder: &Path, uid: Option<u32>) -> bool {
    let may_pass = |path: &Path| path.metadata().is_ok_and(|about| about.permissions().mode() & 0o001 != 0);
    // Its parent is for this user.
    uid.is_none() || folder.ancestors().skip(2).all(may_pass)
}

/// Payloads and code are for the server and the context; where it has a user of its own, by its group.
pub fn make_folders(folder: &Path, uid: Option<u32>) -> io::Result<()> {
    let make = |path: &Path, mode: u32| {
        std::fs::DirBuilder::new().mode(0o700).create(path)?;
        chown(path, None, uid)?;
        // Whatever the umask took.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    };
    let work = folder.join("work");
    make(folder, 0o710)?;
    make(&folder.join("in"), 0o750)?;
    make(&folder.join("view"), 0o700)?;
    make(&work, 0o700)?;
    chown(&work, uid, uid)
}

pub fn user_processes_max(settings: &Settings, uid: Option<u32>, is_apart: bool) -> u64 {
    let own_tasks = u64::from(settings.processes_max);
    match uid {
        Some(_) => own_tasks,
        None if is_apart && census::counts_by_namespace() => own_tasks + SERVERS_TASKS,
        // The limit counts all processes of the user, so it can only be a last fence here; the watch is nearer.
        None => {
            let user = rustix::process::getuid().as_raw();
            census::tasks_of_user(user) + own_tasks + SHARED_USER_TASKS
        }
    }
}
