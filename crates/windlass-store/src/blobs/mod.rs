//! Content-addressed bytes beside the jobs: what is too large for a payload, named by its own hash.
//!
//! * **Kept means durable**, as with jobs, and a blob is there whole or not at all.
//! * **What is read is what was put.** Damage is an error before the last byte is given out, never other bytes.
//! * **Blobs belong to a tenant.** An address says nothing about blobs of others.
//! * Nothing is removed unless asked, and then only what nobody put again meanwhile.

pub mod addr;
pub mod files;
pub mod memory;

pub use addr::{AddrForm, BlobAddr, Digests, Hasher};

use crate::{Result, StoreError};
use async_trait::async_trait;
use windlass_core::{Tenant, Timestamp};

/// What is known of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    pub digests: Digests,
    pub bytes: u64,
    /// When it was last put; putting what is there already counts.
    pub stored_at: Timestamp,
}

/// A blob and whose it is, in lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBlob {
    pub tenant: Tenant,
    pub info: BlobInfo,
}

/// What became of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutBlob {
    New(BlobInfo),
    /// The same bytes were there.
    Known(BlobInfo),
    /// Other bytes with the same SHA-1 are there: somebody made a collision. Nothing was kept.
    Sha1Taken,
}

#[async_trait]
pub trait BlobStore: Send + Sync {
    /// Begins a blob, of which nothing shows before its writer is finished; dropping the writer forgets it.
    async fn create(&self, tenant: &Tenant) -> Result<Box<dyn BlobWriter>>;

    /// `None`: this tenant has no such blob. An error if its bytes are not what the address says.
    async fn open(&self, tenant: &Tenant, addr: &BlobAddr) -> Result<Option<OpenBlob>>;

    /// All blobs, of one tenant or of all, in no order. Their bytes are not looked at.
    async fn list(&self, tenant: Option<&Tenant>) -> Result<Vec<ListedBlob>>;

    /// Removes a blob unless it was put after `unless_put_after`. Answers whether it is gone by this call.
    async fn remove(&self, tenant: &Tenant, digests: &Digests, unless_put_after: Timestamp) -> Result<bool>;
}

#[async_trait]
pub trait BlobWriter: Send {
    async fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Answers when the blob is safe.
    async fn finish(self: Box<Self>, now: Timestamp) -> Result<PutBlob>;
}

/// A blob to be read from its beginning.
pub struct OpenBlob {
    pub info: BlobInfo,
    pub reader: Box<dyn BlobReader>,
}

#[async_trait]
pub trait BlobReader: Send {
    /// The next piece; `None` after the last, which is given out only if all of them are what was put.
    async fn next(&mut self) -> Result<Option<Vec<u8>>>;
}

/// For stores that keep none.
pub struct NoBlobs;

fn unsupported() -> StoreError {
    StoreError::Unsupported("it keeps no blobs".to_owned())
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
        "the bytes of blob {} are no longer what was put; put it again",
        digests.show(AddrForm::Sha256)
    ))
}
