//! Audit log: actions of operators and admins.

use crate::engine::Engine;
use crate::error::EngineError;
use windlass_store::{AuditBounds, AuditEntry, AuditFilter};

impl Engine {
    /// Appends an entry; does nothing if the log is off.
    pub async fn append_audit(&self, entry: AuditEntry) -> Result<(), EngineError> {
        self.inner.open()?;
        let options = &self.inner.options;
        if options.audit_entries_max == 0 {
            return Ok(());
        }
        let since = self.now().plus_ms(options.audit_keep_ms.saturating_neg());
        let bounds = AuditBounds { entries_max: options.audit_entries_max, since };
        Ok(self.inner.store.append_audit(vec![entry], bounds).await?)
    }

    /// Entries that match, newest first. Refused to a handle that does not reach all jobs.
    pub async fn audit(&self, filter: AuditFilter) -> Result<Vec<AuditEntry>, EngineError> {
        self.inner.open()?;
        self.check_all()?;
        Ok(self.inner.store.list_audit(filter).await?)
    }
}
