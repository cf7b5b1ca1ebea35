//! Blobs in the database, in chunks of moderate size: no request is large, and no blob is held in memory.

use super::shared::Shared;
use super::statements as sql;
use crate::blobs::{
    BlobAddr, BlobInfo, BlobReader, BlobStore, BlobWriter, Digests, Hasher, ListedBlob, OpenBlob, PutBlob,
    damaged,
};
use crate::{Result, StoreError};
use async_trait::async_trait;
use std::sync::Arc;
use tokio_postgres::Row;
use windlass_core::{Tenant, Timestamp};

/// Bytes per row.
const PIECE_BYTES: usize = 256 << 10;
/// Tries of a put against concurrent puts and removals of the same bytes.
const TRIES_MAX: usize = 100;

pub(super) struct PostgresBlobs {
    shared: Arc<Shared>,
}

impl PostgresBlobs {
    pub(super) fn new(shared: Arc<Shared>) -> PostgresBlobs {
        PostgresBlobs { shared }
    }
}

#[async_trait]
impl BlobStore for PostgresBlobs {
    async fn create(&self, tenant: &Tenant) -> Result<Box<dyn BlobWriter>> {
        self.shared.open()?;
        let begun = self.shared.pool.write(sql::BLOB_BEGIN, &[&tenant.as_str()]).await?;
        let id = begun.first().map(|row| row.get(0)).ok_or_else(|| no_answer("cannot start a blob"))?;
        let unfinished = Some(Unfinished { shared: Arc::clone(&self.shared), id });
        Ok(Box::new(Writer {
            unfinished,
            tenant: tenant.clone(),
            hasher: Hasher::default(),
            rest: Vec::new(),
            places: 0,
        }))
    }

    async fn open(&self, tenant: &Tenant, addr: &BlobAddr) -> Result<Option<OpenBlob>> {
        self.shared.open()?;
        let hash: &[u8] = match addr {
            BlobAddr::Sha1(hash) => hash,
            BlobAddr::Sha256(hash) => hash,
        };
        let found = self.shared.pool.read(sql::BLOB_FIND, &[&tenant.as_str(), &hash]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let info = info(row, 1)?;
        let reader = Reader {
            shared: Arc::clone(&self.shared),
            id: row.get(0),
            info: info.clone(),
            place: 0,
            hasher: Some(Hasher::default()),
        };
        Ok(Some(OpenBlob { info, reader: Box::new(reader) }))
    }

    async fn list(&self, tenant: Option<&Tenant>) -> Result<Vec<ListedBlob>> {
        self.shared.open()?;
        let found = self.shared.pool.read(sql::BLOB_LIST, &[&tenant.map(Tenant::as_str)]).await?;
        let bad =
            |error: windlass_core::BadName| StoreError::Corrupt(format!("invalid owner of a blob: {error}"));
        let listed =
            |row: &Row| Ok(ListedBlob { tenant: Tenant::new(row.get(0)).map_err(bad)?, info: info(row, 1)? });
        found.iter().map(listed).collect()
    }

    async fn remove(&self, tenant: &Tenant, digests: &Digests, unless_put_after: Timestamp) -> Result<bool> {
        self.shared.open()?;
        let (sha1, sha256) = (&digests.sha1[..], &digests.sha256[..]);
        let params: super::connection::Params<'_> =
            &[&tenant.as_str(), &sha1, &sha256, &unless_put_after.as_millis()];
        Ok(!self.shared.pool.write(sql::BLOB_REMOVE, params).await?.is_empty())
    }
}

fn no_answer(what: &str) -> StoreError {
    StoreError::Unavailable(format!("{what}: PostgreSQL returned no row"))
}

/// Reads `sha1, sha256, bytes, stored_at`, starting at this column.
fn info(row: &Row, at: usize) -> Result<BlobInfo> {
    let bad = |_| StoreError::Corrupt("a blob has hashes of the wrong length; restore a backup".to_owned());
    let sha1 = row.get::<_, &[u8]>(at).try_into().map_err(bad)?;
    let sha256 = row.get::<_, &[u8]>(at + 1).try_into().map_err(bad)?;
    let (bytes, stored_at): (i64, i64) = (row.get(at + 2), row.get(at + 3));
    Ok(BlobInfo {
        digests: Digests { sha1, sha256 },
        bytes: bytes.unsigned_abs(),
        stored_at: Timestamp::from_millis(stored_at),
    })
}

/// Rows of an incomplete blob; dropping this deletes them in the background.
struct Unfinished {
    shared: Arc<Shared>,
    id: i64,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let (shared, id) = (Arc::clone(&self.shared), self.id);
        // Outside a runtime the rows stay until the next clean-up.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = shared.pool.read(sql::BLOB_FORGET, &[&id]).await;
            });
        }
    }
}

