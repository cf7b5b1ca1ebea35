//! Blobs as files in a separate folder beside the database.
//!
//! ```text
//! uploads/                     uploads in progress; emptied at startup
//! t-default/sha1/68/68d5…      name file: SHA-256 of the blob with this SHA-1
//! t-default/sha256/97/979f…    bytes of the blob
//! ```
//!
//! The name file is written before the bytes and removed after them: a stored blob has both files, and a name
//! file without bytes is no blob. Files are synced, then renamed into place, and the folder is synced before
//! the put is acknowledged. A file is never modified, so copying the folder while serving is a valid backup.

mod keep;
mod read;

use super::addr::{hex, unhex};
use super::{BlobAddr, BlobInfo, BlobStore, BlobWriter, Digests, ListedBlob, OpenBlob};
use crate::{Durability, Result, StoreError};
use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use windlass_core::{Tenant, Timestamp};

/// Cheap handle; clones refer to the same folder.
#[derive(Clone)]
pub struct FileBlobs {
    folder: Arc<Folder>,
}

struct Folder {
    root: PathBuf,
    durability: Durability,
    /// Number of the next upload.
    uploads: AtomicU64,
    /// Shared by puts, exclusive for a removal: no blob is removed while it is being put again.
    moving: RwLock<()>,
    /// Held while a name file is checked and written: if two blobs have the same SHA-1, the first wins.
    naming: Mutex<()>,
    /// Blobs that this process has put or verified, known to be synced.
    sure: Mutex<FxHashSet<(Tenant, [u8; 32])>>,
    /// Reason why puts are refused: after a failed fsync the state of the disk is unknown.
    sick: OnceLock<String>,
}

/// Most entries in `sure`; all are dropped when it is full. About sixty bytes each.
const SURE_MAX: usize = 10_000;

impl FileBlobs {
    /// Deletes unfinished uploads; the folder is created with the first blob. One process per folder: the
    /// caller holds the lock of the store it belongs to.
    pub fn open(root: &Path, durability: Durability) -> Result<FileBlobs> {
        let opening = |error: io::Error| {
            StoreError::Open(format!("cannot use the blob folder {}: {error}", root.display()))
        };
        match fs::remove_dir_all(root.join("uploads")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(opening(error)),
            Ok(()) | Err(_) => {}
        }
        Ok(FileBlobs { folder: Arc::new(Folder::new(root, durability)) })
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Folder>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let folder = Arc::clone(&self.folder);
        off_the_runtime(move || work(&folder)).await
    }
}

/// Runs file I/O on the blocking thread pool.
async fn off_the_runtime<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(StoreError::Unknown(format!("cannot access the files of a blob: {error}"))),
    }
}

#[async_trait]
impl BlobStore for FileBlobs {
    async fn create(&self, tenant: &Tenant) -> Result<Box<dyn BlobWriter>> {
        self.folder.refuse_if_sick()?;
        Ok(Box::new(keep::Writer::new(Arc::clone(&self.folder), tenant.clone())))
    }

    async fn open(&self, tenant: &Tenant, addr: &BlobAddr) -> Result<Option<OpenBlob>> {
        let (tenant, addr) = (tenant.clone(), *addr);
        self.on_disk(move |folder| read::open(folder, &tenant, &addr)).await
    }

    async fn list(&self, tenant: Option<&Tenant>) -> Result<Vec<ListedBlob>> {
        let tenant = tenant.cloned();
        self.on_disk(move |folder| folder.list(tenant.as_ref()).map_err(|error| trouble(&error))).await
    }

    async fn remove(&self, tenant: &Tenant, digests: &Digests, unless_put_after: Timestamp) -> Result<bool> {
        let (tenant, digests) = (tenant.clone(), *digests);
        let removing = move |folder: &Arc<Folder>| folder.remove(&tenant, &digests, unless_put_after);
        self.on_disk(move |folder| removing(folder).map_err(|error| trouble(&error))).await
    }
}

/// Copies all blobs of a folder into another, for backups, even while a server uses the first. Returns their
/// number.
pub fn copy_folder(from: &Path, to: &Path) -> Result<u64> {
    let (from, to) = (Folder::new(from, Durability::Full), Folder::new(to, Durability::Full));
    let copy_all = || {
        let blobs = from.list(None)?;
        for ListedBlob { tenant, info } in &blobs {
            let Digests { sha1, sha256 } = &info.digests;
            copy_file(&from.bytes_path(tenant, sha256), &to.bytes_path(tenant, sha256))?;
            copy_file(&from.name_path(tenant, sha1), &to.name_path(tenant, sha1))?;
        }
        Ok(blobs.len() as u64)
    };
    copy_all().map_err(|error: io::Error| StoreError::Unavailable(format!("cannot copy blobs: {error}")))
}

/// Addresses of the blobs in a folder whose bytes do not have the digests of their names.
pub fn damaged_blobs(root: &Path) -> Result<Vec<String>> {
    let folder = Folder::new(root, Durability::Full);
    let look = || {
        let mut damaged = Vec::new();
        for ListedBlob { tenant, info } in folder.list(None)? {
            let path = folder.bytes_path(&tenant, &info.digests.sha256);
            let (found, _) = read::hash(&mut File::open(path)?, None)?;
            if found != info.digests {
                damaged.push(hex(&info.digests.sha256));
            }
        }
        Ok(damaged)
    };
    look().map_err(|error: io::Error| trouble(&error))
}

