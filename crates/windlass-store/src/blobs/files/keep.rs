//! Puts: small blobs are buffered in memory, larger ones in an upload file that is renamed into place at the
//! end.

use super::{Folder, SURE_MAX, as_system_time, make_folder, off_the_runtime, read, trouble};
use crate::blobs::addr::hex;
use crate::blobs::{BlobInfo, BlobWriter, Digests, Hasher, PutBlob};
use crate::{Result, StoreError};
use async_trait::async_trait;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use windlass_core::{Tenant, Timestamp};

/// Buffer in memory before anything is written: most blobs are smaller, and many are stored already.
const BUFFER_BYTES: usize = 1 << 20;

pub(super) struct Writer {
    folder: Arc<Folder>,
    tenant: Tenant,
    buffer: Vec<u8>,
    hasher: Hasher,
    upload: Option<Upload>,
}

/// Upload in progress; deleted on drop unless it was renamed into place.
struct Upload {
    file: File,
    path: PathBuf,
}

impl Drop for Upload {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Writer {
    pub(super) fn new(folder: Arc<Folder>, tenant: Tenant) -> Writer {
        Writer { folder, tenant, buffer: Vec::new(), hasher: Hasher::default(), upload: None }
    }
}

#[async_trait]
impl BlobWriter for Writer {
    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < BUFFER_BYTES {
            return Ok(());
        }
        let (folder, upload) = (Arc::clone(&self.folder), self.upload.take());
        let (mut buffer, mut hasher) = (std::mem::take(&mut self.buffer), std::mem::take(&mut self.hasher));
        let writing = move || {
            let mut upload = upload.map_or_else(|| folder.upload(), Ok)?;
            hasher.update(&buffer);
            upload.file.write_all(&buffer)?;
            buffer.clear();
            Ok((upload, buffer, hasher))
        };
        let written = off_the_runtime(move || writing().map_err(|error: io::Error| trouble(&error))).await?;
        let (upload, buffer, hasher) = written;
        (self.upload, self.buffer, self.hasher) = (Some(upload), buffer, hasher);
        Ok(())
    }

    async fn finish(self: Box<Self>, now: Timestamp) -> Result<PutBlob> {
        off_the_runtime(move || keep(*self, now)).await
    }
}

fn keep(mut writer: Writer, now: Timestamp) -> Result<PutBlob> {
    let folder = &writer.folder;
    writer.hasher.update(&writer.buffer);
    let bytes = writer.hasher.bytes();
    let digests = writer.hasher.finish();
    let info = BlobInfo { digests, bytes, stored_at: now };
    let put = Put { folder, tenant: &writer.tenant, info: &info };
    let _together = folder.moving.read();
    folder.refuse_if_sick()?;
    if !put.give_name().map_err(|error| trouble(&error))? {
        return Ok(PutBlob::Sha1Taken);
    }
    if put.is_there().map_err(|error| trouble(&error))? {
        return Ok(PutBlob::Known(info));
    }
    let fill = || {
        let mut upload = writer.upload.map_or_else(|| folder.upload(), Ok)?;
        upload.file.write_all(&writer.buffer)?;
        upload.file.set_modified(as_system_time(now))?;
        folder.sync(&upload.file)?;
        Ok(upload)
    };
    let upload = fill().map_err(|error: io::Error| trouble(&error))?;
    let place = folder.bytes_path(&writer.tenant, &digests.sha256);
    let moving = || {
        folder.move_into_place(&upload.path, &place)?;
        folder.sync_folder_of(&place)
    };
    moving().map_err(|error| unsure(&error))?;
    if folder.named(&writer.tenant, &digests.sha1).map_err(|error| unsure(&error))? != Some(digests.sha256) {
        // Other bytes with this SHA-1 were put at the same time and won.
        fs::remove_file(&place).map_err(|error| unsure(&error))?;
        return Ok(PutBlob::Sha1Taken);
    }
    put.remember();
    Ok(PutBlob::New(info))
}

/// Error after the rename: the blob may be in place but not synced, so the outcome is unknown.
fn unsure(error: &io::Error) -> StoreError {
    match trouble(error) {
        StoreError::Full(why) => StoreError::Full(why),
        other => StoreError::Unknown(other.to_string()),
    }
}

/// Put in progress.
struct Put<'a> {
    folder: &'a Folder,
    tenant: &'a Tenant,
    info: &'a BlobInfo,
}

impl Put<'_> {
    fn digests(&self) -> &Digests {
        &self.info.digests
    }

    fn key(&self) -> (Tenant, [u8; 32]) {
        (self.tenant.clone(), self.digests().sha256)
    }

    fn remember(&self) {
        let mut sure = self.folder.sure();
        if sure.len() >= SURE_MAX {
            sure.clear();
        }
        sure.insert(self.key());
    }

    /// Writes the name file; `false`: other bytes have this SHA-1.
    fn give_name(&self) -> io::Result<bool> {
        let Digests { sha1, sha256 } = self.digests();
        let known = self.folder.named(self.tenant, sha1)?;
        if known == Some(*sha256) {
            return Ok(true);
        }
        let mut upload = self.folder.upload()?;
        upload.file.write_all(format!("{}\n", hex(sha256)).as_bytes())?;
        self.folder.sync(&upload.file)?;
        let place = self.folder.name_path(self.tenant, sha1);
        {
            let _alone = self.folder.naming.lock();
            match self.folder.named(self.tenant, sha1)? {
                Some(other) if self.is_taken_by(&other) => return Ok(false),
                // No name file yet, or one of a blob that was never completed or was removed.
                _ => self.folder.move_into_place(&upload.path, &place)?,
            }
        }
        self.folder.sync_folder_of(&place)?;
        Ok(true)
    }

    fn is_taken_by(&self, other: &[u8; 32]) -> bool {
        *other != self.digests().sha256 && self.folder.bytes_path(self.tenant, other).exists()
    }

    /// True if the bytes are stored and synced. Damaged bytes count as missing and are written again.
    fn is_there(&self) -> io::Result<bool> {
        let path = self.folder.bytes_path(self.tenant, &self.digests().sha256);
        let mut file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let is_sure = self.folder.sure().contains(&self.key());
        if file.metadata()?.len() != self.info.bytes
            || (!is_sure && read::hash(&mut file, None)?.0 != *self.digests())
        {
            return Ok(false);
        }
        file.set_modified(as_system_time(self.info.stored_at))?;
        if !is_sure {
            // A crash may have come between the rename and the fsync of the folder.
            self.folder.sync(&file)?;
            self.folder.sync_folder_of(&path)?;
            self.folder.sync_folder_of(&self.folder.name_path(self.tenant, &self.digests().sha1))?;
            self.remember();
        }
        Ok(true)
    }
}

impl Folder {
    fn upload(&self) -> io::Result<Upload> {
        let number = self.uploads.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join("uploads").join(number.to_string());
        let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_folders_of(&path)?;
                open()?
            }
            opened => opened?,
        };
        Ok(Upload { file, path })
    }

    fn move_into_place(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.make_folders_of(to)?;
        fs::rename(from, to)
    }

    /// Creates and syncs folders: a new folder is durable once its parent is synced.
    fn make_folders_of(&self, path: &Path) -> io::Result<()> {
        let Some(shelf) = path.parent().filter(|shelf| !shelf.exists()) else { return Ok(()) };
        make_folder(shelf)?;
        for folder in shelf.ancestors().take_while(|folder| folder.starts_with(&self.root)) {
            self.sync_folder_of(folder)?;
        }
        Ok(())
    }
}
