//! Audit log in the database.

use super::shared::Shared;
use super::statements as sql;
use crate::Result;
use crate::audit::{AUDIT_TRIM_MAX, AuditBounds, AuditEntry, AuditFilter};
use crate::error::StoreError;
use tokio_postgres::Row;
use windlass_core::{Tenant, Timestamp};

/// Appends entries, then deletes those beyond the bounds. A lost reply may write an entry twice.
pub(super) async fn append(shared: &Shared, entries: &[AuditEntry], bounds: AuditBounds) -> Result<()> {
    shared.open()?;
    let texts = |text: fn(&AuditEntry) -> &str| entries.iter().map(text).collect::<Vec<&str>>();
    let at: Vec<i64> = entries.iter().map(|entry| entry.at.as_millis()).collect();
    let (tenant, who) = (texts(|entry| &entry.tenant), texts(|entry| &entry.who));
    let (role, action) = (texts(|entry| &entry.role), texts(|entry| &entry.action));
    let (target, detail) = (texts(|entry| &entry.target), texts(|entry| &entry.detail));
    shared.pool.write(sql::AUDIT_APPEND, &[&at, &tenant, &who, &role, &action, &target, &detail]).await?;
    let entries_max = i64::try_from(bounds.entries_max).unwrap_or(i64::MAX);
    let trim: [i64; 3] = [entries_max, bounds.since.as_millis(), AUDIT_TRIM_MAX as i64];
    shared.pool.write(sql::AUDIT_TRIM, &[&trim[0], &trim[1], &trim[2]]).await.map(drop)
}

pub(super) async fn list(shared: &Shared, filter: &AuditFilter) -> Result<Vec<AuditEntry>> {
    shared.open()?;
    let before = filter.before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    let (tenant, limit) = (filter.tenant.as_ref().map(Tenant::as_str), filter.page() as i64);
    let (who, action, target) = (filter.who.as_deref(), filter.action.as_deref(), filter.target.as_deref());
    let found =
        shared.pool.read(sql::AUDIT_LIST, &[&before, &tenant, &who, &action, &target, &limit]).await?;
    found.iter().map(entry).collect()
}

fn entry(row: &Row) -> Result<AuditEntry> {
    let tenant: &str = row.get(2);
    let bad = |error: windlass_core::BadName| StoreError::Corrupt(format!("audit log: {error}"));
    Ok(AuditEntry {
        id: row.get::<_, i64>(0).cast_unsigned(),
        at: Timestamp::from_millis(row.get(1)),
        tenant: Tenant::new(tenant).map_err(bad)?,
        who: row.get(3),
        role: row.get(4),
        action: row.get(5),
        target: row.get(6),
        detail: row.get(7),
    })
}
