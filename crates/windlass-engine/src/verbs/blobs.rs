//! Blobs: bytes addressed by their hash, streamed in pieces, so that none is in memory as a whole.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::tenants::quota::Reserved;
use std::collections::HashMap;
use windlass_core::{Job, Tenant, Timestamp};
use windlass_store::Filter;
use windlass_store::blobs::{BlobAddr, BlobInfo, BlobReader, BlobWriter, Digests, ListedBlob, PutBlob};
use windlass_store::query::Pages;

/// Jobs per page in the search for references to blobs.
const PAGE: usize = 500;

/// Upload of a blob. Discarded on drop.
pub struct BlobUpload {
    engine: Engine,
    tenant: Tenant,
    writer: Box<dyn BlobWriter>,
    bytes: u64,
    /// Reservation of the tenant's quota; returned if the blob is not stored.
    reserved: Option<Reserved>,
}

impl BlobUpload {
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        let max = self.engine.inner.options.blob_bytes_max;
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > max {
            return Err(EngineError::BlobTooLarge { max });
        }
        self.engine.reserve_blob(&self.tenant, &mut self.reserved, self.bytes).await?;
        Ok(self.writer.write(bytes).await?)
    }

    /// Completes the upload. The blob is durable when this returns.
    pub async fn finish(self) -> Result<PutBlob, EngineError> {
        let in_flight = self.engine.inner.enter()?;
        let put = self.writer.finish(in_flight.now()).await?;
        if let (PutBlob::New(info), Some(reserved)) = (&put, self.reserved) {
            reserved.keep(info.bytes);
        }
        Ok(put)
    }
}

/// Download of a blob, with verified content.
pub struct BlobDownload {
    pub info: BlobInfo,
    reader: Box<dyn BlobReader>,
}

impl BlobDownload {
    /// Next piece; `None` after the last. After an error the blob is incomplete.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.reader.next().await?)
    }
}

/// Result of a search for blobs without references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreferencedBlobs {
    /// Total number of blobs.
    pub all: usize,
    /// Blobs that are old enough and that no job refers to.
    pub found: Vec<ListedBlob>,
    /// Number of these that were removed.
    pub removed: usize,
}

impl Engine {
    pub fn blob_bytes_max(&self) -> u64 {
        self.inner.options.blob_bytes_max
    }

    /// Begins an upload.
    pub async fn put_blob(&self, tenant: &Tenant) -> Result<BlobUpload, EngineError> {
        self.inner.open()?;
        let writer = self.inner.store.blobs().create(tenant).await?;
        Ok(BlobUpload { engine: self.clone(), tenant: tenant.clone(), writer, bytes: 0, reserved: None })
    }

    /// Stores a blob that is complete in memory.
    pub async fn put_blob_bytes(&self, tenant: &Tenant, bytes: &[u8]) -> Result<PutBlob, EngineError> {
        let mut upload = self.put_blob(tenant).await?;
        upload.write(bytes).await?;
        upload.finish().await
    }

    /// `None`: this tenant has no such blob. Damaged content is an error.
    pub async fn get_blob(
        &self,
        tenant: &Tenant,
        addr: &BlobAddr,
    ) -> Result<Option<BlobDownload>, EngineError> {
        self.inner.open()?;
        let found = self.inner.store.blobs().open(tenant, addr).await?;
        Ok(found.map(|blob| BlobDownload { info: blob.info, reader: blob.reader }))
    }

    /// Lists blobs, newest first; `None`: of all tenants.
    pub async fn list_blobs(&self, tenant: Option<&Tenant>) -> Result<Vec<ListedBlob>, EngineError> {
        self.inner.open()?;
        self.check_all()?;
        let mut blobs = self.inner.store.blobs().list(tenant).await?;
        blobs.sort_by(|a, b| {
            let key = |blob: &ListedBlob| (blob.info.stored_at, blob.info.digests);
            key(b).cmp(&key(a))
        });
        Ok(blobs)
    }

    /// Finds blobs that were last put before `put_before` and that no job of any tenant refers to; `remove`
    /// deletes them. `named_by` returns the addresses that a job refers to.
    pub async fn find_unreferenced_blobs(
        &self,
        tenant: Option<&Tenant>,
        put_before: Timestamp,
        remove: bool,
        named_by: &(dyn Fn(&Job) -> Vec<BlobAddr> + Sync),
    ) -> Result<UnreferencedBlobs, EngineError> {
        let in_flight = self.inner.enter()?;
        let blobs = self.list_blobs(tenant).await?;
        let all = blobs.len();
        let mut old: Vec<Option<ListedBlob>> =
            blobs.into_iter().filter(|blob| blob.info.stored_at < put_before).map(Some).collect();
        let mut places: HashMap<BlobAddr, Vec<usize>> = HashMap::new();
        for (place, blob) in old.iter().enumerate() {
            for addr in blob.iter().flat_map(|blob| spellings(&blob.info.digests)) {
                places.entry(addr).or_default().push(place);
            }
        }
        let mut strike = |job: &Job| {
            for addr in named_by(job) {
                for place in places.get(&addr).into_iter().flatten() {
                    old[*place] = None;
                }
            }
        };
        self.each_job(&mut strike).await?;
        let mut unnamed = UnreferencedBlobs { all, found: old.into_iter().flatten().collect(), removed: 0 };
        if remove {
            for ListedBlob { tenant, info } in &unnamed.found {
                let gone = in_flight.store.blobs().remove(tenant, &info.digests, info.stored_at).await?;
                unnamed.removed += usize::from(gone);
            }
        }
        Ok(unnamed)
    }

    /// Visits all jobs, then those created meanwhile, until there are no new ones.
    async fn each_job(&self, look: &mut (dyn FnMut(&Job) + Send)) -> Result<(), EngineError> {
        let mut newest_seen = None;
        loop {
            let mut newest = newest_seen;
            let mut pages = Pages::new(Filter { limit: PAGE, ..Filter::default() });
            'pages: while let Some(jobs) = pages.next(&*self.inner.store).await? {
                for job in &jobs {
                    if newest_seen.is_some_and(|seen| job.id <= seen) {
                        break 'pages;
                    }
                    newest = newest.max(Some(job.id));
                    look(job);
                }
            }
            if newest == newest_seen {
                return Ok(());
            }
            newest_seen = newest;
        }
    }
}

fn spellings(digests: &Digests) -> [BlobAddr; 2] {
    [BlobAddr::Sha1(digests.sha1), BlobAddr::Sha256(digests.sha256)]
}
