//! `GET /api/v1/handlers`: handlers registered with dialects, with their versions.

use crate::codec::Kept;
use crate::native::reply::{Answer, reply};
use crate::native::request::seen_tenant;
use crate::native::wire::PAGE_MAX;
use crate::registered_handlers::RegisteredHandler;
use crate::route::Call;
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

/// Handlers.
#[derive(Serialize, JsonSchema)]
pub(super) struct Handlers<'a> {
    /// Handlers by tenant and name.
    handlers: Vec<HandlerView<'a>>,
}

/// Handler of one kind of jobs.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct HandlerView<'a> {
    /// Name of its jobs.
    name: &'a str,
    /// Queue of its jobs.
    queue: &'a str,
    /// Tenant that owns it.
    tenant: &'a str,
    /// Dialect that set it.
    dialect: &'a str,
    /// Reason why it cannot run.
    trouble: Option<&'a str>,
    /// Versions, newest first; the first is active.
    versions: Vec<VersionView<'a>>,
}

/// Version of a handler.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct VersionView<'a> {
    /// Id of the version; newer ids sort later.
    id: &'a str,
    /// Definition, as it was set; omitted where payloads are hidden.
    text: Option<Kept<'a>>,
}

impl<'a> HandlerView<'a> {
    /// `hidden` also hides the definition, which reveals payloads.
    fn new(handler: &'a RegisteredHandler, hidden: bool) -> HandlerView<'a> {
        let versions = handler.versions.iter().map(|version| VersionView {
            id: &version.id,
            text: version.text.clone().filter(|_| !hidden).map(Kept::Tree),
        });
        HandlerView {
            name: &handler.name,
            queue: &handler.queue,
            tenant: &handler.tenant,
            dialect: handler.dialect,
            trouble: handler.trouble.as_deref(),
            versions: versions.collect(),
        }
    }
}

pub(super) async fn handlers(call: Call) -> Answer {
    let tenant = seen_tenant(&call)?;
    let mut found: Vec<RegisteredHandler> = Vec::new();
    for (_, running) in call.server.running() {
        found.extend(running.handlers(tenant.as_ref(), PAGE_MAX).await?);
    }
    found.retain(|handler| call.engine.reaches(&handler.queue, &handler.name));
    let hidden = call.hides_payloads();
    let handlers = found.iter().map(|handler| HandlerView::new(handler, hidden)).collect();
    reply(&call, StatusCode::OK, 64 + found.len() * 256, &Handlers { handlers })
}
