//! Audit log: actions of operators and admins, in the order in which they were taken, bounded by number and age.

use windlass_core::{Tenant, Timestamp};

/// Largest number of entries that one call returns.
pub const AUDIT_PAGE_MAX: usize = 1_000;
/// Expired entries deleted per append, which bounds its cost.
pub const AUDIT_TRIM_MAX: usize = 100;

/// Action of an operator or admin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// 1, 2, 3, …, assigned by the store; 0 before.
    pub id: u64,
    pub at: Timestamp,
    pub tenant: Tenant,
    /// Name of the token, or of callers without one.
    pub who: String,
    pub role: String,
    /// Kind of the target and verb, such as `job.cancel`.
    pub action: String,
    /// Id or name of the target; empty if there is none.
    pub target: String,
    /// Further facts for people; may be empty.
    pub detail: String,
}

/// Bounds of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditBounds {
    /// Entries kept.
    pub entries_max: u64,
    /// Entries before this time are deleted with later appends.
    pub since: Timestamp,
}

/// Conditions on entries; the default matches all.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    pub tenant: Option<Tenant>,
    pub who: Option<String>,
    /// Action, or its part before the dot.
    pub action: Option<String>,
    pub target: Option<String>,
    /// Only entries with a smaller id.
    pub before: Option<u64>,
    pub limit: usize,
}

impl AuditFilter {
    pub fn fits(&self, entry: &AuditEntry) -> bool {
        let is_action = |action: &String| {
            let rest = entry.action.strip_prefix(action.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.tenant.as_ref().is_none_or(|tenant| *tenant == entry.tenant)
            && self.who.as_ref().is_none_or(|who| *who == entry.who)
            && self.action.as_ref().is_none_or(is_action)
            && self.target.as_ref().is_none_or(|target| *target == entry.target)
            && self.before.is_none_or(|before| entry.id < before)
    }

    /// Number of entries to return.
    pub fn page(&self) -> usize {
        self.limit.clamp(1, AUDIT_PAGE_MAX)
    }
}
