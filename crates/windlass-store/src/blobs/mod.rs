//! Content-addressed blobs beside the jobs, for data too large for a payload.
//!
//! * **Acknowledged means durable**, as with jobs, and a blob is stored completely or not at all.
//! * **Reads are verified.** Damage is reported as an error before the last byte is returned; wrong bytes are
//!   never returned as a complete blob.
//! * **A blob belongs to a tenant.** An address reveals nothing about blobs of other tenants.
//! * A blob is removed only on request, and only if it was not put again meanwhile.

pub mod addr;
pub mod files;
pub mod memory;

pub use addr::{AddrForm, BlobAddr, Digests, Hasher};

use crate::{Result, StoreError};
use async_trait::async_trait;
use windlass_core::{Tenant, Timestamp};

/// Metadata of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    pub digests: Digests,
    pub bytes: u64,
    /// Time of the last put; putting an existing blob counts.
    pub stored_at: Timestamp,
}

/// Blob with its tenant, in lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBlob {
    pub tenant: Tenant,
    pub info: BlobInfo,
}

/// Result of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutBlob {
    New(BlobInfo),
    /// The same bytes were stored already.
    Known(BlobInfo),
    /// Other bytes with the same SHA-1 are stored: a deliberate collision. Nothing was stored.
    Sha1Taken,
}

#[async_trait]
pub trait BlobStore: Send + Sync {
    /// Starts a blob, which becomes visible when its writer finishes; dropping the writer discards it.
    async fn create(&self, tenant: &Tenant) -> Result<Box<dyn BlobWriter>>;

    /// Opens a blob; `None` if this tenant has none with the address. Fails if the bytes do not match the
    /// address.
    async fn open(&self, tenant: &Tenant, addr: &BlobAddr) -> Result<Option<OpenBlob>>;

    /// Lists the blobs of one tenant or of all, in no order, without checking their bytes.
    async fn list(&self, tenant: Option<&Tenant>) -> Result<Vec<ListedBlob>>;

    /// Removes a blob unless it was put after `unless_put_after`. Returns whether this call removed it.
    async fn remove(&self, tenant: &Tenant, digests: &Digests, unless_put_after: Timestamp) -> Result<bool>;
}

#[async_trait]
pub trait BlobWriter: Send {
    async fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Returns when the blob is durable.
    async fn finish(self: Box<Self>, now: Timestamp) -> Result<PutBlob>;
}

/// Blob opened for reading from its beginning.
pub struct OpenBlob {
    pub info: BlobInfo,
    pub reader: Box<dyn BlobReader>,
}

#[async_trait]
pub trait BlobReader: Send {
    /// Next chunk; `None` after the last. The last chunk is returned only if all bytes match the hash.
    async fn next(&mut self) -> Result<Option<Vec<u8>>>;
}

/// For stores without blob support.
pub struct NoBlobs;

fn unsupported() -> StoreError {
    StoreError::Unsupported("it does not support blobs".to_owned())
}

#[async_trait]
impl BlobStore for NoBlobs {
    async fn create(&self, _: &Tenant) -> Result<Box<dyn BlobWriter>> {
        Err(unsupported())
    }

    async fn open(&self, _: &Tenant, _: &BlobAddr) -> Result<Option<OpenBlob>> {
        Err(unsupported())
    }

    async fn list(&self, _: Option<&Tenant>) -> Result<Vec<ListedBlob>> {
        Err(unsupported())
    }

    async fn remove(&self, _: &Tenant, _: &Digests, _: Timestamp) -> Result<bool> {
        Err(unsupported())
    }
}

pub(crate) fn damaged(digests: &Digests) -> StoreError {
    StoreError::Corrupt(format!(
        "blob {} is damaged: its data does not match its hash; upload it again",
        digests.show(AddrForm::Sha256)
    ))
}
