//! Audit log in the database: rows by id, with checksums.

use super::rows::read_error;
use crate::audit::{AUDIT_TRIM_MAX, AuditBounds, AuditEntry, AuditFilter};
use crate::error::StoreError;
use rusqlite::{Connection, Row, params};
use windlass_core::{Tenant, Timestamp};

const COLUMNS: &str = "id, at, tenant, who, role, action, target, detail, crc";

/// Appends entries within the open transaction, and deletes those beyond the bounds.
pub(super) fn append(
    connection: &Connection,
    entries: &[AuditEntry],
    bounds: AuditBounds,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO audit (at, tenant, who, role, action, target, detail, crc) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let mut insert = connection.prepare_cached(sql).map_err(read_error)?;
    for entry in entries {
        let AuditEntry { at, tenant, who, role, action, target, detail, .. } = entry;
        let row =
            params![at.as_millis(), tenant.as_str(), who, role, action, target, detail, checksum(entry)];
        insert.execute(row).map_err(read_error)?;
    }
    let trim = "DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?1";
    let entries_max = i64::try_from(bounds.entries_max).unwrap_or(i64::MAX);
    connection.prepare_cached(trim).and_then(|mut trim| trim.execute([entries_max])).map_err(read_error)?;
    let expire = "DELETE FROM audit WHERE at < ?1 AND id IN (SELECT id FROM audit ORDER BY id LIMIT ?2)";
    connection
        .prepare_cached(expire)
        .and_then(|mut expire| expire.execute([bounds.since.as_millis(), AUDIT_TRIM_MAX as i64]))
        .map(drop)
        .map_err(read_error)
}

/// Entries that match, newest first. The table is bounded, so a scan is.
pub(super) fn list(connection: &Connection, filter: &AuditFilter) -> Result<Vec<AuditEntry>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM audit WHERE id < ?1 ORDER BY id DESC");
    let before = filter.before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    let mut statement = connection.prepare_cached(&sql).map_err(read_error)?;
    let mut rows = statement.query([before]).map_err(read_error)?;
    let mut found = Vec::new();
    while found.len() < filter.page()
        && let Some(row) = rows.next().map_err(read_error)?
    {
        let entry = read(row)?;
        if filter.fits(&entry) {
            found.push(entry);
        }
    }
    Ok(found)
}

/// Verifies the checksum of every entry.
pub(super) fn check(connection: &Connection) -> Result<(), StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM audit");
    let mut statement = connection.prepare_cached(&sql).map_err(read_error)?;
    let mut rows = statement.query([]).map_err(read_error)?;
    while let Some(row) = rows.next().map_err(read_error)? {
        read(row)?;
    }
    Ok(())
}

fn read(row: &Row<'_>) -> Result<AuditEntry, StoreError> {
    let columns = || {
        let tenant: String = row.get(2)?;
        let entry = AuditEntry {
            id: row.get::<_, i64>(0)?.cast_unsigned(),
            at: Timestamp::from_millis(row.get(1)?),
            tenant: Tenant::default(),
            who: row.get(3)?,
            role: row.get(4)?,
            action: row.get(5)?,
            target: row.get(6)?,
            detail: row.get(7)?,
        };
        Ok((tenant, entry, row.get::<_, u32>(8)?))
    };
    let (tenant, entry, crc) = columns().map_err(read_error)?;
    let damaged =
        || StoreError::Corrupt(format!("wrong checksum of audit entry {}; restore a backup", entry.id));
    let entry = AuditEntry { tenant: Tenant::new(&tenant).map_err(|_| damaged())?, ..entry.clone() };
    if checksum(&entry) == crc { Ok(entry) } else { Err(damaged()) }
}

/// Checksum of an entry without its id, which the database assigns.
fn checksum(entry: &AuditEntry) -> u32 {
    let AuditEntry { at, tenant, who, role, action, target, detail, .. } = entry;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&at.as_millis().to_le_bytes());
    for text in [tenant.as_str(), who, role, action, target, detail] {
        hasher.update(text.as_bytes());
        hasher.update(&[0]);
    }
    hasher.finalize()
}
