//! Namespaces for a context that has the server's user id; any user may create them where the kernel allows
//! it.
//!
//! | namespace | purpose |
//! |---|---|
//! | user | permits the others; grants no capabilities, since nobody inside is root, even if the server is |
//! | PID | the server's processes are invisible, and the end of the init process kills all |
//! | mount | only readable files and the context's own folder exist |
//! | IPC, network | nothing of other processes is reachable |
//!
//! The new root is a small tmpfs into which the trees are bind-mounted, all read-only except the context's
//! folder. The server's own files are covered with empty mounts if they are in one of the trees.

use super::confine::{self, Bounds};
use super::trees;
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Paths inside the view, which do not reveal the location of the server's files.
pub(super) const WORK: &str = "/windlass/work";
pub(super) const ORDERS: &str = "/windlass/in";
pub(super) const PROGRAM: &str = "/windlass/run";
/// User and group id `nobody` of every system.
const NOBODY: u32 = 65_534;
/// Most symlinks followed in a path, as in the kernel.
const LINKS_MAX: usize = 40;

/// Failed step and its error.
pub(super) struct Failed(&'static str, io::Error);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.0, self.1)
    }
}

trait During<T> {
    fn during(self, what: &'static str) -> Result<T, Failed>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, what: &'static str) -> Result<T, Failed> {
        self.map_err(|error| Failed(what, error.into()))
    }
}

/// Moves the calling process, which must be single-threaded, into a view built on the folder `view`; its next
/// child is the init process of the PID namespace. Cannot be undone, even if it fails half-way. Returns the
/// bounds with their paths inside the view.
pub(super) fn enter(view: &Path, bounds: &Bounds, program: &Path) -> Result<Bounds, Failed> {
    let own = std::fs::read_link("/proc/self/exe").during("finding the executable")?;
    leave_namespaces(bounds.network)?;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .during("making mounts private")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", view, "tmpfs", flags, c"mode=0755,size=256m")
        .during("mounting a new root")?;
    let mut building = Building { root: view.to_owned(), bound: Vec::new(), covered: Vec::new() };
    let system = confine::SYSTEM.iter().chain(confine::DEVICES).map(Path::new);
    let named = bounds.readable.iter().map(PathBuf::as_path).chain([program]);
    let mut trees: Vec<&Path> = system.chain(named).collect();
    // Parents first: a parent mounted later would cover the mounts below it.
    trees.sort_by_cached_key(|tree| tree.canonicalize().ok());
    for tree in trees {
        building.expose(tree).during("mounting readable folders")?;
    }
    building.bind(&bounds.orders, Path::new(ORDERS)).during("mounting the setup file")?;
    building.bind_program(&own).during("mounting the executable")?;
    building.cover(&trees::resolve(&bounds.hidden)).during("hiding the server's files")?;
    building.make_read_only().during("making it read-only")?;
    building.bind(&bounds.work, Path::new(WORK)).during("mounting the working folder")?;
    let work = building.inside(Path::new(WORK));
    remount(&work, MountFlags::NOSUID | MountFlags::NODEV, "").during("mounting the working folder")?;
    remount(view, MountFlags::RDONLY | flags, "").during("making the new root read-only")?;
    change_root(view).during("changing the root")?;
    Ok(Bounds { work: WORK.into(), orders: ORDERS.into(), is_apart: true, ..bounds.clone() })
}

fn leave_namespaces(network: bool) -> Result<(), Failed> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWIPC;
    if !network {
        flags |= UnshareFlags::NEWNET;
    }
    #[expect(deprecated, reason = "its successor is unsafe because of one flag, which is not used here")]
    rustix::thread::unshare(flags).during("creating namespaces")?;
    std::fs::write("/proc/self/setgroups", "deny").during("mapping the user")?;
    std::fs::write("/proc/self/uid_map", mapping(uid)).during("mapping the user")?;
    std::fs::write("/proc/self/gid_map", mapping(gid)).during("mapping the group")
}

/// Line of a uid or gid map for a single id. Root would have all capabilities inside, so it is mapped to
/// `nobody`.
fn mapping(id: u32) -> String {
    let inside = if id == 0 { NOBODY } else { id };
    format!("{inside} {id} 1")
}

fn change_root(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    // The old root is mounted over the new one and then detached.
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir(WORK)
}

fn remount(target: &Path, flags: MountFlags, data: &str) -> Result<(), Errno> {
    rustix::mount::mount_remount(target, MountFlags::BIND | flags, data)
}

struct Building {
    root: PathBuf,
    /// Mounted trees, by their path inside.
    bound: Vec<PathBuf>,
    /// Covered paths, below `root`; mounts below them are unreachable.
    covered: Vec<PathBuf>,
}

impl Building {
    fn inside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn is_bound(&self, path: &Path) -> bool {
        self.bound.iter().any(|tree| path.starts_with(tree))
    }