/// Copies a file with its modification time and mode 0600, and syncs it.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        make_folder(folder)?;
    }
    fs::copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o600))?;
    let file = File::options().write(true).open(to)?;
    file.set_modified(fs::metadata(from)?.modified()?)?;
    file.sync_all()
}

impl Folder {
    fn new(root: &Path, durability: Durability) -> Folder {
        Folder {
            root: root.to_owned(),
            durability,
            uploads: AtomicU64::new(0),
            moving: RwLock::default(),
            naming: Mutex::default(),
            sure: Mutex::default(),
            sick: OnceLock::new(),
        }
    }

    /// Prefixes the name: a tenant may be called `.` or `..`, a folder may not.
    fn of_tenant(&self, tenant: &Tenant) -> PathBuf {
        self.root.join(format!("t-{tenant}"))
    }

    fn bytes_path(&self, tenant: &Tenant, sha256: &[u8; 32]) -> PathBuf {
        shelved(&self.of_tenant(tenant).join("sha256"), &hex(sha256))
    }

    fn name_path(&self, tenant: &Tenant, sha1: &[u8; 20]) -> PathBuf {
        shelved(&self.of_tenant(tenant).join("sha1"), &hex(sha1))
    }

    /// SHA-256 of the blob with this SHA-1. An unreadable name file counts as missing.
    fn named(&self, tenant: &Tenant, sha1: &[u8; 20]) -> io::Result<Option<[u8; 32]>> {
        match fs::read(self.name_path(tenant, sha1)) {
            Ok(text) => Ok(std::str::from_utf8(&text).ok().and_then(|text| unhex(text.trim_end()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self, tenant: Option<&Tenant>) -> io::Result<Vec<ListedBlob>> {
        let mut found = Vec::new();
        for owner in entries(&self.root)? {
            let Some(owner) = owner.strip_prefix("t-").and_then(|name| Tenant::new(name).ok()) else {
                continue;
            };
            if tenant.is_some_and(|tenant| *tenant != owner) {
                continue;
            }
            let names = self.of_tenant(&owner).join("sha1");
            for shelf in entries(&names)? {
                for name in entries(&names.join(shelf))? {
                    let Some(sha1) = unhex(&name) else { continue };
                    if let Some(info) = self.look(&owner, &sha1)? {
                        found.push(ListedBlob { tenant: owner.clone(), info });
                    }
                }
            }
        }
        Ok(found)
    }

    fn look(&self, tenant: &Tenant, sha1: &[u8; 20]) -> io::Result<Option<BlobInfo>> {
        let Some(sha256) = self.named(tenant, sha1)? else { return Ok(None) };
        match fs::metadata(self.bytes_path(tenant, &sha256)) {
            Ok(found) => Ok(Some(info(Digests { sha1: *sha1, sha256 }, &found)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn remove(&self, tenant: &Tenant, digests: &Digests, unless_put_after: Timestamp) -> io::Result<bool> {
        let _alone = self.moving.write();
        let Some(info) = self.look(tenant, &digests.sha1)? else { return Ok(false) };
        if info.digests != *digests || info.stored_at > unless_put_after {
            return Ok(false);
        }
        self.sure().remove(&(tenant.clone(), digests.sha256));
        let bytes = self.bytes_path(tenant, &digests.sha256);
        fs::remove_file(&bytes)?;
        self.sync_folder_of(&bytes)?;
        fs::remove_file(self.name_path(tenant, &digests.sha1))?;
        Ok(true)
    }

    fn sure(&self) -> parking_lot::MutexGuard<'_, FxHashSet<(Tenant, [u8; 32])>> {
        self.sure.lock()
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        if self.durability == Durability::Relaxed {
            return Ok(());
        }
        file.sync_all().inspect_err(|error| {
            let _ = self.sick.set(error.to_string());
        })
    }

    fn sync_folder_of(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(folder) => self.sync(&File::open(folder)?),
            None => Ok(()),
        }
    }

    fn refuse_if_sick(&self) -> Result<()> {
        match self.sick.get() {
            None => Ok(()),
            Some(why) => Err(StoreError::Unavailable(format!(
                "cannot sync a blob to disk ({why}); no uploads are accepted until the server is \
                 restarted"
            ))),
        }
    }
}

/// Two levels of folders, so that no folder becomes too large.
fn shelved(folder: &Path, name: &str) -> PathBuf {
    folder.join(&name[..2]).join(name)
}

fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Names in a folder; empty if the folder does not exist.
fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let reading = match fs::read_dir(folder) {
        Ok(reading) => reading,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in reading {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

fn info(digests: Digests, found: &fs::Metadata) -> io::Result<BlobInfo> {
    let stored = found.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let stored_at = Timestamp::from_millis(i64::try_from(stored.as_millis()).unwrap_or(i64::MAX));
    Ok(BlobInfo { digests, bytes: found.len(), stored_at })
}

fn as_system_time(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(at.as_millis()).unwrap_or(0))
}

fn trouble(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full(error.to_string()),
        _ => StoreError::Unavailable(format!("cannot access blob files: {error}")),
    }
}
