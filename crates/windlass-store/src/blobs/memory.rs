//! Blobs in memory: the reference implementation of the contract.

use super::{BlobAddr, BlobInfo, BlobReader, BlobStore, BlobWriter, Digests, ListedBlob, OpenBlob, PutBlob};
use crate::Result;
use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::{Tenant, Timestamp};

#[derive(Clone, Default)]
pub struct MemoryBlobs {
    kept: Arc<Mutex<Kept>>,
}

/// Blobs by tenant and SHA-1; a put ensures that a SHA-1 belongs to one blob.
type Kept = BTreeMap<(Tenant, [u8; 20]), (BlobInfo, Arc<[u8]>)>;

impl MemoryBlobs {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }
}

#[async_trait]
impl BlobStore for MemoryBlobs {
    async fn create(&self, tenant: &Tenant) -> Result<Box<dyn BlobWriter>> {
        Ok(Box::new(Writer { blobs: self.clone(), tenant: tenant.clone(), bytes: Vec::new() }))
    }

    async fn open(&self, tenant: &Tenant, addr: &BlobAddr) -> Result<Option<OpenBlob>> {
        let kept = self.kept();
        let mut of_tenant = kept.iter().filter(|((owner, _), _)| owner == tenant);
        let found = of_tenant.find(|(_, (info, _))| info.digests.fit(addr));
        Ok(found.map(|(_, (info, bytes))| OpenBlob {
            info: info.clone(),
            reader: Box::new(Reader { bytes: bytes.clone(), at: 0 }),
        }))
    }

    async fn list(&self, tenant: Option<&Tenant>) -> Result<Vec<ListedBlob>> {
        let kept = self.kept();
        let wanted = kept.iter().filter(|((owner, _), _)| tenant.is_none_or(|tenant| tenant == owner));
        Ok(wanted
            .map(|((owner, _), (info, _))| ListedBlob { tenant: owner.clone(), info: info.clone() })
            .collect())
    }

    async fn remove(&self, tenant: &Tenant, digests: &Digests, unless_put_after: Timestamp) -> Result<bool> {
        let key = (tenant.clone(), digests.sha1);
        let mut kept = self.kept();
        let goes = kept
            .get(&key)
            .is_some_and(|(info, _)| info.digests == *digests && info.stored_at <= unless_put_after);
        Ok(goes && kept.remove(&key).is_some())
    }
}

struct Writer {
    blobs: MemoryBlobs,
    tenant: Tenant,
    bytes: Vec<u8>,
}

#[async_trait]
impl BlobWriter for Writer {
    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    async fn finish(self: Box<Self>, now: Timestamp) -> Result<PutBlob> {
        let digests = Digests::of(&self.bytes);
        let info = BlobInfo { digests, bytes: self.bytes.len() as u64, stored_at: now };
        let mut kept = self.blobs.kept();
        match kept.get_mut(&(self.tenant.clone(), digests.sha1)) {
            Some((known, _)) if known.digests != digests => Ok(PutBlob::Sha1Taken),
            Some((known, _)) => {
                known.stored_at = now;
                Ok(PutBlob::Known(info))
            }
            None => {
                kept.insert((self.tenant, digests.sha1), (info.clone(), self.bytes.into()));
                Ok(PutBlob::New(info))
            }
        }
    }
}

/// Bytes per chunk returned.
const PIECE_BYTES: usize = 256 << 10;

struct Reader {
    bytes: Arc<[u8]>,
    at: usize,
}

#[async_trait]
impl BlobReader for Reader {
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let end = self.bytes.len().min(self.at + PIECE_BYTES);
        let piece = self.bytes[self.at..end].to_vec();
        self.at = end;
        Ok((!piece.is_empty()).then_some(piece))
    }
}
