//! Blobs from an operator's side: which there are, and which no job names any more.

use super::calls::{Answer, answer, body, number_param, param, params, reply_encoding};
use super::wire::{self, BlobGcAsk};
use crate::codec::Out;
use crate::route::Call;
use ::http::StatusCode;
use windlass_engine::blob::{AddrForm, ListedBlob};

pub async fn list(call: Call) -> Answer {
    let params = params(&call, &["tenant", "limit"])?;
    let tenant = call.caller.tenants_for(param(&params, "tenant"))?;
    let limit = number_param::<usize>(&params, "limit")?.unwrap_or(50).clamp(1, wire::PAGE_MAX);
    let blobs = call.engine.list_blobs(tenant.as_ref()).await?;
    let mut out = Out::new(reply_encoding(&call), 64 + blobs.len().min(limit) * 256);
    out.begin_map();
    some_of(&mut out, "blobs", &blobs, limit);
    totals(&mut out, ["count", "bytes"], &blobs);
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

/// For admins only: whether a blob is in use depends on jobs of all tenants, and the answer tells.
pub async fn collect(mut call: Call) -> Answer {
    let reply = reply_encoding(&call);
    let (encoding, body) = body(&mut call).await?;
    let ask: BlobGcAsk = wire::optional(encoding, &body)?;
    let params = params(&call, &["tenant"])?;
    let tenant = call.caller.tenants_for(param(&params, "tenant"))?;
    let engine = &call.engine;
    let older_than_ms = i64::try_from(ask.older_than_s).unwrap_or(i64::MAX).saturating_mul(1_000);
    let put_before = engine.now().plus_ms(older_than_ms.saturating_neg());
    let unnamed =
        engine.unnamed_blobs(tenant.as_ref(), put_before, ask.remove, &crate::blobs::named_by).await?;
    if ask.remove {
        tracing::info!("{} of {} blobs removed: no job names them", unnamed.removed, unnamed.all);
    }
    let mut out = Out::new(reply, 128 + unnamed.found.len().min(wire::PAGE_MAX) * 256);
    out.begin_map();
    out.key("count");
    out.uint(unnamed.all as u64);
    some_of(&mut out, "unnamed", &unnamed.found, wire::PAGE_MAX);
    totals(&mut out, ["unnamed_count", "unnamed_bytes"], &unnamed.found);
    out.key("removed");
    out.uint(unnamed.removed as u64);
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

fn some_of(out: &mut Out, key: &'static str, blobs: &[ListedBlob], limit: usize) {
    out.key(key);
    out.begin_array();
    for ListedBlob { tenant, info } in blobs.iter().take(limit) {
        out.begin_map();
        out.key("tenant");
        out.str(tenant);
        for (key, form) in [("sha1", AddrForm::Sha1), ("sha256", AddrForm::Sha256)] {
            out.key(key);
            out.str(&info.digests.show(form));
        }
        out.key("bytes");
        out.uint(info.bytes);
        out.key("stored_at");
        out.int(info.stored_at.calendar_ms());
        out.end_map();
    }
    out.end_array();
}

fn totals(out: &mut Out, [count, bytes]: [&'static str; 2], blobs: &[ListedBlob]) {
    out.key(count);
    out.uint(blobs.len() as u64);
    out.key(bytes);
    out.uint(blobs.iter().map(|blob| blob.info.bytes).sum());
}
