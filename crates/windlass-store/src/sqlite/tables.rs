//! SQL statements that write jobs, settings and pauses.

use super::rows::read_error;
use super::statement::Statement;
use crate::error::StoreError;
use crate::row;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::sync::Arc;
use windlass_core::{Job, JobId};

macro_rules! count_settings {
    () => {
        "(SELECT count(*) FROM settings) + (SELECT count(*) FROM paused)"
    };
}

/// Row counts, written with each commit: rows lost with a damaged page are detected at the next startup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowCounts {
    pub jobs: u64,
    /// Settings and pauses.
    pub settings: u64,
}

impl RowCounts {
    /// Counts as last committed, and as counted now; in one query, because a server may be writing.
    pub(super) fn written_and_found(connection: &Connection) -> rusqlite::Result<(RowCounts, RowCounts)> {
        let sql =
            concat!("SELECT jobs, settings, (SELECT count(*) FROM jobs), ", count_settings!(), " FROM meta");
        let counts = |row: &Row<'_>, first: usize| -> rusqlite::Result<RowCounts> {
            let count = |column| row.get::<_, i64>(column).map(|count| count as u64);
            Ok(RowCounts { jobs: count(first)?, settings: count(first + 1)? })
        };
        connection.query_row(sql, [], |row| Ok((counts(row, 0)?, counts(row, 2)?)))
    }

    /// Counts as last committed.
    pub(super) fn written(connection: &Connection) -> rusqlite::Result<RowCounts> {
        let count = |row: &Row<'_>, column| row.get::<_, i64>(column).map(|count| count as u64);
        let counts = |row: &Row<'_>| Ok(RowCounts { jobs: count(row, 0)?, settings: count(row, 1)? });
        connection.query_row("SELECT jobs, settings FROM meta", [], counts)
    }

    /// Number of settings and pauses, counted now.
    pub(super) fn settings_found(connection: &Connection) -> rusqlite::Result<u64> {
        let sql = concat!("SELECT ", count_settings!());
        connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(|count| count as u64)
    }
}

pub(super) struct Tables<'c> {
    /// Counts of the open transaction.
    pub rows: RowCounts,
    insert: Statement<'c>,
    /// Rewrites the changing columns; by far the most frequent write.
    advance: Statement<'c>,
    rewrite: Statement<'c>,
    delete: Statement<'c>,
    version: Statement<'c>,
    put_payload: Statement<'c>,
    drop_payload: Statement<'c>,
    put_body: Statement<'c>,
    drop_body: Statement<'c>,
    add_setting: Statement<'c>,
    change_setting: Statement<'c>,
    drop_setting: Statement<'c>,
    pause: Statement<'c>,
    resume: Statement<'c>,
    count_settings: Statement<'c>,
    count_commit: Statement<'c>,
    /// Buffers, reused for every row.
    moves: Vec<u8>,
    body: Vec<u8>,
}

