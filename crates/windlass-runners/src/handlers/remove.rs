//! Removal of folders written by handlers, whatever they contain.
//!
//! A handler can nest folders deeper than the descriptor limit and remove its own permissions. Therefore the
//! removal does not recurse: a non-empty folder is moved to the top level and emptied there. At most two
//! descriptors are open at a time.

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Passes over the folder before giving up: a process may still be writing to it.
const ROUNDS: u32 = 8;

/// Removes a folder with its content; a missing folder is no error. Call it on a blocking thread.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    let top = match open_folder(CWD, path) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut last = Ok(());
    for _ in 0..ROUNDS {
        last = Emptying { top: top.as_fd(), moved: 0, due: names(&top)?.into() }.run();
        match rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(error) => last = last.and(Err(error)),
        }
    }
    Ok(last?)
}

/// Renames the folder and returns the new path with those of earlier calls; the original name is free
/// afterwards. The content of the folder cannot make it fail.
pub fn put_aside(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let entries = match std::fs::read_dir(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mark = format!("{}.old-", name.to_string_lossy());
    let mut aside = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == name {
            let free = (0_u64..).map(|number| parent.join(format!("{mark}{number}")));
            let to = free.into_iter().find(|path| path.symlink_metadata().is_err());
            let to = to.ok_or(io::ErrorKind::AlreadyExists)?;
            std::fs::rename(entry.path(), &to)?;
            aside.push(to);
        } else if entry.file_name().to_string_lossy().starts_with(&mark) {
            aside.push(entry.path());
        }
    }
    aside.sort();
    aside.dedup();
    Ok(aside)
}

/// Removes folders of a previous server on a background thread.
pub fn remove_later(folders: Vec<PathBuf>) {
    let remove = move || {
        for folder in folders {
            if let Err(error) = remove_folder(&folder) {
                let folder = folder.display();
                tracing::warn!(%folder, %error, "cannot delete an old folder of a handler process");
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().spawn(remove) {
        tracing::warn!(%error, "cannot delete old folders of handler processes; retrying at the next start");
    }
}

/// Single pass over the top folder.
struct Emptying<'a> {
    top: BorrowedFd<'a>,
    moved: u64,
    due: VecDeque<CString>,
}

impl Emptying<'_> {
    /// Removes all entries; continues after an error and returns the last one.
    fn run(mut self) -> Result<(), Errno> {
        let mut last = Ok(());
        while let Some(name) = self.due.pop_front() {
            if let Err(error) = self.remove(&name) {
                last = Err(error);
            }
        }
        last
    }

    fn remove(&mut self, name: &CString) -> Result<(), Errno> {
        if unlink(self.top, name).is_ok() {
            return Ok(());
        }
        let folder = open_folder(self.top, name)?;
        for inner in names(&folder)? {
            if unlink(folder.as_fd(), &inner).is_err() {
                self.move_up(folder.as_fd(), &inner)?;
            }
        }
        rustix::fs::unlinkat(self.top, name, AtFlags::REMOVEDIR)
    }

    fn move_up(&mut self, from: BorrowedFd<'_>, name: &CString) -> Result<(), Errno> {
        loop {
            self.moved += 1;
            let to = CString::new(format!(".removed-{}", self.moved)).map_err(|_| Errno::INVAL)?;
            match rustix::fs::renameat_with(from, name, self.top, &to, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    self.due.push_back(to);
                    return Ok(());
                }
                Err(Errno::EXIST) => {}
                // Moving a folder updates its `..` entry, which needs write permission on it.
                Err(Errno::ACCESS) => {
                    allow(from, name)?;
                    rustix::fs::renameat_with(from, name, self.top, &to, RenameFlags::NOREPLACE)?;
                    self.due.push_back(to);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Removes a file or an empty folder.
fn unlink(folder: BorrowedFd<'_>, name: &CString) -> Result<(), Errno> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(_) => rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR),
    }
}

fn open_folder(within: impl AsFd, name: impl rustix::path::Arg + Copy) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match rustix::fs::openat(&within, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            allow(within.as_fd(), name)?;
            rustix::fs::openat(&within, name, flags, Mode::empty())?
        }
        folder => folder?,
    };
    if rustix::fs::fstat(&folder)?.st_mode & 0o700 != 0o700 {
        let _ = rustix::fs::fchmod(&folder, Mode::RWXU);
    }
    Ok(folder)
}

/// Gives the owner all permissions on a folder. Opens the folder first (O_PATH, no symlinks): a handler may
/// replace it with a symlink at any time, and chmod by path would follow the link.
#[cfg(target_os = "linux")]
pub fn allow(within: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(within, name, flags, Mode::empty())?;
    rustix::fs::chmod(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&folder)), Mode::RWXU)
}