    /// Bind-mounts the target of a path under its canonical path, and creates the symlinks on the way.
    /// Missing files are skipped.
    fn expose(&mut self, path: &Path) -> io::Result<()> {
        let mut here = PathBuf::from("/");
        let mut rest: Vec<PathBuf> = components(path).rev().collect();
        let mut links = 0;
        while let Some(next) = rest.pop() {
            if next == Path::new("..") {
                here.pop();
                continue;
            }
            let step = here.join(next);
            let Ok(about) = step.symlink_metadata() else { return Ok(()) };
            if !about.is_symlink() {
                here = step;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Ok(());
            }
            let target = std::fs::read_link(&step)?;
            if !self.is_bound(&step) {
                self.make_folder(&here)?;
                match std::os::unix::fs::symlink(&target, self.inside(&step)) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
            if target.is_absolute() {
                here = PathBuf::from("/");
            }
            rest.extend(components(&target).rev());
        }
        if self.is_bound(&here) { Ok(()) } else { self.bind(&here.clone(), &here) }
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(self.inside(path))
    }

    fn bind(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let target = self.inside(to);
        if from.is_dir() {
            self.make_folder(to)?;
        } else {
            self.make_folder(to.parent().unwrap_or(Path::new("/")))?;
            std::fs::File::create(&target)?;
        }
        rustix::mount::mount_bind_recursive(from, &target)?;
        self.bound.push(to.to_owned());
        Ok(())
    }

    /// Mounts the server's program. If it was replaced on disk, it has no path to mount and is copied.
    fn bind_program(&mut self, own: &Path) -> io::Result<()> {
        if self.bind(own, Path::new(PROGRAM)).is_ok() {
            return Ok(());
        }
        let target = self.inside(Path::new(PROGRAM));
        std::fs::copy("/proc/self/exe", &target)?;
        std::fs::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(0o755))
    }

    /// Covers hidden paths with an empty tmpfs or an empty file.
    fn cover(&mut self, hidden: &[PathBuf]) -> io::Result<()> {
        let nothing = self.inside(Path::new("/windlass/nothing"));
        std::fs::File::create(&nothing)?;
        let bound: Vec<&PathBuf> = hidden.iter().filter(|path| self.is_bound(path)).collect();
        for path in bound {
            let target = self.inside(path);
            let covered = match target.is_dir() {
                true => rustix::mount::mount(
                    "tmpfs",
                    &target,
                    "tmpfs",
                    MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV,
                    c"mode=0555,size=4k",
                ),
                false => rustix::mount::mount_bind(&nothing, &target),
            };
            match covered {
                Ok(()) => self.covered.push(target),
                // A missing path needs no cover.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Remounts every mount read-only, including submounts of a tree.
    fn make_read_only(&self) -> io::Result<()> {
        let mounts = std::fs::read("/proc/self/mountinfo")?;
        for line in mounts.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == b' ');
            let (Some(point), Some(options)) = (fields.nth(4), fields.next()) else { continue };
            let point = unescape(point);
            let is_out_of_reach = self.covered.iter().any(|over| point != *over && point.starts_with(over));
            if point != self.root && point.starts_with(&self.root) && !is_out_of_reach {
                remount(&point, MountFlags::RDONLY | MountFlags::NOSUID | kept(options), "")?;
            }
        }
        Ok(())
    }
}

fn components(path: &Path) -> impl DoubleEndedIterator<Item = PathBuf> {
    path.components().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(PathBuf::from(part.as_os_str())),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    })
}

/// Flags that a remount must keep: the kernel refuses to clear them in a user namespace.
fn kept(options: &[u8]) -> MountFlags {
    let flag = |option: &[u8]| match option {
        b"nodev" => MountFlags::NODEV,
        b"noexec" => MountFlags::NOEXEC,
        _ => MountFlags::empty(),
    };
    options.split(|byte| *byte == b',').map(flag).fold(MountFlags::empty(), |all, one| all | one)
}

/// Decodes the octal escapes of `mountinfo`, such as `\040` for a space.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, number) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsStr::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_root_inside() {
        assert_eq!(mapping(1000), "1000 1000 1");
        assert_eq!(mapping(0), "65534 0 1");
    }

    #[test]
    fn mounts_are_read_as_the_kernel_writes_them() {
        assert_eq!(unescape(b"/mnt/a\\040b\\134c"), Path::new("/mnt/a b\\c"));
        assert_eq!(unescape(b"/plain"), Path::new("/plain"));
        assert_eq!(kept(b"rw,nosuid,nodev,noexec,relatime"), MountFlags::NODEV | MountFlags::NOEXEC);
        assert_eq!(kept(b"rw"), MountFlags::empty());
        let parts: Vec<_> = components(Path::new("/usr/./lib/../bin")).collect();
        assert_eq!(parts, ["usr", "lib", "..", "bin"].map(PathBuf::from));
    }
}