impl<'c> Tables<'c> {
    pub(super) fn new(connection: &'c Connection, rows: RowCounts) -> Tables<'c> {
        let prepare = |sql| Statement::new(connection, sql);
        Tables {
            rows,
            insert: prepare(
                "INSERT INTO jobs (id, version, state, at, moves, tenant, queue, name, priority, created_at, format, \
                 payload, asked, asked_crc) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            ),
            advance: prepare(
                "UPDATE jobs SET version = ?3, state = ?4, at = ?5, moves = ?6 WHERE id = ?1 AND version = ?2",
            ),
            rewrite: prepare(
                "UPDATE jobs SET version = ?3, state = ?4, at = ?5, moves = ?6, tenant = ?7, queue = ?8, name = ?9, \
                 priority = ?10, created_at = ?11, format = ?12, payload = ?13, asked = ?14, asked_crc = ?15 \
                 WHERE id = ?1 AND version = ?2",
            ),
            delete: prepare("DELETE FROM jobs WHERE id = ?1 AND version = ?2"),
            version: prepare("SELECT version FROM jobs WHERE id = ?1"),
            put_payload: prepare("INSERT OR REPLACE INTO payloads (id, bytes) VALUES (?1, ?2)"),
            drop_payload: prepare("DELETE FROM payloads WHERE id = ?1"),
            put_body: prepare("INSERT OR REPLACE INTO bodies (id, bytes, crc) VALUES (?1, ?2, ?3)"),
            drop_body: prepare("DELETE FROM bodies WHERE id = ?1"),
            add_setting: prepare("INSERT OR IGNORE INTO settings (key, value, crc) VALUES (?1, ?2, ?3)"),
            change_setting: prepare("UPDATE settings SET value = ?2, crc = ?3 WHERE key = ?1"),
            drop_setting: prepare("DELETE FROM settings WHERE key = ?1"),
            pause: prepare("INSERT OR REPLACE INTO paused (tenant, queue, crc) VALUES (?1, ?2, ?3)"),
            resume: prepare("DELETE FROM paused WHERE tenant = ?1 AND queue = ?2"),
            count_settings: prepare(concat!("SELECT ", count_settings!())),
            count_commit: prepare(
                "UPDATE meta SET commits = ?1, next_id = ?2, jobs = ?3, settings = ?4 WHERE one = 1",
            ),
            moves: Vec::with_capacity(256),
            body: Vec::new(),
        }
    }

    /// Fails if a table does not have the expected columns.
    pub(super) fn prepare_all(&mut self) -> Result<(), StoreError> {
        let all = [
            &mut self.insert,
            &mut self.advance,
            &mut self.rewrite,
            &mut self.delete,
            &mut self.version,
            &mut self.put_payload,
            &mut self.drop_payload,
            &mut self.put_body,
            &mut self.drop_body,
            &mut self.add_setting,
            &mut self.change_setting,
            &mut self.drop_setting,
            &mut self.pause,
            &mut self.resume,
            &mut self.count_settings,
            &mut self.count_commit,
        ];
        all.into_iter().try_for_each(|statement| statement.prepare().map(drop)).map_err(read_error)
    }

    pub(super) fn insert(&mut self, job: &Job) -> Result<(), StoreError> {
        let spec = &*job.spec;
        let asked = row::write_asked(spec)?;
        let crc = row::asked_crc(job.id, spec, asked.as_deref());
        row::write_moves(job, &mut self.moves);
        self.insert
            .execute(params![
                job.id.get() as i64,
                job.version as i64,
                job.state().name() as u8,
                row::at(job.state()),
                self.moves,
                spec.tenant.as_str(),
                spec.queue.as_str(),
                spec.name.as_str(),
                spec.priority,
                spec.created_at.as_millis(),
                spec.payload.format as u8,
                inline(job),
                asked,
                crc,
            ])
            .map_err(read_error)?;
        self.rows.jobs += 1;
        self.write_apart(None, job)
    }

    /// Updates a job from one version to the next. `false`: the job was deleted or has a newer version;
    /// nothing was written.
    pub(super) fn update(&mut self, before: &Job, after: &Job) -> Result<bool, StoreError> {
        row::write_moves(after, &mut self.moves);
        let changed = if Arc::ptr_eq(&before.spec, &after.spec) {
            self.advance.execute(params![
                after.id.get() as i64,
                before.version as i64,
                after.version as i64,
                after.state().name() as u8,
                row::at(after.state()),
                self.moves,
            ])
        } else {
            let spec = &*after.spec;
            let asked = row::write_asked(spec)?;
            self.rewrite.execute(params![
                after.id.get() as i64,
                before.version as i64,
                after.version as i64,
                after.state().name() as u8,
                row::at(after.state()),
                self.moves,
                spec.tenant.as_str(),
                spec.queue.as_str(),
                spec.name.as_str(),
                spec.priority,
                spec.created_at.as_millis(),
                spec.payload.format as u8,
                inline(after),
                asked,
                row::asked_crc(after.id, spec, asked.as_deref()),
            ])
        };
        if changed.map_err(read_error)? == 0 {
            return Ok(false);
        }
        self.write_apart(Some(before), after)?;
        Ok(true)
    }

    pub(super) fn delete(&mut self, job: &Job) -> Result<bool, StoreError> {
        let id = job.id.get() as i64;
        if self.delete.execute(params![id, job.version as i64]).map_err(read_error)? == 0 {
            return Ok(false);
        }
        self.rows.jobs = self.rows.jobs.saturating_sub(1);
        if is_apart(job) {
            self.drop_payload.execute([id]).map_err(read_error)?;
        }
        if job.body.is_some() {
            self.drop_body.execute([id]).map_err(read_error)?;
        }
        Ok(true)
    }

    pub(super) fn version_of(&mut self, id: JobId) -> Result<Option<u64>, StoreError> {
        let found = self.version.query_row([id.get() as i64], |row| row.get::<_, i64>(0)).optional();
        Ok(found.map_err(read_error)?.map(|version| version as u64))
    }

    pub(super) fn put_setting(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), StoreError> {
        let Some(value) = value else {
            let dropped = self.drop_setting.execute([key]).map_err(read_error)? as u64;
            self.rows.settings = self.rows.settings.saturating_sub(dropped);
            return Ok(());
        };
        let row = params![key, value, crc_of(key, value)];
        // Insert first: it reports whether the row is new, so the count needs no query; and most settings
        // written are new.
        match self.add_setting.execute(row).map_err(read_error)? {
            0 => drop(self.change_setting.execute(row).map_err(read_error)?),
            _ => self.rows.settings += 1,
        }
        Ok(())
    }

    pub(super) fn set_paused(&mut self, tenant: &str, queue: &str, paused: bool) -> Result<(), StoreError> {
        match paused {
            true => self.pause.execute(params![tenant, queue, crc_of(tenant, queue.as_bytes())]),
            false => self.resume.execute([tenant, queue]),
        }
        .map_err(read_error)?;
        self.count_settings()
    }

    /// Counted by a query: pauses are few, and `INSERT OR REPLACE` does not report a replaced row.
    fn count_settings(&mut self) -> Result<(), StoreError> {
        let count = self.count_settings.query_row([], |row| row.get::<_, i64>(0)).map_err(read_error)?;
        self.rows.settings = count as u64;
        Ok(())
    }

    pub(super) fn count_commit(&mut self, commits: u64, next_id: u64) -> Result<(), StoreError> {
        let RowCounts { jobs, settings } = self.rows;
        let numbers = [commits, next_id, jobs, settings].map(|number| number as i64);
        self.count_commit.execute(numbers).map_err(read_error)?;
        Ok(())
    }

    /// Writes payload and body, where they are in separate tables and have changed.
    fn write_apart(&mut self, before: Option<&Job>, after: &Job) -> Result<(), StoreError> {
        let id = after.id.get() as i64;
        let same_payload =
            before.is_some_and(|before| Arc::ptr_eq(&before.spec.payload.bytes, &after.spec.payload.bytes));
        if !same_payload {
            if is_apart(after) {
                self.put_payload.execute(params![id, &*after.spec.payload.bytes]).map_err(read_error)?;
            } else if before.is_some_and(is_apart) {
                self.drop_payload.execute([id]).map_err(read_error)?;
            }
        }
        match (before.and_then(|before| before.body.as_ref()), &after.body) {
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) => {}
            (_, Some(body)) => {
                row::write_body_to(body, &mut self.body)?;
                let crc = row::body_crc(after.id, &self.body);
                self.put_body.execute(params![id, self.body, crc]).map_err(read_error)?;
            }
            (Some(_), None) => {
                self.drop_body.execute([id]).map_err(read_error)?;
            }
            (None, None) => {}
        }
        Ok(())
    }
}

/// Checksum of a small row: key and value.
pub(super) fn crc_of(key: &str, value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key.as_bytes());
    hasher.update(&[0]);
    hasher.update(value);
    hasher.finalize()
}

fn is_apart(job: &Job) -> bool {
    job.spec.payload.bytes.len() > row::INLINE_BYTES_MAX
}

fn inline(job: &Job) -> Option<&[u8]> {
    (!is_apart(job)).then_some(&*job.spec.payload.bytes)
}
