//! Several servers on one memory store: tests only.

use super::MemoryStore;
use crate::calendar::Kept;
use crate::{Gate, LimitUse, Result, SharedStore};
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use windlass_core::{JobId, Tenant, Timestamp};

/// Without limits across servers and without a clock: tests of these need a database.
#[async_trait]
impl SharedStore for MemoryStore {
    async fn limit_use(&self, _: &Tenant, _: &[Arc<str>]) -> Result<Vec<LimitUse>> {
        Ok(Vec::new())
    }

    async fn refund(&self, _: &Tenant, _: &[Arc<str>], _: Arc<dyn Gate>) -> Result<()> {
        Ok(())
    }

    async fn swap_setting(&self, key: &str, expected: Option<Vec<u8>>, value: Vec<u8>) -> Result<bool> {
        self.with(|inner| {
            let is_expected = inner.settings.get(key) == expected.as_ref();
            if is_expected {
                inner.put_setting(key.to_owned(), Some(value));
            }
            is_expected
        })
    }

    async fn unchecked(&self, _: usize) -> Result<Vec<JobId>> {
        Ok(Vec::new())
    }

    fn clock_ahead_ms(&self) -> Option<Arc<AtomicI64>> {
        None
    }

    fn seen_before(&self) -> Option<Timestamp> {
        None
    }

    fn calendar(&self) -> Option<Kept> {
        None
    }
}
