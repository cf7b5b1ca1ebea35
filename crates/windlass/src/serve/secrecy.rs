//! Protection of the server's data from other users of the machine: file modes, core dumps, process memory.

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, setrlimit, umask};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tracing::warn;

/// Makes new files private to the server's user, disables core dumps, and prevents other processes of the
/// same user from attaching to this one or reading its memory and environment.
pub(super) fn protect_process() {
    umask(Mode::RWXG | Mode::RWXO);
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        warn!("cannot disable core dumps: {error}");
    }
    #[cfg(target_os = "linux")]
    protect_memory();
}

#[cfg(target_os = "linux")]
fn protect_memory() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        warn!("cannot protect the memory of the server from other processes of the same user: {error}");
    }
}

/// Warns if other users can access the data folder.
pub(super) fn look_at_folder(path: &Path) {
    let Ok(found) = std::fs::metadata(path) else { return };
    if let Some(danger) = danger(found.permissions().mode()) {
        let path = path.display();
        warn!("other users {danger} the data folder {path}; restrict it with `chmod 700 {path}`");
    }
}

/// Access that other users have to a folder with this mode.
fn danger(mode: u32) -> Option<&'static str> {
    match (mode & 0o022, mode & 0o055) {
        (0, 0) => None,
        (0, _) => Some("can read"),
        _ => Some("can write to"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getrlimit;

    #[test]
    fn a_folder_is_dangerous_if_others_can_enter_or_write_it() {
        let check = |mode: u32, expected: Option<&str>| assert_eq!(danger(mode), expected, "{mode:o}");
        check(0o40700, None);
        check(0o40500, None);
        check(0o40755, Some("can read"));
        check(0o40750, Some("can read"));
        check(0o40711, Some("can read"));
        check(0o40770, Some("can write to"));
        check(0o40777, Some("can write to"));
        check(0o40702, Some("can write to"));
    }

    #[test]
    fn the_process_leaves_no_core_and_is_closed_to_others_of_its_user() {
        protect_process();
        assert_eq!(getrlimit(Resource::Core).maximum, Some(0));
        #[cfg(target_os = "linux")]
        {
            use rustix::process::{DumpableBehavior, dumpable_behavior};
            assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        }
        assert_eq!(umask(Mode::RWXG | Mode::RWXO), Mode::RWXG | Mode::RWXO);
    }
}
