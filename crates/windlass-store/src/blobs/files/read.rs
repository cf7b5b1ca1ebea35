//! Reads: a blob is hashed before its first byte is returned, and a large one again while it is read.

use super::{Folder, info, off_the_runtime, trouble};
use crate::blobs::{BlobAddr, BlobInfo, BlobReader, Digests, Hasher, OpenBlob, damaged};
use crate::{Result, StoreError};
use async_trait::async_trait;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::Arc;
use windlass_core::Tenant;

/// Bytes per read and per chunk: large enough to be worth a task on the blocking thread pool.
const PIECE_BYTES: usize = 256 << 10;
/// Blobs up to this size are read once, into memory; larger ones are read twice.
const WHOLE_BYTES_MAX: u64 = 1 << 20;

pub(super) fn open(folder: &Arc<Folder>, tenant: &Tenant, addr: &BlobAddr) -> Result<Option<OpenBlob>> {
    let Some((mut file, sha256)) = find(folder, tenant, addr).map_err(|error| trouble(&error))? else {
        return Ok(None);
    };
    let found = file.metadata().map_err(|error| trouble(&error))?;
    let mut whole = (found.len() <= WHOLE_BYTES_MAX).then(|| Vec::with_capacity(found.len() as usize));
    let (digests, bytes) = hash(&mut file, whole.as_mut()).map_err(|error| trouble(&error))?;
    if digests.sha256 != sha256 || !digests.fit(addr) {
        // Makes the next put write the blob again.
        folder.sure().remove(&(tenant.clone(), sha256));
        return Err(damaged(&Digests { sha256, ..digests }));
    }
    let info = BlobInfo { bytes, ..info(digests, &found).map_err(|error| trouble(&error))? };
    let reader: Box<dyn BlobReader> = match whole {
        Some(bytes) => Box::new(Whole(bytes)),
        None => {
            file.rewind().map_err(|error| trouble(&error))?;
            Box::new(Pieces { file: Some(file), hasher: Hasher::default(), info: info.clone() })
        }
    };
    Ok(Some(OpenBlob { info, reader }))
}

fn find(folder: &Folder, tenant: &Tenant, addr: &BlobAddr) -> io::Result<Option<(File, [u8; 32])>> {
    let sha256 = match addr {
        BlobAddr::Sha256(sha256) => *sha256,
        BlobAddr::Sha1(sha1) => match folder.named(tenant, sha1)? {
            Some(sha256) => sha256,
            None => return Ok(None),
        },
    };
    match File::open(folder.bytes_path(tenant, &sha256)) {
        Ok(file) => Ok(Some((file, sha256))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Hashes the file from its current position to the end; appends the bytes to `keep` if given.
pub(super) fn hash(file: &mut File, mut keep: Option<&mut Vec<u8>>) -> io::Result<(Digests, u64)> {
    let mut hasher = Hasher::default();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            let bytes = hasher.bytes();
            return Ok((hasher.finish(), bytes));
        }
        hasher.update(&piece[..read]);
        if let Some(kept) = keep.as_mut() {
            kept.extend_from_slice(&piece[..read]);
        }
    }
}

struct Whole(Vec<u8>);

#[async_trait]
impl BlobReader for Whole {
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let bytes = std::mem::take(&mut self.0);
        Ok((!bytes.is_empty()).then_some(bytes))
    }
}

struct Pieces {
    /// `None` after the end or an error.
    file: Option<File>,
    hasher: Hasher,
    info: BlobInfo,
}

#[async_trait]
impl BlobReader for Pieces {
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.file.take() else { return Ok(None) };
        let (hasher, info) = (std::mem::take(&mut self.hasher), self.info.clone());
        let (piece, rest) = off_the_runtime(move || next_piece(file, hasher, &info)).await?;
        if let Some((file, hasher)) = rest {
            self.file = Some(file);
            self.hasher = hasher;
        }
        Ok(piece)
    }
}

type Rest = Option<(File, Hasher)>;

/// Reads the next chunk. The last chunk is returned only if the hash of all bytes matches.
fn next_piece(mut file: File, mut hasher: Hasher, info: &BlobInfo) -> Result<(Option<Vec<u8>>, Rest)> {
    let left = info.bytes - hasher.bytes();
    let mut piece = vec![0; usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES))];
    match file.read_exact(&mut piece) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(damaged(&info.digests)),
        Err(error) => return Err(StoreError::Unavailable(error.to_string())),
    }
    hasher.update(&piece);
    if hasher.bytes() < info.bytes {
        return Ok((Some(piece), Some((file, hasher))));
    }
    match hasher.finish() == info.digests {
        true => Ok((Some(piece), None)),
        false => Err(damaged(&info.digests)),
    }
}
