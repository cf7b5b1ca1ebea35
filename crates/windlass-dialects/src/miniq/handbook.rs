//! The handlers as others see them who know nothing of this dialect.

use super::{State, commands, handlers};
use crate::handbook::{Handbook, KeptHandler, Looking, Version};
use windlass_core::Tenant;

impl Handbook for State {
    fn handlers<'a>(&'a self, tenant: Option<&'a Tenant>, limit: usize) -> Looking<'a> {
        Box::pin(async move {
            let found = handlers::all(&self.engine, tenant, limit).await?;
            Ok(found.into_iter().map(|(tenant, name, versions)| self.shown(tenant, name, versions)).collect())
        })
    }
}

impl State {
    fn shown(&self, tenant: Tenant, name: String, versions: Vec<handlers::Shown>) -> KeptHandler {
        let in_force = versions.first().and_then(|version| version.handler.as_ref());
        let trouble =
            in_force.zip(self.runners.as_ref()).and_then(|(handler, runners)| runners.check(handler).err());
        let version = |version: handlers::Shown| Version {
            text: version.handler.map(|handler| serde_json::to_value(handler).unwrap_or_default()),
            id: version.id,
        };
        KeptHandler {
            dialect: "miniq",
            tenant,
            name,
            queue: commands::QUEUE.to_owned(),
            trouble,
            versions: versions.into_iter().map(version).collect(),
        }
    }
}