struct Writer {
    unfinished: Option<Unfinished>,
    tenant: Tenant,
    hasher: Hasher,
    rest: Vec<u8>,
    places: i32,
}

impl Writer {
    async fn put_piece(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(unfinished) = &self.unfinished else { return Err(StoreError::Closed) };
        let params: super::connection::Params<'_> = &[&unfinished.id, &self.places, &bytes];
        unfinished.shared.pool.write(sql::BLOB_PIECE, params).await?;
        self.places += 1;
        Ok(())
    }
}

#[async_trait]
impl BlobWriter for Writer {
    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.rest.extend_from_slice(bytes);
        while self.rest.len() >= PIECE_BYTES {
            let rest = self.rest.split_off(PIECE_BYTES);
            let piece = std::mem::replace(&mut self.rest, rest);
            self.put_piece(&piece).await?;
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>, now: Timestamp) -> Result<PutBlob> {
        let piece = std::mem::take(&mut self.rest);
        if !piece.is_empty() {
            self.put_piece(&piece).await?;
        }
        let bytes = self.hasher.bytes();
        let digests = std::mem::take(&mut self.hasher).finish();
        let info = BlobInfo { digests, bytes, stored_at: now };
        let Some(unfinished) = &self.unfinished else { return Err(StoreError::Closed) };
        let (sha1, sha256, stored_at) = (&digests.sha1[..], &digests.sha256[..], now.as_millis());
        let (tenant, size) = (self.tenant.as_str(), i64::try_from(bytes).unwrap_or(i64::MAX));
        for _ in 0..TRIES_MAX {
            let params: super::connection::Params<'_> =
                &[&unfinished.id, &sha1, &sha256, &size, &stored_at, &tenant];
            match unfinished.shared.pool.write(sql::BLOB_FINISH, params).await {
                Ok(rows) if !rows.is_empty() => return Ok(PutBlob::New(info)),
                Ok(_) => {}
                // A concurrent put of the same bytes completed first.
                Err(StoreError::Unavailable(why)) if why.contains(UNIQUE_VIOLATION) => {}
                Err(error) => return Err(error),
            }
            let params: super::connection::Params<'_> = &[&tenant, &sha1, &sha256, &stored_at];
            let known = unfinished.shared.pool.write(sql::BLOB_PUT_AGAIN, params).await?;
            match known.first().map(|row| row.get::<_, &[u8]>(0) == sha256) {
                Some(true) => return Ok(PutBlob::Known(info)),
                Some(false) => return Ok(PutBlob::Sha1Taken),
                // The blob was removed between the two queries.
                None => {}
            }
        }
        Err(StoreError::Unavailable(
            "the same blob is uploaded and deleted concurrently by others; retry".to_owned(),
        ))
    }
}

/// SQLSTATE of a unique violation, with which the error message ends.
const UNIQUE_VIOLATION: &str = "(23505)";

struct Reader {
    shared: Arc<Shared>,
    id: i64,
    info: BlobInfo,
    place: i32,
    /// `None` after the end.
    hasher: Option<Hasher>,
}

#[async_trait]
impl BlobReader for Reader {
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(mut hasher) = self.hasher.take() else { return Ok(None) };
        let mut piece = Vec::new();
        if hasher.bytes() < self.info.bytes {
            let rows = self.shared.pool.read(sql::BLOB_READ, &[&self.id, &self.place]).await?;
            piece = rows.first().map(|row| row.get(0)).ok_or_else(|| damaged(&self.info.digests))?;
            hasher.update(&piece);
            self.place += 1;
        }
        if hasher.bytes() < self.info.bytes && !piece.is_empty() {
            self.hasher = Some(hasher);
        } else if hasher.bytes() != self.info.bytes || hasher.finish() != self.info.digests {
            return Err(damaged(&self.info.digests));
        }
        Ok((!piece.is_empty()).then_some(piece))
    }
}