/// Gives the owner all permissions on a folder. A symlink that a handler has put in its place is not followed.
#[cfg(not(target_os = "linux"))]
pub fn allow(within: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Result<(), Errno> {
    rustix::fs::chmodat(within, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)
}

fn names(folder: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Creates a deeply nested folder without holding descriptors: each level is moved into the next.
    fn nest(top: &Path, depth: usize) {
        let (inner, outer) = (top.join("inner"), top.join("outer"));
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("deepest"), "x").unwrap();
        for _ in 1..depth {
            std::fs::create_dir(&outer).unwrap();
            std::fs::rename(&inner, outer.join("d")).unwrap();
            std::fs::rename(&outer, &inner).unwrap();
        }
    }

    #[test]
    fn depth_modes_and_links_do_not_keep_a_folder() {
        // On tmpfs if possible: on some disks each level takes milliseconds.
        let folder = tempfile::TempDir::new_in("/dev/shm").or_else(|_| tempfile::TempDir::new()).unwrap();
        let (top, kept) = (folder.path().join("top"), folder.path().join("kept"));
        std::fs::create_dir(&top).unwrap();
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), "x").unwrap();
        nest(&top, 12_000);
        std::os::unix::fs::symlink(&kept, top.join("link")).unwrap();
        let shut = top.join("shut/shut");
        std::fs::create_dir_all(&shut).unwrap();
        std::fs::write(shut.join("file"), "x").unwrap();
        for path in [shut.as_path(), &top.join("shut"), &top] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_folder(&top).unwrap();
        assert!(top.symlink_metadata().is_err());
        assert!(kept.join("file").exists(), "what a link leads to is not touched");
        remove_folder(&top).unwrap();
    }

    /// Race: a handler with the server's user id swaps a folder with a symlink to a folder of the server
    /// during removal.
    #[test]
    fn a_link_in_the_place_of_a_folder_changes_the_mode_of_nothing_else() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["kept", "name"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::fs::set_permissions(path("kept"), std::fs::Permissions::from_mode(0o500)).unwrap();
        std::os::unix::fs::symlink("kept", path("link")).unwrap();
        let top = open_folder(CWD, folder.path()).unwrap();
        let exchange = || {
            rustix::fs::renameat_with(&top, "name", &top, "link", RenameFlags::EXCHANGE).unwrap();
        };
        let (is_over, mut changed, mut refused) = (std::sync::atomic::AtomicBool::new(false), 0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    exchange();
                }
            });
            for _ in 0..50_000 {
                match allow(top.as_fd(), "name") {
                    Ok(()) => changed += 1,
                    Err(_) => refused += 1,
                }
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(path("kept").metadata().unwrap().permissions().mode() & 0o777, 0o500);
        assert!(changed + refused == 50_000);
        // Both states of the swap, without a race.
        let is_link = path("name").symlink_metadata().unwrap().is_symlink();
        for is_link in [is_link, !is_link] {
            assert_eq!(allow(top.as_fd(), "name").is_err(), is_link);
            exchange();
        }
    }

    /// Modes do not bind root; the tests of hostile handlers repeat this as another user.
    #[test]
    fn a_folder_is_put_aside_whatever_its_mode_and_so_are_those_before_it() {
        let folder = tempfile::TempDir::new().unwrap();
        let contexts = folder.path().join("contexts");
        assert_eq!(put_aside(&contexts).unwrap(), Vec::<PathBuf>::new());
        for round in 1..4 {
            std::fs::create_dir_all(contexts.join("0/work")).unwrap();
            std::fs::set_permissions(contexts.join("0/work"), std::fs::Permissions::from_mode(0o000))
                .unwrap();
            let aside = put_aside(&contexts).unwrap();
            assert_eq!(aside.len(), round);
            assert!(!contexts.exists());
        }
        for old in put_aside(&contexts).unwrap() {
            remove_folder(&old).unwrap();
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
