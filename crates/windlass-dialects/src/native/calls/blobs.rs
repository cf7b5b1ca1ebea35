//! `GET /api/v1/blobs` and `POST /api/v1/blobs/gc`: lists blobs, and collects those that no job refers to.

use crate::native::reply::{Answer, reply};
use crate::native::request::{Body, Params, seen_tenant};
use crate::native::wire::{PAGE_MAX, Time};
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_engine::blob::{AddrForm, ListedBlob};

pub(super) const EXAMPLES: Examples =
    &[("look", "blobs unused and older than a week", r#"{"older_than_s":604800}"#)];

/// Options of the garbage collection.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BlobGc {
    /// Remove the blobs; otherwise they are only listed.
    pub remove: bool,
    /// Minimum age in seconds since the last upload; a day if omitted.
    pub older_than_s: u64,
}

impl Default for BlobGc {
    /// A day: a client creates the job for an uploaded blob long before.
    fn default() -> Self {
        BlobGc { remove: false, older_than_s: 86_400 }
    }
}

/// Blobs.
#[derive(Serialize, JsonSchema)]
pub(super) struct Blobs<'a> {
    /// Newest blobs.
    blobs: Vec<Blob<'a>>,
    /// Number of blobs.
    count: usize,
    /// Total bytes.
    bytes: u64,
}

/// Blobs that no job refers to.
#[derive(Serialize, JsonSchema)]
pub(super) struct UnnamedBlobs<'a> {
    /// Number of all blobs.
    count: usize,
    /// Newest blobs that no job refers to.
    unnamed: Vec<Blob<'a>>,
    /// Number of blobs that no job refers to.
    unnamed_count: usize,
    /// Their total bytes.
    unnamed_bytes: u64,
    /// Number of removed blobs.
    removed: usize,
}

/// Blob, addressed by its hash.
#[derive(Serialize, JsonSchema)]
struct Blob<'a> {
    /// Tenant that owns it.
    tenant: &'a str,
    /// SHA-1 in hex.
    sha1: String,
    /// SHA-256 in hex.
    sha256: String,
    /// Size in bytes.
    bytes: u64,
    /// Time of the last upload.
    stored_at: Time,
}

impl<'a> Blob<'a> {
    fn new(ListedBlob { tenant, info }: &'a ListedBlob) -> Blob<'a> {
        Blob {
            tenant,
            sha1: info.digests.show(AddrForm::Sha1),
            sha256: info.digests.show(AddrForm::Sha256),
            bytes: info.bytes,
            stored_at: info.stored_at.into(),
        }
    }
}

fn bytes_of(blobs: &[ListedBlob]) -> u64 {
    blobs.iter().map(|blob| blob.info.bytes).sum()
}

pub(super) async fn list(call: Call) -> Answer {
    let params = Params::of(&call)?;
    let tenant = call.caller.tenants_for(params.tenant())?;
    let limit = params.page_limit()?;
    let all = call.engine.list_blobs(tenant.as_ref()).await?;
    let blobs: Vec<Blob<'_>> = all.iter().take(limit).map(Blob::new).collect();
    let room = 64 + blobs.len() * 256;
    reply(&call, StatusCode::OK, room, &Blobs { blobs, count: all.len(), bytes: bytes_of(&all) })
}

/// Collects unreferenced blobs. For admins only: the response depends on the jobs of all tenants.
pub(super) async fn collect(mut call: Call) -> Answer {
    let ask: BlobGc = Body::of(&mut call).await?.read_or_default()?;
    let tenant = seen_tenant(&call)?;
    let engine = &call.engine;
    let older_than_ms = i64::try_from(ask.older_than_s).unwrap_or(i64::MAX).saturating_mul(1_000);
    let put_before = engine.now().plus_ms(older_than_ms.saturating_neg());
    let unnamed = engine
        .find_unreferenced_blobs(tenant.as_ref(), put_before, ask.remove, &crate::blobs::named_by)
        .await?;
    if ask.remove {
        tracing::info!("{} of {} blobs deleted: no job uses them", unnamed.removed, unnamed.all);
    }
    let answer = UnnamedBlobs {
        count: unnamed.all,
        unnamed: unnamed.found.iter().take(PAGE_MAX).map(Blob::new).collect(),
        unnamed_count: unnamed.found.len(),
        unnamed_bytes: bytes_of(&unnamed.found),
        removed: unnamed.removed,
    };
    reply(&call, StatusCode::OK, 128 + answer.unnamed.len() * 256, &answer)
}
