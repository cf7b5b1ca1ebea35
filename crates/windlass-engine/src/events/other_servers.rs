//! Polling for changes made by other servers on the same store.

use crate::engine::{Engine, Inner};
use crate::error::EngineError;
use crate::time::clock::Clock;
use crate::verbs::Waited;
use std::sync::{Arc, Weak};
use windlass_core::{JobId, Scope, Tenant};

/// Interval of reading the limits, quotas and settings of queues set at other servers. They are small queries.
const LIMITS_EVERY_MS: u64 = 1_000;
/// Interval of checking a job whose end a caller waits for.
const ENDS_EVERY_MS: u64 = 100;

/// Runs until the engine is dropped.
pub(crate) async fn run(clock: Arc<dyn Clock>, engine: Weak<Inner>) {
    loop {
        clock.sleep_ms(LIMITS_EVERY_MS).await;
        let Some(engine) = engine.upgrade() else { return };
        let Ok(in_flight) = engine.enter() else { return };
        if let Err(error) = in_flight.follow_limits().await {
            tracing::warn!(%error, "cannot read limits set on other servers; retrying");
        }
        drop(in_flight);
        let engine =
            Engine { inner: engine, who: None, is_exempt: false, scope: Scope::default(), trace: None };
        if let Err(error) = engine.load_quotas().await {
            tracing::warn!(%error, "cannot read quotas set on other servers; retrying");
        }
        if let Err(error) = engine.load_queue_settings().await {
            tracing::warn!(%error, "cannot read settings of queues set on other servers; retrying");
        }
    }
}

impl Inner {
    /// Completes when the job is settled or deleted; never on a store with a single server.
    pub(crate) async fn settled_elsewhere(&self, tenant: &Tenant, id: JobId) -> Result<Waited, EngineError> {
        if self.store.shared().is_none() {
            return std::future::pending().await;
        }
        loop {
            self.clock.sleep_ms(ENDS_EVERY_MS).await;
            let found = self.store.load(vec![id]).await?.pop().flatten();
            match found.filter(|job| job.spec.tenant == *tenant) {
                None => return Ok(Waited::Unknown),
                Some(job) if job.state().is_settled() => return Ok(Waited::Settled(job)),
                Some(_) => {}
            }
        }
    }
}
