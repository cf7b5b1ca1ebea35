//! Handlers that dialects keep: which there are, and what their versions say.

use super::calls::{Answer, answer, param, params, reply_encoding};
use super::wire::PAGE_MAX;
use crate::codec::Out;
use crate::handbook::KeptHandler;
use crate::route::Call;
use ::http::StatusCode;

pub async fn handlers(call: Call) -> Answer {
    let params = params(&call, &["tenant"])?;
    let tenant = call.caller.tenants_for(param(&params, "tenant"))?;
    let mut found: Vec<KeptHandler> = Vec::new();
    for book in call.server.handbooks() {
        found.extend(book.handlers(tenant.as_ref(), PAGE_MAX).await?);
    }
    found.retain(|handler| call.engine.reaches(&handler.queue, &handler.name));
    let mut out = Out::new(reply_encoding(&call), 64 + found.len() * 256);
    out.begin_map();
    out.key("handlers");
    out.begin_array();
    found.iter().for_each(|handler| write(&mut out, handler, call.hides_payloads()));
    out.end_array();
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

/// A handler's text tells of payloads, so it is hidden with them.
fn write(out: &mut Out, handler: &KeptHandler, hidden: bool) {
    out.begin_map();
    for (key, text) in [
        ("name", &*handler.name),
        ("queue", &*handler.queue),
        ("tenant", &*handler.tenant),
        ("dialect", handler.dialect),
    ] {
        out.key(key);
        out.str(text);
    }
    out.opt_str("trouble", handler.trouble.as_deref());
    out.key("versions");
    out.begin_array();
    for version in &handler.versions {
        out.begin_map();
        out.key("id");
        out.str(&version.id);
        if let Some(text) = version.text.as_ref().filter(|_| !hidden) {
            out.key("text");
            out.value(text);
        }
        out.end_map();
    }
    out.end_array();
    out.end_map();
}
