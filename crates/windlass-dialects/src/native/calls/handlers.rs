//! `GET /api/v1/handlers`: handlers that dialects keep, with what their versions say.

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
    /// By tenant and name.
    handlers: Vec<HandlerView<'a>>,
}

/// What runs one kind of jobs.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct HandlerView<'a> {
    /// The name of the jobs.
    name: &'a str,
    /// Where they wait.
    queue: &'a str,
    /// Whose it is.
    tenant: &'a str,
    /// What it was set by.
    dialect: &'a str,
    /// Why it would not run.
    trouble: Option<&'a str>,
    /// The one in force first.
    versions: Vec<VersionView<'a>>,
}

/// One of its versions.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct VersionView<'a> {
    /// Which one; later ones sort behind.
    id: &'a str,
    /// As it was set; left out where payloads are hidden.
    text: Option<Kept<'a>>,
}

impl<'a> HandlerView<'a> {
    /// A handler's text tells of payloads, so it is hidden with them.
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
