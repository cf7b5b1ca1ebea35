//! `GET /api/v1/blobs` and `POST /api/v1/blobs/gc`: which blobs there are, and which no job names any more.

use crate::native::reply::{Answer, reply};
use crate::native::request::{Body, Params, seen_tenant};
use crate::native::wire::{PAGE_MAX, Time};
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_engine::blob::{AddrForm, ListedBlob};

pub(super) const EXAMPLES: Examples =
    &[("look", "what has been unused for a week", r#"{"older_than_s":604800}"#)];

/// Which blobs to look for.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BlobGc {
    /// Remove what is found; otherwise it is only shown.
    pub remove: bool,
    /// Leave alone what was put within so many seconds; a day if left out.
    pub older_than_s: u64,
}

impl Default for BlobGc {
    /// A day: a client that puts a blob makes the job that names it long before.
    fn default() -> Self {
        BlobGc { remove: false, older_than_s: 86_400 }
    }
}

/// Blobs.
#[derive(Serialize, JsonSchema)]
pub(super) struct Blobs<'a> {
    /// The newest.
    blobs: Vec<Blob<'a>>,
    /// How many there are.
    count: usize,
    /// Their bytes in all.
    bytes: u64,
}

/// Blobs that no job names.
#[derive(Serialize, JsonSchema)]
pub(super) struct UnnamedBlobs<'a> {
    /// Blobs there are, named or not.
    count: usize,
    /// Those that no job names, or the newest of them.
    unnamed: Vec<Blob<'a>>,
    /// How many those are.
    unnamed_count: usize,
    /// Their bytes in all.
    unnamed_bytes: u64,
    /// How many of them were removed.
    removed: usize,
}

/// Bytes named by their hash.
#[derive(Serialize, JsonSchema)]
struct Blob<'a> {
    /// Whose it is.
    tenant: &'a str,
    /// Its address, as SHA-1 in hex.
    sha1: String,
    /// The same as SHA-256.
    sha256: String,
    /// How many it has.
    bytes: u64,
    /// When it was last put.
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

/// For admins only: whether a blob is in use depends on jobs of all tenants, and the answer tells.
pub(super) async fn collect(mut call: Call) -> Answer {
    let ask: BlobGc = Body::of(&mut call).await?.read_or_default()?;
    let tenant = seen_tenant(&call)?;
    let engine = &call.engine;
    let older_than_ms = i64::try_from(ask.older_than_s).unwrap_or(i64::MAX).saturating_mul(1_000);
    let put_before = engine.now().plus_ms(older_than_ms.saturating_neg());
    let unnamed =
        engine.unnamed_blobs(tenant.as_ref(), put_before, ask.remove, &crate::blobs::named_by).await?;
    if ask.remove {
        tracing::info!("{} of {} blobs removed: no job names them", unnamed.removed, unnamed.all);
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
